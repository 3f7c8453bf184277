"""Weigh what all logs said: which class is the cause, and in which log and line it began."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cnai.diagnose.faults import faults
from cnai.diagnose.lines import Line
from cnai.diagnose.scan import Heard, Said
from cnai.diagnose.signatures import PEER_GONE, Role

HEALTHY_BELOW = 0.3
_SOFT, _WENT_ON, _LATER_ATTEMPT, _CHAIN = 0.55, 0.2, 0.8, 0.93
_ENDED, _ALONE, _CONFIRMED, _REPEATED = 1.06, 1.04, 0.05, 0.02
_OVERRULED = 0.6
_NEAR = 0.08
_RANK_STREAM = re.compile(r"(?:rank[-_ ]?)?(\d+)(?:\.log)?")
_SEQUENCE = re.compile(r"Watchdog caught.{0,80}SeqNum=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """A line that speaks for a class, with what it weighs after everything was considered."""

    fault: str
    role: Role
    line: Line
    score: float
    frame: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A class, how much speaks for it (0 to 1), and its best clue."""

    fault: str
    score: float
    clue: Clue


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The classes, best first, and who only followed."""

    candidates: tuple[Candidate, ...]
    clues: tuple[Clue, ...]
    silent: str | None


def rank_of(stream: str) -> int | None:
    """Return the rank whose log a stream is, None when it is no rank's log."""
    found = _RANK_STREAM.fullmatch(stream)
    return int(found[1]) if found else None


def rank_clues(heard: Sequence[Heard]) -> Ranking:
    """Rank the classes that the logs speak for."""
    clues = _clues(heard)
    grouped: dict[str, list[Clue]] = defaultdict(list)
    for clue in clues:
        grouped[clue.fault].append(clue)
    confirmed = _confirmations(heard)
    scores = {
        fault: max(one.score for one in found)
        + _REPEATED * min(2, len({one.line.stream for one in found}) - 1)
        + _CONFIRMED * min(2, confirmed.get(fault, 0))
        for fault, found in grouped.items()
        if fault != PEER_GONE
    }
    strong = {fault for fault, score in scores.items() if score >= _OVERRULED}
    for fault in scores:
        if set(faults()[fault].yields) & strong:
            scores[fault] *= _OVERRULED
    ordered = sorted(scores, key=lambda fault: (-scores[fault], _first(grouped[fault])))
    return Ranking(
        candidates=tuple(
            Candidate(fault=fault, score=scores[fault], clue=_best(grouped[fault]))
            for fault in ordered
        ),
        clues=tuple(clues),
        silent=_silent(heard, clues),
    )


def _clues(heard: Sequence[Heard]) -> list[Clue]:
    spread: dict[str, set[str]] = defaultdict(set)
    for log in heard:
        for said in log.said:
            spread[said.row.name].add(log.stream)
    several = len([log for log in heard if log.lines]) > 1
    clues = [
        Clue(
            fault=said.row.fault,
            role=said.row.role,
            line=said.line,
            frame=said.frame,
            score=_score(said, log, alone=several and len(spread[said.row.name]) == 1),
        )
        for log in heard
        for said in log.said
        if said.row.role is not Role.CONFIRM
    ]
    clues += [
        Clue(fault=fault, role=Role.ROOT, line=line, score=weight)
        for log in heard
        for fault, line, weight in log.odd
    ]
    return clues


def _score(said: Said, log: Heard, *, alone: bool) -> float:
    score = said.weight
    if said.soft and not said.row.sticky:
        score *= _SOFT
    if said.ended:
        score *= _ENDED
    if alone:
        score *= _ALONE
    score *= _CHAIN**said.chain * _LATER_ATTEMPT**said.attempt
    voice = said.line.rank if said.line.rank in log.went_on else None
    if log.went_on.get(voice, 0) > said.line.number and not said.row.sticky and not log.attempts:
        score *= _WENT_ON
    return score


def _confirmations(heard: Sequence[Heard]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for log in heard:
        for said in log.said:
            if said.row.role is Role.CONFIRM:
                counts[said.row.fault] += 1
    return counts


def _first(clues: Sequence[Clue]) -> int:
    return min(clue.line.number for clue in clues)


def _best(clues: Sequence[Clue]) -> Clue:
    """Return the clue that names the root: the heaviest, then the earliest in its log."""
    top = max(clue.score for clue in clues)
    near = [clue for clue in clues if clue.score >= top - _NEAR]
    counted = [
        (int(found[1]), clue) for clue in near if (found := _SEQUENCE.search(clue.line.text))
    ]
    if len({number for number, _ in counted}) > 1:
        return min(counted, key=lambda pair: (pair[0], pair[1].line.number))[1]
    if near[0].fault == "collective_mismatch":
        # Rank 0 is what the others are compared with, so that it complains too.
        return max(near, key=lambda clue: (rank_of(clue.line.stream) or 0, -clue.line.number))
    return min(near, key=lambda clue: (*_stream_order(clue.line.stream), clue.line.number))


def _stream_order(stream: str) -> tuple[int, int]:
    """Order logs by how near they are to the cause: kernel, ranks, platform, launcher."""
    kind = stream.split(":", maxsplit=1)[0]
    order = {"dmesg": 0, "monitor": 1, "events": 2, "slurm": 2, "server": 3, "agent": 4}
    return order.get(kind, 3), rank_of(stream) or 0


def _silent(heard: Sequence[Heard], clues: Sequence[Clue]) -> str | None:
    """Return the one rank's log that did not complain while the others waited."""
    ranks = {log.stream for log in heard if rank_of(log.stream) is not None}
    waited = {clue.line.stream for clue in clues if clue.role is Role.WAITED}
    quiet = ranks - waited
    return quiet.pop() if waited and len(quiet) == 1 else None
