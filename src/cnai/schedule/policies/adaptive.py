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
from cnai.schedule.elastic import Candidate, sizes_of, spread
from cnai.schedule.jobs import State
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.scores import BestFit, Scorer
from cnai.schedule.policies.preemptive import admit
from cnai.schedule.predict import History
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
    least_efficiency: float = 0.4
    dwell_seconds: float = 600.0
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
        view = draft.view
        jobs = view.jobs
        rest = self.rest(view)
        order = np.lexsort((jobs.serial, rest, -jobs.priority)).tolist()
        candidates = [self._candidate(view, place, float(rest[place])) for place in order]
        targets = spread(candidates, view.nodes.capacity_milli)
        speeds = {one.place: dict(zip(one.sizes, one.speeds, strict=True)) for one in candidates}
        starts = [place for place in order if not jobs.workers[place] and place in targets]
        free = view.nodes.free_milli
        need = sum(targets[place] * jobs.rows[place].demand.total_milli for place in starts)
        for place in reversed(order):
            if need <= free:
                break
            now_workers = int(jobs.workers[place])
            target = targets.get(place, 0)
            if now_workers > target:
                free += (now_workers - target) * jobs.rows[place].demand.total_milli
                if target:
                    draft.resize(place, target, Reason("makes_room", {"to": target}))
                else:
                    draft.release(place)
                    draft.preempt(place, Reason("pushed_out"))
        for place in starts:
            self._start(draft, place, targets[place], candidates)
        for place in order:
            before, target = int(jobs.workers[place]), targets.get(place, 0)
            if before and target > before and self._pays(view, place, speeds[place], target, now):
                extra = (target - before) * jobs.rows[place].demand.total_milli
                if extra <= view.nodes.free_milli:
                    draft.resize(place, target, Reason("worth_more", {"to": target}))

    def _start(self, draft: Draft, place: int, target: int, candidates: list[Candidate]) -> None:
        sizes = next(one.sizes for one in candidates if one.place == place)
        for size in reversed([one for one in sizes if one <= target]):
            if draft.start(place, size, Reason("admitted", {"workers": size})):
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
            weight=max(rest / max(row.workers, 1), 1.0) ** -self.weight_power,
        )

    def _pays(
        self, view: ClusterView, place: int, speeds: dict[int, float], target: int, now: float
    ) -> bool:
        """Whether a larger size earns its restart, and the job has kept its size long enough."""
        jobs = view.jobs
        if now - jobs.changed[place] < self.dwell_seconds:
            return False
        before = speeds.get(int(jobs.workers[place]), 0.0)
        return speeds[target] >= (1 + self.least_gain) * before
