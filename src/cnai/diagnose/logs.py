"""Diagnose logs of any kind: streams of lines in, a verdict out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cnai.diagnose.calibration import calibrated
from cnai.diagnose.faults import faults
from cnai.diagnose.lines import Line
from cnai.diagnose.ranking import HEALTHY_BELOW, Clue, Ranking, rank_clues, rank_of
from cnai.diagnose.scan import Heard, Scanner
from cnai.diagnose.signatures import Matcher, Role

_TOP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerdict:
    """What logs alone say.

    Attributes:
        fault: The class, `no_fault` when nothing is wrong.
        top: Classes, best first; filled up with those that the best is often taken for.
        confidence: 0 to 1 for each of `top`.
        stream: Log in which it began; None without a fault.
        line: The line that says so; None when the guilty rank printed nothing.
        rank: The rank where it began, when the logs tell.
        cascade: Logs that only followed.
    """

    fault: str
    top: tuple[str, ...]
    confidence: tuple[float, ...]
    stream: str | None
    line: Line | None
    rank: int | None
    frame: str | None
    cascade: tuple[str, ...]
    ranking: Ranking


def diagnose_streams(streams: Mapping[str, Iterable[str]], *, top: int = _TOP) -> LogVerdict:
    """Diagnose logs.

    Args:
        streams: Lines by log: a rank's number, `agent`, `dmesg:NODE`, `slurm`, `events`, `all`.
        top: Classes to name.
    """
    matcher = Matcher()
    heard = [_hear(name, lines, matcher) for name, lines in streams.items()]
    return judge_logs(heard, top=top)


def judge_logs(heard: Sequence[Heard], *, top: int = _TOP) -> LogVerdict:
    """Weigh logs that were read."""
    ranking = rank_clues(heard)
    best = ranking.candidates[0] if ranking.candidates else None
    if best is None or best.score < HEALTHY_BELOW:
        return _healthy(ranking)
    clue = best.clue
    stream = clue.line.stream
    line: Line | None = clue.line
    silent = ranking.silent if clue.role is Role.WAITED else None
    if silent is not None:
        stream, line = silent, None
    names = _filled([one.fault for one in ranking.candidates], top)
    return LogVerdict(
        fault=best.fault,
        top=names,
        confidence=_confidences(names, ranking),
        stream=stream,
        line=line,
        rank=rank_of(stream) if rank_of(stream) is not None or line is None else line.rank,
        frame=clue.frame,
        cascade=_cascade(ranking.clues, stream),
        ranking=ranking,
    )


def _hear(name: str, lines: Iterable[str], matcher: Matcher) -> Heard:
    scanner = Scanner(name, matcher)
    for line in lines:
        scanner.hear(line)
    return scanner.result()


def _healthy(ranking: Ranking) -> LogVerdict:
    others = tuple(one.fault for one in ranking.candidates[: _TOP - 1])
    return LogVerdict(
        fault="no_fault",
        top=("no_fault", *others),
        confidence=(0.8, *(0.1 for _ in others)),
        stream=None,
        line=None,
        rank=None,
        frame=None,
        cascade=(),
        ranking=ranking,
    )


def _filled(names: list[str], top: int) -> tuple[str, ...]:
    """Fill up the list with what the first classes are often taken for."""
    for name in (*names[:2],):
        names += [near for near in faults()[name].near if near not in names]
    return tuple(dict.fromkeys(names))[:top]


def raw_confidence(ranking: Ranking) -> float:
    """Return how clearly the best class stands out, before calibration; nothing is above 0.97."""
    scores = {one.fault: one.score for one in ranking.candidates}
    return _share(ranking.candidates[0].fault, scores) if scores else 0.0


def _confidences(names: Sequence[str], ranking: Ranking) -> tuple[float, ...]:
    """Calibrate the best class; the others share what is left in proportion."""
    scores = {one.fault: one.score for one in ranking.candidates}
    shares = [_share(name, scores) for name in names]
    best = calibrated(shares[0])
    rest = sum(shares[1:])
    left = [round((1 - best) * share / rest, 2) if rest else 0.0 for share in shares[1:]]
    return (best, *(min(one, best) for one in left))


def _share(name: str, scores: Mapping[str, float]) -> float:
    whole = sum(score**3 for score in scores.values())
    strength = min(1.0, max(scores.values()))
    return 0.97 * strength * scores.get(name, 0.0) ** 3 / whole if whole else 0.0


def _cascade(clues: Sequence[Clue], root: str) -> tuple[str, ...]:
    victims = {
        one.line.stream for one in clues if one.role in {Role.CASCADE, Role.WAITED}
    } - {root}  # fmt: skip
    return tuple(sorted(victims))
