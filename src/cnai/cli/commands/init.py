"""`ai-cli init`: a commented spec to start from."""

from __future__ import annotations

import re
from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import DEFAULT_SPEC, yes_flag
from cnai.cli.output import Output

STDOUT = Path("-")


@command("init", examples=["ai-cli init", "ai-cli init big.yaml --kind full"])
@click.argument("path", default=DEFAULT_SPEC, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(["quickstart", "full"], case_sensitive=False),
    default="quickstart",
    show_default=True,
    help="A small run, or every key with its default.",
)
@yes_flag
def verb(out: Output, path: Path, kind: str, *, yes: bool) -> None:
    """Write a commented spec to start from.

    PATH is the file to write, run.yaml when it is left out; `-` prints the spec instead.
    """
    from cnai.core.errors import SpecError
    from cnai.core.files import write_atomically
    from cnai.core.spec.template import template

    text = template(kind, name=_run_name(path))
    if path == STDOUT:
        out.record({"kind": kind, "spec": text})
        out.text(text)
        return
    if path.is_dir():
        raise SpecError(
            f"`{path}` is a folder", where=str(path), hint=f"name a file, `{path / DEFAULT_SPEC}`"
        )
    if path.exists():
        out.confirm(f"overwrite {path}?", yes=yes)
    write_atomically(path, text.encode())
    out.record({"kind": kind, "path": str(path)})
    out.note(f"wrote {path}")
    out.next("ai-cli run", path)


def _run_name(path: Path) -> str:
    """Name the run after the file, as far as a run may be called so."""
    fitting = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-")
    return fitting or "quickstart"
