"""The published thresholds of two systems, on the same traces, by code of our own.

Sources: AutoTrainer (Zhang et al., ICSE 2021), `utils/monitor.py` of its repository: a gradient
vanishes where first over last is below 1e-3 and the first below 1e-4, explodes above 70 or where it
is no number; 70 % of gradients zero is a dying ReLU; less than 1 % gain is slow convergence.
SageMaker Debugger, its list of built-in rules: mean gradient below 1e-7; tensors that are no
number; update ratio above 10 or below 1e-8; 50 % of units dead or saturated; loss falling less than
0.1 % in 10 steps; validation 10 % above training. A gap counts for a fault where its meaning fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from cnai.core.events import EvaluationDone, Event, StepDone
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import inner_matrices, update_ratios

Rule = Callable[[list[Event]], bool]


def layers(events: list[Event]) -> list[LayersMeasured]:
    return [one for one in events if isinstance(one, LayersMeasured)]


def losses(events: list[Event]) -> list[float]:
    return [one.loss for one in events if isinstance(one, StepDone) and one.rank == 0]


def broken(events: list[Event]) -> bool:
    return not all(math.isfinite(one) for one in losses(events))


def share_above(events: list[Event], group: str, limit: float) -> bool:
    values = [one.group(group) for one in layers(events) if len(one.group(group))]
    values = [one for one in values if np.isfinite(one).all()]
    return bool(values) and bool((np.median(values, axis=0) > limit).any())


def first_and_last(events: list[Event]) -> list[tuple[float, float]]:
    pairs = [inner_matrices(one) for one in layers(events)]
    return [(one[0][1], one[-1][1]) for one in pairs if len(one) > 1]


def vanishing_autotrainer(events: list[Event]) -> bool:
    pairs = first_and_last(events)
    return fmean(a < 1e-4 and a < 1e-3 * b for a, b in pairs) > 0.5


def exploding_autotrainer(events: list[Event]) -> bool:
    return broken(events) or any(a > 70 * b > 0 for a, b in first_and_last(events))


def slow(events: list[Event]) -> bool:
    found = losses(events)
    return len(found) > 20 and fmean(found[-10:]) > 0.99 * fmean(found[:10])


def vanishing_sagemaker(events: list[Event]) -> bool:
    return any(0 < value < 1e-7 for one in layers(events) for _, value in inner_matrices(one))


def ratio_sagemaker(events: list[Event]) -> bool:
    ratios = [update_ratios(one)[1] for one in layers(events)]
    return any(((one > 10) | (one < 1e-8)).any() for one in ratios if np.isfinite(one).all())


def not_decreasing(events: list[Event]) -> bool:
    found = losses(events)
    return any(
        after > before * 0.999 for before, after in zip(found[::10], found[10::10], strict=False)
    )


def overfit_sagemaker(events: list[Event]) -> bool:
    training, last = 0.0, losses(events)[:1]
    gap = False
    for one in events:
        if isinstance(one, StepDone):
            last = [*last[-9:], one.loss]
        if isinstance(one, EvaluationDone):
            training = fmean(last)
            gap |= training > 0 and (one.loss - training) / training > 0.1
    return gap


@dataclass(frozen=True)
class Baseline:
    """A system as rules, each with the faults that it stands for."""

    rules: dict[Rule, tuple[str, ...]]

    @property
    def covers(self) -> frozenset[str]:
        """Faults that it can find."""
        return frozenset(name for names in self.rules.values() for name in names)

    def speaks(self, fault: str, events: list[Event]) -> bool:
        """Tell whether a rule for this fault speaks; of a healthy run, whether any does."""
        return any(
            rule(events) for rule, names in self.rules.items() if not fault or fault in names
        )


BASELINES = {
    "AutoTrainer": Baseline({
        vanishing_autotrainer: ("vanishing",),
        exploding_autotrainer: ("exploding", "nonfinite"),
        lambda events: share_above(events, "dead", 0.7): ("dead_units",),
        slow: ("rate_low", "labels_shuffled", "plateau", "wrong_sign"),
    }),
    "SageMaker Debugger": Baseline({
        vanishing_sagemaker: ("vanishing",),
        broken: ("nonfinite", "exploding"),
        ratio_sagemaker: ("rate_high", "rate_low", "frozen"),
        lambda events: share_above(events, "dead", 0.5): ("dead_units",),
        lambda events: share_above(events, "saturated", 0.5): ("saturation",),
        not_decreasing: ("wrong_sign", "labels_shuffled", "plateau", "loss_spike"),
        overfit_sagemaker: ("overfit",),
    }),
}  # fmt: skip
