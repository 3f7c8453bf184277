"""`ai-cli runs`: the runs, what is recorded of them, and where it can go."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cnai.cli.framework import Topic, command
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.runs import RunState


class _Runs(Topic):
    """A topic whose first verb may be left out: `ai-cli runs` lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before what is none of the verbs."""
        words = [one for one in args if not one.startswith("-")]
        asks_for_help = bool({"-h", "--help"} & set(args))
        if not asks_for_help and (not words or words[0] not in self.commands):
            args = ["list", *args]
        return super().parse_args(ctx, args)


verb = _Runs(
    "runs", help="List the runs; show, compare, export, import, remove them; take reactions back."
)

run_argument = click.argument("run", type=click.Path(path_type=Path))
layers_flag = click.option("--layers", is_flag=True, help="Also the numbers of every layer.")


@command("list", examples=["ai-cli runs list", "ai-cli runs list runs --json"])
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
def list_verb(out: Output, folder: Path) -> None:
    """List the runs and how far they are.

    FOLDER is the one that holds the run folders, `runs` when it is left out.
    """
    from cnai.core.runs import list_runs

    states = list_runs(folder)
    out.record({"folder": str(folder), "runs": states})
    if states:
        columns = ["name", "state", "step", "loss", "layout", "started"]
        out.table(columns, [_row(state) for state in states])
    else:
        out.note(f"no runs in `{folder}`")
        out.hint("start one with `ai-cli run SPEC`, or name another folder")


@command("show", examples=["ai-cli runs show runs/run", "ai-cli runs show runs/run --layers"])
@run_argument
@layers_flag
def show_verb(out: Output, run: Path, layers: bool) -> None:
    """Show the state of a run, its findings, and every number that was recorded of it."""
    from cnai.flows.runs import show_run

    page = show_run(run, layers=layers)
    out.record(page)
    out.table(["name", "state", "step", "loss", "layout", "started"], [_row(page.state)])
    if page.findings:
        found = [
            (str(one.step or "-"), one.detector, one.message, one.cause or "-")
            for one in page.findings
        ]
        out.table(["step", "detector", "finding", "follows from"], found)
    for one in page.reactions:
        out.note(f"reaction {one.number} after step {one.step}, {one.action}: {one.reason}")
    if page.series:
        numbers = [
            (one.name, *(_number(value) for value in (one.first, one.least, one.most, one.last)))
            for one in page.series
        ]
        out.table(["number", "first", "least", "most", "last"], numbers)


@command("compare", examples=["ai-cli runs compare runs/run runs/other"])
@click.argument("run", nargs=-1, required=True, type=click.Path(path_type=Path))
@layers_flag
def compare_verb(out: Output, run: tuple[Path, ...], layers: bool) -> None:
    """Set the last values of runs side by side."""
    from cnai.flows.runs import compare_runs

    last = compare_runs(list(run), layers=layers)
    out.record({"runs": [str(one) for one in run], "last": last})
    names = [str(one) for one in run]
    rows = [(name, *(_number(values.get(one)) for one in names)) for name, values in last.items()]
    out.table(["number", *names], rows)


@command(
    "export",
    examples=[
        "ai-cli runs export runs/run --output run.csv",
        "ai-cli runs export runs/run --output tb",
    ],
)
@run_argument
@click.option("--output", required=True, type=click.Path(path_type=Path), help="File or folder.")
@click.option(
    "--to",
    "kind",
    type=click.Choice(["csv", "parquet", "tensorboard"]),
    help="Format; left out = that of the file's name, TensorBoard for a folder.",
)
@click.option("--no-layers", is_flag=True, help="Only the numbers of the whole run.")
def export_verb(out: Output, run: Path, output: Path, kind: str | None, no_layers: bool) -> None:
    """Write the record of a run for other programs."""
    from cnai.flows.runs import export_run, format_of

    table = export_run(run, output, format_of(output, kind), layers=not no_layers)
    out.record({"output": str(output), "steps": len(table.steps), "series": len(table.columns)})
    out.note(f"{len(table.columns)} series of {len(table.steps)} steps in `{output}`")


@command("import", examples=["ai-cli runs import run.csv --output runs/old"])
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="New run folder.")
def import_verb(out: Output, source: Path, output: Path) -> None:
    """Make a run folder out of a CSV, Parquet or TensorBoard file of another program."""
    from cnai.flows.runs import import_run

    table = import_run(source, output)
    out.record({"run": str(output), "steps": len(table.steps), "series": len(table.columns)})
    out.note(f"{len(table.columns)} series of {len(table.steps)} steps")
    out.next("ai-cli runs show", output)


@command("rm", examples=["ai-cli runs rm runs/run"])
@run_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def rm_verb(out: Output, run: Path, yes: bool) -> None:
    """Remove a run with its logs, checkpoints and models."""
    from cnai.core.runfolder import RunFolder
    from cnai.flows.runs import remove_run

    RunFolder.existing(run)
    out.confirm(f"remove `{run}` with its checkpoints and models?", yes=yes)
    remove_run(run)
    out.record({"removed": str(run)})
    out.note(f"removed `{run}`")


@command("undo", examples=["ai-cli runs undo runs/run", "ai-cli runs undo runs/run --number 2"])
@run_argument
@click.option("--number", type=int, help="Reaction to take back; left out = the newest.")
def undo_verb(out: Output, run: Path, number: int | None) -> None:
    """Take back what a run did by itself about a finding; its next start goes on without it."""
    from cnai.core.runfolder import RunFolder
    from cnai.flows.reactions import undo

    taken = undo(RunFolder.existing(run), number)
    out.record(taken)
    out.note(f"{taken.reason}; the newest checkpoint is that of step {taken.step}")


for one in (list_verb, show_verb, compare_verb, export_verb, import_verb, undo_verb, rm_verb):
    verb.add_command(one)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _row(state: RunState) -> tuple[str, ...]:
    loss = "-" if state.loss is None else f"{state.loss:.4f}"
    started = "-"
    if state.started_unix is not None:
        local = dt.datetime.fromtimestamp(state.started_unix).astimezone()
        started = f"{local:%Y-%m-%d %H:%M}"
    return (
        state.name, str(state.status), f"{state.step}/{state.steps}", loss,
        state.layout or "-", started,
    )  # fmt: skip
