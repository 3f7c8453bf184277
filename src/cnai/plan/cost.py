"""How long a step takes: the operators of the slowest stage, and what ranks send each other.

One model serves the planner, the dry run and the benchmark of published measurements. Sources:
pipeline time and tensor-parallel traffic from Narayanan et al. 2021, arXiv 2104.04473, sections 2.2
and 3.2; traffic of sharded parameters from Rajbhandari et al. 2020, arXiv 1910.02054, section 7;
its overlap from Zhao et al. 2023, arXiv 2304.11277; recomputing from Korthikanti et al. 2022, arXiv
2205.05198. Operators and collectives have their own pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from cnai.core.estimate import StepEstimate
from cnai.core.recompute import Recompute
from cnai.core.shape import DecoderShape
from cnai.plan.collectives import send_seconds
from cnai.plan.exchange import (
    Sharded,
    context_seconds,
    data_seconds,
    expert_seconds,
    tensor_seconds,
)
from cnai.plan.machines import Machines
from cnai.plan.memory import rank_parameters
from cnai.plan.operators import Chip, LayerWork, Slice, embedding_work, head_work, layer_work
from cnai.plan.pipeline import idle_pieces
from cnai.plan.request import PlanRequest, Trial

_UPDATE_BYTES = 34
"""Bytes that clipping and the update read and write for a parameter: gradient twice, its sums, the
float32 weight and the copy that products read."""


def layer_costs(
    shape: DecoderShape, sequence: int, model_size: int, split_layer: int
) -> list[float]:
    """FLOPs for one token of each layer on one rank, embedding and head added to the ends."""
    kinds: dict[tuple[bool, bool], float] = {}
    costs = []
    for index in range(shape.layers):
        kind = (shape.is_sparse(index), index >= split_layer)
        if kind not in kinds:
            kinds[kind] = shape.layer_flops(sequence, index) / (model_size if kind[1] else 1)
        costs.append(kinds[kind])
    costs[0] += 2.0 * shape.width
    head_split = split_layer == 0 if shape.tied_head else split_layer < shape.layers
    costs[-1] += shape.head_flops() / (model_size if head_split else 1)
    return costs


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTimes:
    """Seconds that the ranks at one place of the pipeline need for one microbatch."""

    compute: float
    tensor: float
    exchange: float

    @property
    def piece(self) -> float:
        """All of it."""
        return self.compute + self.tensor + self.exchange


def estimate_step(
    request: PlanRequest, shape: DecoderShape, trial: Trial, machines: Machines
) -> StepEstimate:
    """Estimate the time of a step."""
    layout, constants = trial.layout, machines.device.constants
    places = _kinds_of_places(shape, trial)
    times = {
        kind: _place_times(request, shape, trial, machines, stages)
        for kind, (stages, _) in places.items()
    }
    slowest = max(times.values(), key=lambda one: one.piece)
    mean = sum(times[kind].piece * count for kind, (_, count) in places.items()) / layout.pipeline
    send = trial.virtual * _boundary_seconds(request, shape, trial, machines)
    idle = idle_pieces(trial)
    data = update = 0.0
    for kind, (stages, _) in places.items():
        own = Sharded(stages=stages, hidden_seconds=times[kind].compute)
        data = max(data, data_seconds(request, shape, trial, machines, own))
        update = max(update, _update_seconds(request, shape, trial, machines, stages))
    step = trial.microbatches * (slowest.piece + send) + idle * (mean + send) + data + update
    nodes = max(1.0, layout.ranks / machines.per_node)
    step = step * (1 + constants.spread * log2(nodes)) + constants.step_seconds
    batch_tokens = request.batch * request.sequence
    peak = machines.rank_flops(request.precision, layout.ranks) * layout.ranks
    flops = model_flops(shape, request.sequence) * batch_tokens
    return StepEstimate(
        step_seconds=step,
        compute_seconds=trial.microbatches * slowest.compute,
        tensor_seconds=trial.microbatches * slowest.tensor,
        exchange_seconds=trial.microbatches * slowest.exchange,
        data_seconds=data,
        bubble_fraction=idle / (trial.microbatches + idle),
        tokens_per_second=batch_tokens / step,
        utilization=flops / (step * peak),
    )


def model_flops(shape: DecoderShape, sequence: int) -> float:
    """FLOPs of forward and backward for one token, without recomputing, all positions attended."""
    sparse = shape.sparse_layers
    total = 0.0
    for kind, count in ((True, sparse), (False, shape.layers - sparse)):
        if count:
            layer = next(one for one in range(shape.layers) if shape.is_sparse(one) is kind)
            total += count * shape.layer_flops(sequence, layer)
    return 3.0 * (total + shape.head_flops())


def _kinds_of_places(
    shape: DecoderShape, trial: Trial
) -> dict[tuple[tuple[int | bool, ...], ...], tuple[tuple[int, ...], int]]:
    """Return the stages of one place of each kind, and how many places are of it."""
    known: dict[tuple[tuple[int | bool, ...], ...], tuple[tuple[int, ...], int]] = {}
    for place in range(trial.layout.pipeline):
        stages = trial.stages_of(place)
        kind = tuple(trial.kind(shape, stage) for stage in stages)
        _, count = known.get(kind, (stages, 0))
        known[kind] = stages, count + 1
    return known


def _place_times(
    request: PlanRequest,
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stages: tuple[int, ...],
) -> PlaceTimes:
    cores = machines.share_of_node(trial.layout.ranks) if machines.device.name == "cpu" else 1.0
    chip = Chip.of(machines.device, request.precision, cores)
    work = _Works(request, shape, trial, chip)
    return PlaceTimes(
        compute=sum(work.stage(stage) for stage in stages),
        tensor=sum(tensor_seconds(request, shape, trial, machines, one) for one in stages),
        exchange=context_seconds(request, shape, trial, machines, stages)
        + expert_seconds(request, shape, trial, machines, stages),
    )


class _Works:
    """Seconds of layers, each kind of layer computed once."""

    def __init__(self, request: PlanRequest, shape: DecoderShape, trial: Trial, chip: Chip) -> None:
        self._request, self._shape, self._trial, self._chip = request, shape, trial, chip
        self._known: dict[tuple[bool, bool], LayerWork] = {}

    def _layer(self, layer: int) -> LayerWork:
        layout, request = self._trial.layout, self._request
        kind = (layout.is_split(layer), self._shape.is_sparse(layer))
        if kind not in self._known:
            split = layout.model if kind[0] else 1
            part = Slice(
                tokens=self._trial.tokens(request.sequence),
                keys=request.sequence,
                split=split,
                shares_stream=layout.split_sequence and split > 1,
                spread=layout.expert,
            )
            self._known[kind] = layer_work(
                self._shape, self._chip, request.software, part, sparse=kind[1]
            )
        return self._known[kind]

    def stage(self, stage: int) -> float:
        """Forward and backward of one microbatch in a stage, without communication."""
        trial, request = self._trial, self._request
        mode, what = Recompute(request.recompute), request.software.selective
        seconds = 0.0
        for layer in range(*trial.cuts[stage]):
            work = self._layer(layer)
            seconds += work.forward + work.backward
            if mode is Recompute.FULL:
                seconds += work.forward
            elif mode is Recompute.SELECTIVE and (what != "layers" or mode.covers(layer)):
                seconds += work.again(what)
        return seconds + self._edges(stage)

    def _edges(self, stage: int) -> float:
        """Embedding of the first stage, head and loss of the last."""
        trial, shape = self._trial, self._shape
        tokens, layout = trial.tokens(self._request.sequence), trial.layout
        seconds = embedding_work(shape, self._chip, tokens) if stage == 0 else 0.0
        if stage == trial.last:
            split = layout.is_split(0 if shape.tied_head else shape.layers - 1)
            seconds += head_work(shape, self._chip, tokens, layout.model if split else 1)
        return seconds


def _update_seconds(
    request: PlanRequest,
    shape: DecoderShape,
    trial: Trial,
    machines: Machines,
    stages: tuple[int, ...],
) -> float:
    """Time in which the optimizer reads and writes what a rank keeps of the parameters."""
    held = sum(rank_parameters(shape, trial, stage) for stage in stages)
    shards = trial.shards
    if request.software.shards_optimizer:
        shards = max(shards, trial.layout.copies)
    device = machines.device
    rate = device.memory_bytes_per_second * device.constants.memory
    if device.name == "cpu":
        rate *= machines.share_of_node(trial.layout.ranks)
    return _UPDATE_BYTES * held / shards / rate


def _boundary_seconds(
    request: PlanRequest, shape: DecoderShape, trial: Trial, machines: Machines
) -> float:
    """Time to hand one microbatch to the next stage and its gradient back."""
    layout = trial.layout
    if layout.pipeline == 1:
        return 0.0
    element = float(request.software.boundary_bytes)
    payload = trial.tokens(request.sequence) * shape.width * element
    if request.software.scatters_boundary:
        payload /= layout.model
    distance = layout.copies * layout.model
    return 2 * send_seconds(machines.device, machines.per_node, distance, payload)
