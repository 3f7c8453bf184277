"""Constants of a device from measured steps.

The logarithms of the constants move from where they stand until the steps come out right, held
back by how far each may plausibly be off: a few steps change little, many change much. The error
is that of the logarithm of the step time, and large ones count by their size only, so that one odd
measurement does not pull the rest. Sources: Levenberg 1944, Quarterly of Applied Mathematics 2(2);
weights for outliers by Huber 1964, Annals of Mathematical Statistics 35(1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from cnai.core.shape import DecoderShape
from cnai.plan.constants import NAMES, Constants
from cnai.plan.cost import estimate_step
from cnai.plan.machines import Machines
from cnai.plan.request import PlanRequest, Trial

_TYPICAL = 0.05
"""Error that counts as large, and the usual one of a measurement."""
_LOOSE = {
    "kernel_seconds": 0.7,
    "node_latency": 0.7,
    "network_latency": 0.7,
    "send_seconds": 0.7,
    "step_seconds": 1.0,
    "spread": 0.7,
    "half_size": 0.6,
}
_FIRM = 0.25
_SHARES = {"matmul", "narrow", "attention", "memory", "node", "network", "overlap"}
_HIGHEST = 0.98
_STEP = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A step that was measured.

    Attributes:
        weight: How much it counts; 1 = as an error of 5 % usually does.
    """

    request: PlanRequest
    shape: DecoderShape
    trial: Trial
    machines: Machines
    seconds: float
    weight: float = 1.0

    def expected(self, constants: Constants) -> float:
        """Return the step's time by the model, with these constants."""
        device = replace(self.machines.device, constants=constants)
        machines = replace(self.machines, device=device)
        return estimate_step(self.request, self.shape, self.trial, machines).step_seconds


def calibrate(
    seen: Sequence[Observation],
    start: Constants,
    *,
    rounds: int = 12,
    freedom: float = 1.0,
) -> Constants:
    """Return constants with which the model comes near what was measured.

    Args:
        seen: Measured steps of one kind of device; empty = the start is returned.
        start: What is believed before.
        rounds: Steps of the search at most.
        freedom: How far constants may move, times what is usual.
    """
    if not seen:
        return start
    prior = np.array([_LOOSE.get(name, _FIRM) * freedom for name in NAMES])
    origin = np.array([log(getattr(start, name)) for name in NAMES])
    moved = np.zeros(len(NAMES))
    damping, best = 1e-2, _loss(_errors(seen, origin), moved, prior)
    for _ in range(rounds):
        errors = _errors(seen, origin + moved)
        slopes = _slopes(seen, origin + moved, errors)
        pull = 1.0 / np.maximum(np.abs(errors), 1.0)
        normal = slopes.T @ (slopes * pull[:, None]) + np.diag(1 / prior**2)
        gradient = slopes.T @ (errors * pull) + moved / prior**2
        improved = False
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            other = _bounded(origin, moved + np.clip(step, -0.5, 0.5))
            loss = _loss(_errors(seen, origin + other), other, prior)
            if loss < best:
                improved = bool(best - loss > 1e-4 * best)
                moved, best, damping = other, loss, damping / 3
                break
            damping *= 4
        if not improved:
            break
    values = {
        name: float(f"{exp(value):.4g}") for name, value in zip(NAMES, origin + moved, strict=True)
    }
    return Constants(**values)


def _bounded(origin: NDArray[np.float64], moved: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep shares below one."""
    top = np.array([log(_HIGHEST) if name in _SHARES else 50.0 for name in NAMES])
    held: NDArray[np.float64] = np.minimum(origin + moved, np.maximum(top, origin)) - origin
    return held


def _errors(seen: Sequence[Observation], values: NDArray[np.float64]) -> NDArray[np.float64]:
    constants = Constants(
        **{name: exp(value) for name, value in zip(NAMES, values.tolist(), strict=True)}
    )
    return np.array(
        [one.weight * log(one.expected(constants) / one.seconds) / _TYPICAL for one in seen]
    )


def _slopes(
    seen: Sequence[Observation], values: NDArray[np.float64], errors: NDArray[np.float64]
) -> NDArray[np.float64]:
    columns = []
    for index in range(len(NAMES)):
        other = values.copy()
        other[index] -= _STEP
        columns.append((errors - _errors(seen, other)) / _STEP)
    return np.stack(columns, axis=1)


def _loss(
    errors: NDArray[np.float64], moved: NDArray[np.float64], prior: NDArray[np.float64]
) -> float:
    size = np.abs(errors)
    robust = np.where(size <= 1, 0.5 * size**2, size - 0.5)
    return float(robust.sum() + 0.5 * ((moved / prior) ** 2).sum())
