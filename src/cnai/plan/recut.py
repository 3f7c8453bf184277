"""Layers for fast stages, taken from slow ones: measured speeds, and another cut of the pipeline.

What a stage measures for a row, over what its layers should cost, is the slowness of its rank; with
it the layers are cut again, exactly, so that the slowest rank is as fast as it can be. Speed that
is no property of the rank but of its layers shows after the move, as a throughput that did not
rise. Another cut costs a checkpoint and a start of the ranks, so a move must earn that back, twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cnai.core.balance import Move
from cnai.core.events import AttemptStarted, CheckpointSaved, Event, RankReady, Rebalanced, StepDone
from cnai.core.layout import ParallelPlan
from cnai.plan.balance import Cuts, balance
from cnai.plan.caution import Caution, Speeds
from cnai.plan.pipeline import idle_pieces
from cnai.plan.shares import ShareRule, best_shares, expected_gain

SAMPLES = 5
"""Steps that are measured before layers move: rows, which cost nothing, move earlier."""
PAYS_BACK = 2
"""Times its cost that a move must earn in the steps that are left."""


class LayerBalancer:
    """Watches the events of a run and says when its layers should be cut in another way.

    Args:
        plan: The plan that the ranks run.
        costs: Cost of each layer in any unit, embedding and head added to the ends.
        threshold: Smallest gain of throughput that is worth a move, 0.1 = 10 %.
        rule: How rows move too, by themselves; None = they do not.
        fits: Tells whether other cuts fit the memory.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        costs: Sequence[float],
        *,
        threshold: float,
        rule: ShareRule | None,
        fits: Callable[[Cuts], bool],
    ) -> None:
        self._plan = plan
        self._costs = costs
        self._cuts: Cuts = tuple((one.first_layer, one.end_layer) for one in plan.stages)
        self._rule = rule
        self._fits = fits
        self._threshold = threshold
        self._caution = Caution(_layers(self._cuts), threshold, samples=SAMPLES)
        self._speeds = Speeds(SAMPLES)
        self._waiting: dict[int, dict[int, StepDone]] = {}
        self._attempt = -1
        self._last_step = 0
        self._started_unix = self._forked_unix = 0.0
        self._start_seconds = self._save_seconds = 0.0

    @property
    def change_seconds(self) -> float:
        """What a move costs, as far as it was seen: a checkpoint and a start of the ranks."""
        return self._start_seconds + self._save_seconds

    @property
    def cuts(self) -> Cuts:
        """First and end layer of each stage, as the last move left them."""
        return self._cuts

    def update(self, event: Event) -> Move | None:
        """Look at an event; return a move when it is due. The caller makes it, with `cuts`."""
        match event:
            case AttemptStarted():
                self._begin(event)
            case RankReady(seconds=float(seconds)) if event.attempt == self._attempt:
                # The first start of a command loads libraries, which a change does not.
                started = event.time_unix - seconds
                self._forked_unix = min(self._forked_unix or started, started)
            case CheckpointSaved():
                self._save_seconds = event.seconds
            case Rebalanced(moved="rows"):
                self._caution.settle()
            case StepDone() if event.attempt == self._attempt:
                return self._take(event)
        return None

    def _begin(self, event: AttemptStarted) -> None:
        self._attempt, self._last_step = event.attempt, event.steps
        self._started_unix, self._forked_unix = event.time_unix, 0.0
        self._start_seconds = 0.0
        self._waiting.clear()
        self._speeds.forget()
        self._caution.settle()

    def _take(self, event: StepDone) -> Move | None:
        if not self._start_seconds:
            since = self._forked_unix or self._started_unix
            self._start_seconds = max(1e-3, event.time_unix - since)
        ranks = self._waiting.setdefault(event.step, {})
        ranks[event.rank] = event
        if len(ranks) < self._plan.layout.ranks:
            return None
        del self._waiting[event.step]
        return self._judge(ranks)

    def _judge(self, ranks: dict[int, StepDone]) -> Move | None:
        """Look at a step that all ranks have done."""
        if any(not one.rows or not one.stage_seconds for one in ranks.values()):
            return None
        step_seconds = max(one.step_seconds for one in ranks.values())
        left = self._last_step - ranks[0].step
        back = self._caution.hear(step_seconds, return_gain=self._least_gain(step_seconds, left))
        if back is not None:
            self._cuts = _cuts_of(back.after)
            return back
        self._speeds.add(self._slowness(ranks))
        if not self._caution.is_ready:
            return None
        rows = [ranks[self._rank(0, data)].rows or 0 for data in range(self._plan.layout.data)]
        return self._propose(rows, self._least_gain(self._caution.step_seconds, left))

    def _least_gain(self, step_seconds: float, steps_left: int) -> float:
        """Return the gain with which a move pays for itself in the steps that are left."""
        left = steps_left * step_seconds - PAYS_BACK * self.change_seconds
        return steps_left * step_seconds / left if left > 0 else float("inf")

    def _rank(self, place: int, data: int) -> int:
        layout = self._plan.layout
        return (place * layout.data + data) * layout.context * layout.model

    def _slowness(self, ranks: dict[int, StepDone]) -> list[float]:
        """Return the time for a row and a unit of cost, a line a place of data ranks each.

        Of the ranks that share the layers of a row out the slowest counts, for which the others
        wait.
        """
        layout = self._plan.layout
        return [
            max(
                ranks[self._rank(place, data) + member].compute_seconds
                / (ranks[self._rank(place, data) + member].rows or 1)
                for member in range(layout.context * layout.model)
            )
            / self._cost_of(self._cuts, place)
            for place in range(layout.pipeline)
            for data in range(layout.data)
        ]

    def _cost_of(self, cuts: Cuts, place: int) -> float:
        """Return the cost of the layers that the ranks at a place of the pipeline own."""
        owned = [cuts[stage.index] for stage in self._plan.stages_of(place)]
        return sum(sum(self._costs[first:end]) for first, end in owned)

    def _propose(self, rows: Sequence[int], least_gain: float) -> Move | None:
        slow = self._lines(self._speeds.seconds)
        step_seconds = self._caution.step_seconds
        now = self._computing(self._row_seconds(self._cuts, slow), rows)
        if now <= 0:
            return None
        weights = [self._computing(line, rows) for line in slow]
        ideal = sum(self._costs) / sum(1 / weight for weight in weights)
        if now < ideal * (1 + self._threshold):
            return None
        owners = [self._plan.owner_of(stage) for stage in range(len(self._cuts))]
        cuts = balance(self._costs, len(self._cuts), [weights[place] for place in owners])
        seconds = self._row_seconds(cuts, slow)
        then = self._computing(seconds, best_shares(seconds, self._rule) if self._rule else rows)
        gain = expected_gain(step_seconds, now, then)
        if gain < least_gain or not self._is_lasting(cuts, rows) or not self._fits(cuts):
            return None
        times = ", ".join(f"{max(line) / min(map(max, slow)):.2f}" for line in slow[:16])
        move = self._caution.propose(
            _layers(cuts),
            gain=gain,
            reason=f"the ranks of the stages are this slow for equal layers: {times}; expected: "
            f"{now:.3f} s of computing become {then:.3f} s in a step of {step_seconds:.3f} s, for "
            f"a change that takes {self.change_seconds:.1f} s",
        )
        if move is not None:
            self._cuts = cuts
        return move

    def _is_lasting(self, cuts: Cuts, rows: Sequence[int]) -> bool:
        """Tell whether the cuts would have paid in each of the last steps."""

        def computing(tried: Cuts, slow: list[tuple[float, ...]]) -> float:
            seconds = self._row_seconds(tried, slow)
            moved = best_shares(seconds, self._rule) if self._rule else rows
            return self._computing(seconds, rows if tried == self._cuts else moved)

        steps = [self._lines(one) for one in self._speeds.samples]
        return self._caution.is_lasting(
            (computing(self._cuts, slow), computing(cuts, slow)) for slow in steps
        )

    def _lines(self, seconds: tuple[float, ...]) -> list[tuple[float, ...]]:
        """Return times of ranks as a line a place of the pipeline."""
        data = self._plan.layout.data
        return [seconds[begin : begin + data] for begin in range(0, len(seconds), data)]

    def _row_seconds(self, cuts: Cuts, slow: Sequence[Sequence[float]]) -> list[float]:
        """Return the time of each data rank's slowest rank of the pipeline for a row."""
        costs = [self._cost_of(cuts, place) for place in range(len(slow))]
        return [
            max(line[data] * cost for line, cost in zip(slow, costs, strict=True))
            for data in range(self._plan.layout.data)
        ]

    def _computing(self, seconds: Sequence[float], rows: Sequence[int]) -> float:
        idle = idle_pieces(self._plan) * self._plan.microbatch_rows
        return max((n + idle) * one for n, one in zip(rows, seconds, strict=True))


def _layers(cuts: Cuts) -> tuple[int, ...]:
    """Return how many layers each stage has."""
    return tuple(end - first for first, end in cuts)


def _cuts_of(layers: Sequence[int]) -> Cuts:
    ends = [sum(layers[: index + 1]) for index in range(len(layers))]
    return tuple(zip([0, *ends[:-1]], ends, strict=True))
