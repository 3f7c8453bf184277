import importlib.util
import re

import click
import pytest

from cnai.cli.app import VERBS, app
from cnai.core.errors import CnaiError
from cnai.core.events import KINDS
from cnai.core.spec.explain import all_keys
from cnai.core.spec.keys import SECTIONS
from cnai.monitor import DETECTORS, METRICS
from house import LAYERS, ROOT
from pages import DOCS, WRITTEN, commands, everything


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name):
    return (DOCS / "reference" / name).read_text()


def leaves(command, path=()):
    """Yield every command that a user can type, with its words."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(app))


def test_a_page_that_differs_is_found(reference, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "pages", lambda: {tmp_path / "spec.md": "new"})
    assert reference.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("spec.md differs from the code")


def test_a_page_that_differs_is_written(reference, tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "pages", lambda: {tmp_path / "new" / "spec.md": "new"})
    assert reference.main([]) == 0
    assert (tmp_path / "new" / "spec.md").read_text() == "new"


def test_the_reference_escapes_what_would_break_a_table(reference):
    assert reference.table(["a"], [("x | y\nz",)])[-1] == "| x \\| y z |"


def test_every_spec_key_is_explained():
    text = page("spec.md")
    assert [key for key in (*all_keys(), *SECTIONS) if f"`{key}`" not in text] == []


def test_every_flag_has_its_place():
    text = page("cli.md")
    flags = {
        flag for one in COMMANDS.values() for option in one.params for flag in flags_of(option)
    }
    assert len(flags) > 20
    assert sorted(flag for flag in flags if flag not in text) == []


def flags_of(option):
    return option.opts if isinstance(option, click.Option) else ()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_shown_at_work_in_a_written_page(verb):
    assert verb in {words[0] for _, words in commands(WRITTEN)}


def test_every_exit_code_has_a_row():
    codes = {kind.exit_code for kind in CnaiError.__subclasses__()} | {0, 1, 10, 11}
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", page("errors.md"), re.MULTILINE)}
    assert rows == codes


def test_the_readme_tells_every_exit_code():
    text = (ROOT / "README.md").read_text().partition("## Exit codes")[2].partition("##")[0]
    codes = {kind.exit_code for kind in CnaiError.__subclasses__()} | {0, 1, 10, 11}
    assert {int(number) for number in re.findall(r"\b(\d+) [a-z]", text)} == codes


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_its_heading(kind):
    assert f"\n## {kind}\n" in page("events.md")


def test_every_metric_has_its_row():
    text = page("metrics.md")
    assert [name for name in METRICS if f"| `{name}` |" not in text] == []


def test_no_written_page_names_a_metric_that_is_not_there():
    endings = ("_bucket", "_sum", "_count")
    named = set(re.findall(r"\bcnai_[a-z_]+\b", everything(WRITTEN)))
    bare = {name.removesuffix(next((e for e in endings if name.endswith(e)), "")) for name in named}
    assert bare - set(METRICS) == set()


@pytest.mark.parametrize("detector", DETECTORS)
def test_every_detector_is_described(detector):
    assert f"`{detector}`" in (DOCS / "rooms" / "monitor.md").read_text()


@pytest.mark.parametrize("layer", LAYERS)
def test_every_room_has_its_page(layer):
    text = (DOCS / "rooms" / f"{layer}.md").read_text()
    assert len(text.splitlines()) > 25
