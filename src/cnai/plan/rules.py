"""What a layout must satisfy, whatever the machines: sizes that divide what they cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd, prod

from cnai.core.errors import SpecError
from cnai.core.layout import Layout, Sharding
from cnai.core.recompute import Recompute
from cnai.core.schedules import SCHEDULES, schedule_named
from cnai.core.shape import DecoderShape
from cnai.plan.module_rules import module_violations
from cnai.plan.request import PlanRequest
from cnai.plan.violation import (
    CONTEXT,
    DATA,
    EXPERT,
    GROUP,
    MICROBATCHES,
    MODEL,
    RANKS,
    SHARDING,
    SPLIT,
    STAGES,
    VIRTUAL,
    Violation,
    divisors,
    nearest,
)


def violations(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    """Yield the rules that a layout breaks, most basic first; none = it is legal."""
    yield from _sizes(layout)
    if request.shape is None:
        yield from module_violations(request, request.module, layout)
        if request.module is not None and request.module.layers:
            yield from _stages(request, len(request.module.layers), layout)
    else:
        yield from _model(request.shape, layout)
        yield from _sequence(request, layout)
        yield from _context(request, request.shape, layout)
        yield from _experts(request, request.shape, layout)
        yield from _adapters(request, layout)
        yield from _stages(request, request.shape.layers, layout)
    yield from _groups(request, layout)
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
    if request.context > 1:
        factors[CONTEXT] = request.context
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
    rest = (request.model or 1) * (request.pipeline or 1) * request.context
    if ranks % rest or request.batch % (ranks // rest):
        return ""
    return f", or set `{DATA}: {ranks // rest}`"


def check_names(request: PlanRequest) -> None:
    """Refuse words and numbers that the planner does not know, for callers without a spec.

    Raises:
        SpecError: A word is unknown or a number is below 1.
    """
    words = (
        ("train.optimizer", request.optimizer, ("adamw", "muon", "sgd")),
        ("train.recompute", request.recompute, tuple(Recompute)),
        ("train.precision", request.precision, ("float32", "bfloat16")),
        (SHARDING, request.sharding, ("auto", *Sharding)),
        ("parallel.pipeline_parallel.schedule", request.schedule, tuple(SCHEDULES)),
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
        (GROUP, request.shard_group),
        (MODEL, request.model),
        (CONTEXT, request.context),
        (EXPERT, request.expert),
        (STAGES, request.pipeline),
        (VIRTUAL, request.virtual),
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


def legal_model_sizes(shape: DecoderShape) -> list[int]:
    """Return the tensor-parallel sizes by which everything that is split can be divided."""
    widths = _ffn_widths(shape, range(shape.layers)).values()
    return divisors(gcd(shape.heads, shape.kv_heads, shape.vocab, *widths))


def _ffn_widths(shape: DecoderShape, layers: Iterable[int]) -> dict[str, int]:
    """Return the inner widths, by key, that occur in these layers."""
    names = {"expert_width" if shape.is_sparse(layer) else "ffn_width" for layer in layers}
    return {name: getattr(shape, name) for name in sorted(names, reverse=True)}


def _model(shape: DecoderShape, layout: Layout) -> Iterator[Violation]:
    if layout.split_layer > shape.layers:
        yield Violation(
            where=SPLIT,
            message=f"`{SPLIT}` is {layout.split_layer}, but the model has {shape.layers} layers",
            hint=f"set it between 0 (all layers are split) and {shape.layers} (none is)",
        )
    if not layout.is_split(shape.layers - 1):
        return
    parts = {"heads": shape.heads, "kv_heads": shape.kv_heads}
    parts |= _ffn_widths(shape, range(layout.split_layer, shape.layers))
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


def _sequence(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    positions = request.sequence // layout.context
    if layout.split_sequence and positions % layout.model:
        yield Violation(
            where=MODEL,
            message=f"`{MODEL}` is {layout.model}, which does not divide the {positions} "
            "positions of a sequence that it is to share out",
            hint=f"set it to {nearest(layout.model, divisors(positions))}, or leave out "
            "`parallel.model_parallel.sequence`",
        )


def _context(request: PlanRequest, shape: DecoderShape, layout: Layout) -> Iterator[Violation]:
    """Positions are shared out evenly, and so are the heads that a rank has in attention."""
    heads = shape.heads // (layout.model if layout.is_split(shape.layers - 1) else 1)
    parts = {f"{heads} heads of a rank": heads}
    parts[f"model.sequence {request.sequence}"] = request.sequence
    broken = [name for name, number in parts.items() if number % layout.context]
    if broken:
        legal = divisors(gcd(heads, request.sequence))
        yield Violation(
            where=CONTEXT,
            message=f"`{CONTEXT}` is {layout.context}, which does not divide {', '.join(broken)}",
            hint=f"set it to {nearest(layout.context, legal)}, or make the heads and the sequence "
            f"multiples of {layout.context}",
        )


def _experts(request: PlanRequest, shape: DecoderShape, layout: Layout) -> Iterator[Violation]:
    """Experts are shared out evenly over ranks that would else hold the same ones."""
    if layout.expert == 1:
        return
    if not shape.sparse_layers:
        yield Violation(
            where=EXPERT,
            message=f"`{EXPERT}` is {layout.expert}, but the model has no experts",
            hint=f"set `{EXPERT}: 1`, or `model.experts`",
        )
        return
    copies = layout.copies
    parts = {f"model.experts {shape.experts}": shape.experts, f"data x context {copies}": copies}
    if request.data is None and layout.data == 1:
        # The data axis is still open, and the planner looks only at sizes that are divided.
        parts.popitem()
    broken = [name for name, number in parts.items() if number % layout.expert]
    if broken:
        yield Violation(
            where=EXPERT,
            message=f"`{EXPERT}` is {layout.expert}, which does not divide {', '.join(broken)}",
            hint=f"set it to {nearest(layout.expert, divisors(gcd(*parts.values())))}",
        )


def _adapters(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    if layout.split_sequence and layout.model > 1 and request.adapters is not None:
        yield Violation(
            where="parallel.model_parallel.sequence",
            message="`parallel.model_parallel.sequence` shares out positions, which adapters "
            "(`train.lora`) do not follow yet",
            hint="leave out `parallel.model_parallel.sequence`, or `train.lora`",
        )


def _stages(request: PlanRequest, layers: int, layout: Layout) -> Iterator[Violation]:
    schedule, virtual = schedule_named(request.schedule), request.virtual_of(layout)
    if not schedule.takes_virtual(virtual) and layout.pipeline > 1:
        others = [name for name, other in SCHEDULES.items() if other.takes_virtual(virtual)]
        yield Violation(
            where=VIRTUAL,
            message=f"`{VIRTUAL}` is {virtual}, but {schedule.name} wants {schedule.virtual}",
            hint=f"set `{VIRTUAL}: {schedule.virtual}`, or a schedule such as {others[0]}",
        )
        return
    if layout.pipeline > 1 and schedule.splits_backward and request.recompute != Recompute.NONE:
        yield Violation(
            where="train.recompute",
            message=f"`train.recompute` is {request.recompute}, but {schedule.name} walks through "
            "a layer's backward pass once for each of its weights, and would recompute it as often",
            hint="use the schedule Interleaved1F1B, or `train.recompute: none`",
        )
    stages = layout.pipeline * virtual
    if stages > layers:
        each = f" with {virtual} on each rank" if virtual > 1 else ""
        yield Violation(
            where=STAGES,
            message=f"`{STAGES}` is {layout.pipeline}{each}, but the model has {layers} layers",
            hint=f"set it to {layers // virtual} or less: every stage holds at least one layer"
            if layers >= 2 * virtual
            else "use the schedule 1F1B, which needs one stage a rank",
        )


def legal_counts(request: PlanRequest, layout: Layout, share: int) -> list[int]:
    """Return the numbers of microbatches into which a rank's share may be cut."""
    schedule = schedule_named(request.schedule)
    return [
        count
        for count in divisors(share)
        if layout.pipeline == 1 or schedule.takes(count, layout.pipeline)
    ]


