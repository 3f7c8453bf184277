"""The page of an incident: one file that needs nothing else, as text.

It shows the ranks over time with the point at which training broke off, what followed in order,
what every rank printed at that moment side by side, the evidence, and what was or can be done.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from cnai.monitor.panel.incident_lanes import Lane, draw_lanes

_STYLE = (Path(__file__).parent / "static" / "incident.css").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that followed, so many seconds after the break."""

    seconds: float
    who: str
    what: str
    is_root: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """The end of what a rank printed.

    Attributes:
        lines: Those shown, with their numbers.
        root: Number of the line that names the cause; None when it is not in this log.
        stack: Where it stood, the innermost first.
    """

    rank: int
    part: str
    file: str
    lines: tuple[tuple[int, str], ...]
    root: int | None = None
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """A repair, with the keys of the spec that it changes: key, value before, value after."""

    title: str
    command: str | None = None
    changes: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """All that the page shows.

    Attributes:
        facts: What stands out, as name and value: rank, step, phase, frame.
        break_at: Time of the break on the axis of `lanes`, in seconds; None when it is not known.
        done: What the supervisor did, newest last.
    """

    run: str
    verdict: str
    headline: str
    when: str
    confidence: float
    facts: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    break_at: float | None
    break_label: str
    happenings: tuple[Happening, ...]
    logs: tuple[RankLog, ...]
    evidence: tuple[str, ...]
    mendings: tuple[Mending, ...]
    done: tuple[str, ...]


def incident_page(incident: Incident) -> str:
    """Return the page; it loads nothing and runs no script."""
    name = escape(incident.run)
    parts = (
        _head(incident),
        _section("Ranks over time", _lanes(incident)),
        _section("What followed, in order", _happenings(incident.happenings)),
        _section("What every rank printed last", _logs(incident.logs)),
        _section("Evidence", _list(incident.evidence)),
        _section("Repair", _mendings(incident.mendings)),
        _section("What was done", _list(incident.done)),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Incident of {name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{''.join(parts)}</body>\n</html>\n"
    )


def style_hash() -> str:
    """Return the hash of the page's style, for a policy that allows no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def _head(incident: Incident) -> str:
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in incident.facts
    )
    return (
        f'<header><p class="run">{escape(incident.run)} <span class="dim">'
        f"{escape(incident.when)}</span></p>"
        f'<h1><span class="pill {escape(incident.verdict)}">{escape(incident.verdict)}</span> '
        f"{escape(incident.headline)}</h1><dl>{facts}</dl></header>\n"
    )


def _section(title: str, body: str) -> str:
    if not body:
        return ""
    return f"<section><h2>{escape(title)}</h2>{body}</section>\n"


def _lanes(incident: Incident) -> str:
    if not incident.lanes:
        return ""
    picture = draw_lanes(incident.lanes, incident.break_at, incident.break_label)
    kinds = ("work", "data", "wait", "open", "held")
    words = (
        "computes", "waits for data", "waits for other ranks", "the step that was not finished",
        "held up by it",
    )  # fmt: skip
    legend = "".join(
        f'<li><span class="key {kind}"></span>{word}</li>'
        for kind, word in zip(kinds, words, strict=True)
    )
    return f'<div class="scroll">{picture}</div><ul class="legend">{legend}</ul>'


def _happenings(happenings: Iterable[Happening]) -> str:
    rows = "".join(
        f"<tr{_marked(one.is_root)}><td>{one.seconds:+.1f} s</td>"
        f"<th>{escape(one.who)}</th><td>{escape(one.what)}</td></tr>"
        for one in happenings
    )
    return f'<div class="scroll"><table>{rows}</table></div>' if rows else ""


def _logs(logs: Iterable[RankLog]) -> str:
    cards = "".join(_log(one) for one in logs)
    return f'<div class="logs">{cards}</div>' if cards else ""


def _log(log: RankLog) -> str:
    lines = "".join(
        f"<span{_marked(number == log.root)}><i>{number}</i>{escape(line)}</span>"
        for number, line in log.lines
    )
    stack = "".join(f"<span>{escape(frame)}</span>" for frame in log.stack)
    where = f'<h4>stood at</h4><pre tabindex="0">{stack}</pre>' if stack else ""
    printed = lines or '<span class="dim">nothing</span>'
    part = f'<span class="part {escape(log.part)}">{escape(log.part)}</span>'
    return (
        f"<article><h3>rank {log.rank} {part}</h3>{where}"
        f'<h4>{escape(log.file)}</h4><pre tabindex="0">{printed}</pre></article>'
    )


def _marked(is_root: bool) -> str:
    return ' class="root"' if is_root else ""


def _list(items: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{rows}</ul>" if rows else ""


def _mendings(mendings: Iterable[Mending]) -> str:
    return "".join(_mending(one) for one in mendings)


def _mending(one: Mending) -> str:
    diff = "".join(
        f'<span class="less">- {escape(key)}: {escape(before)}</span>'
        f'<span class="more">+ {escape(key)}: {escape(after)}</span>'
        for key, before, after in one.changes
    )
    command = f"<pre><span>$ {escape(one.command)}</span></pre>" if one.command else ""
    shown = f'<pre class="diff">{diff}</pre>' if diff else ""
    return f'<div class="mending"><p>{escape(one.title)}</p>{shown}{command}</div>'
