"""Reactions to findings: decided without a run, and in real trainings."""

import pytest

from chain_case import write_spec
from cnai.core.course import standing
from cnai.core.errors import RunError, SpecError
from cnai.core.events import CheckpointSaved, Finding, Reacted, RunEnded, StepDone, StepSkipped
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.spec import load_spec
from cnai.flows.reactions import Reactions, undo
from cnai.monitor import DETECTORS
from cnai.train.wishes import SAVE_SIGNAL
from fault_case import Told, train_with


def finding(detector="loss_spike", step=30, cause=None):
    return Finding(
        time_unix=0.0, detector=detector, severity="warning", message="it rose", step=step,
        cause=cause,
    )  # fmt: skip


class FakeGang:
    def __init__(self):
        self.signals = []

    def signal(self, number):
        self.signals.append(number)


class Scene:
    """A run folder with checkpoints of some steps, and what is asked for."""

    def __init__(self, folder, steps=(), **asked):
        self.run = RunFolder.create(folder / "run")
        for step in steps:
            self.run.checkpoint(step).mkdir()
        self.gang, self.listener = FakeGang(), Told()
        spec = load_spec({"monitor": {"reactions": asked}}).spec
        self.agent = self.run.writer("agent")
        self.reactions = Reactions(spec, self.run, self.gang, self.agent, self.listener)

    def reacted(self):
        return [e for e in read_events(self.run) if isinstance(e, Reacted)]


def test_nothing_is_done_unless_it_is_asked_for(tmp_path):
    scene = Scene(tmp_path)
    scene.reactions.hear(finding(), 30)
    assert scene.reactions.due is None
    assert scene.reacted() == []


def test_what_follows_from_another_finding_does_not_count(tmp_path):
    scene = Scene(tmp_path, stop=["loss_spike"])
    scene.reactions.hear(finding(cause="rate_high"), 30)
    assert scene.reactions.due is None


def test_living_ranks_are_asked_to_save(tmp_path):
    scene = Scene(tmp_path, checkpoint=["loss_spike"])
    scene.reactions.hear(finding(), 30)
    assert scene.gang.signals == [SAVE_SIGNAL]
    assert scene.reacted()[0].action == "checkpoint"
    assert scene.reactions.due is None


def test_going_back_takes_a_checkpoint_that_lies_far_enough_before(tmp_path):
    scene = Scene(tmp_path, steps=(10, 20, 28, 31), roll_back=["loss_spike"], roll_back_steps=5)
    scene.reactions.hear(finding(step=30), 31)
    scene.reactions.settle()
    (event,) = scene.reacted()
    assert (event.from_step, event.data_steps) == (20, 11)
    assert scene.run.checkpoint_steps() == [10, 20]


def test_going_back_further_than_all_checkpoints_begins_anew(tmp_path):
    scene = Scene(tmp_path, steps=(28,), roll_back=["loss_spike"])
    scene.reactions.hear(finding(step=30), 30)
    scene.reactions.settle()
    assert scene.reacted()[0].from_step == 0
    assert scene.run.checkpoint_steps() == []


def test_a_lower_rate_holds_from_the_newest_checkpoint(tmp_path):
    scene = Scene(tmp_path, steps=(20, 30), lower_rate=["rate_high"], rate_factor=0.25)
    scene.reactions.hear(finding("rate_high"), 30)
    scene.reactions.settle()
    (event,) = scene.reacted()
    assert (event.from_step, event.rate_factor) == (30, 0.25)


def test_stopping_says_why(tmp_path):
    scene = Scene(tmp_path, steps=(30,), stop=["memory_leak"])
    scene.reactions.hear(finding("memory_leak"), 30)
    with pytest.raises(RunError, match="it rose"):
        scene.reactions.settle()


def test_there_are_no_more_reactions_than_asked_for(tmp_path):
    scene = Scene(tmp_path, checkpoint=["loss_spike"], at_most=1)
    scene.reactions.hear(finding(), 30)
    scene.reactions.hear(finding(), 40)
    assert len(scene.reacted()) == 1
    assert "at_most" in scene.listener.lines[-1]


def test_a_later_command_goes_on_counting(tmp_path):
    first = Scene(tmp_path, checkpoint=["loss_spike"], at_most=1)
    first.reactions.hear(finding(), 30)
    again = Scene(tmp_path, checkpoint=["loss_spike"], at_most=1)
    again.reactions.hear(finding(), 40)
    assert len(again.reacted()) == 1


def test_a_name_that_is_no_detector_is_refused(tmp_path):
    with pytest.raises(SpecError, match="`loss_spikes` is no detector") as caught:
        Scene(tmp_path, stop=["loss_spikes"])
    assert "`loss_spike`" in caught.value.hint


def test_taking_a_roll_back_back_restores_its_checkpoints(tmp_path):
    scene = Scene(tmp_path, steps=(10, 20, 28), roll_back=["loss_spike"], roll_back_steps=5)
    scene.reactions.hear(finding(step=30), 30)
    scene.reactions.settle()
    scene.run.checkpoint(24).mkdir()
    event = undo(scene.run)
    assert event.undoes == 1
    assert scene.run.checkpoint_steps() == [10, 20, 28]
    assert standing(read_events(scene.run)) == []


