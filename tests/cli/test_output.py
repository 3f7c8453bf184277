import io
import json
import sys
from pathlib import Path

import click
import pytest

from cnai.cli.output import Output, ReaderLeft
from cnai.core.errors import DataError, RunError, SpecError
from cnai.core.fleet import Share


class Terminal(io.StringIO):
    """A stream that a person reads."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that lets a person sit before all three streams and type an answer.

    The test has to call it, because pytest takes the streams anew between a fixture and its test.
    """
    monkeypatch.delenv("NO_COLOR", raising=False)

    def sit(answer=""):
        for name in ("stdin", "stdout", "stderr"):
            monkeypatch.setattr(sys, name, Terminal(answer if name == "stdin" else ""))
        return sys

    return sit


def test_text_is_data(capsys):
    Output().text("hello")
    assert capsys.readouterr() == ("hello\n", "")


def test_json_silences_text_tables_and_pictures(capsys):
    out = Output(as_json=True)
    out.text("a")
    out.table(["a"], [["b"]])
    out.draw("c")
    assert capsys.readouterr() == ("", "")


def test_a_record_is_printed_with_json_only(capsys):
    Output().record(Share(node="a", ranks=(0, 1)))
    assert capsys.readouterr().out == ""
    Output(as_json=True).record(Share(node="a", ranks=(0, 1)))
    assert json.loads(capsys.readouterr().out) == {"node": "a", "ranks": [0, 1]}


def test_a_number_that_json_cannot_hold_is_named(capsys):
    Output(as_json=True).record({"loss": float("nan")})
    assert '"loss": "nan"' in capsys.readouterr().out


def test_two_objects_are_a_bug():
    out = Output(as_json=True)
    out.record({})
    with pytest.raises(RuntimeError, match="two JSON objects"):
        out.record({})


def test_a_list_is_no_object():
    with pytest.raises(TypeError, match="prints an object"):
        Output(as_json=True).record([1])


def test_an_error_after_the_object_goes_to_stderr(capsys):
    out = Output(as_json=True)
    out.record({})
    capsys.readouterr()
    out.error(DataError("late", hint="h"))
    assert capsys.readouterr() == ("", "error: late\nhint: h\n")


def test_a_table_has_no_frame_and_no_colour_in_a_pipe(capsys):
    Output().table(["name", "loss"], [["a", "1.0"], ["longer name", "[red]"]])
    assert capsys.readouterr().out == "name         loss\na            1.0\nlonger name  [red]\n"


def test_a_wide_table_is_not_cut_in_a_pipe(capsys):
    Output().table(["a", "b"], [["x" * 300, "y" * 300]])
    assert "y" * 300 in capsys.readouterr().out


def test_notes_hints_and_next_go_to_stderr(capsys):
    out = Output()
    out.note("n")
    out.hint("h")
    out.next("ai-cli run x")
    assert capsys.readouterr() == ("", "n\nhint: h\nnext: ai-cli run x\n")


def test_the_next_command_can_be_pasted_into_a_shell(capsys):
    Output().next("ai-cli serve", Path("my models/a"))
    assert capsys.readouterr().err == "next: ai-cli serve 'my models/a'\n"


def test_quiet_leaves_warnings(capsys):
    out = Output()
    out.quiet = True
    out.note("n")
    out.hint("h")
    out.next("x")
    out.warn("w")
    assert capsys.readouterr().err == "warning: w\n"


def test_details_are_for_the_verbose(capsys):
    out = Output()
    out.detail("a")
    out.verbose = True
    out.detail("b")
    assert capsys.readouterr().err == "b\n"


def test_labels_are_coloured_on_a_terminal(terminal):
    screen = terminal()
    Output().warn("w")
    assert "\x1b[" in screen.stderr.getvalue()


def test_no_color_is_respected(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = terminal()
    Output().warn("w")
    Output().table(["a"], [["b"]])
    assert screen.stderr.getvalue() == "warning: w\n"
    assert "\x1b[3" not in screen.stdout.getvalue()


def test_yes_needs_no_question():
    Output().confirm("go?", yes=True)


def test_where_nobody_can_answer_the_flag_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(SpecError) as caught:
        Output().confirm("go?", yes=False)
    assert "-y" in caught.value.hint


def test_json_asks_no_question(terminal):
    terminal("y\n")
    with pytest.raises(SpecError):
        Output(as_json=True).confirm("go?", yes=False)


@pytest.mark.parametrize("answer", ["y", "yes"])
def test_a_person_may_say_yes(terminal, answer):
    screen = terminal(f"{answer}\n")
    Output().confirm("go?", yes=False)
    assert "go?" in screen.stderr.getvalue()
    assert screen.stdout.getvalue() == ""


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_anything_else_is_no(terminal, answer):
    terminal(answer)
    with pytest.raises(click.Abort):
        Output().confirm("go?", yes=False)


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


def test_a_reader_that_left_is_told_apart(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError()))
    with pytest.raises(ReaderLeft):
        Output().text("x")


def test_a_full_disk_is_an_error_of_the_run(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Broken(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left"):
        Output().text("x")
