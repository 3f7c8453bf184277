"""A run that lost a rank goes on with the same curve, in the same layout or another."""

import shutil
import signal
from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import RunFolder
from cnai.train.manifest import newest_whole
from training_case import Case, ends_of, losses, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]
THREE_AXES = Layout(data=2, model=2, pipeline=2)


@pytest.fixture(scope="module")
def undisturbed(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    return losses(Case(tmp_path_factory.mktemp("one"), plan_of(Layout()), steps=6).run(gang))


def killed(gang: LocalGang, folder: Path, rank: int, *, background: bool = False) -> Case:
    """A run that lost a rank in step 5; the checkpoint of step 4 is the newest.

    In the background it may still have been on its way to the disk.
    """
    case = Case(folder, plan_of(THREE_AXES), steps=6, kill=(rank, 5), background=background)
    case.start(gang)
    ended = []
    while not ended:
        ended = gang.poll(0.5)
    assert (ended[0].rank, ended[0].code) == (rank, -signal.SIGKILL)
    gang.kill()
    assert not gang.living
    return case


@pytest.mark.parametrize("rank", [0, 3, 6])
def test_a_killed_rank_costs_only_the_steps_since_the_checkpoint(
    gang: LocalGang, undisturbed: dict[int, float], tmp_path: Path, rank: int
) -> None:
    case = killed(gang, tmp_path, rank)
    case.kill, case.attempt = None, 1
    case.resume_step, rejected = newest_whole(RunFolder(tmp_path))
    assert (case.resume_step, rejected) == (4, [])
    assert losses(case.run(gang)) == pytest.approx(undisturbed, abs=1e-5)


def test_a_rank_killed_while_the_checkpoint_is_written_costs_at_most_one_more(
    gang: LocalGang, undisturbed: dict[int, float], tmp_path: Path
) -> None:
    case = killed(gang, tmp_path, 0, background=True)
    case.kill, case.attempt = None, 1
    case.resume_step, rejected = newest_whole(RunFolder(tmp_path))
    assert case.resume_step in {2, 4}
    assert rejected == []
    assert losses(case.run(gang)) == pytest.approx(undisturbed, abs=1e-5)


def test_the_same_checkpoint_goes_on_in_any_layout(
    gang: LocalGang, undisturbed: dict[int, float], tmp_path: Path
) -> None:
    killed(gang, tmp_path / "lost", 5)
    others = (
        plan_of(Layout()),
        plan_of(Layout(pipeline=4)),
        plan_of(Layout(data=4), sharding=Sharding.FULL),
        plan_of(Layout(data=2, model=2, split_layer=2)),
        plan_of(Layout(data=2, pipeline=2), schedule="ZBVZeroBubble", sharding=Sharding.FULL),
    )
    for number, plan in enumerate(others):
        folder = tmp_path / f"again-{number}"
        shutil.copytree(tmp_path / "lost", folder)
        run = Case(folder, plan, steps=6, attempt=1, resume_step=4).run(gang)
        assert losses(run) == pytest.approx(undisturbed, abs=1e-5)


def test_a_checkpoint_of_a_v_goes_on_elsewhere(
    gang: LocalGang, undisturbed: dict[int, float], tmp_path: Path
) -> None:
    """The tied embedding lies there once, though two stages use it."""
    v = plan_of(Layout(data=2, pipeline=2), schedule="DualPipeV")
    Case(tmp_path, v, steps=6).run(gang)
    run = Case(tmp_path, plan_of(Layout(model=2)), steps=6, attempt=1, resume_step=4).run(gang)
    assert losses(run) == pytest.approx(undisturbed, abs=1e-5)


def test_a_stop_request_ends_all_ranks_after_the_same_step_with_a_checkpoint(
    gang: LocalGang, tmp_path: Path
) -> None:
    case = Case(tmp_path, plan_of(THREE_AXES), steps=10_000, checkpoint_every=10_000)
    run = case.start(gang)
    while not losses(run):
        gang.poll(0.1)
    gang.ask_to_stop()
    assert set(ends_of(gang).values()) == {0}
    counts = {rank: len(losses(run, rank)) for rank in range(8)}
    assert len(set(counts.values())) == 1
    assert run.checkpoint_steps() == [counts[0]]
