"""From a row to seconds and back: the three ways in which sources state a step's speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from plan_rows import Row

from cnai.plan.calibrate import Observation, calibrate
from cnai.plan.constants import Constants
from cnai.plan.cost import estimate_step, model_flops

FAMILIES = {
    "A100-40GB": "A100", "A100-80GB": "A100", "V100-16GB": "V100", "V100-32GB": "V100",
}  # fmt: skip
_EVEN = 25
_MOST = 200


def family(kind: str) -> str:
    """Return the name under which kinds of a device share constants."""
    return FAMILIES.get(kind, kind)


def seconds_of(row: Row, constants: Constants | None = None) -> float:
    """Predict a row's step, with its device's constants or others."""
    machines = row.machines
    if constants is not None:
        machines = replace(machines, device=replace(machines.device, constants=constants))
    return estimate_step(row.request, row.shape, row.trial, machines).step_seconds


def tokens_of(row: Row) -> int:
    """Return the tokens of a step."""
    return row.request.batch * row.request.sequence


def flops_of(row: Row) -> float:
    """Return a step's FLOPs for one GPU as the row's source counts them."""
    flops = model_flops(row.shape, row.request.sequence)
    if row.hardware_flops and row.request.recompute == "full":
        flops += (flops - 3.0 * row.shape.head_flops()) / 3.0
    return flops * tokens_of(row) / row.trial.layout.ranks


def measured_seconds(row: Row) -> float | None:
    """Return what was measured as seconds of a step; None = nothing was."""
    if "step_time_s" in row.measured:
        return row.measured["step_time_s"]
    if "tokens_per_s_per_gpu" in row.measured:
        return tokens_of(row) / row.measured["tokens_per_s_per_gpu"] / row.trial.layout.ranks
    if "measured_tflops_per_gpu" in row.measured:
        return flops_of(row) / (row.measured["measured_tflops_per_gpu"] * 1e12)
    return None


def observations(rows: Sequence[Row]) -> list[Observation]:
    """Return measured steps, sources with many rows weighing less for each.

    Of a source with very many rows evenly spaced ones are taken.
    """
    counts = Counter(row.source for row in rows)
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        seconds, many = measured_seconds(row), counts[row.source]
        seen[row.source] += 1
        every = -(-many // _MOST)
        if seconds and seen[row.source] % every == 0:
            found.append(
                Observation(
                    request=row.request,
                    shape=row.shape,
                    trial=row.trial,
                    machines=row.machines,
                    seconds=seconds,
                    weight=min(1.0, (_EVEN / many) ** 0.5),
                )
            )
    return found


def fitted(rows: Sequence[Row], start: Constants, *, rounds: int = 12) -> Constants:
    """Return constants fitted to rows of one kind of device."""
    return calibrate(observations(rows), start, rounds=rounds, freedom=2.0)
