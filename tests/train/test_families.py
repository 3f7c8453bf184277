"""Qwen2's biases and Qwen3's normed queries and keys train alike in every layout."""

from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.events import RankReady
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import read_events
from training_case import SHAPE, Case, losses, norms, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]
Curve = tuple[dict[int, float], dict[int, float]]

FAMILIES = {
    "biases": {"attention_bias": True},
    "normed": {"qk_norm": True, "head_size": 6},
}
LAYOUTS = {
    "tp2": plan_of(Layout(model=2)),
    "tp2 from layer 2": plan_of(Layout(model=2, split_layer=2)),
    "pp2": plan_of(Layout(pipeline=2)),
    "dp2 tp2 pp2": plan_of(Layout(data=2, model=2, pipeline=2)),
    "dp2 tp2 sharded": plan_of(Layout(data=2, model=2), sharding=Sharding.FULL),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> dict[str, object]:
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def reference(
    gang: LocalGang, family: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Curve:
    case = Case(tmp_path_factory.mktemp("one"), plan_of(Layout()), steps=6, shape=family)
    run = case.run(gang)
    return losses(run), norms(run)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_follows_the_curve_of_one_process(
    gang: LocalGang, reference: Curve, family: dict[str, object], layout: str, tmp_path: Path
) -> None:
    run = Case(tmp_path, LAYOUTS[layout], steps=6, shape=family).run(gang)
    assert losses(run) == pytest.approx(reference[0], abs=1e-6 if layout == "pp2" else 1e-5)
    assert norms(run) == pytest.approx(reference[1], rel=1e-4)


def test_biases_are_split_with_their_heads(gang: LocalGang, tmp_path: Path) -> None:
    shape = {"attention_bias": True}
    run = Case(tmp_path, plan_of(Layout(model=2)), steps=1, shape=shape).run(gang)
    held = [e.parameters for e in read_events(run) if isinstance(e, RankReady)]
    biases = SHAPE.layers * (SHAPE.query_width + 2 * SHAPE.kv_width)
    norm = SHAPE.width + SHAPE.layers * SHAPE.norm_parameters
    assert held == [(SHAPE.parameters + biases - norm) // 2 + norm] * 2
