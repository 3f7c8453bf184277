from dataclasses import replace
from math import prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cnai.core.errors import CnaiError, PlanError, SpecError
from cnai.core.shape import DecoderShape
from cnai.plan import make_plan
from cnai.plan.machines import Machines
from cnai.plan.planner import weigh_trial
from cnai.plan.rules import violations
from cnai.plan.search import BEST, search
from cnai.plan.space import Objective, Space, ways
from plan_cases import LARGE, MIXTURE, QWEN3_235B, SMALL, fleet, large, small


def everything(request, machines, objective=Objective.TIME):
    """Weigh all combinations one by one, and return the times of those that fit."""
    found = []
    for way in ways(request, request.shape, machines, Space(), objective):
        one = weigh_trial(way.request, way.machines, way.trial)
        if one.rejected is None:
            found.append(one.estimate.step_seconds)
    return sorted(found)


@pytest.mark.parametrize(
    ("request_", "machines"),
    [
        (small(ranks=8), fleet()),
        (small(ranks=8, shape=MIXTURE), fleet()),
        (large(shape=replace(LARGE, layers=8), batch=64, ranks=32), fleet(4)),
        (small(ranks=4), fleet(kind="cpu", devices=4)),
        (large(shape=replace(LARGE, layers=16), batch=32, ranks=32, split_layer=4), fleet(4)),
    ],
    ids=["small", "mixture", "large", "cpu", "split late"],
)
def test_the_best_are_those_of_weighing_everything(request_, machines):
    best = [one.estimate.step_seconds for one in search(request_, machines).best]
    assert best == pytest.approx(everything(request_, machines)[:BEST], rel=1e-3)


def test_a_hundred_billion_parameters_on_1024_devices_fit():
    found = search(large(batch=2048, ranks=1024), fleet(128))
    assert found.best[0].plan.layout.ranks == 1024
    assert found.weighed < found.considered


def test_the_best_plan_can_be_asked_for_exactly():
    found = search(large(batch=512, ranks=128), fleet(16))
    plan = make_plan(found.requests[0], fleet(16))
    assert replace(plan, reasons=()) == found.best[0].plan


def test_a_search_is_never_slower_than_the_sizes_alone():
    request = large(batch=512, ranks=128)
    alone = make_plan(request, fleet(16, kind="B200")).estimate.step_seconds
    best = search(request, fleet(16, kind="B200")).best[0].estimate.step_seconds
    assert best <= alone * 1.0001


def test_sizes_that_were_given_stay():
    found = search(large(batch=256, ranks=64, model=4, pipeline=2), fleet(8, kind="B200"))
    assert {(one.plan.layout.model, one.plan.layout.pipeline) for one in found.best} == {(4, 2)}


def test_recomputing_that_was_asked_for_stays():
    found = search(small(ranks=8, recompute="full"), fleet())
    assert {one.recompute for one in found.requests} == {"full"}


def test_a_tensor_group_stays_in_a_node():
    found = search(large(batch=256, ranks=64), fleet(32, devices=2, kind="B200"))
    assert max(one.plan.layout.model for one in found.best) <= 2


def test_long_sequences_are_shared_out():
    long = replace(LARGE, layers=8, sequence=131_072)
    request = large(shape=long, sequence=131_072, batch=8, ranks=64)
    sizes = [way.trial.layout.context for way in ways(
        request, long, fleet(8), Space(), Objective.TIME)]  # fmt: skip
    assert max(sizes) > 1


def test_short_sequences_are_not():
    assert {one.plan.layout.context for one in search(small(ranks=8), fleet()).best} == {1}


def test_experts_are_spread_where_that_helps():
    request = large(shape=QWEN3_235B, batch=256, ranks=64)
    assert any(one.plan.layout.expert > 1 for one in search(request, fleet(8)).best)


def test_cost_takes_no_more_machines_than_time():
    request = large(batch=512, ranks=None)
    machines = fleet(32, kind="B200")
    by_time = search(request, machines).best[0].plan
    by_cost = search(request, machines, objective=Objective.COST).best[0].plan
    dollars = [one.layout.ranks * one.estimate.step_seconds for one in (by_time, by_cost)]
    assert by_cost.layout.ranks <= by_time.layout.ranks
    assert dollars[1] <= dollars[0]


