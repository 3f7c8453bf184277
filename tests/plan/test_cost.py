from dataclasses import replace

import pytest

from cnai.plan import alternatives, make_plan
from cnai.plan.cost import layer_costs
from plan_cases import LARGE, MIXTURE, SMALL, fleet, large, small


def estimate(request, machines):
    return make_plan(request, machines).estimate


def test_the_bubble_is_that_of_the_textbook():
    found = estimate(small(data=1, model=1, pipeline=4, microbatches=8), fleet())
    assert found.bubble_fraction == pytest.approx(3 / 11)


def test_one_stage_has_no_bubble_and_one_copy_exchanges_nothing():
    found = estimate(small(data=1, model=1, pipeline=1), fleet())
    assert (found.bubble_fraction, found.data_seconds, found.tensor_seconds) == (0, 0, 0)


def test_tokens_a_second_are_those_of_the_batch():
    found = estimate(small(data=1, model=1, pipeline=1), fleet())
    assert found.tokens_per_second == pytest.approx(16 * 32 / found.step_seconds)


def test_a_tensor_group_across_nodes_is_slower_than_inside_one():
    request = large(shape=replace(LARGE, layers=2), batch=4, data=1, model=4, pipeline=1, ranks=4)
    inside, across = fleet(1, devices=4), fleet(2, devices=2)
    assert estimate(request, across).tensor_seconds > estimate(request, inside).tensor_seconds


def test_a_faster_device_takes_less_time():
    request = large(data=16, model=8, pipeline=1)
    faster = estimate(request, fleet(16, kind="B200"))
    assert faster.step_seconds < estimate(request, fleet(16)).step_seconds


def test_utilization_of_a_large_model_is_plausible():
    found = estimate(large(), fleet(16))
    assert 0.1 < found.utilization < 0.6


def test_ranks_of_a_cpu_machine_share_its_cores():
    one = estimate(small(data=1, model=1, pipeline=1), fleet(kind="cpu", devices=8))
    found = estimate(small(data=8, model=1, pipeline=1), fleet(kind="cpu", devices=8))
    assert found.compute_seconds > one.compute_seconds / 8


def test_layers_that_are_not_split_cost_as_much_as_on_one_rank():
    costs = layer_costs(LARGE, 4096, 8, 40)
    assert costs[39] == pytest.approx(8 * costs[40])


def test_embedding_and_head_weigh_on_the_ends():
    costs = layer_costs(SMALL, 32, 1, 0)
    assert costs[0] > costs[1]
    assert costs[-1] - costs[1] == SMALL.head_flops()


def test_a_tied_head_is_split_with_the_embedding():
    tied = replace(SMALL, tied_head=True)
    extra = layer_costs(tied, 32, 4, 1)[-1] - layer_costs(tied, 32, 4, 1)[-2]
    assert extra == pytest.approx(tied.head_flops())


def test_parameters_fetched_over_a_slow_link_cost_time():
    plain = estimate(small(data=8, sharding="none", ranks=8), fleet(8, devices=1))
    shard = estimate(small(data=8, sharding="full", ranks=8), fleet(8, devices=1))
    assert shard.data_seconds > plain.data_seconds


@pytest.mark.parametrize(
    ("schedule", "idle"),
    [("Interleaved1F1B", 3 / 2), ("InterleavedZeroBubble", 1 / 2), ("ZBVZeroBubble", 1 / 2)],
)
def test_a_schedule_idles_as_long_as_it_says(schedule, idle):
    found = estimate(small(data=1, model=1, pipeline=4, microbatches=8, schedule=schedule), fleet())
    assert found.bubble_fraction == pytest.approx(idle / (8 + idle))


def test_recomputing_costs_a_third_more_work_and_selectively_half_of_it():
    none, half, full = (
        estimate(
            large(data=16, model=8, pipeline=1, recompute=mode, microbatches=64),
            fleet(16, kind="B200"),
        )
        for mode in ("none", "selective", "full")
    )
    assert full.compute_seconds / none.compute_seconds == pytest.approx(4 / 3, rel=0.03)
    assert half.compute_seconds / none.compute_seconds == pytest.approx(7 / 6, rel=0.03)


def test_hybrid_sharding_sends_its_gradients_between_groups():
    sizes = {"data": 8, "model": 1, "pipeline": 1}
    hybrid = estimate(small(**sizes, sharding="hybrid", shard_group=4), fleet(2, devices=4))
    inside = estimate(small(data=4, model=1, pipeline=1, sharding="full"), fleet(2, devices=4))
    assert hybrid.data_seconds > inside.data_seconds


def test_every_alternative_has_an_estimate():
    assert all(one.estimate.step_seconds > 0 for one in alternatives(large(), fleet(16)))


def test_a_context_group_exchanges_and_computes_a_part():
    one = estimate(small(data=1, model=1, pipeline=1), fleet())
    two = estimate(small(data=1, model=1, pipeline=1, context=2), fleet())
    assert one.exchange_seconds == 0 < two.exchange_seconds
    assert two.compute_seconds < one.compute_seconds
    assert two.data_seconds > 0


def test_repeated_key_value_heads_are_paid_for():
    few = replace(SMALL, kv_heads=1)
    times = [
        estimate(small(shape=shape, data=1, model=1, pipeline=1, context=8), fleet())
        for shape in (few, replace(SMALL, kv_heads=8))
    ]
    assert times[0].exchange_seconds == times[1].exchange_seconds


def test_spread_experts_exchange_rows_but_average_less():
    request = small(shape=MIXTURE, data=8, model=1, pipeline=1)
    copied, spread = estimate(request, fleet()), estimate(replace(request, expert=8), fleet())
    assert copied.exchange_seconds == 0 < spread.exchange_seconds
    assert spread.data_seconds < copied.data_seconds


def test_a_token_pays_for_the_experts_it_goes_through_only():
    more = replace(MIXTURE, experts=64)
    layers = [layer_costs(shape, 32, 1, 0)[1] for shape in (MIXTURE, more)]
    assert layers[1] - layers[0] == 2 * 56 * MIXTURE.width
