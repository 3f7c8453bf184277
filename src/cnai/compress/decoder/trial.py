"""A decoder in memory whose units take other forms and back, to see what each costs.

The numbers are those that will be read from the file: the same arithmetic rounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cnai.compress.folder.dtypes import as_bfloat16
from cnai.compress.folder.report import Divergence
from cnai.compress.folder.rounding import quantized_rows, restored_rows
from cnai.compress.folder.treatment import QUANTIZED, Form, Treatment
from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder, rotary_table
from cnai.models.huggingface import HuggingFaceWeights, load_decoder, stored_names
from cnai.models.packed import round_inputs

LARGEST_LOGITS = 24_000_000


def few_rows(rows: NDArray[np.int64], vocab: int) -> NDArray[np.int64]:
    """Return the first rows whose logits fit into a little memory, at least one."""
    return rows[: max(1, LARGEST_LOGITS // (vocab * (rows.shape[1] - 1)))]


class Reference:
    """What a model predicts, to hold another's predictions to.

    Args:
        decoder: The exact model.
        rows: Tokens (N, T + 1).
    """

    def __init__(self, decoder: Decoder, rows: NDArray[np.int64]) -> None:
        self.tokens = torch.from_numpy(few_rows(rows, decoder.shape.vocab)).long()
        with torch.no_grad():
            self._said = decoder(self.tokens[:, :-1]).log_softmax(-1)

    def divergence(self, logits: Tensor) -> Divergence:
        """Compare logits (N, T, V) of the same rows."""
        with torch.no_grad():
            other = logits.log_softmax(-1)
            kl = (self._said.exp() * (self._said - other)).sum(-1)
            same = self._said.argmax(-1) == other.argmax(-1)
        return Divergence(
            kl=float(kl.double().mean()), top1=float(same.double().mean()), tokens=same.numel()
        )

    def of(self, decoder: Decoder) -> Divergence:
        """Run another model on the rows and compare."""
        with torch.no_grad():
            return self.divergence(decoder(self.tokens[:, :-1]))


class Trial:
    """A model on calibration rows.

    Args:
        weights: The exact model.
        rows: Calibration tokens (N, T + 1).
        short_scales: As in `folder.rounding`.
    """

    def __init__(
        self, weights: HuggingFaceWeights, rows: NDArray[np.int64], *, short_scales: bool
    ) -> None:
        self.decoder = load_decoder(weights.folder)
        self.rows = rows
        self.reference = Reference(self.decoder, rows)
        self._weights = weights
        self._short = short_scales
        self._rounding: dict[str, Any] = {}
        self._inputs = self._residuals()

    def exact(self, name: str) -> Tensor:
        """Return a parameter as it was."""
        return self._weights.tensor(name)

    def use(self, chosen: Mapping[str, Treatment]) -> None:
        """Let parameters take a form, by our names."""
        for name, treatment in chosen.items():
            value = treated(self.exact(name), treatment, short_scales=self._short)
            self._set(name, value, rounds_inputs=treatment.form is Form.W8A8)

    def undo(self, names: Mapping[str, Treatment]) -> None:
        """Let parameters be exact again."""
        for name in names:
            self._set(name, self.exact(name), rounds_inputs=False)

    def logits(self, *, layer: int = 0) -> Tensor:
        """Run the calibration rows, from the first layer that changed on."""
        with torch.no_grad():
            x = self._inputs[layer]
            rotary = rotary_table(self.decoder.shape, x.shape[1], x.device)
            for index in range(layer, self.decoder.shape.layers):
                x = self.decoder.layers[str(index)](x, rotary)
            logits: Tensor = self.decoder.head(self.decoder.norm(x))
        return logits

    def _residuals(self) -> list[Tensor]:
        """Return what enters each layer of the exact model."""
        tokens = self.reference.tokens[:, :-1]
        with torch.no_grad():
            x = self.decoder.embedding(tokens)
            rotary = rotary_table(self.decoder.shape, x.shape[1], x.device)
            entering = []
            for layer in self.decoder.layers.values():
                entering.append(x)
                x = layer(x, rotary)
        return entering

    def _set(self, name: str, value: Tensor, *, rounds_inputs: bool) -> None:
        with torch.no_grad():
            self.decoder.get_parameter(name).copy_(value)
        handle = self._rounding.pop(name, None)
        if handle is not None:
            handle.remove()
        if rounds_inputs:
            module = self.decoder.get_submodule(name.removesuffix(".weight"))
            self._rounding[name] = round_inputs(module)


def treated(exact: Tensor, treatment: Treatment, *, short_scales: bool) -> Tensor:
    """Return the float32 numbers that a runtime computes with after a treatment."""
    if exact.ndim == 3:
        # Experts are stacked here, and each is a matrix of its own in the file.
        each = [treated(one, treatment, short_scales=short_scales) for one in exact]
        return torch.stack(each)
    values = exact.numpy().astype(np.float32, copy=False)
    if treatment.factor is not None:
        values = values * treatment.factor
    if treatment.form in QUANTIZED:
        new = treatment.ready or quantized_rows(values, treatment, short_scales=short_scales)
        return torch.from_numpy(restored_rows(new, treatment.form))
    if treatment.form is Form.BF16:
        return torch.from_numpy(as_bfloat16(values))
    if treatment.form is Form.FP16:
        return torch.from_numpy(values.astype(np.float16).astype(np.float32))
    return torch.from_numpy(np.ascontiguousarray(values))


def stored(chosen: Mapping[str, Treatment], shape: DecoderShape) -> dict[str, Treatment]:
    """Return the same under the names of the files."""
    return {theirs: one for name, one in chosen.items() for theirs in stored_names(name, shape)}
