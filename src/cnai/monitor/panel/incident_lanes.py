"""Ranks over time as a picture: a lane each, what it did, and where it broke off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LEFT, _RIGHT, _TOP, _LANE = 1120.0, 88.0, 16.0, 34.0, 26.0
_LEAST_WIDTH = 0.8
Scale = Callable[[float], float]
"""From seconds to a place on the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time, in seconds on an axis that all lanes share.

    Attributes:
        kind: `work`, `data`, `wait`, `open` (a step that was not finished) or `held` (such a step
            of a rank that was held up by another).
    """

    start: float
    end: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One rank; `end` is when its process ended, None when it did not."""

    rank: int
    spans: tuple[Span, ...]
    is_root: bool = False
    end: float | None = None


def draw_lanes(lanes: Sequence[Lane], break_at: float | None, label: str) -> str:
    """Return the picture as SVG, coloured by classes alone."""
    spans = [span for lane in lanes for span in lane.spans]
    first = min((span.start for span in spans), default=0.0)
    last = max((span.end for span in spans), default=1.0)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(last - first, 1e-6)

    def x(seconds: float) -> float:
        return _LEFT + (min(max(seconds, first), last) - first) * scale

    height = _TOP + _LANE * len(lanes) + 30
    drawn = [_lane(lane, index, x) for index, lane in enumerate(lanes)]
    axis = _axis(first, last, break_at, x, _TOP + _LANE * len(lanes))
    root = next((index for index, lane in enumerate(lanes) if lane.is_root), None)
    mark = "" if break_at is None else _mark(x(break_at), root, label, len(lanes))
    return (
        f'<svg class="lanes" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(drawn)}{axis}{mark}</svg>'
    )


def _lane(lane: Lane, index: int, x: Scale) -> str:
    top = _TOP + _LANE * index
    bars = "".join(
        f'<rect class="{escape(span.kind)}" x="{x(span.start):.1f}" y="{top + 4:.0f}" '
        f'width="{max(x(span.end) - x(span.start), _LEAST_WIDTH):.1f}" height="{_LANE - 8:.0f}" '
        f'rx="2"><title>{escape(span.title)}</title></rect>'
        for span in lane.spans
    )
    cross = ""
    if lane.end is not None:
        place, middle = x(lane.end), top + _LANE / 2
        cross = (
            f'<path class="end" d="M{place - 5:.1f} {middle - 5:.1f}l10 10m0 -10l-10 10">'
            f"<title>the process of rank {lane.rank} ended</title></path>"
        )
    name = ' class="root"' if lane.is_root else ""
    return (
        f'<text{name} x="{_LEFT - 12:.0f}" y="{top + _LANE / 2 + 5:.0f}" text-anchor="end">'
        f"rank {lane.rank}</text>{bars}{cross}"
    )


def _axis(first: float, last: float, zero: float | None, x: Scale, bottom: float) -> str:
    origin = last if zero is None else zero
    step = _round_step((last - first) / 8)
    number = int((first - origin) / step)
    ticks = []
    while origin + number * step <= last:
        at = origin + number * step
        if at >= first:
            place = x(at)
            ticks.append(
                f'<line class="tick" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP:.0f}" '
                f'y2="{bottom:.0f}"/><text class="tick" x="{place:.1f}" y="{bottom + 18:.0f}" '
                f'text-anchor="middle">{number * step:+g} s</text>'
            )
        number += 1
    return "".join(ticks)


def _round_step(least: float) -> float:
    """Return the next of 1, 2, 5, 10, ... (or tenths of them) that is large enough."""
    step = 0.001
    while True:
        for factor in (1, 2, 5):
            if step * factor >= least:
                return round(step * factor, 6)
        step *= 10


def _mark(place: float, root: int | None, label: str, lanes: int) -> str:
    bottom = _TOP + _LANE * lanes
    left = place > _WIDTH / 2
    ring = ""
    if root is not None:
        middle = _TOP + _LANE * (root + 0.5)
        ring = f'<circle class="break" cx="{place:.1f}" cy="{middle:.1f}" r="9"/>'
    return (
        f'<line class="break" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP - 10:.0f}" '
        f'y2="{bottom:.0f}"/>{ring}<text class="break" x="{place + (-8 if left else 8):.1f}" '
        f'y="{_TOP - 12:.0f}" text-anchor="{"end" if left else "start"}">{escape(label)}</text>'
    )
