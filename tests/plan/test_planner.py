import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.errors import CnaiError, PlanError, SpecError
from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.records import decode, encode
from cnai.core.schedules import SCHEDULES
from cnai.plan import PlanRequest, alternatives, make_plan, nearest_plan
from plan_cases import GIB, LARGE, MIXTURE, QWEN3_235B, SMALL, fleet, large, small


def test_the_sizes_that_were_asked_for_are_kept():
    plan = make_plan(small(data=2, model=2, pipeline=2, split_layer=3), fleet())
    assert (plan.layout.data, plan.layout.model, plan.layout.pipeline) == (2, 2, 2)
    assert plan.layout.split_layer == 3


def test_the_split_of_the_introduction_plans_100_billion_parameters():
    request = large(data=8, model=8, pipeline=4, split_layer=1, ranks=None)
    plan = make_plan(request, fleet(32, kind="B200"))
    assert plan.layout.ranks == 256


def test_100_billion_parameters_on_128_devices_plan_in_under_a_second():
    start = time.process_time()
    plan = make_plan(large(), fleet(16))
    assert time.process_time() - start < 1
    assert plan.layout.ranks == 128
    assert plan.peak.memory.total_bytes < 0.95 * 80 * GIB


def test_the_fastest_that_fits_is_taken():
    found = alternatives(large(ranks=1024), fleet(128))
    fitting = [one.estimate.step_seconds for one in found if one.rejected is None]
    assert fitting == sorted(fitting)
    plan = make_plan(large(ranks=1024), fleet(128))
    assert plan.estimate.step_seconds == fitting[0]


def test_layouts_that_do_not_fit_come_last_and_say_what_they_need():
    found = alternatives(large(), fleet(16))
    fits = [one.rejected is None for one in found]
    assert fits == sorted(fits, reverse=True)
    assert "GiB a rank" in found[-1].rejected


def test_reasons_name_the_runner_up_and_what_memory_ruled_out():
    text = "\n".join(make_plan(large(ranks=1024), fleet(128)).reasons)
    assert "fastest of" in text
    assert "next is dp" in text
    assert "rejected for memory" in text


def test_a_tensor_group_that_was_not_asked_for_stays_in_a_node():
    found = alternatives(large(), fleet(32, devices=4))
    assert max(one.plan.layout.model for one in found) == 4


def test_a_tensor_group_that_was_asked_for_may_leave_the_node_with_a_warning():
    plan = make_plan(small(data=1, model=4, pipeline=1), fleet(2, devices=2))
    assert any("leaves the node" in reason for reason in plan.reasons)


def test_auto_sharding_shards_only_when_it_must():
    assert make_plan(small(data=8), fleet()).sharding is Sharding.NONE
    assert make_plan(large(), fleet(16)).sharding is Sharding.FULL


def test_none_and_full_sharding_are_obeyed():
    assert make_plan(small(data=2, sharding="full"), fleet()).sharding is Sharding.FULL
    assert make_plan(small(data=2, sharding="none"), fleet()).sharding is Sharding.NONE


def test_nothing_fits_says_what_is_needed_what_there_is_and_what_would_fit():
    with pytest.raises(PlanError) as caught:
        make_plan(large(data=1, model=8, pipeline=1, ranks=None), fleet(16))
    error = caught.value
    assert error.exit_code == 3
    assert "dp1 x tp8 x pp1 needs" in error.message
    assert "has 75.1 GiB usable" in error.message
    assert "size: 16, sharding: full" in error.hint


def test_the_hint_of_nothing_fits_does_fit():
    request = large(data=16, model=8, pipeline=1, sharding="none")
    with pytest.raises(PlanError) as caught:
        make_plan(request, fleet(16))
    assert "{size: 16, sharding: full}" in caught.value.hint
    again = large(data=16, model=8, pipeline=1, sharding="full")
    assert make_plan(again, fleet(16)).layout.data == 16


def test_a_hint_may_ask_for_more_nodes():
    with pytest.raises(PlanError) as caught:
        make_plan(large(ranks=8), fleet(1))
    assert "nodes" in caught.value.hint


def test_more_ranks_than_devices_are_refused():
    with pytest.raises(PlanError, match="16 ranks were asked for, but the machines have 8"):
        make_plan(small(data=16), fleet(1))


def test_a_cpu_machine_may_be_shared_by_more_ranks_than_it_has_places():
    plan = make_plan(small(data=2, model=2, pipeline=2), fleet(kind="cpu", devices=2))
    assert any("8 ranks share 2" in reason for reason in plan.reasons)


def test_ranks_that_cannot_be_laid_out_name_ranks_that_can():
    with pytest.raises(PlanError) as caught:
        make_plan(small(ranks=11), fleet(2))
    assert "`resources.ranks: 10 or 12`" in caught.value.hint


def test_without_a_number_of_ranks_the_largest_that_can_be_laid_out_is_taken():
    assert make_plan(small(), fleet(devices=7)).layout.ranks == 7
    assert make_plan(small(batch=16, pipeline=1, model=1), fleet(devices=7)).layout.ranks == 4


def test_an_unknown_device_gets_a_guess():
    odd = fleet(kind="H100-80GB")
    node = odd.nodes[0]
    from dataclasses import replace

    with pytest.raises(SpecError, match="unknown device `H100-80G`") as caught:
        make_plan(small(), replace(odd, nodes=(replace(node, device_kind="H100-80G"),)))
    assert "did you mean `H100-80GB`" in caught.value.hint


