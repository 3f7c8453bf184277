"""Write what the docs say about the code from the code, or check that it is so.

    python tools/reference.py            writes docs/reference/*.md and the output of example 01
    python tools/reference.py --check    changes nothing; exit code 1 when something differs

Spec keys come from the fields of the spec, verbs and flags from click, errors and exit codes from
their classes, events from the records, metrics from the table of the exporter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cnai.cli.app import VERBS, app
from cnai.cli.app import main as ai_cli
from cnai.cli.commands.diagnose import FAULT, UNKNOWN
from cnai.cli.options import output_flags
from cnai.core.errors import CnaiError
from cnai.core.events import KINDS, Event, Repair
from cnai.core.spec.explain import Explanation, explain
from cnai.core.spec.words import value_words
from cnai.monitor import METRICS

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "01-plan-on-paper"
HEAD = "<!-- Written by tools/reference.py from the code; `make format` writes it again. -->\n"


def spec_page() -> str:
    """Return the page of all keys of the spec."""
    top = [explain(key) for key in explain().children]
    lines = [
        "# Spec keys",
        "",
        "Every key that a spec may hold. A spec is a YAML or JSON file, or the same keys as a "
        "Python dict. `ai-cli explain KEY` prints one of them, `ai-cli init --kind full` writes "
        "them all into a file, and `ai-cli config show --origin` tells where each value came from: "
        "`--set`, the spec, the user's own file, or the default.",
        "",
        *table(["key", "type", "range", "default", "meaning"], map(key_row, values_of(top))),
    ]
    for one in top:
        lines += section(one)
    return "\n".join(lines) + "\n"


def values_of(explanations: Sequence[Explanation]) -> list[Explanation]:
    """Leave out the sections."""
    return [one for one in explanations if not one.children]


def section(one: Explanation, depth: int = 2) -> Iterator[str]:
    """Yield a section and those below it."""
    if not one.children:
        return
    below = [explain(key) for key in one.children]
    yield from ["", f"{'#' * depth} `{one.key}`", "", one.doc]
    rows = [key_row(key) for key in values_of(below)]
    if rows:
        yield from ["", *table(["key", "type", "range", "default", "meaning"], rows)]
    for inner in below:
        yield from section(inner, depth + 1)


def key_row(one: Explanation) -> tuple[str, ...]:
    """Return the row of a key."""
    default = f"`{value_words(one.default)}`"
    return f"`{one.key}`", one.type, one.range or "any", default, one.doc


def cli_page() -> str:
    """Return the page of all verbs."""
    root = click.Context(app, info_name="ai-cli")
    common = output_flags(click.command("any")(lambda: None))
    lines = [
        "# Command line",
        "",
        "`ai-cli VERB ...`. A flag may be written with dashes or with underscores "
        "(`--input-model`, `--input_model`), and a choice in any case (`INT8`, `int8`). Data goes "
        "to stdout; progress, warnings, hints and errors go to stderr.",
        "",
        "## Flags of every verb",
        "",
        *options_table(common, root),
        "",
        "Before the verb: `--version`, and `--debug` (or `CNAI_DEBUG=1`), which shows the "
        "traceback of a bug.",
        "",
        "## Verbs",
        "",
        *table(["verb", "does"], ((f"[`{name}`](#{name})", text) for name, text in VERBS.items())),
    ]
    shared = {option for one in common.params for option in one.opts}
    for name in VERBS:
        lines += verb_lines(command_of(app, name, root), f"ai-cli {name}", shared, depth=2)
    return "\n".join(lines) + "\n"


def command_of(group: click.Group, name: str, context: click.Context) -> click.Command:
    """Return a command that is known to be there."""
    command = group.get_command(context, name)
    if command is None:
        raise LookupError(f"`{name}` is in the table of verbs, but cannot be loaded")
    return command


def verb_lines(command: click.Command, path: str, shared: set[str], depth: int) -> Iterator[str]:
    """Yield one verb, then the verbs below it."""
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    heading = path.removeprefix("ai-cli ") if depth == 2 else path
    yield from ["", f"{'#' * depth} {heading}", ""]
    yield from [inspect.cleandoc(command.help or ""), "", "```text", usage, "```"]
    own = [one for one in command.params if not shared.intersection(one.opts)]
    if any(isinstance(one, click.Option) for one in own):
        yield from ["", *options_table(command, context, without=shared)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command_of(command, name, context)
            yield from verb_lines(inner, f"{path} {name}", shared, depth + 1)
    elif command.epilog:
        yield from ["", "```bash", command.epilog, "```"]


def options_table(
    command: click.Command, context: click.Context, without: set[str] | None = None
) -> list[str]:
    """Return the flags of a command."""
    rows = []
    for one in command.params:
        if not isinstance(one, click.Option) or (without or set()).intersection(one.opts):
            continue
        record = one.get_help_record(context)
        if record is not None:
            names, text = record
            rows.append((f"`{names}`", text))
    return table(["flag", "meaning"], rows)


def errors_page() -> str:
    """Return the page of error codes and exit codes."""
    kinds = sorted(CnaiError.__subclasses__(), key=lambda kind: kind.exit_code)
    rows = [
        ("0", "", "The command did what it was asked to."),
        (str(CnaiError.exit_code), f"`{CnaiError.code}`", "A bug in cnai; please report it."),
        *(
            (str(kind.exit_code), f"`{kind.code}`", (inspect.getdoc(kind) or "").split("\n")[0])
            for kind in kinds
        ),
        (str(FAULT), "", "`ai-cli diagnose` found a fault."),
        (str(UNKNOWN), "", "`ai-cli diagnose` sees a fault that no rule knows."),
    ]
    rows.sort(key=lambda row: int(row[0]))
    lines = [
        "# Errors and exit codes",
        "",
        "An error is three lines on stderr: what is wrong with the value, where, and a hint that "
        "repairs it. With `--json` it is one JSON object on stdout with the keys `error`, `code`, "
        "`exit_code`, `where` and `hint`; a spec with several mistakes tells the rest in `others`.",
        "",
        *table(["exit code", "code", "meaning"], rows),
        "",
        "In Python each code is a class of `cnai.core.errors`: "
        + ", ".join(f"`{kind.__name__}`" for kind in kinds)
        + ". All are a `CnaiError` with `message`, `where` and `hint`.",
        "",
        "A traceback is shown for a bug only, with `ai-cli --debug`; without it the traceback is "
        "kept in a file that the error names.",
    ]
    return "\n".join(lines) + "\n"


def events_page() -> str:
    """Return the page of all events."""
    lines = [
        "# Events",
        "",
        "What happens in a run is one JSON line each in `events/rank-N.jsonl` (what a rank did) "
        "or `events/agent.jsonl` (what its supervisor did). A line has the keys `kind` (a name "
        "below), `v` (the version of the format), `time_unix` (seconds since the epoch) and the "
        "fields of its kind. Readers pass over kinds that they do not know and over a torn last "
        "line. A loss that is no number is written as the text `nan` or `inf`.",
    ]
    for kind in (*KINDS.values(), Repair):
        lines += record_lines(kind)
    return "\n".join(lines) + "\n"


def record_lines(kind: type[Event | Repair]) -> Iterator[str]:
    """Yield a record with its fields."""
    text, meanings = read_docstring(inspect.getdoc(kind) or "")
    yield from ["", f"## {kind.__name__}", "", text, ""]
    rows = [
        (f"`{one.name}`", f"`{str(one.type).replace(' | ', ' or ')}`", meanings.get(one.name, ""))
        for one in dataclasses.fields(kind)
        if one.name != "time_unix"
    ]
    yield from table(["field", "type", "meaning"], rows)


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Split a Google docstring into its text and the meanings of its attributes."""
    text, _, attributes = doc.partition("\nAttributes:\n")
    meanings: dict[str, str] = {}
    for match in re.finditer(r"^    (\w+): (.*(?:\n {6,}.*)*)", attributes, re.MULTILINE):
        meanings[match[1]] = " ".join(match[2].split())
    return " ".join(text.split()), meanings


