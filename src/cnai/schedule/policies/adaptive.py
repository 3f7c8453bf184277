"""Our own policy, the default: Gittins order learnt from finished jobs, elastic sizes, whole gangs.

Order: the class of a job is the Gittins index of the service that it has had, in the distribution
of the service of jobs that have ended; where the spec declares the steps, the rest is known and the
class is the rest. Classes are coarse, so that jobs of one class are served in order of arrival and
do not push each other out in turns: that is what keeps the last jobs from ending late. Sizes:
`elastic.spread`, held back by dwell time, restart cost and a number of resizes an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.actions import Action, Reason
from cnai.schedule.draft import Draft
from cnai.schedule.elastic import Candidate, forbidden, sizes_of, spread
from cnai.schedule.jobs import State
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.scores import BestFit, Scorer
from cnai.schedule.policies.preemptive import admit, quota_of
from cnai.schedule.predict import History
from cnai.schedule.queues import Quota
from cnai.schedule.view import ClusterView

Floats = NDArray[np.float64]
_STARVED = 1e4
_GUARANTEED = 1e6


@dataclass
class Adaptive:
    """Order, sizes and places together.

    Attributes:
        learn_after: Finished jobs after which the history is believed.
        weight_power: How strongly jobs that end soon are favoured with GPUs; 0 not at all.
        least_gain: Gain in speed below which a job is not made larger.
        dwell_seconds: Time that a job keeps its size at least.
        quantum_seconds: How often to look again while jobs wait.
        longest_wait_seconds: Wait after which a job comes before all that are not guaranteed.
        least_efficiency: Speed a GPU that a larger size must keep, over that of the least size.
        uses_declared: Whether the steps that a spec declares are believed.
    """

    scorer: Scorer = field(default_factory=BestFit)
    name: str = "cnai"
    learn_after: int = 200
    weight_power: float = 0.0
    least_gain: float = 0.1
    least_efficiency: float = 0.6
    dwell_seconds: float = 1800.0
    quantum_seconds: float = 300.0
    longest_wait_seconds: float = 7 * 86400.0
    uses_declared: bool = True

    def __post_init__(self) -> None:
        self._index: Floats | None = None
        self._learnt: tuple[History, int] | None = None

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Return starts, stops and new sizes."""
        waiting = view.waiting()
        elastic = bool(view.jobs.elastic.any())
        if not elastic and not waiting.size:
            return []
        draft = Draft(view, trial, self.scorer)
        if elastic:
            self._resize(draft, now)
        elif not self._start_lone(draft, waiting):
            admit(draft, waiting, self.classes(view, now))
        return draft.actions

    def wake(self, view: ClusterView, now: float) -> float:
        """Return the next look, never when nobody waits."""
        return now + self.quantum_seconds if (view.jobs.state == State.WAITING).any() else np.inf

    @staticmethod
    def _start_lone(draft: Draft, waiting: NDArray[np.int64]) -> bool:
        """Start a job that waits alone where there is room; then no order has to be known."""
        if waiting.size != 1 or draft.view.queues:
            return False
        place = int(waiting[0])
        reason = Reason("fits_now")
        return draft.start(place, int(draft.view.jobs.asked[place]), reason)

    def classes(self, view: ClusterView, now: float) -> Floats:
        """Return the class of each job; lower goes first and may push out higher.

        Jobs within the guarantee of their queue come before all others, and after them those that
        waited longer than they should; both may push out what is neither.
        """
        jobs = view.jobs
        ranks = self._learnt_classes(view)
        spell = now - jobs.since
        is_waiting = jobs.state == State.WAITING
        starved = is_waiting & (spell > self.longest_wait_seconds)
        # What waited so long runs for a while before it may be pushed out again.
        starved |= (
            ~is_waiting
            & (spell < self.longest_wait_seconds / 4)
            & (jobs.waited > self.longest_wait_seconds)
        )
        ranks = np.where(starved, ranks - _STARVED, ranks)
        if view.queues:
            ranks = ranks + 0.5 * view.queues.usage(jobs.queues)[jobs.queue]
            inside = view.queues.within_guarantee(jobs.queues, jobs.queue, jobs.size_milli, ranks)
            ranks = np.where(inside, ranks - _GUARANTEED, ranks)
        return ranks

    def _learnt_classes(self, view: ClusterView) -> Floats:
        jobs, history = view.jobs, view.history
        if history.finished < self.learn_after:
            ranks = np.floor(np.log2(np.maximum(jobs.attained, 1800.0)))
        else:
            # Learnt anew every 100 jobs: between them one job's class must not jitter.
            if self._learnt != (history, history.finished // 100) or self._index is None:
                self._learnt = (history, history.finished // 100)
                self._index = -np.round(np.log2(history.index()) * 3) / 3
            bins = np.searchsorted(history.bounds, jobs.attained, side="right") - 1
            ranks = self._index[bins]
        return np.asarray(ranks, dtype=np.float64)

    def rest(self, view: ClusterView) -> Floats:
        """Return the GPU-seconds that each job still needs, declared or expected."""
        jobs, history = view.jobs, view.history
        bins = np.searchsorted(history.bounds, jobs.attained, side="right") - 1
        expected = history.remaining()[bins]
        if not self.uses_declared:
            return np.asarray(expected, dtype=np.float64)
        declared = jobs.declared_left * jobs.size_milli / 1000.0
        return np.where(np.isnan(declared), expected, np.maximum(declared, 1.0))

    def _resize(self, draft: Draft, now: float) -> None:
        """Bring sizes to their targets: first what has to shrink, then starts, then growth."""
        view, jobs = draft.view, draft.view.jobs
        order, rest = self._line(view, now)
        candidates = {place: self._candidate(view, place, float(rest[place])) for place in order}
        limits = Quota(view.queues, {}) if view.queues else None
        targets = spread(list(candidates.values()), view.nodes.capacity_milli, limits)
        quota = quota_of(view)
        starts = [place for place in order if not jobs.workers[place] and place in targets]
        self._shrink(draft, order, targets, starts, quota)
        for place in starts:
            self._start(draft, candidates[place], targets[place], quota)
        for place in order:
            before, target = int(jobs.workers[place]), targets.get(place, 0)
            if before and target > before and self._pays(view, candidates[place], target, now):
                extra = (target - before) * candidates[place].gpu_milli
                if extra <= view.nodes.free_milli and not forbidden(
                    quota, candidates[place].queue, extra
                ):
                    draft.resize(place, target, Reason("worth_more", {"to": target}))

    def _line(self, view: ClusterView, now: float) -> tuple[list[int], Floats]:
        """Return who is served first, and what each still needs."""
        jobs = view.jobs
        rest = self.rest(view)
        classes = self.classes(view, now)
        turn = np.where(classes < -_GUARANTEED / 2, 0, np.where(classes < -_STARVED / 2, 1, 2))
        return np.lexsort((jobs.serial, rest, turn, -jobs.priority)).tolist(), rest

    @staticmethod
    def _shrink(
        draft: Draft, order: list[int], targets: dict[int, int], starts: list[int],
        quota: Quota | None,
    ) -> None:  # fmt: skip
        """Make jobs smaller or stop them, last in line first, until the starts have room.

        Where queues have limits every target is kept, since room alone does not say who may start.
        """
        jobs, nodes = draft.view.jobs, draft.view.nodes
        free = nodes.free_milli
        need = sum(targets[place] * jobs.rows[place].demand.total_milli for place in starts)
        for place in reversed(order):
            if need <= free and (quota is None or not starts):
                break
            before, target = int(jobs.workers[place]), targets.get(place, 0)
            row = jobs.rows[place]
            if before <= target or not row.demand.gpus:
                continue
            if not target:
                draft.release(place)
                draft.preempt(place, Reason("pushed_out"))
            elif not draft.resize(place, target, Reason("makes_room", {"to": target})):
                continue
            gone = (before - target) * row.demand.total_milli
            free += gone
            if quota:
                quota.add(row.queue, -gone)

    @staticmethod
    def _start(draft: Draft, one: Candidate, target: int, quota: Quota | None) -> None:
        """Start a job at its target, or at the largest smaller size that can be placed."""
        for size in reversed([size for size in one.sizes if size <= target]):
            if quota and quota.blocker(one.queue, size * one.gpu_milli):
                continue
            if draft.start(one.place, size, Reason("admitted", {"workers": size})):
                forbidden(quota, one.queue, size * one.gpu_milli)
                return

    def _candidate(self, view: ClusterView, place: int, rest: float) -> Candidate:
        row = view.jobs.rows[place]
        sizes = sizes_of(row, self.least_efficiency)
        speeds = tuple(
            row.curve.speed(size) / row.curve.speed(row.workers) if row.curve else 1.0
            for size in sizes
        )
        return Candidate(
            place=place,
            sizes=sizes,
            speeds=speeds,
            gpu_milli=row.demand.total_milli,
            queue=row.queue,
            weight=max(rest / max(row.workers, 1), 1.0) ** -self.weight_power,
        )

    def _pays(self, view: ClusterView, one: Candidate, target: int, now: float) -> bool:
        """Whether a larger size earns its restart, and the job has kept its size long enough."""
        jobs = view.jobs
        if now - jobs.changed[one.place] < self.dwell_seconds:
            return False
        speeds = dict(zip(one.sizes, one.speeds, strict=True))
        before = speeds.get(int(jobs.workers[one.place]), 0.0)
        return speeds[target] >= (1 + self.least_gain) * before
