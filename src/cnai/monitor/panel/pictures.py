"""A record as plain values for the page: whole, what is new, and as of an earlier step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cnai.core.records import to_dict
from cnai.monitor.goodput import PARTS
from cnai.monitor.panel.record import RunRecord
from cnai.monitor.panel.table import CURVES
from cnai.monitor.panel.thinning import Array, thin
from cnai.monitor.progress import RankRow, RunProgress

POINTS = 1200
"""Most points of a curve in a whole picture."""

_MOST_RANKS = 256
_HIDDEN = ("loss_history", "step_histogram", "findings", "moves", "moves_made")
Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where somebody has seen a record."""

    cuts: int
    step: int
    findings: int


def mark(record: RunRecord) -> Mark:
    """Return the mark of all that a record has."""
    return Mark(record.table.cuts, record.table.last_step, record.found)


def whole(record: RunRecord) -> Plain:
    """Return all that the page needs to draw a run, with curves thinned out."""
    with record.lock:
        return {
            **_present(record),
            "curves": {name: curve(record, name, POINTS) for name in CURVES},
            "findings": [to_dict(one) for one in record.findings],
        }


def news(record: RunRecord, seen: Mark) -> Plain | None:
    """Return what came after a mark; None when so much changed that the whole is due.

    The curves hold the new steps alone, the rest is as of now.
    """
    with record.lock:
        table = record.table
        if table.cuts != seen.cuts:
            return None
        first = 0 if seen.step == 0 else (table.row_of(seen.step) or 0) + 1
        if len(table) - first > POINTS:
            return None
        added = min(record.found - seen.findings, len(record.findings))
        steps = table.column("step")[first:]
        return {
            **_present(record),
            "curves": {name: _pair(steps, table.column(name)[first:]) for name in CURVES},
            "findings": [to_dict(one) for one in list(record.findings)[-added:] if added],
        }


def curve(record: RunRecord, name: str, points: int) -> Plain:
    """Return a curve in at most so many points; `validation` is one too."""
    with record.lock:
        if name == "validation":
            return _validation(record)
        return _pair(*thin(record.table.column("step"), record.table.column(name), points))


def at_step(record: RunRecord, step: int) -> Plain:
    """Return how a run stood when a step was done; empty before the first."""
    with record.lock:
        table = record.table
        row = table.row_of(step)
        if row is None:
            return {}
        time_unix = table.cell(row, "time_unix")
        seen = [one for one in record.evaluations if one.step <= step]
        saved = [one for one in record.checkpoints if one.time_unix <= time_unix]
        parts = {part: table.cell(row, part) for part in PARTS}
        elapsed = sum(parts.values())
        return {
            "step": int(table.cell(row, "step")),
            "time_unix": time_unix,
            **{name: table.cell(row, name) for name in CURVES},
            "validation_loss": seen[-1].loss if seen else None,
            "checkpoint_step": saved[-1].step if saved else None,
            "goodput": _parts(parts, elapsed),
            "ranks": [
                {"rank": rank, "step_seconds": seconds, "data_wait_seconds": wait}
                for rank, seconds, wait in record.grid.at(step)
            ],
        }


def waits(record: RunRecord, columns: int) -> Plain:
    """Return the wait for data of each rank over the steps."""
    with record.lock:
        steps = record.grid.stretch_steps(columns)
        return {"steps": steps, "rows": record.grid.waits(columns), "last": record.table.last_step}


def layers(record: RunRecord, columns: int) -> Plain:
    """Return gradient norm and update over weight of each layer over the steps."""
    with record.lock:
        grid = record.layers
        return {
            "names": grid.names,
            "steps": grid.stretch_steps(columns),
            "last": record.table.last_step,
            "norms": grid.norms(columns),
            "ratios": grid.ratios(columns),
        }


def _present(record: RunRecord) -> Plain:
    """Return what is as of now and small."""
    progress = record.progress()
    plain = {name: value for name, value in to_dict(progress).items() if name not in _HIDDEN}
    return {
        **plain,
        "goodput": _parts(progress.goodput.parts, progress.goodput.elapsed_seconds),
        "ranks": [to_dict(row) for row in _shown(progress.ranks)],
        "ranks_total": len(progress.ranks),
        "alive": record.run.owner() is not None,
        "quiet_seconds": _quiet_seconds(progress),
        "validation": _validation(record),
        "checkpoints": [to_dict(one) for one in list(record.checkpoints)[-100:]],
        "incidents": [to_dict(one) for one in list(record.incidents)[-100:]],
    }


def _shown(rows: tuple[RankRow, ...]) -> list[RankRow]:
    """Return all ranks, or those of many that waited or were quiet for longest."""
    if len(rows) <= _MOST_RANKS:
        return list(rows)
    worst = sorted(rows, key=lambda row: row.age_seconds + row.data_wait_seconds, reverse=True)
    return sorted(worst[:_MOST_RANKS], key=lambda row: row.rank)


def _quiet_seconds(progress: RunProgress) -> float | None:
    """Return the time since the last sign of life of any rank."""
    return min((row.age_seconds for row in progress.ranks), default=None)


def _parts(parts: dict[str, float], elapsed: float) -> Plain:
    share = parts["useful"] / elapsed if elapsed > 0 else None
    return {"parts": parts, "elapsed": elapsed, "share": share}


def _validation(record: RunRecord) -> Plain:
    steps = [float(one.step) for one in record.evaluations]
    return _pair(np.array(steps), np.array([one.loss for one in record.evaluations]))


def _pair(x: Array, y: Array) -> Plain:
    """Return a curve as two lists; what is no number becomes none, which is drawn as a gap."""
    finite = np.isfinite(y)
    values = [value if ok else None for value, ok in zip(y.tolist(), finite.tolist(), strict=True)]
    return {"x": x.astype(np.int64).tolist(), "y": values}
