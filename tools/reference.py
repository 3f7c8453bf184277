"""Write docs/reference from the code: the keys of the spec, the commands, the errors.

Run it without arguments to write the pages; with `--check` it writes nothing and fails when a page
differs from what the code says.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from cnai.cli.app import VERBS, app
from cnai.core import errors
from cnai.core.errors import CnaiError
from cnai.core.spec.explain import Explanation, explain
from cnai.core.spec.words import value_words

WIDTH = 100
FOLDER = Path(__file__).parent.parent / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py from the code; change the code, not this page. -->\n"

SPEC_HEAD = """# The spec

A spec is a YAML or JSON file, or the same keys as a dict. A value comes from `--set KEY=VALUE`,
else from the spec, else from `$XDG_CONFIG_HOME/cnai/config.yaml`, else it is the default.
`ai-cli explain KEY` prints what this page says; `ai-cli config show --origin` tells who gave each
value. The three sections of `parallel` may also stand at the top of a spec.
"""
CLI_HEAD = """# The command

Every flag may be written with `-` or `_`, and choices in any case. stdout carries data only; with
`--json` exactly one JSON object, of the result or of the error. Progress, warnings, errors and
hints go to stderr.
"""
ERRORS_HEAD = """# Errors and exit codes

An error says what is wrong, where, and how to mend it; with `--json` it is one object with the
keys `error`, `code`, `exit_code`, `where`, `hint` and, for several mistakes in one spec, `others`.

| exit code | error | code | meaning |
|---|---|---|---|
| 0 | | | it went well |
"""


def spec_page() -> str:
    """Return a table of keys for each section of the spec."""
    parts = [SPEC_HEAD, *_section(explain(), "spec")]
    return "\n".join(parts)


def _section(section: Explanation, title: str) -> Iterator[str]:
    below = [explain(key) for key in section.children]
    yield f"## `{title}`\n\n{section.doc}\n"
    values = [one for one in below if not one.children]
    if values:
        rows = "\n".join(_row(one) for one in values)
        yield f"| key | type | range | default | meaning |\n|---|---|---|---|---|\n{rows}\n"
    for one in below:
        if one.children:
            yield from _section(one, one.key)


def _row(one: Explanation) -> str:
    limits = one.range.replace("|", "\\|")
    default = f"`{value_words(one.default)}`"
    return f"| `{one.key}` | {one.type} | {limits} | {default} | {one.doc} |"


def cli_page() -> str:
    """Return the help of every verb."""
    root = click.Context(app, info_name="ai-cli", terminal_width=WIDTH, **app.context_settings)
    parts = [CLI_HEAD, f"```text\n{app.get_help(root).rstrip()}\n```\n"]
    for name in VERBS:
        command = app.get_command(root, name)
        if command is not None:
            parts.extend(_help(command, root, name))
    return "\n".join(parts)


def _help(command: click.Command, parent: click.Context, name: str) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name)
    yield f"## `{context.command_path}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for sub, inner in command.commands.items():
            yield from _help(inner, context, sub)


def errors_page() -> str:
    """Return the table of errors."""
    names = vars(errors).values()
    kinds = [one for one in names if isinstance(one, type) and issubclass(one, CnaiError)]
    rows = [
        f"| {kind.exit_code} | `{kind.__name__}` | `{kind.code}` | {_meaning(kind)} |"
        for kind in sorted(kinds, key=lambda kind: kind.exit_code)
    ]
    rows[-1:-1] = [
        "| 10 | | | diagnosis: a fault was found |",
        "| 11 | | | diagnosis: unknown |",
    ]
    return ERRORS_HEAD + "\n".join(rows) + "\n"


def _meaning(kind: type[CnaiError]) -> str:
    if kind is CnaiError:
        return "a bug; the message says where its traceback was kept"
    return (kind.__doc__ or "").strip().splitlines()[0]


PAGES = {"spec.md": spec_page, "cli.md": cli_page, "errors.md": errors_page}


def main(arguments: list[str]) -> int:
    """Write or check the pages and return an exit code."""
    stale = 0
    for name, page in PAGES.items():
        path, text = FOLDER / name, NOTE + page()
        if arguments != ["--check"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            continue
        old = path.read_text() if path.exists() else ""
        lines = difflib.unified_diff(old.splitlines(), text.splitlines(), str(path), "code")
        told = "\n".join(lines)
        if told:
            print(told)
            stale = 1
    if stale:
        print("run `python tools/reference.py`", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
