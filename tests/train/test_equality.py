"""Every layout trains the same model: the curve of one process is the reference."""

from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.events import RankReady
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import read_events
from training_case import SHAPE, Case, losses, norms, plan_of, steps

pytestmark = [pytest.mark.dist, pytest.mark.slow]
Curve = tuple[dict[int, float], dict[int, float]]

LAYOUTS = {
    "dp2": plan_of(Layout(data=2)),
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "tp2": plan_of(Layout(model=2)),
    "tp2 from layer 2": plan_of(Layout(model=2, split_layer=2)),
    "pp2": plan_of(Layout(pipeline=2)),
    "pp2 uneven": plan_of(Layout(pipeline=2), cuts=(0, 3)),
    "pp4 GPipe": plan_of(Layout(pipeline=4), schedule="GPipe"),
    "dp4 sharded in pairs": plan_of(Layout(data=4), sharding=Sharding.HYBRID, shard_group=2),
    "dp4 tp2 sharded in pairs": plan_of(
        Layout(data=4, model=2), sharding=Sharding.HYBRID, shard_group=2
    ),
    "dp2 tp2 pp2": plan_of(Layout(data=2, model=2, pipeline=2)),
    "dp2 tp2 pp2 from layer 1": plan_of(Layout(data=2, model=2, pipeline=2, split_layer=1)),
    "dp2 tp2 pp2 sharded": plan_of(Layout(data=2, model=2, pipeline=2), sharding=Sharding.FULL),
}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def tied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def reference(gang: LocalGang, tied: bool, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    case = Case(tmp_path_factory.mktemp("one"), plan_of(Layout()), steps=6, tied=tied)
    run = case.run(gang)
    return losses(run), norms(run)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_follows_the_curve_of_one_process(
    gang: LocalGang, reference: Curve, tied: bool, layout: str, tmp_path: Path
) -> None:
    run = Case(tmp_path, LAYOUTS[layout], steps=6, tied=tied).run(gang)
    limit = 1e-6 if layout.startswith("pp") else 1e-5
    assert losses(run) == pytest.approx(reference[0], abs=limit)
    assert norms(run) == pytest.approx(reference[1], rel=1e-4)


def test_twenty_steps_of_all_three_axes_equal_one_process(gang: LocalGang, tmp_path: Path) -> None:
    whole = Case(tmp_path / "one", plan_of(Layout()), steps=20).run(gang)
    split = Case(tmp_path / "eight", LAYOUTS["dp2 tp2 pp2"], steps=20).run(gang)
    assert losses(split) == pytest.approx(losses(whole), abs=1e-5)


def test_all_ranks_report_the_same_loss(gang: LocalGang, tmp_path: Path) -> None:
    run = Case(tmp_path, LAYOUTS["dp2 tp2 pp2"]).run(gang)
    assert all(len({e.loss for e in steps(run) if e.step == step}) == 1 for step in range(1, 5))


def test_the_loss_falls(gang: LocalGang, tmp_path: Path) -> None:
    run = Case(tmp_path, plan_of(Layout(model=2)), steps=30, train={"learning_rate": 1e-2}).run(
        gang
    )
    curve = losses(run)
    assert curve[30] < curve[1] - 1


@pytest.mark.parametrize("split_layer", [0, 1, 4])
def test_layers_before_split_layer_are_whole_on_every_rank(
    gang: LocalGang, tmp_path: Path, split_layer: int
) -> None:
    run = Case(tmp_path, plan_of(Layout(model=2, split_layer=split_layer)), steps=1).run(gang)
    held = [e.parameters for e in read_events(run) if isinstance(e, RankReady)]
    matrices = SHAPE.attention_parameters + SHAPE.ffn_parameters
    split = (SHAPE.layers - split_layer) * matrices
    if split_layer == 0:
        split += SHAPE.embedding_parameters
    assert held == [SHAPE.parameters - split // 2] * 2


def test_bfloat16_stays_near_float32(gang: LocalGang, tmp_path: Path) -> None:
    plan = plan_of(Layout(pipeline=2))
    exact = Case(tmp_path / "f32", plan).run(gang)
    rough = Case(tmp_path / "bf16", plan, train={"precision": "bfloat16"}).run(gang)
    assert losses(rough) != losses(exact)
    assert losses(rough) == pytest.approx(losses(exact), abs=0.05)


def test_sgd_follows_the_curve_of_one_process_too(gang: LocalGang, tmp_path: Path) -> None:
    sgd = {"optimizer": "sgd", "learning_rate": 0.1}
    whole = Case(tmp_path / "one", plan_of(Layout()), train=sgd).run(gang)
    split = Case(tmp_path / "eight", LAYOUTS["dp2 tp2 pp2 sharded"], train=sgd).run(gang)
    assert losses(split) == pytest.approx(losses(whole), abs=1e-5)


def test_bfloat16_stays_near_float32_when_sharded_too(gang: LocalGang, tmp_path: Path) -> None:
    plan = LAYOUTS["dp2 tp2 pp2 sharded"]
    exact = Case(tmp_path / "f32", plan).run(gang)
    rough = Case(tmp_path / "bf16", plan, train={"precision": "bfloat16"}).run(gang)
    assert losses(rough) != losses(exact)
    assert losses(rough) == pytest.approx(losses(exact), abs=0.05)
