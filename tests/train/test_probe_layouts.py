"""The norms of every parameter are those of one process, in every layout, in the one message."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cnai.cluster.local import LocalGang
from cnai.core.events import RankMeasured
from cnai.core.layout import Layout, ParallelPlan, Sharding
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.vectors import read_vectors
from training_case import Case, ends_of, logs_of, norms, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]
Measured = dict[tuple[int, str, str], float]
Runs = Callable[..., RunFolder]
MIXED = Layout(data=2, model=2, split_layer=1)


def measured(run: RunFolder, *groups: str) -> Measured:
    return {
        (record.step, group, name): float(value)
        for record in read_vectors(run.layers_file)
        for group in groups
        for name, value in zip(record.names(group), record.group(group), strict=True)
    }


def wrong(found: Measured, expected: Measured) -> float:
    """Return the largest relative difference in the first step; later ones drift apart anyway."""
    assert set(found) == set(expected)
    first = [key for key in expected if key[0] == 1]
    return max(abs(found[key] / expected[key] - 1) for key in first)


@pytest.fixture(scope="module")
def run_of(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    @cache
    def run(plan: ParallelPlan, ffn_width: int = 64, **case: Any) -> RunFolder:
        shape = {"ffn_width": ffn_width}
        return Case(tmp_path_factory.mktemp("run"), plan, probe=2, shape=shape, **case).run(gang)

    return run


@pytest.mark.parametrize(
    ("plan", "tied"),
    [
        (plan_of(Layout(data=2), sharding=Sharding.FULL), True),
        (plan_of(Layout(model=2)), True),
        (plan_of(MIXED), True),
        (plan_of(MIXED, sharding=Sharding.FULL), True),
        (plan_of(Layout(data=4), sharding=Sharding.HYBRID, shard_group=2), True),
        (plan_of(Layout(pipeline=2)), True),
        (plan_of(Layout(pipeline=2, model=2)), False),
        (plan_of(Layout(pipeline=2), schedule="Interleaved1F1B"), False),
        (plan_of(Layout(context=2)), True),
    ],
    ids=["fsdp2", "tp2", "dp2tp2", "fsdp2tp2", "hybrid", "pp2", "pp2tp2", "virtual", "cp2"],
)
def test_the_norms_are_those_of_one_process(run_of: Runs, plan: ParallelPlan, tied: bool) -> None:
    expected = measured(run_of(plan_of(Layout()), tied=tied), "gradient", "weight")
    assert wrong(measured(run_of(plan, tied=tied), "gradient", "weight"), expected) < 1e-5


def test_the_norms_of_uneven_shards_are_those_of_one_process(run_of: Runs) -> None:
    expected = measured(run_of(plan_of(Layout()), ffn_width=65), "gradient", "weight")
    uneven = plan_of(Layout(data=4), sharding=Sharding.FULL)
    assert wrong(measured(run_of(uneven, ffn_width=65), "gradient", "weight"), expected) < 1e-5


PLANS = [plan_of(Layout()), plan_of(Layout(data=2)), plan_of(MIXED), plan_of(Layout(pipeline=2))]


@pytest.mark.parametrize("plan", PLANS)
def test_all_parameters_together_have_the_norm_of_the_event(
    run_of: Runs, plan: ParallelPlan
) -> None:
    run = run_of(plan, tied=True)
    total = {
        one.step: float(np.sqrt(np.square(one.group("gradient"), dtype=np.float64).sum()))
        for one in read_vectors(run.layers_file)
    }
    assert total == pytest.approx(norms(run), rel=1e-6)


@pytest.mark.parametrize("plan", PLANS)
def test_updates_are_recorded_of_every_step_also_of_the_last(
    run_of: Runs, plan: ParallelPlan
) -> None:
    records = read_vectors(run_of(plan, tied=True).layers_file)
    assert [one.step for one in records] == [1, 2, 3, 4]
    assert all((one.group("update") > 0).all() for one in records)


def test_activations_of_all_stages_are_in_one_record(run_of: Runs) -> None:
    one = read_vectors(run_of(plan_of(Layout(pipeline=2)), tied=True).layers_file)[1]
    assert one.names("output_rms") == tuple(f"layers.{index}" for index in range(4))
    assert np.isfinite(one.group("output_rms")).all()
    assert ((one.group("entropy") > 0.5) & (one.group("entropy") <= 1)).all()
    assert one.names("log_z") == ("head",)


def test_ranks_that_split_the_heads_have_the_entropy_of_one_process(run_of: Runs) -> None:
    alone, split = (
        measured(run_of(plan_of(layout), tied=True), "entropy")
        for layout in (Layout(), Layout(model=2))
    )
    assert split == pytest.approx(alone, rel=1e-3)


def test_copies_have_the_same_hash_before_the_first_step_and_after(run_of: Runs) -> None:
    events = read_events(run_of(plan_of(Layout(data=2)), tied=True))
    said = [one for one in events if isinstance(one, RankMeasured)]
    hashes = {at: {one.weights_hash for one in said if one.step == at} for at in (0, 2, 4)}
    assert [len(one) for one in hashes.values()] == [1, 1, 1]
    assert len(set.union(*hashes.values())) == 3


def test_ranks_that_hold_different_parts_are_no_copies(run_of: Runs) -> None:
    events = read_events(run_of(plan_of(Layout(pipeline=2, model=2)), tied=False))
    assert len({one.copy for one in events if isinstance(one, RankMeasured)}) == 4


def test_data_ranks_have_different_batches(run_of: Runs) -> None:
    events = read_events(run_of(plan_of(Layout(data=2)), tied=True))
    batches = [name for one in events if isinstance(one, RankMeasured) for name in one.batches]
    assert len(batches) == len(set(batches)) == 8


@pytest.mark.parametrize(
    ("plan", "rank", "where"),
    [
        (plan_of(Layout()), 0, "the output of `layers.2.ffn`"),
        (plan_of(Layout(data=2)), 1, "the output of `layers.2.ffn` on rank 1"),
        (plan_of(Layout(pipeline=2)), 1, "the output of `layers.2.ffn` on rank 1"),
    ],
    ids=["one", "dp2", "pp2"],
)
def test_the_module_in_which_a_number_broke_is_named(
    gang: LocalGang, tmp_path: Path, plan: ParallelPlan, rank: int, where: str
) -> None:
    run = Case(tmp_path, plan, probe=2, poison=(rank, 2, "layers.2.ffn")).start(gang)
    assert set(ends_of(gang).values()) != {0}
    assert f"at step 3, first in {where}" in logs_of(run)
    assert [one.step for one in read_vectors(run.layers_file)] == [1, 2, 3]