def test_what_was_lost_is_counted():
    found = search(large(batch=512, ranks=128), fleet(16))
    assert sum(found.lost.values()) + len(found.best) == found.considered


def test_nothing_that_fits_is_an_error_with_a_way_out():
    with pytest.raises(PlanError, match="no plan fits") as caught:
        search(large(batch=16, ranks=8), fleet(1))
    assert "fits with" in caught.value.hint


def test_ranks_that_cannot_be_laid_out_are_refused():
    with pytest.raises(PlanError, match="cannot be laid out"):
        search(small(ranks=11), fleet(2))


def test_more_ranks_than_devices_are_refused():
    with pytest.raises(PlanError, match="have 8 devices"):
        search(small(ranks=16), fleet())


def test_a_module_is_not_searched():
    with pytest.raises(PlanError, match="a module"):
        search(replace(small(), shape=None), fleet())


def test_a_broken_rule_is_named_before_anything_is_searched():
    with pytest.raises(SpecError, match="does not divide"):
        search(small(model=3), fleet())


@st.composite
def shapes(draw):
    heads = draw(st.integers(1, 32))
    kv = draw(st.sampled_from([one for one in range(1, heads + 1) if heads % one == 0]))
    experts = draw(st.sampled_from([0, 0, 4, 6]))
    return DecoderShape(
        layers=draw(st.integers(1, 40)),
        width=heads * 2 * draw(st.integers(4, 64)),
        heads=heads,
        kv_heads=kv,
        ffn_width=draw(st.integers(1, 64)) * 32,
        vocab=draw(st.integers(300, 100_000)),
        sequence=draw(st.sampled_from([16, 100, 512, 2048, 8192])),
        tied_head=draw(st.booleans()),
        experts=experts,
        experts_per_token=2 if experts else 0,
        expert_width=64 if experts else 0,
        sparse_step=draw(st.integers(1, 3)),
    )


def holds(shape, machines, batch, ranks):
    """Search, and hold each plan that is recommended against the rules."""
    request = replace(
        small(), shape=shape, sequence=shape.sequence, batch=batch, ranks=ranks,
        precision="bfloat16",
    )  # fmt: skip
    try:
        found = search(request, machines)
    except CnaiError as error:
        assert error.hint
        return
    for one, asked in zip(found.best, found.requests, strict=True):
        plan, layout = one.plan, one.plan.layout
        placed = [layer for stage in plan.stages
                  for layer in range(stage.first_layer, stage.end_layer)]  # fmt: skip
        assert placed == list(range(shape.layers))
        assert prod((layout.data, layout.model, layout.pipeline, layout.context)) == layout.ranks
        assert ranks is None or layout.ranks == ranks
        assert plan.global_batch == batch
        assert next(violations(asked, layout), None) is None
        assert one.needed_bytes <= Machines.of(machines).usable_bytes(layout.ranks)
        assert layout.model <= machines.nodes[0].devices
        assert one.estimate.step_seconds > 0


RANDOM = {
    "shape": shapes(),
    "nodes": st.integers(1, 6),
    "devices": st.sampled_from([1, 2, 4, 6, 8]),
    "kind": st.sampled_from(["A100-40GB", "H100-80GB", "V100-16GB", "GB200"]),
    "batch": st.sampled_from([1, 6, 8, 24, 64, 240]),
    "is_open": st.booleans(),
}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(**RANDOM)
def test_whatever_is_recommended_keeps_the_rules(shape, nodes, devices, kind, batch, is_open):
    holds(shape, fleet(nodes, kind=kind, devices=devices), batch, None if is_open else nodes)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(**RANDOM)
def test_many_random_shapes_keep_the_rules(shape, nodes, devices, kind, batch, is_open):
    holds(shape, fleet(nodes, kind=kind, devices=devices), batch, None if is_open else nodes)


def test_the_small_shape_is_laid_out_on_one_device():
    assert search(small(ranks=1), fleet()).best[0].plan.layout.ranks == 1
    assert SMALL.layers == 8
