"""What the lost ranks of a run printed, and no healthy log did.

Healthy are the ranks that were not lost, the attempts before, and runs beside it that ended well.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cnai.core.event_lines import parse_event
from cnai.core.events import RunEnded
from cnai.core.runfolder import RunFolder
from cnai.diagnose.diagnosis import LogLine
from cnai.diagnose.novelty import Healthy
from cnai.diagnose.tail import read_tail

_MOST_RUNS = 5
_MOST_LINES = 3
_END_BYTES = 65536


def suspect_lines(run: RunFolder, attempt: int, lost: Collection[int]) -> list[LogLine]:
    """Return the last few lines of lost ranks that no healthy log has in any form."""
    healthy = Healthy()
    for path in sorted(run.logs.glob("rank-*.log")):
        is_lost = path.stem.removeprefix("rank-") in {str(rank) for rank in lost}
        for earlier in range(attempt) if is_lost else (None,):
            healthy.learn(line.text for line in read_tail(path, attempt=earlier))
    for other in _ended_well(run):
        for path in sorted(other.logs.glob("rank-*.log")):
            healthy.learn(line.text for line in read_tail(path))
    found: list[LogLine] = []
    for rank in sorted(lost):
        path = run.rank_log(rank)
        lines = read_tail(path, name=str(path.relative_to(run.root)), attempt=attempt)
        found += healthy.never_printed(lines)[-_MOST_LINES:]
    return found


def _ended_well(run: RunFolder) -> list[RunFolder]:
    """Return the newest runs beside a run that ended well."""
    here = run.root.resolve()
    others = [one for one in here.parent.iterdir() if one != here and (one / "events").is_dir()]
    others.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    return [RunFolder(one) for one in others[: 4 * _MOST_RUNS] if _is_done(one)][:_MOST_RUNS]


def _is_done(folder: Path) -> bool:
    path = folder / "events" / "agent.jsonl"
    if not path.is_file():
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        lines = file.read().splitlines()
    last = parse_event(lines[-1], where=str(path)) if lines else None
    return isinstance(last, RunEnded) and last.outcome == "done"
