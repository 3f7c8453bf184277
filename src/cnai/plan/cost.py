"""How long a step takes, well enough to rank layouts against each other.

A roofline: FLOPs over the reachable rate of a device, bytes over the rate of a link, a fixed time
for the kernels of a layer and for a collective. Only what full sharding sends overlaps with
computing. Sources: pipeline time and tensor-parallel traffic from Narayanan et al. 2021,
arXiv 2104.04473, sections 2.2 and 3.2; ring collectives from Thakur et al. 2005, Int. J. High
Performance Computing Applications 19(1); traffic of sharded parameters from Rajbhandari et al.
2020, arXiv 1910.02054, section 7; its overlap from Zhao et al. 2023, arXiv 2304.11277.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from cnai.core.estimate import StepEstimate
from cnai.core.recompute import Recompute
from cnai.core.shape import DecoderShape
from cnai.plan.activations import FLOAT
from cnai.plan.devices import Machines
from cnai.plan.memory import rank_parameters, spread_parameters
from cnai.plan.pipeline import idle_pieces
from cnai.plan.request import PlanRequest, Trial

REACHABLE = 0.6
"""Share of a device's peak that large matrix products reach; published runs lie at 0.4 to 0.7."""
_FORWARD_AND_BACKWARD = 3
_ALL_REDUCES = 4  # two in forward, two in backward, a layer


def layer_costs(
    shape: DecoderShape, sequence: int, model_size: int, split_layer: int
) -> list[float]:
    """FLOPs for one token of each layer on one rank, embedding and head added to the ends."""
    costs = [
        shape.layer_flops(sequence, index) / (model_size if index >= split_layer else 1)
        for index in range(shape.layers)
    ]
    costs[0] += 2.0 * shape.width
    head_split = split_layer == 0 if shape.tied_head else split_layer < shape.layers
    costs[-1] += shape.head_flops() / (model_size if head_split else 1)
    return costs


def estimate_step(
    request: PlanRequest,
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stage_costs: tuple[float, ...],
) -> StepEstimate:
    """Estimate the time of a step.

    `stage_costs` are the forward FLOPs for one token of each stage on one rank.
    """
    layout = trial.layout
    places = [trial.stages_of(place) for place in range(layout.pipeline)]
    compute = [
        sum(compute_seconds(request, trial, machines, stage_costs, stage) for stage in stages)
        for stages in places
    ]
    tensor = [
        sum(tensor_seconds(request, shape, trial, machines, stage) for stage in stages)
        for stages in places
    ]
    slowest = max(range(layout.pipeline), key=lambda place: compute[place] + tensor[place])
    exchange = context_seconds(request, shape, trial, machines, places[slowest])
    exchange += expert_seconds(request, shape, trial, machines, places[slowest])
    piece = compute[slowest] + tensor[slowest] + exchange
    piece += trial.virtual * _boundary_seconds(request, shape, trial, machines)
    idle = idle_pieces(trial)
    slots = trial.microbatches + idle
    data = max(
        data_seconds(shape, trial, machines, stages, gathering=_gathering(request, piece))
        for stages in places
    )
    step = slots * piece + data
    batch_tokens = request.batch * request.sequence
    peak = machines.rank_flops(request.precision, layout.ranks) * layout.ranks
    return StepEstimate(
        step_seconds=step,
        compute_seconds=trial.microbatches * compute[slowest],
        tensor_seconds=trial.microbatches * tensor[slowest],
        exchange_seconds=trial.microbatches * exchange,
        data_seconds=data,
        bubble_fraction=idle / slots,
        tokens_per_second=batch_tokens / step,
        utilization=shape.train_flops_per_token(request.sequence) * batch_tokens / (step * peak),
    )


def compute_seconds(
    request: PlanRequest,
    trial: Trial,
    machines: Machines,
    stage_costs: tuple[float, ...],
    stage: int,
) -> float:
    """Time of forward and backward of one microbatch in a stage, without communication."""
    rate = machines.rank_flops(request.precision, trial.layout.ranks) * REACHABLE
    tokens = trial.tokens(request.sequence)
    passes = _FORWARD_AND_BACKWARD + _again(request, trial, stage) / trial.layers(stage)
    matrices = passes * stage_costs[stage] * tokens / rate
    return matrices + trial.layers(stage) * machines.device.layer_seconds


