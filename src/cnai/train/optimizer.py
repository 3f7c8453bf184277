"""The update of one rank's shards, and the learning rate of a step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cnai.core.spec.sections import Train
from cnai.train.shards import Shard


def learning_rate(settings: Train, step: int, steps: int) -> float:
    """Return the rate for a zero-based step: linear warm-up, then the chosen fall.

    Args:
        steps: Steps of the whole run; the rate reaches `final_rate` of its peak at the last.
    """
    peak = settings.learning_rate
    if step < settings.warmup_steps:
        return peak * (step + 1) / settings.warmup_steps
    span = max(1, steps - 1 - settings.warmup_steps)
    done = min(1.0, (step - settings.warmup_steps) / span)
    if settings.schedule == "constant":
        return peak
    fall = 1 - done if settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * (settings.final_rate + (1 - settings.final_rate) * fall)


class Optimizer:
    """AdamW or SGD over the local shards. Source of AdamW: Loshchilov and Hutter, 1711.05101.

    Its state exists from the start, so that a checkpoint can be loaded into it in place.
    """

    def __init__(self, shards: list[Shard], settings: Train) -> None:
        self._shards = shards
        groups = [
            {
                "params": [shard.local for shard in shards if shard.is_matrix == decayed],
                "weight_decay": settings.weight_decay if decayed else 0.0,
            }
            for decayed in (True, False)
        ]
        groups = [group for group in groups if group["params"]]
        rate = settings.learning_rate
        self._rule: torch.optim.Optimizer
        if settings.optimizer == "adamw":
            self._rule = torch.optim.AdamW(groups, lr=rate, betas=settings.betas, foreach=True)
            for shard in shards:
                self._rule.state[shard.local] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(shard.local),
                    "exp_avg_sq": torch.zeros_like(shard.local),
                }
        else:
            self._rule = torch.optim.SGD(groups, lr=rate, foreach=True)

    def step(self, rate: float) -> None:
        """Update all shards from their gradients."""
        for shard in self._shards:
            shard.local.grad = shard.local_gradient()
        for group in self._rule.param_groups:
            group["lr"] = rate
        self._rule.step()

    def zero(self) -> None:
        """Forget the gradients."""
        for shard in self._shards:
            shard.parameter.grad = None
            shard.local.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return the state under `NAME.exp_avg` and so on, sharing storage with the optimizer."""
        return {
            f"{shard.name}.{key}": value if key == "step" else shard.wrap(value)
            for shard in self._shards
            for key, value in self._rule.state[shard.local].items()
        }
