"""Bytes that a rank needs for a user's own module: what can be counted, and nothing guessed.

Weights, gradients and optimizer follow from the parameters; what activations take is not known, so
the sum is a lower bound, and a layout is only refused when even that does not fit.
"""

from __future__ import annotations

from cnai.core.layout import Memory
from cnai.core.module import ModuleFacts, Unit
from cnai.plan.activations import FLOAT
from cnai.plan.balance import Cuts, balance
from cnai.plan.devices import Device
from cnai.plan.memory import OPTIMIZER_BYTES
from cnai.plan.request import PlanRequest, Trial


def module_cuts(facts: ModuleFacts, stages: int) -> Cuts:
    """Cut the layers into stages that hold about as many parameters."""
    if not facts.layers:
        return ((0, 0),)
    costs = [float(unit.held(1)) for unit in facts.layers]
    costs[0] += facts.inlet.held(1)
    costs[-1] += facts.outlet.held(1)
    return balance(costs, stages)


def module_stage(facts: ModuleFacts, trial: Trial, stage: int) -> Unit:
    """Return the parameters of a stage as they lie in this layout."""
    first, end = trial.cuts[stage]
    return facts.stage(first, end, trial.layout.split_layer)


def module_memory(
    request: PlanRequest, facts: ModuleFacts, trial: Trial, stage: int, device: Device
) -> Memory:
    """Return the bytes of one rank of a stage, without its activations."""
    unit, size = module_stage(facts, trial, stage), trial.layout.model
    kept = -(-unit.held(size) // trial.shards)
    changed = -(-unit.trained(size) // trial.shards)
    return Memory(
        weight_bytes=FLOAT * kept,
        gradient_bytes=FLOAT * changed,
        optimizer_bytes=OPTIMIZER_BYTES[request.optimizer] * changed,
        activation_bytes=0,
        overhead_bytes=device.overhead_bytes,
    )
