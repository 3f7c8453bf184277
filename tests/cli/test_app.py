import os
import subprocess
import sys

import click
import pytest
from inline_snapshot import snapshot

from cnai import __version__
from cnai.cli import app as app_module
from cnai.cli.framework import Verb, command
from cnai.core.errors import (
    AccuracyError,
    ClusterError,
    CnaiError,
    DataError,
    Interrupted,
    PlanError,
    RunError,
    SpecError,
)

CODES = {
    CnaiError: 1,
    SpecError: 2,
    PlanError: 3,
    DataError: 4,
    RunError: 5,
    AccuracyError: 6,
    ClusterError: 7,
    Interrupted: 130,
}


@pytest.fixture
def verb(monkeypatch):
    """Put a verb `try` into the command that does what the test says."""

    def put(action):
        @command("try", examples=["ai-cli try"])
        def verb(out):
            """Try."""
            return action(out)

        monkeypatch.setitem(app_module.app.lazy, "try", "Try.")
        original = app_module.app.get_command
        monkeypatch.setattr(
            app_module.app,
            "get_command",
            lambda ctx, name: verb if name == "try" else original(ctx, name),
        )
        return verb

    return put


def raising(error):
    def action(out):
        raise error

    return action


def process(*words, **settings):
    return subprocess.run(
        [sys.executable, "-m", "cnai", *words],
        capture_output=True,
        text=True,
        check=False,
        **settings,
    )


def test_help_lists_the_verbs_in_the_order_of_the_table(ai_cli):
    ran = ai_cli("--help")
    assert ran.code == 0
    places = [ran.out.index(f"\n  {name} ") for name in app_module.VERBS]
    assert places == sorted(places)


def test_without_a_verb_the_help_goes_to_stderr(ai_cli):
    ran = ai_cli()
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: ai-cli" in ran.err


def test_the_version_is_told(ai_cli):
    assert ai_cli("--version").out == f"ai-cli {__version__}\n"


@pytest.mark.parametrize(("kind", "code"), list(CODES.items()))
def test_each_error_has_its_exit_code(ai_cli, verb, kind, code):
    verb(raising(kind("it broke", where="here", hint="mend it")))
    ran = ai_cli("try")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == "error: it broke\nwhere: here\nhint: mend it\n"


@pytest.mark.parametrize("kind", CODES)
def test_each_error_is_one_json_object_on_stdout(ai_cli, verb, kind):
    verb(raising(kind("it broke", hint="mend it")))
    ran = ai_cli("try", "--json")
    assert ran.err == ""
    assert ran.json == {
        "error": "it broke",
        "code": kind.code,
        "exit_code": kind.exit_code,
        "where": None,
        "hint": "mend it",
    }


def test_further_mistakes_follow_the_first(ai_cli, verb):
    other = SpecError("second", where="b", hint="y")
    verb(raising(SpecError("first", where="a", hint="x", others=(other,))))
    assert ai_cli("try").err == snapshot("""\
error: first
where: a
hint: x

error: second
where: b
hint: y
""")


@pytest.mark.parametrize("code", [0, 10, 11])
def test_a_verb_may_return_its_exit_code(ai_cli, verb, code):
    verb(lambda out: code)
    assert ai_cli("try").code == code


def test_a_verb_that_returns_nothing_went_well(ai_cli, verb):
    verb(lambda out: None)
    assert ai_cli("try").code == 0


def test_a_verb_without_a_result_still_prints_one_object(ai_cli, verb):
    verb(lambda out: None)
    assert ai_cli("try", "--json").json == {"ok": True}


def test_an_interrupt_is_told_and_ends_with_130(ai_cli, verb):
    verb(raising(KeyboardInterrupt()))
    ran = ai_cli("try")
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.startswith("error: stopped\n")


def test_a_no_ends_with_130(ai_cli, verb):
    verb(raising(click.Abort()))
    assert ai_cli("try").code == 130


