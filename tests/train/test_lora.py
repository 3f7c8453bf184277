"""Adapters train alike in every layout; a checkpoint holds them and nothing else."""

from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.adapters import Adapters
from cnai.core.errors import DataError
from cnai.core.events import RankReady
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import read_events
from cnai.models import adapter_sizes
from cnai.train.checkpoint import load_weights
from training_case import SHAPE, Case, losses, norms, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]
LORA = {
    "schedule": "constant",
    "lora": {"rank": 4, "targets": ["q_proj", "o_proj", "up_proj", "down_proj"]},
}
ADAPTERS = Adapters(rank=4, alpha=16.0, targets=tuple(LORA["lora"]["targets"]))
LAYOUTS = {
    "dp2": plan_of(Layout(data=2)),
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "tp2": plan_of(Layout(model=2)),
    "tp2 from layer 2": plan_of(Layout(model=2, split_layer=2)),
    "pp2": plan_of(Layout(pipeline=2)),
    "dp2 tp2 pp2": plan_of(Layout(data=2, model=2, pipeline=2)),
    "dp2 tp2 sharded": plan_of(Layout(data=2, model=2), sharding=Sharding.FULL),
}


@pytest.fixture(scope="module")
def reference(
    gang: LocalGang, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[int, float], dict[int, float]]:
    run = Case(tmp_path_factory.mktemp("one"), plan_of(Layout()), steps=6, train=LORA).run(gang)
    return losses(run), norms(run)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_follows_the_curve_of_one_process(gang, reference, layout, tmp_path: Path) -> None:
    run = Case(tmp_path, LAYOUTS[layout], steps=6, train=LORA).run(gang)
    assert losses(run) == pytest.approx(reference[0], abs=1e-5)
    assert norms(run) == pytest.approx(reference[1], rel=1e-4)


def test_the_loss_falls_from_that_of_the_frozen_model(gang: LocalGang, tmp_path: Path) -> None:
    train = {**LORA, "learning_rate": 3e-2}
    curve = losses(Case(tmp_path, plan_of(Layout(pipeline=2)), steps=30, train=train).run(gang))
    assert curve[30] < curve[1] - 0.3


def test_a_rank_says_what_is_frozen(gang: LocalGang, tmp_path: Path) -> None:
    run = Case(tmp_path, plan_of(Layout(model=2)), steps=1, train=LORA).run(gang)
    ready = next(e for e in read_events(run) if isinstance(e, RankReady))
    assert ready.trainable == SHAPE.layers * ADAPTERS.layer_parameters(SHAPE, 2)
    assert ready.parameters > 3 * ready.trainable
    assert "embedding.weight" in ready.frozen
    assert "layers.*.attention.q_proj.base.weight" in ready.frozen
    assert not any(name.endswith((".a.weight", ".b.weight")) for name in ready.frozen)


def test_a_checkpoint_holds_adapters_alone_and_goes_on_elsewhere(
    gang: LocalGang, reference, tmp_path: Path
) -> None:
    case = Case(tmp_path, LAYOUTS["dp2 tp2 pp2"], steps=4, train=LORA)
    run = case.run(gang)
    weights = load_weights(run.checkpoint(4), adapter_sizes(SHAPE, ADAPTERS), base="the case")
    assert all(value.abs().sum() > 0 for value in weights.values())
    with pytest.raises(DataError, match="cannot read"):
        load_weights(run.checkpoint(4), {"embedding.weight": (64, 32)}, base="the case")
    case.plan, case.steps, case.attempt, case.resume_step = LAYOUTS["dp2 sharded"], 6, 1, 4
    assert losses(case.run(gang)) == pytest.approx(reference[0], abs=1e-5)


def test_adapters_of_another_model_are_refused(gang: LocalGang, tmp_path: Path) -> None:
    run = Case(tmp_path, plan_of(Layout()), steps=2, train=LORA).run(gang)
    with pytest.raises(DataError, match="trained beside `the case`"):
        load_weights(run.checkpoint(2), adapter_sizes(SHAPE, ADAPTERS), base="another")
