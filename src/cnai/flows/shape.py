"""The decoder's shape that a spec means, from its own numbers or from a model folder."""

from __future__ import annotations

from pathlib import Path

from cnai.core.llama_config import shape_from_config
from cnai.core.shape import DecoderShape
from cnai.core.spec import RunSpec


def steps_of(spec: RunSpec) -> int:
    """Return the optimizer steps of a run; a model folder may hold a shorter sequence than asked.

    Raises:
        DataError: The model folder is missing or holds another kind of model.
    """
    tokens, shape = spec.train.tokens, shape_of(spec)
    if tokens is None or shape is None:
        return spec.steps
    return -(-tokens // (spec.train.batch * shape.sequence))


def shape_of(spec: RunSpec) -> DecoderShape | None:
    """Return the shape; None for a user's own module, whose shape is unknown.

    Raises:
        DataError: The model folder is missing or holds another kind of model.
    """
    if spec.model.module is not None:
        return None
    if spec.model.huggingface is None:
        return spec.model.shape()
    return shape_from_config(Path(spec.model.huggingface), sequence=spec.model.sequence)
