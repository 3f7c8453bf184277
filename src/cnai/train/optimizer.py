"""The update of one rank's shards, and the learning rate of a step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cnai.core.spec.sections import Train
from cnai.train.muon import Muon
from cnai.train.shards import Shard


def learning_rate(settings: Train, step: int, steps: int) -> float:
    """Return the rate for a zero-based step: linear warm-up, then the chosen fall.

    Sources: cosine from Loshchilov and Hutter 2016, arXiv 1608.03983; warm-up, stable, decay from
    Hu et al. 2024 (MiniCPM), arXiv 2404.06395, with the fall by 1 - sqrt of Haegele et al. 2024,
    arXiv 2405.18392.

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
    if settings.schedule == "wsd":
        return peak * _stable_then_decay(settings, step, steps)
    fall = 1 - done if settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * (settings.final_rate + (1 - settings.final_rate) * fall)


def _stable_then_decay(settings: Train, step: int, steps: int) -> float:
    """Return the share of the peak: 1 until the last part of the run, then down by 1 - sqrt."""
    length = max(1, round(settings.decay * steps))
    done = max(0.0, (step - (steps - 1 - length)) / length)
    return settings.final_rate + (1 - settings.final_rate) * (1 - math.sqrt(min(1.0, done)))


class Optimizer:
    """AdamW, Muon or SGD over the local shards.

    Attributes:
        rules: What updates them, each its own.

    Its state exists from the start, so that a checkpoint can be loaded into it in place. Source of
    AdamW: Loshchilov and Hutter 2017, arXiv 1711.05101; of Muon: see `cnai.train.muon`.
    """

    def __init__(self, shards: list[Shard], settings: Train) -> None:
        self._shards = shards
        rest = shards
        self.rules: list[torch.optim.Optimizer] = []
        if settings.optimizer == "muon":
            hidden = [shard for shard in shards if shard.is_hidden]
            rest = [shard for shard in shards if not shard.is_hidden]
            if hidden:
                self.rules.append(
                    Muon(
                        hidden,
                        rate=settings.learning_rate,
                        momentum=settings.momentum,
                        weight_decay=settings.weight_decay,
                    )
                )
        groups = _groups(rest, settings.weight_decay)
        if groups and settings.optimizer == "sgd":
            self.rules.append(torch.optim.SGD(groups, lr=settings.learning_rate, foreach=True))
        elif groups:
            self.rules.append(_adamw(groups, rest, settings))

    def step(self, rate: float) -> None:
        """Update all shards from their gradients."""
        for shard in self._shards:
            shard.local.grad = shard.local_gradient()
        for rule in self.rules:
            for group in rule.param_groups:
                group["lr"] = rate
            rule.step()

    def zero(self) -> None:
        """Forget the gradients."""
        for shard in self._shards:
            shard.parameter.grad = None
            shard.local.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return the state under `NAME.exp_avg` and so on, sharing storage with the optimizer."""
        return {
            f"{shard.name}.{key}": value if key == "step" else shard.wrap(value)
            for rule in self.rules
            for shard in self._shards
            if shard.local in rule.state
            for key, value in rule.state[shard.local].items()
        }


def _groups(shards: list[Shard], weight_decay: float) -> list[dict[str, Any]]:
    """Put matrices, which decay, apart from norms and biases, which do not."""
    groups: list[dict[str, Any]] = [
        {
            "params": [shard.local for shard in shards if shard.is_matrix == decayed],
            "weight_decay": weight_decay if decayed else 0.0,
        }
        for decayed in (True, False)
    ]
    return [group for group in groups if group["params"]]


def _adamw(
    groups: list[dict[str, Any]], shards: list[Shard], settings: Train
) -> torch.optim.Optimizer:
    """Return AdamW with its state, in one kernel (fused)."""
    rule = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)
    for shard in shards:
        rule.state[shard.local] = {
            "step": torch.zeros((), device=shard.local.device),
            "exp_avg": torch.zeros_like(shard.local),
            "exp_avg_sq": torch.zeros_like(shard.local),
        }
    return rule
