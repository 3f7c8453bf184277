"""How well a model predicts given rows of tokens: loss, perplexity, bits per byte."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cnai.core.errors import DataError
from cnai.models.loss import token_losses


def sequence_losses(
    model: nn.Module, rows: NDArray[np.int64], *, batch: int = 8
) -> NDArray[np.float64]:
    """Return the mean cross-entropy of each row in nats per token, shape (N,).

    Args:
        model: Maps tokens (B, T) to logits (B, T, V). It is run in evaluation mode and left in the
            mode it was in.
        rows: Tokens of shape (N, T + 1); each predicts its next.
        batch: Rows run at once.

    Raises:
        DataError: There are no rows, or nothing to predict in them.
    """
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2:
        raise DataError(
            f"no tokens to measure the model on: rows of shape {rows.shape}",
            where="rows",
            hint="give at least one row of at least two tokens, shape (rows, tokens)",
        )
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    losses = []
    try:
        with torch.no_grad():
            for start in range(0, len(rows), batch):
                tokens = torch.from_numpy(rows[start : start + batch].astype(np.int64)).to(device)
                loss_BT = token_losses(model(tokens[:, :-1]), tokens[:, 1:])
                losses.append(loss_BT.double().mean(dim=1).cpu().numpy())
    finally:
        model.train(was_training)
    return np.concatenate(losses)


def perplexity(losses: NDArray[np.float64]) -> float:
    """Return exp of the mean loss; rows count alike. Infinite when it exceeds a float64."""
    with np.errstate(over="ignore"):
        return float(np.exp(losses.mean()))


def bits_per_byte(
    losses: NDArray[np.float64], tokens_per_row: int, row_bytes: NDArray[np.int64]
) -> float:
    """Return the bits spent on each byte of text, comparable between tokenizers.

    Args:
        losses: Nats per token of each row, shape (N,).
        tokens_per_row: Tokens predicted in a row.
        row_bytes: UTF-8 bytes of the predicted tokens of each row, shape (N,).
    """
    nats = float(losses.sum()) * tokens_per_row
    return nats / math.log(2) / int(row_bytes.sum())
