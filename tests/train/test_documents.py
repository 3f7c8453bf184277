"""Documents that do not see each other: every layout follows the curve of one process."""

from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.layout import Layout, Sharding
from training_case import STEPS, Case, Curve, losses, norms, plan_of, same

pytestmark = [pytest.mark.dist, pytest.mark.slow]

SEPARATOR = 5
LAYOUTS = {
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "tp2": plan_of(Layout(model=2)),
    "tp2 from layer 2, sequence": plan_of(Layout(model=2, split_layer=2, split_sequence=True)),
    "pp2": plan_of(Layout(pipeline=2)),
    "pp2 zero bubble": plan_of(Layout(pipeline=2), schedule="ZBVZeroBubble"),
    "cp2": plan_of(Layout(context=2)),
    "dp2 tp2 pp2": plan_of(Layout(data=2, model=2, pipeline=2)),
}


def apart(gang: LocalGang, folder: Path, layout: str | None = None, **train: object) -> Case:
    plan = LAYOUTS[layout] if layout else plan_of(Layout())
    return Case(folder, plan, steps=STEPS, separator=SEPARATOR, train=train)


@pytest.fixture(scope="module")
def reference(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    run = apart(gang, tmp_path_factory.mktemp("one")).run(gang)
    return losses(run), norms(run)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_follows_the_curve_of_one_process(
    gang: LocalGang, reference: Curve, layout: str, tmp_path: Path
) -> None:
    run = apart(gang, tmp_path, layout).run(gang)
    same((losses(run), norms(run)), reference, 1e-5)


def test_recomputing_does_not_change_the_curve(
    gang: LocalGang, reference: Curve, tmp_path: Path
) -> None:
    run = apart(gang, tmp_path, recompute="full").run(gang)
    same((losses(run), norms(run)), reference, 1e-6)


def test_documents_apart_are_another_curve_than_joined_ones(
    gang: LocalGang, reference: Curve, tmp_path: Path
) -> None:
    joined = Case(tmp_path, plan_of(Layout()), steps=STEPS).run(gang)
    assert abs(losses(joined)[STEPS] - reference[0][STEPS]) > 1e-3
