"""Ranks that should hold the very same numbers do not.

Every copy applies the same update to the same weights, so a hash that differs means a broken
device, a broken link, or a rank that began elsewhere. Source of the idea: comparing what should be
equal between copies finds silent corruption that no loss shows.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from cnai.core.events import Event, Finding, RankMeasured
from cnai.monitor.detectors.speaker import Speaker

_MOST_STEPS = 64
"""Steps kept for which some rank has not spoken yet; one that was lost never will."""


class _Copies(Speaker):
    """Compares the hashes of a step as they come in."""

    is_at_start: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self._hashes: dict[int, dict[int, tuple[str, str]]] = {}
        self._start: int | None = None
        self._differs_from_start = False

    def _begin(self) -> None:
        self._hashes.clear()
        self._start = None
        self._differs_from_start = False

    def _look(self, event: Event) -> Finding | None:
        """Take what a rank says; compare when all ranks have spoken of a step."""
        if not isinstance(event, RankMeasured) or event.weights_hash is None:
            return None
        self._start = event.step if self._start is None else self._start
        said = self._hashes.setdefault(event.step, {})
        said[event.rank] = (event.copy, event.weights_hash)
        if len(said) < self._among:
            while len(self._hashes) > _MOST_STEPS:
                self._hashes.pop(next(iter(self._hashes)))
            return None
        self._hashes.pop(event.step)
        for copy in dict.fromkeys(name for name, _ in said.values()):
            known = {rank: value for rank, (name, value) in said.items() if name == copy}
            if len(set(known.values())) < 2:
                continue
            self._differs_from_start |= event.step == self._start
            if self.is_at_start == self._differs_from_start:
                return self._tell(event, event.step, known)
        return None

    def _tell(self, event: Event, step: int, known: dict[int, str]) -> Finding:
        odd = _odd_ones(known)
        where = f"rank {odd[0]} holds" if len(odd) == 1 else "ranks hold"
        when = "before the first step" if self.is_at_start else f"after step {step}"
        advice = (
            "begin all ranks from the same seed or checkpoint"
            if self.is_at_start
            else "take that device out of use, and go back to a checkpoint before"
        )
        return self._found(
            event,
            step,
            f"{where} other weights than its copies {when}",
            *(f"rank {rank}: {value}" for rank, value in sorted(known.items())[:8]),
            advice=(advice,),
            critical=True,
            rank=odd[0] if len(odd) == 1 else None,
        )


def _odd_ones(known: dict[int, str]) -> list[int]:
    """Return the ranks in the minority; all where there is none."""
    counts = Counter(known.values())
    (most, often), *rest = counts.most_common()
    if rest and rest[0][1] == often:
        return sorted(known)
    return sorted(rank for rank, value in known.items() if value != most)


class ReplicaMismatch(_Copies):
    """Speaks when copies that were equal at the start differ."""

    name: ClassVar[str] = "replica_mismatch"
    is_at_start: ClassVar[bool] = False


class Desync(_Copies):
    """Speaks when copies differ before the first step."""

    name: ClassVar[str] = "desync"
    is_at_start: ClassVar[bool] = True