def test_a_fleet_without_machines_is_refused():
    from cnai.core.fleet import Fleet

    with pytest.raises(SpecError, match="no machine"):
        make_plan(small(), Fleet(nodes=()))


def test_a_module_of_unknown_size_is_copied_without_an_estimate():
    plan = make_plan(small(shape=None), fleet())
    assert plan.layout.data == 8
    assert plan.estimate is None
    assert any("memory is not checked" in reason for reason in plan.reasons)


def test_the_plan_survives_a_round_trip_as_json():
    plan = make_plan(large(), fleet(16))
    assert decode(ParallelPlan, encode(plan), where="plan.json") == plan


def test_estimates_and_reasons_do_not_change_the_digest():
    plan = make_plan(small(data=2), fleet())
    bare = alternatives(small(data=2), fleet())
    assert any(one.plan.digest == plan.digest and not one.plan.reasons for one in bare)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.sampled_from([1, 2, 4, 6, 16, 24]),
    st.integers(0, 8),
    st.sampled_from(sorted(SCHEDULES)),
)
def test_every_plan_keeps_the_batch_and_places_every_layer_once(
    ranks, batch, split_layer, schedule
):
    request = small(ranks=ranks, batch=batch, split_layer=split_layer, schedule=schedule)
    try:
        found = alternatives(request, fleet())
    except CnaiError:
        return
    for one in found:
        plan = one.plan
        assert plan.layout.ranks == ranks
        assert plan.global_batch == batch
        assert plan.microbatches >= plan.layout.pipeline
        layers = [i for stage in plan.stages for i in range(stage.first_layer, stage.end_layer)]
        assert layers == list(range(SMALL.layers))
        assert len({len(plan.stages_of(rank)) for rank in range(plan.layout.pipeline)}) == 1


def test_a_v_idles_less_than_1f1b():
    sizes = {"data": 1, "model": 1, "pipeline": 4, "microbatches": 16}
    plain = make_plan(small(**sizes), fleet())
    v = make_plan(small(**sizes, schedule="ZBVZeroBubble"), fleet())
    assert v.estimate.bubble_fraction < plain.estimate.bubble_fraction / 4
    assert len(v.stages) == 8
    assert sum(v.peak.stages) == 7


def test_computing_activations_twice_is_offered_before_other_machines():
    with pytest.raises(PlanError) as caught:
        make_plan(large(data=8, model=8, pipeline=1, ranks=64), fleet(8))
    assert caught.value.hint.startswith("with `train.recompute: selective`, ")
    offered = large(data=8, model=8, pipeline=1, ranks=64, recompute="selective")
    assert make_plan(offered, fleet(8)).sharding is Sharding.FULL


def test_groups_of_hybrid_sharding_stay_in_a_node():
    plan = make_plan(small(data=16, model=2, pipeline=1, sharding="hybrid"), fleet(4))
    assert plan.shards == 4
    assert any("4 groups of 4 copies" in reason for reason in plan.reasons)


def test_every_axis_and_switch_reaches_the_plan():
    request = small(
        data=4,
        model=2,
        pipeline=2,
        sharding="hybrid",
        shard_group=2,
        split_sequence=True,
        schedule="Interleaved1F1B",
    )
    plan = make_plan(request, fleet(2))
    assert (plan.shards, plan.virtual, plan.layout.split_sequence) == (2, 2, True)


def test_planning_does_not_load_torch():
    code = "import sys, cnai.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_large_shape_has_about_100_billion_parameters():
    assert 90e9 < LARGE.parameters < 110e9


def test_a_context_group_is_taken_as_asked_and_leaves_the_batch_alone():
    plan = make_plan(small(context=2, ranks=8), fleet())
    assert plan.layout.context == 2
    assert plan.layout.ranks == 8
    assert plan.global_batch == 16
    assert "cp2" in str(plan.layout)


def test_the_nearest_layout_keeps_the_context_group_as_long_as_it_can():
    wanted = make_plan(small(context=4, ranks=8), fleet()).layout
    near = nearest_plan(small(context=4), fleet(), wanted, most=4)
    assert near.layout.context == 4
    alone = nearest_plan(small(context=4), fleet(), wanted, most=3)
    assert alone.layout.context == 1


def test_a_mixture_of_235_billion_parameters_is_planned():
    assert 234e9 < QWEN3_235B.parameters < 236e9
    assert 21e9 < QWEN3_235B.active_parameters < 23e9
    request = PlanRequest(
        shape=QWEN3_235B,
        batch=1024,
        sequence=4096,
        precision="bfloat16",
        ranks=256,
        expert=16,
        recompute="full",
    )
    plan = make_plan(request, fleet(32))
    assert plan.layout.ranks == 256
    assert plan.layout.copies % 16 == 0
    assert "ep16" in str(plan.layout)
    assert 0.05 < plan.estimate.utilization < 0.6


def test_the_nearest_layout_brings_experts_together_when_ranks_are_gone():
    request = small(shape=MIXTURE, expert=4)
    wanted = make_plan(replace(request, data=4, model=1, pipeline=1), fleet()).layout
    near = nearest_plan(request, fleet(), wanted, most=2)
    assert (near.layout.data, near.layout.expert) == (2, 2)
