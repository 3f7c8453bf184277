"""`ai-cli inspect`: what is in a model folder."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.output import Output


@command("inspect", examples=["ai-cli inspect runs/quickstart/artifacts/model-int8"])
@click.argument("model", type=click.Path(path_type=Path))
def verb(out: Output, model: Path) -> None:
    """List the tensors of a model by kind, with their types and sizes."""
    from cnai.core.units import format_bytes, format_count
    from cnai.flows.inspect import inspect_model

    found = inspect_model(model)
    out.record(found)
    out.text(f"{found.architecture} in {model}")
    out.table(
        ["kind", "type", "tensors", "parameters", "size"],
        [
            [
                group.kind,
                group.dtype,
                str(group.tensors),
                format_count(group.parameters),
                format_bytes(group.size_bytes),
            ]
            for group in found.groups
        ],
    )
