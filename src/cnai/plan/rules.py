"""What a layout must satisfy, whatever the machines: sizes that divide what they cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod

from cnai.core.errors import SpecError
from cnai.core.layout import Layout
from cnai.core.shape import DecoderShape
from cnai.plan.request import PlanRequest

DATA = "parallel.data_parallel.size"
SHARDING = "parallel.data_parallel.sharding"
MODEL = "parallel.model_parallel.size"
SPLIT = "parallel.model_parallel.split_layer"
STAGES = "parallel.pipeline_parallel.stages"
MICROBATCHES = "parallel.pipeline_parallel.microbatches"
RANKS = "resources.ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a layout breaks."""

    where: str
    message: str
    hint: str

    def error(self) -> SpecError:
        """Return it as the error that the user sees."""
        return SpecError(self.message, where=self.where, hint=self.hint)


def divisors(number: int) -> list[int]:
    """Return the divisors, smallest first."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def nearest(value: int, legal: list[int]) -> str:
    """Name the legal values next below and above a value, `4 or 8`."""
    below = [other for other in legal if other < value]
    above = [other for other in legal if other > value]
    return " or ".join(str(other) for other in (below[-1:] + above[:1]) or legal[:1])


def violations(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    """Yield the rules that a layout breaks, most basic first; none = it is legal."""
    yield from _sizes(layout)
    if request.shape is None:
        yield from _module(request, layout)
    else:
        yield from _model(request.shape, layout)
        yield from _stages(request.shape, layout)
    yield from _batch(request, layout)


def check_layout(request: PlanRequest, layout: Layout) -> None:
    """Refuse a layout that breaks a rule.

    Raises:
        SpecError: With the key, the value and the nearest values that work.
    """
    for violation in violations(request, layout):
        raise violation.error()


def check_ranks(request: PlanRequest) -> None:
    """Hold the sizes that were given against the number of ranks that was given.

    Raises:
        SpecError: They contradict each other; names every factor.
    """
    ranks = request.ranks
    given = {DATA: request.data, MODEL: request.model, STAGES: request.pipeline}
    factors = {key: size for key, size in given.items() if size is not None}
    product = prod(factors.values())
    if ranks is None or not factors:
        return
    named = " x ".join(f"{key.removeprefix('parallel.')} {size}" for key, size in factors.items())
    if request.is_fixed and product != ranks:
        raise SpecError(
            f"{named} = {product} ranks, but `{RANKS}` is {ranks}",
            where=RANKS,
            hint=f"set `{RANKS}: {product}` or leave it out{_other_data(request, ranks)}",
        )
    if ranks % product:
        multiple = product * max(1, round(ranks / product))
        raise SpecError(
            f"{named} = {product} does not divide the {ranks} ranks of `{RANKS}`",
            where=RANKS,
            hint=f"set `{RANKS}: {multiple}`, or change one of the sizes",
        )


def _other_data(request: PlanRequest, ranks: int) -> str:
    rest = (request.model or 1) * (request.pipeline or 1)
    if ranks % rest or request.batch % (ranks // rest):
        return ""
    return f", or set `{DATA}: {ranks // rest}`"


def check_names(request: PlanRequest) -> None:
    """Refuse words and numbers that the planner does not know, for callers without a spec.

    Raises:
        SpecError: A word is unknown or a number is below 1.
    """
    words = (
        ("train.optimizer", request.optimizer, ("adamw", "sgd")),
        ("train.precision", request.precision, ("float32", "bfloat16")),
        (SHARDING, request.sharding, ("auto", "none", "full")),
        ("parallel.pipeline_parallel.schedule", request.schedule, ("1F1B", "GPipe")),
    )
    for where, word, known in words:
        if word not in known:
            raise SpecError(
                f"unknown value `{word}`", where=where, hint=f"use {' or '.join(known)}"
            )
    numbers = (
        ("train.batch", request.batch),
        ("model.sequence", request.sequence),
        (DATA, request.data),
        (MODEL, request.model),
        (STAGES, request.pipeline),
        (MICROBATCHES, request.microbatches),
        (RANKS, request.ranks),
    )
    for where, number in numbers:
        if number is not None and number < 1:
            raise SpecError(f"`{where}` is {number}", where=where, hint="set it to 1 or more")


def _sizes(layout: Layout) -> Iterator[Violation]:
    if layout.split_layer < 0:
        yield Violation(
            where=SPLIT,
            message=f"`{SPLIT}` is {layout.split_layer}",
            hint="set it to 0 to split all layers",
        )


def _module(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    for where, size in ((MODEL, layout.model), (STAGES, layout.pipeline)):
        if size > 1:
            yield Violation(
                where=where,
                message=f"`{where}` is {size}, but a model from `model.module` can only be copied",
                hint=f"set `{where}: 1` and use `{DATA}`, or describe the model by its shape",
            )
    if request.sharding == "full":
        yield Violation(
            where=SHARDING,
            message=f"`{SHARDING}` is full, but each copy of a model from `model.module` holds all",
            hint=f"set `{SHARDING}: none`, or describe the model by its shape",
        )


def legal_model_sizes(shape: DecoderShape) -> list[int]:
    """Return the tensor-parallel sizes by which everything that is split can be divided."""
    return divisors(gcd(shape.heads, shape.kv_heads, shape.ffn_width, shape.vocab))


def _model(shape: DecoderShape, layout: Layout) -> Iterator[Violation]:
    if layout.split_layer > shape.layers:
        yield Violation(
            where=SPLIT,
            message=f"`{SPLIT}` is {layout.split_layer}, but the model has {shape.layers} layers",
            hint=f"set it between 0 (all layers are split) and {shape.layers} (none is)",
        )
    if not layout.is_split(shape.layers - 1):
        return
    parts = {"heads": shape.heads, "kv_heads": shape.kv_heads, "ffn_width": shape.ffn_width}
    if layout.is_split(0) or not shape.tied_head:
        parts["vocab"] = shape.vocab
    broken = [f"model.{name} {number}" for name, number in parts.items() if number % layout.model]
    if broken:
        legal = divisors(gcd(*parts.values()))
        yield Violation(
            where=MODEL,
            message=f"`{MODEL}` is {layout.model}, which does not divide {', '.join(broken)}",
            hint=f"set it to {nearest(layout.model, legal)}, or make "
            f"{broken[0].split()[0]} a multiple of {layout.model}",
        )


def _stages(shape: DecoderShape, layout: Layout) -> Iterator[Violation]:
    if layout.pipeline > shape.layers:
        yield Violation(
            where=STAGES,
            message=f"`{STAGES}` is {layout.pipeline}, but the model has {shape.layers} layers",
            hint=f"set it to {shape.layers} or less: every stage holds at least one layer",
        )


def _batch(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    share, rest = divmod(request.batch, layout.data)
    if rest:
        up = -(-request.batch // layout.data) * layout.data
        yield Violation(
            where=DATA,
            message=f"`{DATA}` is {layout.data}, which does not divide train.batch {request.batch}",
            hint=f"set it to {nearest(layout.data, divisors(request.batch))}, "
            f"or `train.batch: {up}`",
        )
        return
    count = request.microbatches
    legal = [pieces for pieces in divisors(share) if pieces >= layout.pipeline]
    if not legal:
        yield Violation(
            where="train.batch" if request.pipeline in (None, 1) else STAGES,
            message=f"a share of {share} sequences (batch {request.batch} over {layout.data} "
            f"copies) cannot fill {layout.pipeline} stages",
            hint=f"set `train.batch: {layout.data * layout.pipeline}` or more, or fewer stages: "
            "each needs a microbatch to work on",
        )
    elif count is not None and count not in legal:
        why = (
            f"does not divide the {share} sequences of a rank's share"
            if share % count
            else f"is less than the {layout.pipeline} stages"
        )
        yield Violation(
            where=MICROBATCHES,
            message=f"`{MICROBATCHES}` is {count}, which {why}",
            hint=f"set it to {nearest(count, legal)}, or leave it out",
        )
