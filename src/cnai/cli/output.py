"""The one place that writes: data to stdout, everything else to stderr.

With `--json` stdout carries exactly one JSON object, of the result or of the error, so that
`ai-cli ... --json | jq` works in both cases; the exit code and the key `error` tell them apart.
Without it stdout is empty when a command fails.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cnai.core.errors import CnaiError, RunError, SpecError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class ReaderLeft(Exception):  # noqa: N818 - the reader left; nothing failed
    """Whoever read the output went away, as `head` does."""


class Output:
    """Where a verb writes. Flags of the command line set the three switches before it runs.

    Attributes:
        as_json: Print one JSON object instead of text.
        quiet: Leave out progress, notes, hints and `next:`; warnings and errors stay.
        verbose: Show details that are left out otherwise.
        debug: Show the traceback of a bug.
    """

    def __init__(self, *, as_json: bool = False, debug: bool = False) -> None:
        self.as_json = as_json
        self.quiet = False
        self.verbose = False
        self.debug = debug
        self._told = False

    @property
    def interactive(self) -> bool:
        """Whether a person can answer a question."""
        return sys.stdin.isatty() and sys.stderr.isatty() and not self.as_json

    def record(self, record: object) -> None:
        """Print the result as the one JSON object; says nothing without `--json`.

        Args:
            record: A record of core, or a dict of plain values and records.
        """
        if not self.as_json:
            return
        if self._told:
            raise RuntimeError("a verb printed two JSON objects")
        self._print_json(record)

    def finish(self) -> None:
        """Keep the promise of one object when a verb had nothing to say."""
        if not self._told:
            self.record({"ok": True})

    def text(self, text: str) -> None:
        """Print lines of data; says nothing with `--json`."""
        if not self.as_json:
            self._stdout(text.rstrip("\n") + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under column names; says nothing with `--json`."""
        if self.as_json:
            return
        from cnai.cli.table import table_picture

        console = _console()
        self.draw(table_picture(columns, rows, width=console.width, ruled=console.is_terminal))

    def draw(self, picture: RenderableType) -> None:
        """Print anything that rich can draw; says nothing with `--json`."""
        if self.as_json:
            return
        console = _console()
        with console.capture() as capture:
            console.print(picture)
        lines = (line.rstrip() for line in capture.get().splitlines())
        self._stdout("\n".join(lines) + "\n")

    def note(self, text: str) -> None:
        """Tell how things go."""
        if not self.quiet:
            self._stderr(text)

    def detail(self, text: str) -> None:
        """Tell what only `-v` shows."""
        if self.verbose:
            self._stderr(text)

    def warn(self, text: str) -> None:
        """Tell that something is not as it should be, though the work goes on."""
        self._stderr(f"{_label('warning:', 'yellow')} {text}")

    def hint(self, text: str) -> None:
        """Tell what would be better."""
        if not self.quiet:
            self._stderr(f"{_label('hint:', 'cyan')} {text}")

    def next(self, command: str, *arguments: object) -> None:
        """Tell the command that comes next, with the real values.

        Args:
            command: Printed as it is.
            arguments: Added, each quoted where a shell would take it apart.
        """
        if not self.quiet:
            words = [command, *(shlex.quote(str(one)) for one in arguments)]
            self._stderr(f"{_label('next:', 'green')} {' '.join(words)}")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something that costs; returns when the answer is yes.

        Raises:
            SpecError: Nobody is there to ask, and `--yes` was not given.
            click.Abort: The answer is no.
        """
        if yes:
            return
        if not self.interactive:
            raise SpecError(
                f"nobody can answer `{question}`", where="--yes", hint="add `-y` to go on"
            )
        if not click.confirm(question, err=True):
            raise click.Abort

    def error(self, error: CnaiError) -> None:
        """Tell what went wrong, in the form that was asked for."""
        if self.as_json and not self._told:
            self._print_json(error.to_dict())
            return
        parts = [_error_lines(one) for one in (error, *getattr(error, "others", ()))]
        self._stderr("\n\n".join(parts))

    def _print_json(self, record: object) -> None:
        from cnai.core.records import encode_pretty, to_dict

        if not isinstance(to_dict(record), dict):
            raise TypeError(f"`--json` prints an object, not a {type(record).__name__}")
        self._told = True
        self._stdout(encode_pretty(record).decode())

    def _stdout(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderLeft from error
        except OSError as error:
            raise RunError(
                f"cannot write the result: {error.strerror}",
                where="stdout",
                hint="look at where the output goes; the work itself is done",
            ) from error

    def _stderr(self, text: str) -> None:
        try:
            click.echo(text, err=True)
        except BrokenPipeError as error:
            raise ReaderLeft from error


def _console() -> Console:
    """Return what draws on stdout; a file has no width, so its lines are never broken."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 10_000
    return Console(file=sys.stdout, width=wide, highlight=False)


def _error_lines(error: CnaiError) -> str:
    lines = [f"{_label('error:', 'red')} {error.message}"]
    if error.where:
        lines.append(f"{_label('where:', 'blue')} {error.where}")
    lines.append(f"{_label('hint:', 'cyan')} {error.hint}")
    return "\n".join(lines)


def _label(word: str, colour: str) -> str:
    """Colour a word on a terminal, unless NO_COLOR is set (see no-color.org)."""
    if os.environ.get("NO_COLOR") or not sys.stderr.isatty():
        return word
    return click.style(word, fg=colour, bold=True)
