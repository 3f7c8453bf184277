"""`ai-cli inspect`: what is in a model, file or folder."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.output import Output


@command(
    "inspect",
    examples=[
        "ai-cli inspect runs/quickstart/artifacts/model-int8",
        "ai-cli inspect model.pb",
    ],
)
@click.argument("model", type=click.Path(path_type=Path))
def verb(out: Output, model: Path) -> None:
    """List the tensors of a model by kind, with their types and sizes."""
    from cnai.compress import FILES, recognise

    if model.exists() and recognise(model) in FILES:
        _show_file(out, model)
    else:
        _show_folder(out, model)


def _show_file(out: Output, model: Path) -> None:
    from cnai.core.units import format_bytes, format_count
    from cnai.flows.inspect import inspect_file

    found = inspect_file(model)
    out.record(found)
    out.text(f"{found.format} in {model}, {format_bytes(found.size_bytes)}")
    out.table(
        ["use", "type", "weights", "parameters", "size", "largest"],
        [
            [
                group.use or "-",
                group.dtype,
                str(group.weights),
                format_count(group.parameters),
                format_bytes(group.size_bytes),
                group.largest,
            ]
            for group in found.groups
        ],
    )
    if found.quantized:
        out.text(f"{found.quantized} weights are quantized already")
    else:
        out.next("ai-cli quantize --input-model", model, "--output-model", _smaller(model))


def _smaller(model: Path) -> Path:
    return model.with_name(f"{model.stem}-int8{model.suffix}")


def _show_folder(out: Output, model: Path) -> None:
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
