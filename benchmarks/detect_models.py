"""Two real small models for the fault bench: a transformer on text, a CNN on handwritten digits."""

from __future__ import annotations

import argparse
import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

WIDTH, HEADS, LAYERS, LENGTH, VOCAB = 32, 2, 3, 24, 64


class Attention(nn.Module):
    """Causal attention whose mixing the probe can look into."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.attend: Callable[..., Tensor] = lambda q, k, v, _past: F.scaled_dot_product_attention(
            q, k, v, is_causal=True
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (one(x).view(b, t, HEADS, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        return self.o(self.attend(q, k, v, 0).transpose(1, 2).reshape(b, t, WIDTH))


class Block(nn.Module):
    """A layer; without its residual paths and norms gradients cannot pass many of them."""

    def __init__(self, activation: type[nn.Module], dropout: float, *, plain: bool) -> None:
        super().__init__()
        self.plain = plain
        if not plain:
            self.attention = Attention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.act = activation()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.plain:
            return self.down(self.act(self.up(x)))
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.down(self.act(self.up(self.norm2(x)))))


class TextModel(nn.Module):
    """Predicts the next character."""

    def __init__(
        self,
        activation: type[nn.Module],
        dropout: float,
        *,
        plain: bool = False,
        layers: int = LAYERS,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.place = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            [Block(activation, dropout, plain=plain) for _ in range(layers)]
        )
        self.norm = nn.Identity() if plain else nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.3)
        nn.init.normal_(self.place.weight, std=0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.place(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class DigitModel(nn.Module):
    """Names a digit of 8 x 8 pixels."""

    def __init__(
        self, activation: type[nn.Module], dropout: float, *, plain: bool = False, layers: int = 3
    ) -> None:
        super().__init__()
        sizes = [1, *[16] * layers]
        pieces: list[nn.Module] = []
        for before, after in pairwise(sizes):
            norm = [] if plain else [nn.BatchNorm2d(after)]
            pieces += [nn.Conv2d(before, after, 3, padding=1), *norm, activation()]
        self.body = nn.Sequential(*pieces)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(16 * 16, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.avg_pool2d(self.body(images), 2)
        return self.head(self.drop(x.flatten(1)))


@dataclass(frozen=True)
class Source:
    """Rows to train and to validate on.

    Attributes:
        classes: Number of targets.
    """

    inputs: np.ndarray
    targets: np.ndarray
    classes: int

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of training and of validation."""
        order = np.random.default_rng(0).permutation(len(self.inputs))
        cut = len(order) * 9 // 10
        return order[:cut], order[cut:]


@cache
def text() -> Source:
    """Return the docstrings of argparse and ast as rows of characters."""
    words = " ".join(
        part.__doc__ or ""
        for module in (argparse, ast)
        for part in (module, *vars(module).values())
        if isinstance(getattr(part, "__doc__", None), str)
    )[:60_000]
    ids = np.frombuffer(words.lower().encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)
    kept = {code: place for place, code in enumerate(np.unique(ids)[:VOCAB].tolist())}
    ids = np.array([kept.get(code, 0) for code in ids.tolist()])
    rows = ids[: len(ids) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    return Source(rows[:, :-1].copy(), rows[:, 1:].copy(), VOCAB)


@cache
def digits() -> Source:
    """Return scikit-learn's digits."""
    data = load_digits()
    images = (data.images[:, None] / 16 - 0.3).astype(np.float32)
    return Source(images, data.target.astype(np.int64), 10)


MODELS = {"text": (TextModel, text), "digits": (DigitModel, digits)}


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def rate_at(step: int, steps: int, peak: float, warm_up: int, schedule: str) -> float:
    """Return the learning rate of a zero-based step."""
    if step < warm_up:
        return peak * (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    if schedule == "constant":
        return peak
    if schedule == "linear":
        return peak * (1 - 0.9 * done)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))
