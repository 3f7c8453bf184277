"""A user's own module trains in every layout as it does in one process."""

import shutil
from functools import cache

import pytest

import module_case
from cnai.core.layout import Layout, Sharding
from cnai.core.runfolder import RunFolder
from training_case import ends_of, logs_of, losses, norms, plan_of, whole_state

pytestmark = [pytest.mark.dist, pytest.mark.slow]
ONE = plan_of(Layout())
LAYOUTS = {
    "dp2": plan_of(Layout(data=2)),
    "tp2": plan_of(Layout(model=2)),
    "tp2 from layer 2": plan_of(Layout(model=2, split_layer=2)),
    "dp2 tp2": plan_of(Layout(data=2, model=2)),
    "dp2 sharded": plan_of(Layout(data=2), sharding=Sharding.FULL),
    "dp2 tp2 sharded": plan_of(Layout(data=2, model=2), sharding=Sharding.FULL),
    "pp2": plan_of(Layout(pipeline=2)),
    "tp2 pp2": plan_of(Layout(model=2, pipeline=2)),
    "pp2 interleaved": plan_of(Layout(pipeline=2), schedule="Interleaved1F1B"),
}


@pytest.fixture(scope="module")
def gang():
    with module_case.new_gang() as started:
        yield started


@pytest.fixture(scope="module")
def one(gang, tmp_path_factory):
    """The run of one process, for a module."""

    @cache
    def run(module="transformer", loss="cross_entropy"):
        folder = tmp_path_factory.mktemp(module)
        return module_case.run(gang, folder, ONE, module=module, loss=loss)

    return run


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_follows_the_curve_of_one_process(gang, one, layout, tmp_path):
    run = module_case.run(gang, tmp_path, LAYOUTS[layout])
    assert losses(run) == pytest.approx(losses(one()), abs=1e-5)
    assert norms(run) == pytest.approx(norms(one()), rel=1e-4)


def test_the_loss_falls(gang, tmp_path):
    run = module_case.run(gang, tmp_path, ONE, steps=60)
    assert losses(run)[60] < losses(run)[1] / 2


def test_a_module_that_judges_itself_has_the_same_curve(gang, one, tmp_path):
    run = module_case.run(gang, tmp_path, LAYOUTS["dp2 tp2"], module="judging", loss="own")
    assert losses(run) == pytest.approx(losses(one()), abs=1e-5)


@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputed_layers_have_the_same_curve(gang, one, mode, tmp_path):
    run = module_case.run(gang, tmp_path, LAYOUTS["tp2"], train={"recompute": mode})
    assert losses(run) == pytest.approx(losses(one()), abs=1e-5)


def test_muon_has_the_same_curve_in_another_layout(gang, tmp_path):
    muon = {"optimizer": "muon"}
    whole = module_case.run(gang, tmp_path / "one", ONE, train=muon)
    split = module_case.run(gang, tmp_path / "four", LAYOUTS["dp2 tp2 sharded"], train=muon)
    assert losses(split) == pytest.approx(losses(whole), abs=1e-5)
    adam = module_case.run(gang, tmp_path / "adam", ONE)
    assert losses(adam) != losses(whole)


@pytest.mark.parametrize("other", ["tp2 pp2", "dp2 sharded"])
def test_a_run_goes_on_in_another_layout(gang, one, other, tmp_path):
    module_case.run(gang, tmp_path, LAYOUTS["dp2 tp2"], steps=4, train={"schedule": "constant"})
    run = module_case.run(
        gang, tmp_path, LAYOUTS[other], resume_step=4, attempt=1, train={"schedule": "constant"}
    )
    whole = module_case.run(gang, tmp_path / "one", ONE, train={"schedule": "constant"})
    assert losses(run) == pytest.approx(losses(whole), abs=1e-5)


def test_a_part_that_is_used_by_columns_and_not_marked_is_found(gang, tmp_path):
    run = module_case.start(gang, tmp_path, LAYOUTS["tp2"], module="forgetful")
    assert set(ends_of(gang).values()) == {2}
    assert "`body.blocks.0.attention.head_norm.weight`" in logs_of(run)
    assert "`body.blocks.0.attention.head_norm: summed`" in logs_of(run)


def again(gang, folder, plan, step):
    """Go on from a checkpoint of a finished run, in a copy of its folder."""
    copy = folder.with_name("again")
    shutil.copytree(folder, copy)
    shutil.rmtree(RunFolder(copy).checkpoint(8))
    return module_case.run(gang, copy, plan, module="counting", resume_step=step, attempt=1)


@pytest.mark.parametrize("layout", ["dp2", "dp2 sharded", "pp2"])
def test_running_statistics_and_dropped_units_are_the_same_after_a_resume(gang, layout, tmp_path):
    whole = module_case.run(gang, tmp_path / "run", LAYOUTS[layout], module="counting")
    resumed = again(gang, tmp_path / "run", LAYOUTS[layout], 4)
    assert losses(resumed) == losses(whole)
    before, after = whole_state(whole, 8), whole_state(resumed, 8)
    assert any("running_mean" in name for name in before)
    assert [name for name, value in before.items() if not value.equal(after[name])] == []


def test_a_pipeline_counts_each_micro_batch_once(gang, tmp_path):
    run = module_case.run(gang, tmp_path, LAYOUTS["pp2"], module="counting", steps=4)
    counted = {k: v for k, v in whole_state(run, 4).items() if "num_batches" in k}
    assert len(counted) == 4
    assert {float(value) for value in counted.values()} == {4.0 * LAYOUTS["pp2"].microbatches}


def test_statistics_of_two_data_ranks_are_those_of_all_rows(gang, tmp_path):
    """With a rate next to nothing those of the first layer depend on the rows alone."""
    found = []
    for name, layout in (("one", Layout()), ("two", Layout(data=2))):
        plan = plan_of(layout, microbatches=1)
        run = module_case.run(
            gang, tmp_path / name, plan, module="counting", train={"learning_rate": 1e-12}
        )
        found.append(whole_state(run, 8)["buffers.rows.0.1.running_mean"])
    assert found[0].abs().sum() > 0
    assert found[1].tolist() == pytest.approx(found[0].tolist(), abs=1e-6)
