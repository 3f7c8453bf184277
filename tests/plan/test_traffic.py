"""The bytes that a layout must send, by arithmetic that can be done by hand."""

import pytest

from cnai.core.layout import Layout, Sharding
from cnai.plan.traffic import least_bytes
from training_case import BATCH, SHAPE, plan_of

PARAMETERS = SHAPE.layers * SHAPE.layer_parameters + SHAPE.embedding_parameters + SHAPE.width
STREAM = BATCH * SHAPE.sequence * SHAPE.width * 4
"""The residual stream of a whole batch."""


def least(layout, **more):
    return least_bytes(SHAPE, plan_of(layout, **more), sequence=SHAPE.sequence)


def test_one_rank_sends_nothing():
    assert set(least(Layout()).values()) == {0}


@pytest.mark.parametrize("ranks", [2, 4])
def test_data_ranks_sum_their_gradients_once(ranks):
    assert least(Layout(data=ranks))["data"] == 2 * 4 * PARAMETERS * (ranks - 1) / ranks


def test_sharded_ranks_send_three_times_for_every_micro_batch():
    sharded = least(Layout(data=2), sharding=Sharding.FULL)["data"]
    assert sharded == 2 * 3 * 4 * PARAMETERS / 2


def test_groups_of_hybrid_sharding_sum_what_they_scattered():
    found = least(Layout(data=4), sharding=Sharding.HYBRID, shard_group=2)["data"]
    assert found == 2 * 3 * 4 * PARAMETERS / 2 + 2 * 4 * PARAMETERS / 2 / 2


def test_split_layers_sum_the_stream_four_times():
    assert least(Layout(model=2))["model"] == pytest.approx(4 * SHAPE.layers * 2 * STREAM / 2)


def test_layers_before_the_split_send_nothing():
    half = least(Layout(model=2, split_layer=2))["model"]
    assert half == pytest.approx(least(Layout(model=2))["model"] / 2)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_pipeline_sends_the_stream_over_each_border_and_back(ranks):
    found = least(Layout(pipeline=ranks))["pipeline"]
    assert found == pytest.approx(2 * STREAM * (ranks - 1) / ranks)


def test_the_turn_of_a_v_is_no_border():
    loop = least(Layout(pipeline=2), schedule="Interleaved1F1B")["pipeline"]
    v = least(Layout(pipeline=2), schedule="ZBVZeroBubble")["pipeline"]
    assert v == pytest.approx(loop * 2 / 3)