def test_a_bug_is_told_without_traceback_and_kept_in_a_file(ai_cli, verb, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb(raising(ZeroDivisionError("by zero")))
    ran = ai_cli("try")
    assert (ran.code, ran.out) == (1, "")
    assert "this is a bug in cnai: ZeroDivisionError: by zero" in ran.err
    assert "Traceback" not in ran.err
    (file,) = tmp_path.glob("ai-cli-bug-*.txt")
    assert str(file) in ran.err
    assert "ZeroDivisionError" in file.read_text()


def test_a_bug_is_told_even_when_its_traceback_cannot_be_kept(ai_cli, verb, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    verb(raising(ZeroDivisionError("by zero")))
    ran = ai_cli("try")
    assert ran.code == 1
    assert "the traceback could not be kept" in ran.err


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_debug_shows_the_traceback(ai_cli, verb, monkeypatch, tmp_path, how):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb(raising(ZeroDivisionError("by zero")))
    if how == "variable":
        monkeypatch.setenv("CNAI_DEBUG", "1")
    ran = ai_cli(*(["--debug"] if how == "flag" else []), "try")
    assert "Traceback" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["explane"],
        ["explain", "--jsn"],
        ["explain", "a", "b"],
        ["init", "--kind", "big"],
        ["init", "--kind"],
        ["completion"],
        ["--jsn"],
        ["config", "shwo"],
        ["zzz"],
    ],
)
def test_a_usage_error_ends_with_2_and_says_how(ai_cli, words):
    ran = ai_cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert "\nhint: " in ran.err


@pytest.mark.parametrize("words", [["explane"], ["explain", "--jsn"], ["explain", "a", "b"]])
def test_a_usage_error_is_one_json_object_too(ai_cli, words):
    ran = ai_cli(*words, "--json")
    assert ran.json["exit_code"] == ran.code == 2
    assert ran.err == ""


def test_a_wrong_verb_names_the_one_that_was_meant(ai_cli):
    assert ai_cli("explane").err == snapshot("""\
error: no such command `explane`
where: ai-cli
hint: did you mean `explain` or `plan`?
""")


def test_a_wrong_flag_names_the_one_that_was_meant(ai_cli):
    assert ai_cli("init", "--kidn", "full").err == snapshot("""\
error: no such option `--kidn`
where: ai-cli init
hint: did you mean `--kind`?
""")


def test_a_wrong_choice_lists_the_choices(ai_cli):
    assert ai_cli("init", "--kind", "big").err == snapshot("""\
error: invalid value for `--kind`: `big` is not one of `quickstart`, `full`
where: ai-cli init
hint: see `ai-cli init --help`
""")


def test_a_reader_that_left_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "cnai", "explain", "train"],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_an_error():
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-m", "cnai", "explain", "train"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 5
    assert done.stderr.startswith("error: cannot write the result: No space left")


def test_an_output_that_knows_only_ascii_is_no_bug():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = process("explain", "caf\u00e9", env=environment)
    assert done.returncode == 2
    assert "unknown key" in done.stderr


def test_the_help_is_quick_and_loads_nothing_heavy():
    script = (
        "import sys, time; start = time.process_time(); from cnai.cli.app import main\n"
        "code = main(['--help']); used = time.process_time() - start\n"
        "heavy = {'torch', 'rich', 'pydantic', 'yaml', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "print(code, sorted(heavy), used, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    code, heavy, used = done.stderr.split(" ")
    assert (code, heavy) == ("0", "[]")
    assert float(used) < 0.3


def test_the_module_is_the_command():
    assert process("--version").stdout == f"ai-cli {__version__}\n"


def test_an_interrupt_from_the_keyboard_ends_a_process_with_130():
    script = (
        "import os, signal, sys\n"
        "from cnai.cli import app\n"
        "from cnai.cli.commands import explain\n"
        # A shell lets what it starts in the background ignore the keyboard.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "explain.verb.callback = lambda **_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(app.main(['explain']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert done.stderr.startswith("error: stopped")


def verbs():
    """Yield every verb with its path, sub-verbs too."""
    context = click.Context(app_module.app)
    for name in app_module.VERBS:
        found = app_module.app.get_command(context, name)
        if isinstance(found, click.Group):
            yield from ((f"{name} {sub}", one) for sub, one in found.commands.items())
        else:
            yield name, found


@pytest.mark.parametrize(("name", "verb"), list(verbs()))
def test_every_verb_has_help_and_an_example(name, verb):
    assert isinstance(verb, Verb)
    assert verb.help
    assert all(line.startswith("ai-cli ") for line in verb.epilog.splitlines())
    assert any(f"ai-cli {name}" in line for line in verb.epilog.splitlines())


@pytest.mark.parametrize(("name", "verb"), list(verbs()))
def test_every_option_is_declared_with_dashes_and_has_help(name, verb):
    options = [one for one in verb.params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []
    assert [spelling for one in options for spelling in one.opts if "_" in spelling] == []


@pytest.mark.parametrize(("name", "text"), list(app_module.VERBS.items()))
def test_the_table_says_what_the_verb_says(name, text):
    found = app_module.app.get_command(click.Context(app_module.app), name)
    assert found.get_short_help_str(200) == text
