"""Every pipeline schedule trains the same model: the curve of one process is the reference."""

import pytest

from cnai.core.layout import Layout, Sharding
from cnai.core.schedules import SCHEDULES
from training_case import curve, plan_of, same

pytestmark = [pytest.mark.dist, pytest.mark.slow]
PP2 = Layout(pipeline=2)
ALL_AXES = Layout(data=2, model=2, pipeline=2)
V = ("ZBVZeroBubble", "DualPipeV")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_follows_the_curve_of_one_process(gang, one_process, schedule, tmp_path):
    found = curve(gang, tmp_path, plan_of(PP2, schedule=schedule))
    same(found, one_process(), 1e-6)


@pytest.mark.parametrize("schedule", ["Interleaved1F1B", "InterleavedZeroBubble", *V])
def test_stages_of_unequal_size_change_nothing(gang, one_process, schedule, tmp_path):
    plan = plan_of(PP2, schedule=schedule, layers=7, cuts=(0, 3, 4, 6))
    same(curve(gang, tmp_path, plan), one_process(7), 1e-6)


@pytest.mark.parametrize("schedule", V)
def test_an_untied_head_is_right_in_a_v(gang, one_process, schedule, tmp_path):
    found = curve(gang, tmp_path, plan_of(PP2, schedule=schedule), tied=False)
    same(found, one_process(tied=False), 1e-6)


def test_four_ranks_follow_the_curve_of_one_process(gang, one_process, tmp_path):
    same(curve(gang, tmp_path, plan_of(Layout(pipeline=4))), one_process(), 1e-6)


@pytest.mark.parametrize("sharding", [Sharding.NONE, Sharding.FULL])
@pytest.mark.parametrize("schedule", ["Interleaved1F1B", *V])
def test_all_three_axes_with_several_stages_a_rank(gang, one_process, schedule, sharding, tmp_path):
    plan = plan_of(ALL_AXES, schedule=schedule, sharding=sharding)
    same(curve(gang, tmp_path, plan), one_process(), 1e-5)


@pytest.mark.parametrize("schedule", ["InterleavedZeroBubble", "ZBVZeroBubble"])
@pytest.mark.parametrize("tied", [True, False])
def test_no_gradient_is_lost_where_weights_are_sharded(gang, one_process, schedule, tied, tmp_path):
    plan = plan_of(Layout(data=2, pipeline=2), schedule=schedule, sharding=Sharding.FULL)
    same(curve(gang, tmp_path, plan, tied=tied), one_process(tied=tied), 1e-6)


def test_a_split_that_begins_inside_a_v(gang, one_process, tmp_path):
    layout = Layout(data=2, model=2, pipeline=2, split_layer=1)
    plan = plan_of(layout, schedule="ZBVZeroBubble")
    same(curve(gang, tmp_path, plan), one_process(), 1e-5)


def test_zero_bubble_works_with_one_stage_a_rank(gang, one_process, tmp_path):
    plan = plan_of(PP2, schedule="InterleavedZeroBubble", virtual=1)
    same(curve(gang, tmp_path, plan), one_process(), 1e-6)


def test_three_stages_a_rank(gang, one_process, tmp_path):
    plan = plan_of(PP2, schedule="Interleaved1F1B", virtual=3, layers=7)
    same(curve(gang, tmp_path, plan), one_process(7), 1e-6)


def test_a_shared_embedding_is_averaged_over_both_data_axes(gang, one_process, tmp_path):
    plan = plan_of(
        Layout(data=4, pipeline=2), schedule="ZBVZeroBubble", sharding=Sharding.HYBRID,
        shard_group=2,
    )  # fmt: skip
    same(curve(gang, tmp_path, plan), one_process(), 1e-6)
