"""Layers move away from slow stages, when it pays; events of a made-up run are all it sees."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from cnai.core.balance import Move
from cnai.core.events import AttemptStarted, CheckpointSaved, RankReady, Rebalanced, StepDone
from cnai.core.layout import Layout, ParallelPlan
from cnai.plan.caution import JUDGED, SETTLING
from cnai.plan.recut import SAMPLES, LayerBalancer
from cnai.plan.shares import share_rule
from training_case import plan_of

LAYERS = 12
FOUR = plan_of(Layout(pipeline=4), layers=LAYERS)
READY = SETTLING + SAMPLES


@dataclass
class MadeUpRun:
    """Ranks whose layers take `slow` seconds a row each; tells a balancer what they did.

    Attributes:
        slow: Seconds for a row and a layer, by rank.
        paid: What a move does to the time of a step beside computing, in seconds.
        start: Seconds that a start of the ranks takes.
    """

    plan: ParallelPlan
    slow: list[float]
    steps: int = 1000
    start: float = 1.0
    beside: float = 0.0
    paid: float = 0.0
    fits: bool = True
    rows: list[int] = field(default_factory=list)
    moves: list[tuple[int, Move]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rule = share_rule(self.plan)
        self.balancer = LayerBalancer(
            self.plan, [1.0] * LAYERS, threshold=0.1,
            rule=None if isinstance(rule, str) else rule, fits=lambda _: self.fits,
        )  # fmt: skip
        self.rows = self.rows or [8 // self.plan.layout.data] * self.plan.layout.data
        self.step = 0
        self.attempt = -1
        self.now = 100.0
        self.begin()

    def begin(self) -> None:
        self.attempt += 1
        self.balancer.update(
            AttemptStarted(
                time_unix=self.now, attempt=self.attempt, ranks=self.plan.layout.ranks,
                steps=self.steps, plan_digest="", layout="", resumed_step=self.step,
            )
        )  # fmt: skip
        self.now += self.start

    def run(self, steps: int) -> MadeUpRun:
        for _ in range(steps):
            self._one_step()
        return self

    def _one_step(self) -> None:
        self.step += 1
        layout = self.plan.layout
        compute = []
        for place in layout.places():
            owned = [self.balancer.cuts[one.index] for one in self.plan.stages_of(place.pipeline)]
            layers = sum(end - first for first, end in owned)
            compute.append(self.rows[place.data] * layers * self.slow[place.rank])
        idle = 1 + (layout.pipeline - 1) / self.plan.microbatches
        took = max(compute) * idle + self.beside
        self.now += took
        moved = None
        for rank, seconds in enumerate(compute):
            moved = self.balancer.update(self._done(rank, seconds, took)) or moved
        if moved:
            self.moves.append((self.step, moved))
            self.beside += self.paid
            self.begin()

    def _done(self, rank: int, seconds: float, took: float) -> StepDone:
        return StepDone(
            time_unix=self.now, rank=rank, attempt=self.attempt, step=self.step, loss=1.0,
            grad_norm=1.0, update_ratio=None, learning_rate=0.1, tokens=1, step_seconds=took,
            data_wait_seconds=0.0, rows=self.rows[self.plan.layout.place(rank).data],
            stage_seconds=(seconds,), wait_seconds=took - seconds,
        )  # fmt: skip


def only_move(run: MadeUpRun) -> Move:
    ((_, move),) = run.moves
    return move


def test_a_slow_stage_gets_fewer_layers() -> None:
    run = MadeUpRun(FOUR, [1.0, 2.0, 1.0, 1.0]).run(60)
    move = only_move(run)
    assert run.moves[0][0] == READY
    assert move.before == (3, 3, 3, 3)
    assert move.after[1] <= 2
    assert max(move.after) == 4
    assert move.gain == pytest.approx(1.5)
    assert "1.00, 2.00, 1.00, 1.00" in move.reason


@pytest.mark.parametrize("inner", ["model", "context"])
def test_of_ranks_that_share_layers_the_slowest_counts(inner: str) -> None:
    plan = plan_of(Layout(pipeline=2, **{inner: 2}), layers=LAYERS)
    move = only_move(MadeUpRun(plan, [1.0, 1.0, 1.0, 2.0]).run(40))
    assert move.after == (8, 4)


def test_equal_stages_keep_their_layers() -> None:
    assert MadeUpRun(FOUR, [1.0] * 4).run(100).moves == []


def test_slowness_that_comes_and_goes_moves_nothing() -> None:
    run = MadeUpRun(FOUR, [1.0] * 4)
    for step in range(60):
        run.slow = [1.0, 2.0, 1.0, 1.0] if step % 4 else [1.0] * 4
        run.run(1)
    assert run.moves == []


def test_a_gain_below_the_threshold_moves_nothing() -> None:
    assert MadeUpRun(FOUR, [1.0, 1.08, 1.0, 1.0]).run(100).moves == []


def test_a_move_that_the_last_steps_cannot_pay_back_is_not_made() -> None:
    slow = [0.01, 0.02, 0.01, 0.01]
    assert MadeUpRun(FOUR, slow, steps=30, start=5.0).run(29).moves == []
    assert MadeUpRun(FOUR, slow, steps=300, start=5.0).run(29).moves != []


def test_a_checkpoint_counts_to_the_cost_of_a_change() -> None:
    run = MadeUpRun(FOUR, [0.01, 0.02, 0.01, 0.01], steps=300)
    run.balancer.update(CheckpointSaved(time_unix=1.0, step=1, path="", size_bytes=1, seconds=900))
    assert run.run(50).moves == []
    assert run.balancer.change_seconds > 900


def test_loading_the_libraries_does_not_count_to_it() -> None:
    run = MadeUpRun(FOUR, [0.01, 0.02, 0.01, 0.01], start=60.0)
    run.balancer.update(
        RankReady(time_unix=run.now, rank=0, attempt=0, pid=1, host="", parameters=1, seconds=2.0)
    )
    run.run(1)
    assert run.balancer.change_seconds == pytest.approx(2.0, abs=1.0)


def test_cuts_that_do_not_fit_the_memory_are_not_made() -> None:
    run = MadeUpRun(FOUR, [1.0, 2.0, 1.0, 1.0], fits=False).run(50)
    assert run.moves == []
    assert run.balancer.cuts == tuple((s.first_layer, s.end_layer) for s in FOUR.stages)


def test_a_move_that_made_it_worse_is_taken_back() -> None:
    run = MadeUpRun(FOUR, [1.0, 2.0, 1.0, 1.0], paid=200.0).run(60)
    (_, first), (step, second) = run.moves
    assert second.is_rollback
    assert (second.before, second.after) == (first.after, first.before)
    assert step == READY + SETTLING + JUDGED
    assert run.balancer.cuts[1] == (3, 6)


def test_a_move_that_brought_nothing_stays_where_going_back_does_not_pay() -> None:
    run = MadeUpRun(FOUR, [1.0, 2.0, 1.0, 1.0], paid=28.0).run(60)
    assert not only_move(run).is_rollback


def test_after_rows_moved_a_move_of_layers_is_judged_anew() -> None:
    plan = plan_of(Layout(data=2, pipeline=2), layers=LAYERS, microbatches=4)
    run = MadeUpRun(plan, [1.0, 1.0, 2.0, 2.0])
    run.run(READY - 1)
    run.balancer.update(
        Rebalanced(time_unix=1.0, attempt=0, step=5, moved="rows", before=(4, 4), after=(5, 3),
                   gain=1.2, reason="")
    )  # fmt: skip
    run.run(READY - 1)
    assert run.moves == []
    assert run.run(1).moves != []


def test_layers_stay_where_a_whole_pipeline_is_slow() -> None:
    """Its rows move; another cut would not help."""
    plan = plan_of(Layout(data=2, pipeline=2), layers=LAYERS, microbatches=4)
    for rows in ([4, 4], [6, 2]):
        assert MadeUpRun(plan, [1.0, 3.0, 1.0, 3.0], rows=rows).run(40).moves == []


def test_steps_of_an_older_attempt_are_passed_over() -> None:
    run = MadeUpRun(FOUR, [1.0, 2.0, 1.0, 1.0])
    run.begin()
    run.attempt -= 1
    assert run.run(30).moves == []


def test_events_of_older_versions_say_nothing() -> None:
    run = MadeUpRun(FOUR, [1.0, 2.0, 1.0, 1.0])
    done = run._done(0, 1.0, 1.0)
    old = StepDone(**{
        name: getattr(done, name) for name in StepDone.__slots__ if name not in {
            "rows", "stage_seconds", "wait_seconds", "noise_scale"}
    }, time_unix=1.0)  # fmt: skip
    for rank in range(4):
        object.__setattr__(old, "rank", rank)
        assert run.balancer.update(old) is None


@pytest.mark.parametrize("schedule", ["Interleaved1F1B", "ZBVZeroBubble"])
def test_ranks_with_several_stages_are_judged_by_their_sum(schedule: str) -> None:
    plan = plan_of(Layout(pipeline=2), layers=LAYERS, schedule=schedule)
    run = MadeUpRun(plan, [1.0, 3.0]).run(40)
    move = only_move(run)
    slow = sum(
        n for n, one in zip(move.after, plan.stages, strict=True) if plan.owner_of(one.index)
    )
    assert slow < LAYERS / 2
    assert not math.isinf(move.gain)
