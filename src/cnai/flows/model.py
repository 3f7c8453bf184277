"""The model that a spec means, as a module in one process."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import Tensor, nn

from cnai.core.records import encode
from cnai.core.runfolder import RunFolder
from cnai.core.shape import DecoderShape
from cnai.core.spec import RunSpec
from cnai.flows.module import built, load_trained
from cnai.flows.shape import shape_of
from cnai.models import (
    AdaptedWeights,
    Decoder,
    HuggingFaceWeights,
    Weights,
    adapter_sizes,
    fill,
    initial_weights,
    merged,
    parameter_sizes,
)
from cnai.train.agreement import kept_buffers
from cnai.train.checkpoint import load_weights


def untrained(spec: RunSpec) -> nn.Module:
    """Build the model as training starts from it."""
    shape = shape_of(spec)
    if shape is None:
        return built(spec)[0]
    decoder = Decoder(shape)
    fill(decoder, weights_of(spec, shape))
    return decoder


def trained(spec: RunSpec, run: RunFolder, step: int) -> nn.Module:
    """Build the model with the weights of a checkpoint.

    Raises:
        DataError: The checkpoint is damaged or belongs to another model.
    """
    shape = shape_of(spec)
    if shape is not None:
        decoder = Decoder(shape)
        fill(decoder, trained_state(spec, shape, run.checkpoint(step)).__getitem__)
        return decoder
    module = untrained(spec)
    load_trained(module, kept_buffers([module]), run.checkpoint(step))
    return module


def trained_state(spec: RunSpec, shape: DecoderShape, checkpoint: Path) -> dict[str, Tensor]:
    """Return every weight of a trained decoder by its name, adapters added to their matrices.

    Raises:
        DataError: The checkpoint is damaged or belongs to another model.
    """
    adapters = spec.train.lora.adapters()
    if adapters is None:
        return load_weights(checkpoint, parameter_sizes(shape))
    sizes = adapter_sizes(shape, adapters)
    trained = load_weights(checkpoint, sizes, base=base_of(spec, shape))
    return merged(weights_of(spec, shape), trained, shape, adapters)


def base_of(spec: RunSpec, shape: DecoderShape) -> str | None:
    """Return the identity of the frozen model; None when the weights themselves are trained."""
    if spec.train.lora.adapters() is None:
        return None
    weights = weights_of(spec, shape)
    if isinstance(weights, HuggingFaceWeights):
        return weights.identity()
    return hashlib.sha256(encode((spec.train.seed, shape))).hexdigest()[:16]


def first_weights(spec: RunSpec, shape: DecoderShape) -> Weights:
    """Return what training starts from, with the adapters if there are any."""
    adapters = spec.train.lora.adapters()
    weights = weights_of(spec, shape)
    if adapters is None:
        return weights
    return AdaptedWeights(weights, shape, adapters, spec.train.seed)


def weights_of(spec: RunSpec, shape: DecoderShape) -> Weights:
    """Return where the initial weights come from: a model folder, or the seed."""
    if spec.model.huggingface is not None:
        folder = Path(spec.model.huggingface)
        return HuggingFaceWeights(folder, sequence=spec.model.sequence)
    return initial_weights(shape, spec.train.seed)