def metrics_page() -> str:
    """Return the page of all metrics."""
    lines = [
        "# Metrics",
        "",
        "What Prometheus gets. Training metrics come from `ai-cli monitor RUN` or, while training, "
        "from the port of `monitor.prometheus_port`; those of serving from `/metrics` of "
        "`ai-cli serve`. Names that end in `_total` only rise.",
        "",
        *table(["metric", "meaning"], ((f"`{name}`", text) for name, text in METRICS.items())),
    ]
    return "\n".join(lines) + "\n"


def table(
    columns: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]
) -> list[str]:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def example_readme() -> str:
    """Return the README of the first example with the output of its command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        ai_cli(["plan", str(EXAMPLE / "run.yaml"), "--quiet"])
    head, _, _ = (EXAMPLE / "README.md").read_text().partition("```text\n")
    return f"{head}```text\n{printed.getvalue()}```\n"


def pages() -> dict[Path, str]:
    """Return every generated file with the content that it should have."""
    folder = ROOT / "docs" / "reference"
    return {
        folder / "spec.md": with_head(spec_page()),
        folder / "cli.md": with_head(cli_page()),
        folder / "errors.md": with_head(errors_page()),
        folder / "events.md": with_head(events_page()),
        folder / "metrics.md": with_head(metrics_page()),
        EXAMPLE / "README.md": example_readme(),
    }


def with_head(page: str) -> str:
    """Put the note of where it comes from below the title."""
    title, _, rest = page.partition("\n")
    return f"{title}\n\n{HEAD}{rest}"


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` only compare them."""
    stale = {
        path: text
        for path, text in pages().items()
        if not path.is_file() or path.read_text() != text
    }
    for path, text in stale.items():
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} differs from the code: run `make format`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
