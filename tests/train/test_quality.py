"""Muon, z-loss, evaluation in the loop and the noise scale, alike in every layout."""

import math
from pathlib import Path

import numpy as np
import pytest

from cnai.cluster.local import LocalGang
from cnai.core.events import EvaluationDone
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import RunFolder, read_events
from cnai.models import Decoder, fill, parameter_sizes, sequence_losses
from cnai.train.checkpoint import load_weights
from training_case import SHAPE, Case, MadeUpRows, losses, norms, plan_of, steps

pytestmark = [pytest.mark.dist, pytest.mark.slow]
LAYOUTS = {
    "dp2": plan_of(Layout(data=2)),
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "tp2": plan_of(Layout(model=2)),
    "pp2": plan_of(Layout(pipeline=2)),
    "pp4 GPipe": plan_of(Layout(pipeline=4), schedule="GPipe"),
    "dp2 tp2 pp2": plan_of(Layout(data=2, model=2, pipeline=2)),
    "dp2 tp2 sharded": plan_of(Layout(data=2, model=2), sharding=Sharding.FULL),
}
# Thirteen rows fill no layout's passes evenly.
SETTINGS = {
    "optimizer": "muon", "z_loss": 1e-3, "schedule": "constant", "evaluate_every": 2,
    "evaluate_sequences": 13,
}  # fmt: skip


def evaluations(run: RunFolder) -> dict[int, float]:
    return {e.step: e.loss for e in read_events(run) if isinstance(e, EvaluationDone)}


@pytest.fixture(scope="module")
def reference(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("one")
    return Case(folder, plan_of(Layout()), steps=6, train=SETTINGS).run(gang)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_follows_one_process(gang, reference, layout, tmp_path: Path) -> None:
    run = Case(tmp_path, LAYOUTS[layout], steps=6, train=SETTINGS).run(gang)
    assert losses(run) == pytest.approx(losses(reference), abs=2e-5)
    assert norms(run) == pytest.approx(norms(reference), rel=1e-4)
    assert evaluations(run) == pytest.approx(evaluations(reference), abs=2e-5)


def test_an_evaluation_is_what_a_lone_process_measures_of_the_checkpoint(reference) -> None:
    found = [e for e in read_events(reference) if isinstance(e, EvaluationDone)]
    assert [(e.step, e.sequences) for e in found] == [(2, 13), (4, 13), (6, 13)]
    model = Decoder(SHAPE)
    fill(model, load_weights(reference.checkpoint(6), parameter_sizes(SHAPE)).__getitem__)
    alone = sequence_losses(model, MadeUpRows().validation(13).astype(np.int64))
    assert found[-1].loss == pytest.approx(alone.mean(), abs=1e-6)


def test_an_evaluation_changes_nothing_in_the_training(gang, reference, tmp_path: Path) -> None:
    train = {**SETTINGS, "evaluate_every": 0}
    run = Case(tmp_path, plan_of(Layout()), steps=6, train=train).run(gang)
    assert losses(run) == losses(reference)
    assert evaluations(run) == {}


def test_muon_goes_on_from_a_checkpoint_in_another_layout(gang, reference, tmp_path: Path) -> None:
    case = Case(tmp_path, LAYOUTS["dp2 tp2 sharded"], steps=4, train=SETTINGS)
    case.run(gang)
    case.plan, case.steps, case.attempt, case.resume_step = LAYOUTS["pp2"], 6, 1, 4
    assert losses(case.run(gang)) == pytest.approx(losses(reference), abs=2e-5)


def test_z_loss_is_minimised_and_not_reported(gang, tmp_path: Path) -> None:
    runs = [
        Case(tmp_path / str(z), plan_of(Layout()), steps=2, train={"z_loss": z}).run(gang)
        for z in (0.0, 0.1)
    ]
    first, second = (losses(run) for run in runs)
    assert first[1] == pytest.approx(second[1], abs=1e-6)
    assert first[2] != pytest.approx(second[2], abs=1e-5)


def test_the_noise_scale_is_the_same_however_the_copies_are_split(gang, tmp_path: Path) -> None:
    scales = []
    for name in ("dp2", "dp2 tp2 pp2"):
        run = Case(tmp_path / name, LAYOUTS[name], steps=6).run(gang)
        scales.append([e.noise_scale or math.nan for e in steps(run) if e.rank == 0])
    assert scales[1] == pytest.approx(scales[0], rel=1e-3, nan_ok=True)
    assert any(scale > 0 for scale in scales[0])


def test_there_is_no_noise_scale_with_one_data_rank(reference) -> None:
    assert {e.noise_scale for e in steps(reference)} == {None}
