from inline_snapshot import snapshot


def test_every_value_is_shown_with_its_origin(ai_cli, tmp_path):
    config = tmp_path / "xdg" / "cnai" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("train: {seed: 7}\n")
    (tmp_path / "a.yaml").write_text("name: a\ntrain:\n  batch: 4\n")
    ran = ai_cli("config", "show", "a.yaml", "--origin", "--set", "train.steps=5")
    shown = [line.split() for line in ran.out.splitlines()]
    assert ["name", "a", "a.yaml:1"] in shown
    assert ["train.batch", "4", "a.yaml:3"] in shown
    assert ["train.steps", "5", "--set"] in shown
    assert ["train.seed", "7", "user", "config"] in shown
    assert ["train.tokens", "none", "default"] in shown


def test_without_the_flag_only_values_are_shown(ai_cli, tmp_path):
    (tmp_path / "run.yaml").touch()
    assert ai_cli("config", "show").out.splitlines()[0].split() == ["key", "value"]


def test_json_has_values_and_origins(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_text("train: {steps: 5}\n")
    told = ai_cli("config", "show", "--json").json
    assert told["values"]["train.steps"] == 5
    assert told["values"]["train.betas"] == [0.9, 0.95]
    assert told["origins"]["train.steps"] == "run.yaml:1"
    assert len(told["digest"]) == 12


def test_a_missing_spec_names_init(ai_cli):
    ran = ai_cli("config", "show")
    assert (ran.code, ran.out, ran.err) == snapshot(
        (
            2,
            "",
            """\
error: no spec at `run.yaml`
where: run.yaml
hint: write one with `ai-cli init run.yaml`
""",
        )
    )


def test_all_mistakes_are_told(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_text("trian: {steps: 5}\nserve:\n  port: x\n")
    ran = ai_cli("config", "show")
    assert (ran.code, ran.out, ran.err) == snapshot(
        (
            2,
            "",
            """\
error: unknown key `trian.steps`
where: run.yaml:1 trian.steps
hint: did you mean `train.steps`?

error: `serve.port` is `x`, but it wants a whole number, 0 or more, at most 65535
where: run.yaml:3 serve.port
hint: the default is `8000`; see `ai-cli explain serve.port`
""",
        )
    )


def test_all_mistakes_are_one_json_object(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_text("trian: {steps: 5}\nserve:\n  port: x\n")
    told = ai_cli("config", "show", "--json").json
    assert [told["where"], *(one["where"] for one in told["others"])] == [
        "run.yaml:1 trian.steps",
        "run.yaml:3 serve.port",
    ]


def test_a_newer_spec_ends_with_2(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_text("version: 99\n")
    ran = ai_cli("config", "show")
    assert (ran.code, ran.out) == (2, "")
    assert "pip install --upgrade cnai" in ran.err


def test_a_binary_file_ends_with_2(ai_cli, tmp_path):
    (tmp_path / "run.yaml").write_bytes(bytes(range(256)))
    ran = ai_cli("config", "show")
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_a_flag_that_sets_nothing_ends_with_2(ai_cli, tmp_path):
    (tmp_path / "run.yaml").touch()
    assert ai_cli("config", "show", "--set", "train.steps").code == 2


def test_the_group_alone_shows_its_help(ai_cli):
    ran = ai_cli("config")
    assert (ran.code, ran.out) == (2, "")
    assert "show  Show every key" in ran.err