def tensor_seconds(
    request: PlanRequest, shape: DecoderShape, trial: Trial, machines: Machines, stage: int
) -> float:
    """Time of the all-reduces of one microbatch in the split layers of a stage."""
    size = trial.layout.model
    split = trial.split_layers(stage)
    if split == 0:
        return 0.0
    payload = trial.tokens(request.sequence) * shape.width * request.element_bytes
    once = _ring_seconds(2 * payload, size, machines.link(size), machines.device.latency_seconds)
    # A layer done again stops before its last all-reduce, whose result nobody keeps.
    return (split * _ALL_REDUCES + min(split, _again(request, trial, stage))) * once


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
    link, latency = machines.link(size * layout.model), machines.device.latency_seconds
    seconds = 0.0
    for stage in stages:
        for layer in range(*trial.cuts[stage]):
            split = layout.model if layout.is_split(layer) else 1
            heads = 2 * shape.heads // split + 2 * lcm(shape.kv_heads // split, size)
            passes = 3 if Recompute(request.recompute).covers(layer) else 2
            seconds += passes * (_ring_seconds(element * heads, size, link, 2 * latency))
    return seconds


def expert_seconds(
    request: PlanRequest,
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stages: tuple[int, ...],
) -> float:
    """Time in which one microbatch takes rows to their experts and back, in these stages.

    Every choice of a token is a row, and experts are taken for evenly used. Beside the rows a
    message tells how many there are.
    """
    layout = trial.layout
    if layout.expert == 1:
        return 0.0
    rows = trial.tokens(request.sequence) * shape.experts_per_token
    payload = 2 * rows * shape.width * request.element_bytes
    link = machines.link(layout.expert * layout.model)
    once = _ring_seconds(payload, layout.expert, link, 3 * machines.device.latency_seconds)
    mode = Recompute(request.recompute)
    layers = (layer for stage in stages for layer in range(*trial.cuts[stage]))
    return sum(
        (3 if mode.covers(layer) else 2) * once for layer in layers if shape.is_sparse(layer)
    )


def _again(request: PlanRequest, trial: Trial, stage: int) -> int:
    """Count the layers of a stage whose forward pass is done twice."""
    mode = Recompute(request.recompute)
    return sum(mode.covers(layer) for layer in range(*trial.cuts[stage]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """What full sharding fetches, and the work that hides it.

    Attributes:
        element_bytes: Bytes of a parameter as it is fetched.
        hidden_seconds: Time of one microbatch, during which the next layers are fetched.
    """

    element_bytes: int
    hidden_seconds: float


def _gathering(request: PlanRequest, piece_seconds: float) -> Gathering:
    return Gathering(
        element_bytes=request.element_bytes,
        hidden_seconds=piece_seconds,
    )


def data_seconds(
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stages: tuple[int, ...],
    *,
    gathering: Gathering,
) -> float:
    """Time that the data axis adds to a step of the ranks that own these stages.

    Without sharding one all-reduce of the float32 gradients. With it, for every microbatch, the
    parameters are gathered before forward and again before backward and the gradients scattered;
    only what outlasts the computing is added, and the last scatter. Hybrid sharding does so inside
    its groups, and adds an all-reduce of the scattered gradients between them. Experts that are
    spread are averaged, or sharded, over the ranks that hold the same ones.
    """
    size = trial.shards
    if trial.layout.copies == 1:
        return 0.0
    experts = sum(spread_parameters(shape, trial, stage) for stage in stages)
    parameters = sum(rank_parameters(shape, trial, stage) for stage in stages) - experts
    latency = machines.device.latency_seconds
    groups, across = trial.layout.copies // size, trial.layout.copies * trial.layout.model
    between = _ring_seconds(2 * FLOAT * parameters / size, groups, machines.link(across), latency)
    spread, same = 0.0, trial.layout.expert_copies
    if experts and same > 1:
        spread = _ring_seconds(2 * FLOAT * experts, same, machines.link(across), latency)
    if size == 1:
        return between + spread
    link = machines.link(size * trial.layout.model)
    latency *= sum(trial.layers(stage) for stage in stages)
    gather = 2 * _ring_seconds(gathering.element_bytes * parameters, size, link, latency)
    scatter = _ring_seconds(FLOAT * parameters, size, link, latency)
    if trial.expert_shards(shape.width) > 1:
        link, spread = machines.link(across), 0.0
        gather += 2 * _ring_seconds(gathering.element_bytes * experts, same, link, latency)
        scatter += _ring_seconds(FLOAT * experts, same, link, latency)
    exposed = max(0.0, gather + scatter - gathering.hidden_seconds)
    return trial.microbatches * exposed + scatter + spread + (between if groups > 1 else 0.0)


def _boundary_seconds(
    request: PlanRequest, shape: DecoderShape, trial: Trial, machines: Machines
) -> float:
    """Time to hand one microbatch to the next stage and its gradient back."""
    layout = trial.layout
    if layout.pipeline == 1:
        return 0.0
    payload = trial.tokens(request.sequence) * shape.width * FLOAT
    link = machines.link(2 * layout.copies * layout.model)
    return 2 * (payload / link + machines.device.latency_seconds)


def _ring_seconds(payload: float, size: int, link: float, latency: float) -> float:
    """Time in which a ring of `size` ranks moves (size - 1) / size of the payload."""
    return payload * (size - 1) / size / link + latency