def test_nothing_can_be_taken_back_twice(tmp_path):
    scene = Scene(tmp_path, steps=(30,), lower_rate=["rate_high"])
    scene.reactions.hear(finding("rate_high"), 30)
    scene.reactions.settle()
    undo(scene.run, 1)
    with pytest.raises(RunError, match="no reaction 1"):
        undo(scene.run, 1)


REAL = [pytest.mark.slow, pytest.mark.dist]
STEPS = 16


class AtStep:
    """A detector that speaks once in the life of a run, when a step is done."""

    name = "loss_spike"
    step = 9

    def __init__(self):
        self._spoke = False

    def update(self, event):
        if isinstance(event, Reacted):
            self._spoke = True
        if self._spoke or not isinstance(event, StepDone) or event.step < self.step:
            return None
        self._spoke = True
        return finding(step=event.step)


@pytest.fixture
def train(place, monkeypatch):
    """Train the tiny chain with a detector that speaks after step 9, and reactions to it."""
    monkeypatch.setitem(DETECTORS, AtStep.name, AtStep)

    def run(*faults, **asked):
        spec = {
            "train.steps": STEPS, "checkpoint.every_steps": 3, "checkpoint.keep": 9,
            "train.schedule": "constant", "monitor.reactions": asked,
        }  # fmt: skip
        write_spec(place, spec)
        return train_with(place / "run.yaml", {"rank": 0, "kind": "slow"}, *faults)[0]

    return run


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def seen(run, attempt):
    """Return what rank 0 did in an attempt, by step."""
    return {e.step: e for e in of(StepDone, run) if e.rank == 0 and e.attempt == attempt}


class TestRealTraining:
    pytestmark = REAL

    def test_a_checkpoint_is_saved_by_living_ranks(self, train):
        run = train(checkpoint=["loss_spike"])
        extra = [e.step for e in of(CheckpointSaved, run) if e.step % 3 and e.step != STEPS]
        assert len(extra) == 1
        assert extra[0] > AtStep.step
        assert {e.attempt for e in of(StepDone, run)} == {0}

    def test_a_lower_rate_holds_from_then_on(self, train):
        run = train(lower_rate=["loss_spike"])
        (event,) = of(Reacted, run)
        before, after = seen(run, 0)[AtStep.step], seen(run, 1)
        assert set(after) == set(range(event.from_step + 1, STEPS + 1))
        rates = [one.learning_rate for one in after.values()]
        assert rates == pytest.approx([before.learning_rate / 2] * len(rates))

    def test_a_rolled_back_run_goes_on_with_other_data(self, train):
        run = train(roll_back=["loss_spike"], roll_back_steps=2)
        (event,) = of(Reacted, run)
        first, again = seen(run, 0), seen(run, 1)
        assert event.from_step <= AtStep.step - 2
        assert set(again) == set(range(event.from_step + 1, STEPS + 1))
        step = event.from_step + 1
        assert again[step].loss != pytest.approx(first[step].loss, abs=1e-7)

    def test_a_roll_back_that_was_taken_back_gives_the_curve_as_if_nothing_had_been(
        self, train, place
    ):
        plain = train()
        undisturbed = {step: one.loss for step, one in seen(plain, 0).items()}
        plain.root.rename(place / "plain")
        run = train(roll_back=["loss_spike"], roll_back_steps=2)
        undo(run)
        again = train()
        assert of(RunEnded, again)[-1].outcome == "done"
        last = max(e.attempt for e in of(StepDone, again))
        losses = {step: one.loss for step, one in seen(again, last).items()}
        assert losses
        assert losses == pytest.approx({step: undisturbed[step] for step in losses}, abs=1e-6)

    def test_a_run_that_was_stopped_goes_on_with_the_same_command(self, train):
        with pytest.raises(RunError, match="it rose"):
            train(stop=["loss_spike"])
        run = train(stop=["loss_spike"], at_most=1)
        assert [e.outcome for e in of(RunEnded, run)] == ["stopped", "done"]
        assert max(seen(run, 1)) == STEPS

    def test_a_step_that_is_not_finite_is_passed_over(self, train):
        run = train({"rank": 1, "kind": "nan", "step": 4}, skip_nonfinite=1)
        assert {(e.rank, e.step) for e in of(StepSkipped, run)} == {(0, 5), (1, 5)}
        done = seen(run, 0)
        assert set(done) == set(range(1, STEPS + 1)) - {5}

    def test_too_many_steps_in_a_row_that_are_not_finite_end_the_run(self, train):
        faults = [{"rank": 0, "kind": "nan", "step": step} for step in (4, 5)]
        with pytest.raises(RunError, match="loss nan"):
            train(*faults, skip_nonfinite=1)

    def test_a_run_that_ended_by_a_number_rolls_back_when_asked_to(self, train):
        run = train({"rank": 0, "kind": "nan", "step": 6}, roll_back=["nonfinite"], at_most=1)
        assert of(RunEnded, run)[-1].outcome == "done"
        assert of(Reacted, run)[0].detector == "nonfinite"
