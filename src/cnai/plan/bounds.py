"""A time that no plan of a combination can beat, quick enough to be asked for thousands."""

from __future__ import annotations

from dataclasses import replace

from cnai.core.shape import DecoderShape
from cnai.plan.exchange import tensor_seconds
from cnai.plan.operators import Chip, LayerWork, Slice, layer_work
from cnai.plan.pipeline import idle_pieces
from cnai.plan.space import Way


class Bounds:
    """A time that no plan of a combination can beat; layers of one kind are computed once."""

    def __init__(self, shape: DecoderShape) -> None:
        self._shape = shape
        self._known: dict[tuple[object, ...], LayerWork] = {}

    def seconds(self, way: Way) -> float:
        """Return the time of the longest stage's layers over all microbatches, and idle time."""
        request, trial, shape = way.request, way.trial, self._shape
        layout = trial.layout
        share = max(end - first for first, end in trial.cuts)
        each = [self._layer(way, sparse=kind) for kind in (False, True)]
        sparse = shape.sparse_layers / shape.layers
        forward = each[0].forward * (1 - sparse) + each[1].forward * sparse
        backward = each[0].backward * (1 - sparse) + each[1].backward * sparse
        again = {"none": 0.0, "selective": 0.5, "full": 1.0}[request.recompute]
        layers = max(share, shape.layers / len(trial.cuts)) if not shape.experts else (
            shape.layers / len(trial.cuts))  # fmt: skip
        if again == 0.5:
            again = max(0.0, (layers - 1) / 2) / layers
        piece = layers * (forward * (1 + again) + backward)
        if layout.split_layer == 0 and layout.model > 1:
            stage = min(1, trial.last)
            per_layer = tensor_seconds(
                replace(request, recompute="none"), shape, trial, way.machines, stage
            ) / max(1, trial.layers(stage) + 1)
            piece += layers * per_layer
        else:
            piece /= layout.model if layout.split_layer else 1
        return piece * (trial.microbatches * trial.virtual + 0.9 * idle_pieces(trial))

    def _layer(self, way: Way, *, sparse: bool) -> LayerWork:
        request, trial, machines = way.request, way.trial, way.machines
        layout = trial.layout
        key = (
            trial.tokens(request.sequence), layout.model, layout.split_sequence, layout.expert,
            sparse, id(machines.device), layout.ranks,
        )  # fmt: skip
        if key not in self._known:
            is_cpu = machines.device.name == "cpu"
            cores = machines.share_of_node(layout.ranks) if is_cpu else 1.0
            part = Slice(
                tokens=trial.tokens(request.sequence), keys=request.sequence, split=layout.model,
                shares_stream=layout.split_sequence, spread=layout.expert,
            )  # fmt: skip
            chip = Chip.of(machines.device, request.precision, cores)
            self._known[key] = layer_work(
                self._shape, chip, request.software, part, sparse=sparse and self._shape.experts > 0
            )
        return self._known[key]
