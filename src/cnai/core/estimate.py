"""What a layout is expected to cost in time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """The expected time of one optimizer step, and where it goes.

    Attributes:
        step_seconds: The whole step.
        compute_seconds: Matrix products of the slowest stage, over all its microbatches.
        tensor_seconds: All-reduces inside the layers of that stage.
        exchange_seconds: All-to-alls inside the layers of that stage.
        data_seconds: Exchange of gradients (and of sharded parameters) over the data axis.
        bubble_fraction: Share of the pipeline's time in which a stage waits for its neighbours.
        tokens_per_second: Tokens of the global batch over `step_seconds`.
        utilization: Model FLOPs over what the devices could do in that time (MFU).
    """

    step_seconds: float
    compute_seconds: float
    tensor_seconds: float
    data_seconds: float
    bubble_fraction: float
    tokens_per_second: float
    utilization: float
    exchange_seconds: float = 0.0
