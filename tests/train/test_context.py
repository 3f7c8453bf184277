"""Sharing out the positions through the whole model changes no curve."""

import pytest

from cnai.core.events import EvaluationDone
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import read_events
from training_case import Case, curve, losses, plan_of, same, steps

pytestmark = [pytest.mark.dist, pytest.mark.slow]

PLANS = {
    "cp2": plan_of(Layout(context=2)),
    "cp4, more than key-value heads": plan_of(Layout(context=4)),
    "cp2 tp2": plan_of(Layout(context=2, model=2)),
    "cp2 tp2 from layer 2, with sequence": plan_of(
        Layout(context=2, model=2, split_layer=2, split_sequence=True)
    ),
    "cp2 pp2": plan_of(Layout(context=2, pipeline=2)),
    "cp2 pp2 in a V, sharded": plan_of(
        Layout(context=2, pipeline=2), schedule="ZBVZeroBubble", sharding=Sharding.FULL
    ),
    "dp2 cp2 sharded": plan_of(Layout(data=2, context=2), sharding=Sharding.FULL),
    "dp2 cp2 tp2 sharded in pairs": plan_of(
        Layout(data=2, context=2, model=2), sharding=Sharding.HYBRID, shard_group=2
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_layout_follows_the_curve_of_one_process(gang, one_process, plan, tmp_path):
    same(curve(gang, tmp_path, PLANS[plan]), one_process(), 1e-5)


def test_a_checkpoint_of_slices_goes_on_without(gang, one_process, tmp_path):
    Case(tmp_path, PLANS["cp2 pp2"], steps=8).run(gang)
    run = Case(tmp_path, plan_of(Layout(model=2)), steps=8, attempt=1, resume_step=6).run(gang)
    assert losses(run) == pytest.approx(one_process()[0], abs=1e-5)


def test_the_noise_scale_and_the_validation_loss_are_those_without_slices(gang, tmp_path):
    found = []
    for context in (1, 2):
        settings = {"evaluate_every": 2, "evaluate_sequences": 11}
        plan = plan_of(Layout(data=2, context=context))
        run = Case(tmp_path / str(context), plan, train=settings).run(gang)
        judged = [e.loss for e in read_events(run) if isinstance(e, EvaluationDone)]
        assert len(judged) == 2
        found.append(judged + [e.noise_scale for e in steps(run) if e.rank == 0])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
