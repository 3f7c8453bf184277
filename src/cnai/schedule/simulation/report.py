"""A page about simulated policies: a table and four pictures, in one file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from cnai.core.units import format_seconds
from cnai.schedule.ledger import Spent, money
from cnai.schedule.simulation.outcome import Outcome

Floats = NDArray[np.float64]
Line = tuple[str, Floats, Floats]

COLOURS = ("#1f6feb", "#d1572a", "#2a9d5c", "#8a4fd3", "#b58900", "#c2307a", "#4d6a79", "#7a5230")
_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 14, 40
_POINTS = 300

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1180px;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.05rem;margin:0 0 .3rem}
table{border-collapse:collapse;margin:1rem 0 2rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .9rem .3rem 0;text-align:right;border-bottom:1px solid #d9dee3}
th:first-child,td:first-child{text-align:left}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(520px,1fr));gap:1.6rem}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
svg{width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:#57606a}
"""


def html_report(outcomes: Sequence[Outcome], title: str) -> str:
    """Return the whole page.

    Args:
        outcomes: One a policy, on the same jobs and machines.
        title: What was simulated, in words.
    """
    pictures = (
        ("GPUs in use, share of those there", _plot(_used(outcomes), "hours", top=1.0)),
        ("Jobs that wait", _plot(_waiting(outcomes), "hours")),
        ("Jobs ended within a time", _plot(_ended(outcomes), "seconds", log=True, top=1.0)),
        ("What the GPU time was spent on", _bars(outcomes)),
    )  # fmt: skip
    grid = "".join(f"<section><h2>{escape(name)}</h2>{svg}</section>" for name, svg in pictures)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style><h1>{escape(title)}</h1>{_table(outcomes)}"
        f"<div class=grid>{grid}</div></html>\n"
    )


def rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Return the names and the cells of the table of all policies."""
    columns = ["policy", "mean JCT", "median JCT", "p99 JCT", "mean wait", "GPU-hours", "in use",
               "resizes", "restarts", "cost", "unfinished"]  # fmt: skip
    cells = []
    for outcome in outcomes:
        numbers = outcome.summary()
        times = [_hours(numbers[name]) for name in
                 ("mean_jct_h", "median_jct_h", "p99_jct_h", "mean_wait_h")]  # fmt: skip
        cells.append([
            outcome.policy, *times, f"{float(numbers['gpu_hours']):,.0f}",
            f"{100 * outcome.utilisation:.1f}%", f"{float(numbers['resizes_per_job']):.2f}",
            f"{float(numbers['restarts_per_job']):.2f}", f"{float(numbers['cost']):,.2f}",
            str(numbers["unfinished"]),
        ])  # fmt: skip
    return columns, cells


def _hours(value: float | int | str) -> str:
    return format_seconds(float(value) * 3600)


def _table(outcomes: Sequence[Outcome]) -> str:
    columns, cells = rows(outcomes)
    head = "".join(f"<th>{escape(name)}" for name in columns)
    body = "".join(
        f'<tr><td><span class=key style="background:{_colour(place)}"></span>{escape(row[0])}'
        + "".join(f"<td>{escape(cell)}" for cell in row[1:])
        for place, row in enumerate(cells)
    )
    return f"<table><tr>{head}{body}</table>"


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _used(outcomes: Sequence[Outcome]) -> list[Line]:
    lines = []
    for outcome in outcomes:
        track = outcome.track
        share = np.array(track.used) / np.maximum(np.array(track.capacity), 1e-9)
        lines.append((outcome.policy, *_means(np.array(track.times), share)))
    return lines


def _waiting(outcomes: Sequence[Outcome]) -> list[Line]:
    return [
        (one.policy, *_means(np.array(one.track.times), np.array(one.track.waiting, np.float64)))
        for one in outcomes
    ]


def _means(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the mean over time of a step function in equal spans, by hours from its start."""
    if times.size < 2 or times[-1] <= times[0]:
        return np.zeros(1), values[:1] if values.size else np.zeros(1)
    edges = np.linspace(times[0], times[-1], min(_POINTS, times.size) + 1)
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    means = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    return ((edges[:-1] + edges[1:]) / 2 - times[0]) / 3600, means


