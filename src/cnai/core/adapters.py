"""Low-rank adapters: which matrices get one, and how many parameters that makes.

The arithmetic lives here, without torch, because the planner needs it; tests hold it to the module.
Source: Hu et al. 2021, arXiv 2106.09685.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.shape import DecoderShape

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ROW_SPLIT = ("o_proj", "down_proj")
"""Matrices that tensor parallelism splits by input; the others are split by output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Beside a frozen matrix W (out, in): W x + alpha / rank B A x.

    A is of (rank, in), B of (out, rank).

    Attributes:
        rank: Inner size.
        alpha: Scale of what is added, times `rank`.
        targets: Matrices of each layer that get adapters, such as `q_proj`.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def scale(self) -> float:
        """Factor of B A x."""
        return self.alpha / self.rank

    @property
    def paths(self) -> tuple[str, ...]:
        """The targets as a layer of the decoder names them."""
        return tuple(f"{'attention' if t in ATTENTION else 'ffn'}.{t}" for t in self.targets)

    def layer_parameters(self, shape: DecoderShape, model_size: int = 1) -> int:
        """Parameters of the adapters of one layer on one rank.

        One of the two matrices is split over the model axis, the one that touches what is split.
        """
        total = 0
        for target in self.targets:
            inputs, outputs = _sizes(shape, target)
            if target in ROW_SPLIT:
                total += self.rank * (inputs // model_size + outputs)
            else:
                total += self.rank * (inputs + outputs // model_size)
        return total


def _sizes(shape: DecoderShape, target: str) -> tuple[int, int]:
    """Return inputs and outputs of a matrix."""
    width, ffn = shape.width, shape.ffn_width
    return {
        "q_proj": (width, shape.query_width),
        "k_proj": (width, shape.kv_width),
        "v_proj": (width, shape.kv_width),
        "o_proj": (shape.query_width, width),
        "gate_proj": (width, ffn),
        "up_proj": (width, ffn),
        "down_proj": (ffn, width),
    }[target]
