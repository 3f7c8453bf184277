"""A run that was interrupted ends with the very bits of one that was not."""

import shutil
import signal
from pathlib import Path

import pytest
import torch

from cnai.cluster.local import LocalGang
from cnai.core.layout import Layout, ParallelPlan, Sharding
from cnai.core.runfolder import RunFolder
from cnai.models import parameter_sizes
from cnai.train.checkpoint import load_weights
from training_case import SHAPE, Case, ends_of, losses, plan_of, whole_state

pytestmark = [pytest.mark.dist, pytest.mark.slow]
PLANS = {
    "dp2": plan_of(Layout(data=2)),
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "tp2 pp2": plan_of(Layout(model=2, pipeline=2)),
}
FALLING = {"schedule": "cosine", "warmup_steps": 2}


def weights(run: RunFolder, step: int) -> dict[str, torch.Tensor]:
    return load_weights(run.checkpoint(step), parameter_sizes(SHAPE))


def differ(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    return [name for name, value in one.items() if not value.equal(other[name])]


def resumed(gang: LocalGang, folder: Path, plan: ParallelPlan) -> RunFolder:
    """Lose a rank in step 5 and go on from the checkpoint of step 4."""
    case = Case(folder, plan, steps=6, train=FALLING, kill=(1, 5), background=False)
    run = case.start(gang)
    ended = []
    while not ended:
        ended = gang.poll(0.2)
    assert ended[0].code == -signal.SIGKILL
    gang.kill()
    case.kill, case.attempt, case.resume_step, case.background = None, 1, 4, True
    case.run(gang)
    return run


@pytest.mark.parametrize("layout", PLANS)
def test_weights_after_a_resume_are_those_of_an_undisturbed_run(
    gang: LocalGang, tmp_path: Path, layout: str
) -> None:
    plan = PLANS[layout]
    whole = Case(tmp_path / "whole", plan, steps=6, train=FALLING).run(gang)
    again = resumed(gang, tmp_path / "again", plan)
    assert losses(again) == losses(whole)
    assert differ(weights(whole, 6), weights(again, 6)) == []
    assert differ(whole_state(whole, 6), whole_state(again, 6)) == []


@pytest.mark.parametrize("layout", PLANS)
def test_a_background_checkpoint_holds_the_state_of_its_step_although_training_went_on(
    gang: LocalGang, tmp_path: Path, layout: str
) -> None:
    """Every step is saved, and each save is slowed down until later steps have changed the state."""
    plan = PLANS[layout]
    case = Case(tmp_path / "slow", plan, steps=6, checkpoint_every=2, keep=9, slow_save=0.3)
    late = case.run(gang)
    ready = Case(tmp_path / "sync", plan, steps=6, checkpoint_every=2, keep=9, background=False)
    now = ready.run(gang)
    for step in (2, 4, 6):
        assert differ(whole_state(now, step), whole_state(late, step)) == []


def test_saves_that_are_slower_than_training_follow_one_another(
    gang: LocalGang, tmp_path: Path
) -> None:
    case = Case(
        tmp_path, plan_of(Layout(data=2)), steps=4, checkpoint_every=1, keep=9, slow_save=0.3
    )
    run = case.run(gang)
    assert run.checkpoint_steps() == [1, 2, 3, 4]
    assert not [path for path in run.checkpoints.iterdir() if path.name.startswith(".")]


def test_a_dropped_unit_is_the_same_after_a_resume(gang: LocalGang, tmp_path: Path) -> None:
    """What is random in a module of the user's depends on the step, not on the life of a rank."""
    plan = plan_of(Layout(data=2))
    case = Case(tmp_path / "whole", plan, steps=4, dropout=0.5)
    whole = case.run(gang)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    again = RunFolder(tmp_path / "again")
    shutil.rmtree(again.checkpoint(4))
    case.folder, case.attempt, case.resume_step = tmp_path / "again", 1, 2
    case.start(gang)
    assert set(ends_of(gang).values()) == {0}
    assert losses(again) == losses(whole)
    assert losses(whole) != losses(Case(tmp_path / "plain", plan, steps=4).run(gang))
    assert differ(weights(whole, 4), weights(again, 4)) == []
