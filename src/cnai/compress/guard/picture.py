"""Pictures of plain text for the report: what each group costs, and the frontier of the trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cnai.compress.guard.trials import GroupError, Trial

_WIDTH = 40
_MOST_BARS = 40
_ROWS, _COLUMNS = 12, 56


def bars(groups: Sequence[GroupError]) -> list[str]:
    """Draw the error of each group alone, the largest first, on a logarithmic scale."""
    shown = sorted(groups, key=lambda one: -one.error)[:_MOST_BARS]
    sound = [one.error for one in shown if 0 < one.error < math.inf]
    if not shown:
        return []
    low, high = (min(sound), max(sound)) if sound else (1.0, 1.0)
    span = math.log(high / low) or 1.0
    name_width = max(len(_short(one.group)) for one in shown)
    lines = []
    for one in shown:
        share = 0.0
        if one.error > 0:
            share = 1.0 if one.error > high else 0.1 + 0.9 * math.log(one.error / low) / span
        bar = "#" * max(0, round(_WIDTH * min(1.0, share)))
        mark = " <- back" if one.back else ""
        lines.append(f"{_short(one.group):<{name_width}} {one.error:>8.2%} {bar}{mark}".rstrip())
    if len(groups) > len(shown):
        lines.append(f"... and {len(groups) - len(shown)} with less")
    return lines


def frontier(trials: Sequence[Trial]) -> list[str]:
    """Draw speed against the outputs' change; letters are trials, large ones passed."""
    points = [
        (index, one.speed.ratio, one.score.agreement.relative_error)
        for index, one in enumerate(trials)
        if one.speed is not None
        and one.score is not None
        and 0 < one.score.agreement.relative_error < math.inf
    ]
    if len(points) < 2:
        return []
    speeds = [math.log(one[1]) for one in points]
    errors = [math.log(one[2]) for one in points]
    grid = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for (index, _, _), speed, error in zip(points, speeds, errors, strict=True):
        column = round(_place(speed, speeds) * (_COLUMNS - 1))
        row = round((1 - _place(error, errors)) * (_ROWS - 1))
        grid[row][column] = letter(index, passed=trials[index].passed)
    lines = [f"change of outputs, from {min(one[2] for one in points):.2%} (bottom)"]
    lines[0] += f" to {max(one[2] for one in points):.2%} (top)"
    lines += [f"|{''.join(row)}".rstrip() for row in grid]
    lines.append("+" + "-" * _COLUMNS)
    lines.append(f" {min(one[1] for one in points):.2f} x (left) to ")
    lines[-1] += f"{max(one[1] for one in points):.2f} x (right) as fast"
    return lines


def letter(index: int, *, passed: bool) -> str:
    """Return the letter of a trial; after z they begin again."""
    one = chr(ord("a") + index % 26)
    return one.upper() if passed else one


def _place(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    return 0.5 if high == low else (value - low) / (high - low)


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"...{name[-41:]}"
