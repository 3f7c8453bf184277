import pytest
from inline_snapshot import snapshot

from cnai.core.spec import load_spec


def test_a_folder_is_not_overwritten(ai_cli):
    ran = ai_cli("init", ".", "-y")
    assert ran.code == 2
    assert "`.` is a folder" in ran.err


def test_a_spec_is_written_and_the_next_command_is_told(ai_cli, tmp_path):
    ran = ai_cli("init", "first.yaml")
    assert (ran.code, ran.out, ran.err) == snapshot(
        (
            0,
            "",
            """\
wrote first.yaml
next: ai-cli run first.yaml
""",
        )
    )
    assert load_spec(tmp_path / "first.yaml").spec.name == "first"


@pytest.mark.parametrize("kind", ["full", "FULL", "quickstart"])
def test_a_kind_is_chosen(ai_cli, kind):
    assert ai_cli("init", "--kind", kind).code == 0
    assert load_spec("run.yaml").spec.name == "run"


def test_a_dash_prints_the_spec_and_writes_nothing(ai_cli, tmp_path):
    ran = ai_cli("init", "-")
    assert ran.out.startswith("# From data to a served model.")
    assert list(tmp_path.glob("*.yaml")) == []


def test_json_tells_what_was_written(ai_cli):
    assert ai_cli("init", "a.yaml", "--json").json == {"kind": "quickstart", "path": "a.yaml"}


def test_a_file_that_is_there_is_kept(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_text("name: mine\n")
    ran = ai_cli("init")
    assert (ran.code, ran.out) == (2, "")
    assert "overwrite run.yaml?" in ran.err
    assert (tmp_path / "run.yaml").read_text() == "name: mine\n"


def test_yes_overwrites_it(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_text("name: mine\n")
    assert ai_cli("init", "-y").code == 0
    assert load_spec("run.yaml").spec.name == "run"


def test_a_place_that_cannot_be_written_is_told(ai_cli):
    ran = ai_cli("init", "/proc/nowhere/run.yaml")
    assert ran.code == 5
    assert "cannot write `run.yaml`" in ran.err


@pytest.mark.parametrize("name", ["my run.yaml", "_x.yaml", "\u00e9.yaml", "2026.yaml"])
def test_a_file_name_that_no_run_may_have_still_gives_a_spec(ai_cli, name):
    assert ai_cli("init", name).code == 0
    assert load_spec(name).spec.name


def test_quiet_says_nothing(ai_cli):
    ran = ai_cli("init", "-q")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
