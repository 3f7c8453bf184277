"""Seconds that ranks spend on each other, by axis of the layout."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from cnai.core.recompute import Recompute
from cnai.core.shape import DecoderShape
from cnai.plan.collectives import Group, exchange_seconds, gather_seconds, sum_seconds
from cnai.plan.machines import Machines
from cnai.plan.memory import rank_parameters, spread_parameters
from cnai.plan.request import PlanRequest, Trial

_SUMS = 4  # two in forward, two in backward, a layer


def tensor_seconds(
    request: PlanRequest, shape: DecoderShape, trial: Trial, machines: Machines, stage: int
) -> float:
    """Time of the sums of one microbatch in the split layers of a stage.

    With the residual stream shared out a sum becomes a scatter and a gather of the same bytes.
    """
    layout, software = trial.layout, request.software
    split = trial.split_layers(stage)
    if split == 0:
        return 0.0
    payload = trial.tokens(request.sequence) * shape.width * request.element_bytes
    once = sum_seconds(machines.device, machines.per_node, Group(members=layout.model), payload)
    again = min(split, _again(request, trial, stage)) * software.sums_again
    shown = 1.0 - software.hides_tensor * machines.device.constants.overlap
    edges = (stage == 0) + (stage == trial.last)
    return (split * _SUMS + again + edges) * once * shown


def context_seconds(
    request: PlanRequest,
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stages: tuple[int, ...],
) -> float:
    """Time in which one microbatch exchanges positions for heads, in the layers of these stages.

    Queries, keys and values go out and the result comes back, in forward and in backward; of what
    a rank has, all but its own share is sent. Heads of keys and values are repeated until each
    rank has one.
    """
    layout = trial.layout
    size = layout.context
    if size == 1:
        return 0.0
    element = trial.tokens(request.sequence) * shape.head_width * request.element_bytes
    group = Group(members=size, stride=layout.model)
    seconds = 0.0
    known: dict[tuple[bool, bool], float] = {}
    for stage in stages:
        for layer in range(*trial.cuts[stage]):
            kind = (layout.is_split(layer), Recompute(request.recompute).covers(layer))
            if kind not in known:
                split = layout.model if kind[0] else 1
                heads = 2 * shape.heads // split + 2 * lcm(max(1, shape.kv_heads // split), size)
                once = exchange_seconds(machines.device, machines.per_node, group, element * heads)
                known[kind] = (3 if kind[1] else 2) * once
            seconds += known[kind]
    return seconds


def expert_seconds(
    request: PlanRequest,
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stages: tuple[int, ...],
) -> float:
    """Time in which one microbatch takes rows to their experts and back, in these stages.

    Every choice of a token is a row, and experts are taken for evenly used.
    """
    layout = trial.layout
    if layout.expert == 1:
        return 0.0
    rows = trial.tokens(request.sequence) * shape.experts_per_token
    payload = rows * shape.width * request.element_bytes
    group = Group(members=layout.expert, stride=layout.model)
    once = 2 * exchange_seconds(machines.device, machines.per_node, group, payload)
    mode = Recompute(request.recompute)
    layers = (layer for stage in stages for layer in range(*trial.cuts[stage]))
    return sum(
        (3 if mode.covers(layer) else 2) * once for layer in layers if shape.is_sparse(layer)
    )


def _again(request: PlanRequest, trial: Trial, stage: int) -> int:
    """Count the layers of a stage whose exchanges of forward are done twice."""
    mode = Recompute(request.recompute)
    if mode is Recompute.SELECTIVE and request.software.selective != "layers":
        return 0
    return sum(mode.covers(layer) for layer in range(*trial.cuts[stage]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """The ranks whose data axis is looked at.

    Attributes:
        stages: Those that they own.
        hidden_seconds: Computing of one microbatch, behind which they may hide what they send.
    """

    stages: tuple[int, ...]
    hidden_seconds: float


def data_seconds(
    request: PlanRequest, shape: DecoderShape, trial: Trial, machines: Machines, own: Sharded
) -> float:
    """Time that the data axis adds to a step of the ranks that own some stages.

    Without sharding one sum of the gradients. With it, for every microbatch, the parameters are
    gathered before forward and again before backward and the gradients scattered; what computing
    hides is not added. Hybrid sharding does so inside its groups, and adds a sum of the scattered
    gradients between them. Experts that are spread are averaged over the ranks that hold the same.
    """
    layout, software, size = trial.layout, request.software, trial.shards
    if layout.copies == 1:
        return 0.0
    device, per_node = machines.device, machines.per_node
    overlap = device.constants.overlap
    experts = sum(spread_parameters(shape, trial, stage) for stage in own.stages)
    parameters = sum(rank_parameters(shape, trial, stage) for stage in own.stages) - experts
    groups = Group(members=layout.copies // size, stride=layout.model * size)
    width = software.gradient_bytes
    between = sum_seconds(device, per_node, groups, width * parameters / size)
    same = Group(members=layout.expert_copies, stride=layout.model * layout.expert)
    spread = sum_seconds(device, per_node, same, width * experts)
    if size == 1:
        total = between + spread
        hidden = min(total, own.hidden_seconds * 2 / 3) if software.hides_gradients else 0.0
        return total - overlap * hidden
    inner = Group(members=size, stride=layout.model)
    layers = sum(trial.layers(stage) for stage in own.stages)
    latency = gather_seconds(device, per_node, inner, 0.0) * (layers - 1)
    one = gather_seconds(device, per_node, inner, request.element_bytes * parameters) + latency
    gather = 2 * one
    scatter = gather_seconds(device, per_node, inner, width * parameters) + latency
    if trial.expert_shards(shape.width) > 1:
        spread = 0.0
        gather += 2 * gather_seconds(device, per_node, same, request.element_bytes * experts)
        scatter += gather_seconds(device, per_node, same, width * experts)
    each = gather + scatter
    shown = each - overlap * min(each, own.hidden_seconds)
    return trial.microbatches * shown + spread + between