def _ended(outcomes: Sequence[Outcome]) -> list[Line]:
    lines = []
    for outcome in outcomes:
        done = np.sort(outcome.completions)
        if done.size:
            ranks = np.unique(np.linspace(0, done.size - 1, min(_POINTS, done.size)).astype(int))
            lines.append((outcome.policy, np.maximum(done[ranks], 1.0), (ranks + 1) / done.size))
    return lines


def _plot(lines: Sequence[Line], unit: str, *, log: bool = False, top: float | None = None) -> str:
    """Draw lines over one axis; `log` means steps of ten."""
    low = min((float(line[1].min()) for line in lines), default=0.0)
    high = max((float(line[1].max()) for line in lines), default=1.0)
    peak = top or max((float(line[2].max()) for line in lines), default=1.0) or 1.0
    start, end = (np.log10(max(low, 1.0)), np.log10(max(high, 10.0))) if log else (low, high)
    span = max(float(end - start), 1e-9)

    def x_of(value: Floats) -> Floats:
        place = np.log10(np.maximum(value, 1.0)) if log else value
        return np.asarray(_LEFT + (place - start) / span * (_WIDTH - _LEFT - _RIGHT))

    def y_of(value: Floats) -> Floats:
        return np.asarray(_HEIGHT - _BOTTOM - value / peak * (_HEIGHT - _TOP - _BOTTOM))

    if log:
        ticks = 10.0 ** np.arange(np.ceil(start), np.floor(end) + 1)
    else:
        ticks = np.linspace(start, end, 6)
    parts = [_axis(peak)]
    for tick, x in zip(ticks.tolist(), x_of(ticks).tolist(), strict=True):
        label = _short(tick)
        parts.append(f'<text x="{x:.0f}" y="{_HEIGHT - 22}" text-anchor="middle">{label}</text>')
    middle = (_LEFT + _WIDTH) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 5}" text-anchor="middle">{unit}</text>')
    for place, (name, across, up) in enumerate(lines):
        points = " ".join(
            f"{x:.1f},{y:.1f}"
            for x, y in zip(x_of(across).tolist(), y_of(up).tolist(), strict=True)
        )
        parts.append(
            f'<polyline fill="none" stroke="{_colour(place)}" stroke-width="1.6" points="{points}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return _svg(parts)


def _bars(outcomes: Sequence[Outcome]) -> str:
    """Draw one bar a policy: useful, lost in restarts, idle."""
    shades = {Spent.USEFUL: "#2a9d5c", Spent.RESTART: "#d1572a", Spent.IDLE: "#cfd6dd"}
    parts: list[str] = []
    height = (_HEIGHT - _TOP - _BOTTOM) / max(len(outcomes), 1)
    for place, outcome in enumerate(outcomes):
        split = outcome.ledger.split()
        whole = max(sum(split.values()), 1)
        y, x = _TOP + place * height, float(_LEFT + 30)
        for kind, colour in shades.items():
            width = split[kind] / whole * (_WIDTH - _LEFT - 30 - _RIGHT)
            told = f"{kind.value} {100 * split[kind] / whole:.1f}% = {money(split[kind]):,.2f}"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height * 0.7:.1f}" '
                f'fill="{colour}"><title>{told}</title></rect>'
            )
            x += width
        parts.append(
            f'<text x="{_LEFT + 24}" y="{y + height * 0.45:.1f}" text-anchor="end">'
            f"{escape(outcome.policy)}</text>"
        )
    for place, (kind, colour) in enumerate(shades.items()):
        x = _LEFT + 30 + place * 120
        parts.append(f'<rect x="{x}" y="{_HEIGHT - 26}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{_HEIGHT - 16}">{kind.value}</text>')
    return _svg(parts)


def _axis(peak: float) -> str:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)
        label = f"{100 * share:.0f}%" if peak == 1.0 else _short(share * peak)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e4e8ec"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    return "".join(parts)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == 0 else f"{value:.2g}"


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'
