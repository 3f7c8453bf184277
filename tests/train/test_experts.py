"""A mixture of experts trains alike in every layout, its experts copied, spread or split."""

import shutil
from dataclasses import replace
from functools import partial

import pytest

from cnai.core.events import RankReady
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import RunFolder, read_events
from training_case import SHAPE, STEPS, Case, losses, norms, plan_of, same, whole_state

pytestmark = [pytest.mark.dist, pytest.mark.slow]

MIXTURE = {
    "experts": 4,
    "experts_per_token": 2,
    "expert_width": 24,
    "qk_norm": True,
    "dense_layers": [1],
}
PLANS = {
    "dp2": plan_of(Layout(data=2)),
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "tp2": plan_of(Layout(model=2)),
    "cp2 tp2 from layer 2, with sequence": plan_of(
        Layout(context=2, model=2, split_layer=2, split_sequence=True)
    ),
    "pp2 in a V": plan_of(Layout(pipeline=2), schedule="ZBVZeroBubble"),
    "ep2": plan_of(Layout(data=2, expert=2)),
    "ep2 of dp4 sharded": plan_of(Layout(data=4, expert=2), sharding=Sharding.FULL),
    "ep2 tp2 with sequence": plan_of(Layout(data=2, model=2, expert=2, split_sequence=True)),
    "ep2 pp2": plan_of(Layout(data=2, pipeline=2, expert=2)),
    "ep2 over cp2": plan_of(Layout(context=2, expert=2)),
    "ep4 over dp2 cp2 tp2 from layer 1, sharded in pairs": plan_of(
        Layout(data=2, context=2, model=2, expert=4, split_layer=1),
        sharding=Sharding.HYBRID,
        shard_group=2,
    ),
}
mixture = partial(Case, steps=STEPS, shape=MIXTURE, train={"balance_loss": 0.1})


@pytest.fixture(scope="module")
def reference(gang, tmp_path_factory):
    run = mixture(tmp_path_factory.mktemp("one"), plan_of(Layout())).run(gang)
    return losses(run), norms(run)


@pytest.mark.parametrize("plan", PLANS)
def test_a_layout_follows_the_curve_of_one_process(gang, reference, plan, tmp_path):
    run = mixture(tmp_path, PLANS[plan]).run(gang)
    same((losses(run), norms(run)), reference, 1e-6 if plan.startswith("pp") else 1e-5)


@pytest.fixture(scope="module")
def saved(gang, tmp_path_factory):
    """A run in the layout with the most axes; its checkpoints hold every expert."""
    folder = tmp_path_factory.mktemp("saved")
    plan = plan_of(Layout(data=2, model=2, pipeline=2, expert=2))
    mixture(folder, plan, checkpoint_every=4).run(gang)
    return folder


@pytest.mark.parametrize("plan", ["one", "ep2 of dp4 sharded", "ep2 over cp2", "ep4"])
def test_a_checkpoint_goes_on_in_another_layout(gang, reference, saved, plan, tmp_path):
    others = {"one": plan_of(Layout()), "ep4": plan_of(Layout(data=4, expert=4))}
    shutil.copytree(saved, tmp_path / "again")
    case = mixture(tmp_path / "again", (others | PLANS)[plan], attempt=1, resume_step=4)
    assert losses(case.run(gang)) == pytest.approx(reference[0], abs=1e-5)


def test_a_checkpoint_holds_every_expert_and_both_averages_under_one_name(gang, saved):
    state = whole_state(RunFolder(saved), STEPS)
    for kind in ("model.{}", "optimizer.{}.exp_avg", "optimizer.{}.exp_avg_sq"):
        assert state[kind.format("layers.2.ffn.experts.down_proj")].shape == (4, 32, 24)
    assert "model.layers.1.ffn.down_proj.weight" in state


def test_each_rank_holds_its_share_of_the_experts_only(gang, tmp_path):
    run = mixture(tmp_path, PLANS["ep2 tp2 with sequence"], steps=1).run(gang)
    held = {e.parameters for e in read_events(run) if isinstance(e, RankReady)}
    shape = replace(SHAPE, **MIXTURE)
    experts = shape.sparse_layers * shape.experts * shape.expert_parameters
    split = SHAPE.embedding_parameters + 4 * shape.attention_parameters + shape.ffn_parameters
    assert held == {shape.parameters - split // 2 - experts + experts // 4}


def test_the_balance_loss_changes_the_curve_but_not_the_first_loss(gang, reference, tmp_path):
    run = mixture(tmp_path, plan_of(Layout()), train={"balance_loss": 0.0}).run(gang)
    assert losses(run)[1] == reference[0][1]
    assert norms(run)[1] != pytest.approx(reference[1][1], rel=1e-4)


@pytest.mark.parametrize(
    "train",
    [
        {"optimizer": "muon"},
        {"recompute": "full"},
        {"lora": {"rank": 2}},
        {"precision": "bfloat16"},
    ],
    ids=str,
)
def test_spread_experts_follow_one_process_with_other_settings(gang, train, tmp_path):
    plan = PLANS["ep2 tp2 with sequence"]
    if "lora" in train:
        plan = replace(plan, layout=replace(plan.layout, split_sequence=False))
    whole = mixture(tmp_path / "whole", plan_of(Layout()), steps=6, train=train).run(gang)
    spread = mixture(tmp_path / "spread", plan, steps=6, train=train).run(gang)
    limit = 0.02 if "precision" in train else 1e-5
    assert losses(spread) == pytest.approx(losses(whole), abs=limit)