def _groups(request: PlanRequest, layout: Layout) -> Iterator[Violation]:
    if request.sharding != Sharding.HYBRID:
        return
    legal = _legal_groups(layout)
    if not legal:
        yield Violation(
            where="parallel.data_parallel.sharding",
            message=f"`sharding` is hybrid, but {layout.copies} copies cannot be put into equal "
            "groups of two or more",
            hint=f"set `{DATA}: 4` or more, or the sharding `full`",
        )
    elif request.shard_group not in (None, *legal):
        yield Violation(
            where=GROUP,
            message=f"`{GROUP}` is {request.shard_group}, which does not put the {layout.copies} "
            "copies into several equal groups",
            hint=f"set it to {nearest(request.shard_group or 0, legal)}",
        )


def _legal_groups(layout: Layout) -> list[int]:
    return divisors(layout.copies)[1:-1]


def shard_group(request: PlanRequest, layout: Layout, per_node: int) -> int:
    """Return the ranks of a group of hybrid sharding, by default as many as a node holds."""
    if request.sharding != Sharding.HYBRID:
        return 1
    legal = _legal_groups(layout)
    fitting = [size for size in legal if size * layout.model <= per_node]
    return request.shard_group or (fitting[-1:] or legal)[0]


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
    schedule = schedule_named(request.schedule)
    fewest = schedule.fewest(layout.pipeline)
    legal = legal_counts(request, layout, share)
    if not legal:
        more = max(share, fewest)
        while not schedule.takes(more, layout.pipeline):
            more += 1
        yield Violation(
            where="train.batch" if request.pipeline in (None, 1) else STAGES,
            message=f"a share of {share} sequences (batch {request.batch} over {layout.data} "
            f"copies) cannot fill {layout.pipeline} stages"
            + (f" in the order {schedule.name}" if schedule.virtual > 1 else ""),
            hint=f"set `train.batch: {layout.data * more}` or more, or fewer stages: "
            f"{schedule.name} takes {fewest} microbatches or more",
        )
    elif count is not None and count not in legal:
        why = f"does not divide the {share} sequences of a rank's share"
        if share % count == 0 and count < fewest:
            why = f"is less than {fewest}, which {schedule.name} takes over {layout.pipeline} ranks"
        elif share % count == 0:
            why = f"{schedule.name} cannot take in {count // layout.pipeline} equal rounds"
        yield Violation(
            where=MICROBATCHES,
            message=f"`{MICROBATCHES}` is {count}, which {why}",
            hint=f"set it to {nearest(count, legal)}, or leave it out",
        )
