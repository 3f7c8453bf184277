"""Look where all ranks of a run stand: their pages, their processes, their answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cnai.cluster import LocalGang
from cnai.cluster.ranks import RankProcess
from cnai.core.errors import DataError
from cnai.core.events import RankStood
from cnai.core.records import decode
from cnai.core.runfolder import RunFolder
from cnai.diagnose.stacks import main_thread, phase_of, read_stacks
from cnai.train.questions import COLLECTIVES_SIGNAL, STACKS_SIGNAL, collectives_of, stacks_of
from cnai.train.standing import Standing, page_of, read_page

ANSWER_SECONDS = 3.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collectives:
    """What a rank wrote of its collectives."""

    enqueued: dict[str, int]
    collective: str | None = None
    odd: bool = False


class Watcher:
    """Looks at the ranks of an attempt.

    Args:
        run: Its folder.
        gang: Its ranks.
        answer_seconds: Longest wait for their answers.
    """

    def __init__(
        self, run: RunFolder, gang: LocalGang, *, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._folder = run.standing
        self._gang = gang
        self._answer_seconds = answer_seconds
        self._looks: dict[int, int] = {}

    def ask(self, attempt: int, ranks: int) -> tuple[RankStood, ...]:
        """Ask all ranks where they stand; who does not answer in time is described without."""
        before = [self._gang.process(rank) for rank in range(ranks)]
        sizes = [_size(stacks_of(self._folder, rank)) for rank in range(ranks)]
        start, asked_unix = time.monotonic(), time.time()
        self._gang.signal(STACKS_SIGNAL)
        self._gang.signal(COLLECTIVES_SIGNAL)
        waited = set(self._gang.living)
        while waited and time.monotonic() < start + self._answer_seconds:
            time.sleep(_PAUSE_SECONDS)
            waited = {rank for rank in waited if not self._answered(rank, sizes[rank], asked_unix)}
        seconds = time.monotonic() - start
        return self._stood(attempt, ranks, before, sizes, seconds)

    def read(self, attempt: int, ranks: int) -> tuple[RankStood, ...]:
        """Read what is left of the ranks when some of them are gone."""
        nothing = [_size(stacks_of(self._folder, rank)) for rank in range(ranks)]
        before = [self._gang.process(rank) for rank in range(ranks)]
        return self._stood(attempt, ranks, before, nothing, None)

    def _answered(self, rank: int, size: int, asked_unix: float) -> bool:
        told = collectives_of(self._folder, rank)
        return (
            _size(stacks_of(self._folder, rank)) > size
            and told.is_file()
            and told.stat().st_mtime >= asked_unix - 0.1
        )

    def _stood(
        self,
        attempt: int,
        ranks: int,
        before: Sequence[RankProcess],
        sizes: Sequence[int],
        seconds: float | None,
    ) -> tuple[RankStood, ...]:
        look = self._looks.get(attempt, 0)
        self._looks[attempt] = look + 1
        now = time.time()
        found = []
        for rank in range(ranks):
            page = read_page(page_of(self._folder, rank))
            stack = self._stack(rank, sizes[rank]) if seconds is not None else ()
            told = self._collectives(rank)
            process = self._gang.process(rank)
            used = process.cpu_seconds - before[rank].cpu_seconds
            found.append(
                RankStood(
                    time_unix=now,
                    rank=rank,
                    attempt=attempt,
                    look=look,
                    host=page.host if page else None,
                    step=page.step if page else 0,
                    phase=phase_of(stack, page.phase if page else "start"),
                    phase_seconds=max(0.0, now - page.since_unix) if page else 0.0,
                    process=process.state,
                    busy=None if seconds is None else round(max(0.0, used / seconds), 2),
                    enqueued=told.enqueued,
                    collective=told.collective,
                    odd=told.odd,
                    stack=stack[:12],
                )
            )
        return tuple(found)

    def moves(self, ranks: int) -> tuple[Standing | None, ...]:
        """Return the pages, which differ between two looks where a rank goes on."""
        return tuple(read_page(page_of(self._folder, rank)) for rank in range(ranks))

    def _stack(self, rank: int, size: int) -> tuple[str, ...]:
        path = stacks_of(self._folder, rank)
        if _size(path) <= size:
            return ()
        text = path.read_text(errors="replace")
        return read_stacks(text[size:]).get(main_thread(text) or "", ())

    def _collectives(self, rank: int) -> _Collectives:
        path = collectives_of(self._folder, rank)
        try:
            return decode(_Collectives, path.read_bytes(), where=str(path))
        except (FileNotFoundError, DataError):  # it did not answer, which is said by its absence
            return _Collectives(enqueued={})


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
