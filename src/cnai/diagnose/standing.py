"""Which rank holds up the others, from where all of them stand.

Who waits in a collective waits for somebody. So the root is among those that do not: a process that
was stopped, a rank that left, one that computes or reads data. When all wait, it is the one that
has begun the fewest collectives, or the one that waits in another place than the rest.

Source: ByteRobust (arXiv 2509.16293) groups stacks and suspects the small groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cnai.core.events import RankStood
from cnai.diagnose.stacks import frame_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Where a run hangs.

    Attributes:
        fault: Class of fault.
        rank: The rank that holds up the others; None when none stands out.
        frame: `FILE:LINE` where it is; None when it did not answer.
        busy: Share of a core that it used; None when it was not measured.
        waiting: Ranks that wait for it.
        evidence: What was seen, a sentence for each group of ranks that stand alike.
    """

    fault: str
    rank: int | None
    host: str | None
    step: int
    phase: str
    frame: str | None
    busy: float | None
    confidence: float
    why: str
    waiting: tuple[int, ...]
    evidence: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Say it in a sentence."""
        if self.rank is None:
            return f"all ranks hang after step {self.step}, in phase {self.phase}: {self.why}"
        where = f" on {self.host}" if self.host else ""
        place = f" at {self.frame}" if self.frame else ""
        return (
            f"rank {self.rank}{where} hangs after step {self.step}, in phase {self.phase}{place}: "
            f"{self.why}"
        )


def locate(stood: Sequence[RankStood]) -> Hang | None:
    """Find the rank that holds up the others; None without ranks."""
    if not stood:
        return None
    suspects, why, confidence = _suspects(stood)
    if len(suspects) == len(stood) > 1:
        return _everybody(stood)
    root = min(suspects, key=lambda one: (one.step, sum(one.enqueued.values()), one.rank))
    if len(suspects) > 1:
        confidence = round(confidence * 0.7, 2)
        why += f"; so do ranks {_listed(one.rank for one in suspects if one is not root)}"
    return Hang(
        fault="storage_io_error" if root.process == "D" else "collective_timeout",
        rank=root.rank,
        host=root.host,
        step=root.step,
        phase=root.phase,
        frame=frame_of(root.stack),
        busy=root.busy,
        confidence=confidence,
        why=why,
        waiting=tuple(sorted(one.rank for one in stood if one not in suspects)),
        evidence=_told(stood),
    )


def _suspects(stood: Sequence[RankStood]) -> tuple[list[RankStood], str, float]:
    """Return who may be the root, why, and how sure that is; the first rule that fits counts."""
    stopped = [one for one in stood if one.process == "T"]
    if stopped:
        return stopped, "its process was stopped", 0.95
    left = [one for one in stood if one.process == "gone" or one.phase == "done"]
    if left and len(left) < len(stood):
        return left, "it has left the others", 0.9
    apart = [one for one in stood if one.phase != "collective"]
    if apart and len(stood) == 1:
        return apart, "it does not go on", 0.9
    if apart:
        disk = [one for one in apart if one.process == "D"]
        if disk:
            return disk, "it waits for a disk, and the others for it", 0.95
        return apart, "it is in no collective, while the others wait in one", 0.95
    return _all_wait(stood)


def _all_wait(stood: Sequence[RankStood]) -> tuple[list[RankStood], str, float]:
    groups = {group for one in stood for group in one.enqueued}
    for group in sorted(groups):
        counts = {one.rank: one.enqueued.get(group, 0) for one in stood if one.enqueued}
        least = [one for one in stood if counts.get(one.rank) == min(counts.values())]
        if len(set(counts.values())) > 1 and len(least) <= len(counts) // 2:
            most = max(counts.values())
            why = f"it has begun {counts[least[0].rank]} collectives, others {most}"
            return least, why, 0.9
    places = Counter(one.stack[:4] for one in stood)
    rare = [one for one in stood if places[one.stack[:4]] * 2 < len(stood)]
    if rare and len(rare) * 2 < len(stood):
        return rare, "it waits in another place than the rest", 0.75
    odd = [one for one in stood if one.odd]
    if odd and len(odd) < len(stood):
        return odd, "its collective has a shape that no earlier one had", 0.7
    return list(stood), "all wait in collectives", 0.3


def _everybody(stood: Sequence[RankStood]) -> Hang:
    """Say that no rank stands out, for instance because a store of data does not answer."""
    phases = Counter(one.phase for one in stood)
    phase, count = phases.most_common(1)[0]
    first = next(one for one in stood if one.phase == phase)
    data = phase == "data" and count == len(stood)
    return Hang(
        fault="storage_io_error" if data else "collective_timeout",
        rank=None,
        host=None,
        step=min(one.step for one in stood),
        phase=phase,
        frame=frame_of(first.stack),
        busy=max((one.busy for one in stood if one.busy is not None), default=None),
        confidence=0.7 if data else 0.3,
        why="all ranks wait for data" if data else "no rank stands out",
        waiting=(),
        evidence=_told(stood),
    )


def _told(stood: Sequence[RankStood]) -> tuple[str, ...]:
    """Say where the ranks stand, those that stand alike together, the smallest group first."""
    alike: dict[tuple[str, ...], list[RankStood]] = {}
    for one in stood:
        alike.setdefault((one.phase, one.process, str(one.step), *one.stack[:4]), []).append(one)
    return tuple(_group(group) for group in sorted(alike.values(), key=len))


def _group(group: Sequence[RankStood]) -> str:
    one = group[0]
    plural = len(group) > 1
    place = frame_of(one.stack)
    words = [
        f"rank{'s' if plural else ''} {_listed(each.rank for each in group)} "
        f"{'stand' if plural else 'stands'} in phase {one.phase} after step {one.step}"
        f" since {one.phase_seconds:.0f} s"
    ]
    words.append(f"at {place}" if place else "and gave no stack")
    words.append({"T": "stopped", "D": "waiting for a disk", "gone": "gone"}.get(one.process, ""))
    if one.enqueued:
        counts = sorted({sum(each.enqueued.values()) for each in group})
        words.append(f"{'/'.join(map(str, counts))} collectives begun, the last {one.collective}")
    if one.busy is not None:
        words.append(f"using {max(each.busy or 0 for each in group):.0%} of a core")
    return ", ".join(word for word in words if word)


def _listed(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown} and {len(numbers) - 8} more" if len(numbers) > 8 else shown
