"""Seconds of the operators of one layer on one rank: a roofline, operator by operator.

A matrix product of m x n x k runs at `peak x share / (1 + h (1/m + 1/n + 1/k))`, because short
sides fill tiles and waves badly, but no faster than memory brings its operands. Attention is
either fused (its scores never leave the chip, and the masked half is skipped) or stores them and
walks over them several times. Element-wise kernels run at the rate of memory. The host starts each
kernel, which bounds small layers from below. Sources: roofline by Williams et al. 2009,
Communications of the ACM 52(4); what a transformer layer computes, Narayanan et al. 2021, arXiv
2104.04473, appendix; scores in memory, Dao et al. 2022, arXiv 2205.14135.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.shape import DecoderShape
from cnai.plan.devices import Device
from cnai.plan.software import Software

_SCORE_PASSES = 4.5  # softmax reads and writes scores, dropout too, and half a mask
_LOSS_PASSES = 12.0  # logits in float32, their maximum, exponents, sum and gradient
_UNALIGNED = 4.0  # tensor cores want sides that are multiples of 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A device as one rank has it, at a precision.

    Attributes:
        wide: Peak of products in 16 or 32 bits, a second.
        narrow: Peak of the layers' own products where they are in 8 or 4 bits, else None.
        memory: Bytes a second.
        element: Bytes of an element between the operators.
    """

    device: Device
    wide: float
    narrow: float | None
    memory: float
    element: int

    @classmethod
    def of(cls, device: Device, precision: str, cores: float = 1.0) -> Chip:
        """Look a device up at a precision; `cores` multiplies the rates of a CPU's core."""
        narrow = device.narrow_flops(precision)
        return cls(
            device=device,
            wide=device.flops(precision) * cores,
            narrow=narrow * cores if narrow else None,
            memory=device.memory_bytes_per_second * device.constants.memory * cores,
            element=4 if precision == "float32" else 2,
        )

    def product(self, m: float, n: float, k: float, *, narrow: bool = True) -> float:
        """Seconds of an m x k by k x n product."""
        constants = self.device.constants
        rate = self.wide * constants.matmul
        half = constants.half_size
        extra = 0.0
        if narrow and self.narrow:
            rate = self.narrow * constants.narrow
            half *= self.narrow / self.wide
            extra = 3.0 * m * k / self.memory  # operands are scaled and rounded first
        work = 2.0 * m * n * k * (1.0 + half * (1.0 / m + 1.0 / n + 1.0 / k)) / rate
        return max(work, self.element * (m * k + k * n + m * n) / self.memory) + extra


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """Seconds of one forward pass of a layer, by what bounds them."""

    products: float
    core: float
    stream: float
    host: float
    fused: bool

    @property
    def forward(self) -> float:
        """Forward once; what the host takes longer than the chip counts."""
        return _longer(self.products + self.core + self.stream, self.host)

    @property
    def backward(self) -> float:
        """Backward once: two products for each, and fused attention computes its scores anew."""
        core = self.core * (2.5 if self.fused else 2.0)
        return _longer(2.0 * self.products + core + 1.5 * self.stream, 2.0 * self.host)

    def again(self, what: str) -> float:
        """Forward that backward repeats: `layers`, `attention` or `half`."""
        if what == "attention":
            return self.core
        if what == "half":
            return 0.5 * self.products + self.stream
        return self.forward


def _longer(chip: float, host: float) -> float:
    """Return the longer of two, a little more where they are close (they do not overlap fully)."""
    return float((chip**4 + host**4) ** 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What of a layer one rank computes for one microbatch.

    Attributes:
        tokens: Rows that the rank has.
        keys: Positions that each of them may attend to.
        split: Ranks over which the layer's matrices are split.
        shares_stream: Whether they share out the residual stream too.
        spread: Ranks over which experts are spread.
    """

    tokens: int
    keys: int
    split: int = 1
    shares_stream: bool = False
    spread: int = 1


def layer_work(
    shape: DecoderShape, chip: Chip, software: Software, part: Slice, *, sparse: bool
) -> LayerWork:
    """Return the work of one layer in forward."""
    tokens, split, width = part.tokens, part.split, shape.width
    query = shape.query_width / split
    kv = max(shape.kv_width / split, shape.head_width)
    products = chip.product(tokens, query + 2 * kv, width) + chip.product(tokens, width, query)
    if getattr(shape, "latent_weights", 0):
        products = chip.product(tokens, shape.attention_parameters / width / split, width)
    inner = shape.ffn_width
    if sparse:
        inner = shape.experts_per_token * shape.expert_width
        products += _experts(shape, chip, part)
    else:
        products += _feed_forward(shape, chip, tokens, shape.ffn_width / split)
    stream = software.stream_passes * width / (split if part.shares_stream else 1)
    stream += software.inner_passes * inner / split + 3.0 * (query + 2 * kv)
    return LayerWork(
        products=products,
        core=_attention(shape, chip, software, part),
        stream=tokens * chip.element * stream / chip.memory,
        host=software.kernels * chip.device.constants.kernel_seconds * (1.5 if sparse else 1.0),
        fused=not software.stores_scores,
    )


def _feed_forward(shape: DecoderShape, chip: Chip, rows: float, inner: float) -> float:
    up = 2 if getattr(shape, "gated", True) else 1
    return chip.product(rows, up * inner, shape.width) + chip.product(rows, shape.width, inner)


def _experts(shape: DecoderShape, chip: Chip, part: Slice) -> float:
    """Seconds of a rank's experts, each with its share of the rows, and of a shared one."""
    own = max(1.0, shape.experts / part.spread)
    rows = max(1.0, part.tokens * shape.experts_per_token / own)
    seconds = own * _feed_forward(shape, chip, rows, shape.expert_width / part.split)
    shared = getattr(shape, "shared_width", 0)
    return seconds + (
        _feed_forward(shape, chip, part.tokens, shared / part.split) if shared else 0.0
    )


def _attention(shape: DecoderShape, chip: Chip, software: Software, part: Slice) -> float:
    """Seconds of scores, softmax and weighted sum."""
    heads = shape.heads / part.split
    scores = part.tokens * heads * part.keys
    causal = getattr(shape, "causal", True)
    constants = chip.device.constants
    if not software.stores_scores:
        flops = 4.0 * scores * shape.head_width * (0.5 if causal else 1.0)
        return flops / (chip.wide * constants.attention * software.attention)
    size = shape.head_width
    half = constants.half_size
    slow = _UNALIGNED if size % 8 else 1.0
    rate = chip.wide * constants.matmul / (1.0 + half * (2.0 / part.keys + 1.0 / size)) / slow
    walk = _SCORE_PASSES * scores * chip.element / chip.memory
    return max(4.0 * scores * size / rate, 2.0 * scores * chip.element / chip.memory) + walk


def head_work(shape: DecoderShape, chip: Chip, tokens: int, split: int) -> float:
    """Seconds of output head and loss of a microbatch, forward and backward."""
    columns = shape.vocab / split
    passes = 3.0 * chip.product(tokens, columns, shape.width, narrow=False)
    return passes + _LOSS_PASSES * 4.0 * tokens * columns / chip.memory


def embedding_work(shape: DecoderShape, chip: Chip, tokens: int) -> float:
    """Seconds in which a microbatch is looked up, and its gradient written back."""
    return 6.0 * tokens * shape.width * chip.element / chip.memory
