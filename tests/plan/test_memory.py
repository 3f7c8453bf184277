from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.adapters import Adapters
from cnai.core.layout import Layout, Sharding
from cnai.plan.activations import activation_bytes
from cnai.plan.balance import balance
from cnai.plan.devices import DEVICES
from cnai.plan.memory import (
    rank_parameters,
    stage_memory,
    stage_parameters,
)
from cnai.plan.pipeline import in_flight
from cnai.plan.request import Trial
from plan_cases import LARGE, MIXTURE, SMALL, small

H100 = DEVICES["H100-80GB"]


def trial(layout=None, *, shape=SMALL, **changes):
    layout = layout or Layout()
    cuts = balance([1.0] * shape.layers, layout.pipeline)
    plain = Trial(
        layout=layout, cuts=cuts, microbatches=4, rows=2, schedule="1F1B", sharding=Sharding.NONE
    )
    return replace(plain, **changes)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(0, 8))
def test_the_stages_of_an_untied_model_hold_all_parameters_once(stages, model, split_layer):
    layout = Layout(pipeline=stages, model=model, split_layer=split_layer)
    held = sum(stage_parameters(SMALL, trial(layout), stage) for stage in range(stages))
    assert held == SMALL.parameters


def test_a_tied_head_is_copied_to_the_last_stage():
    tied = replace(SMALL, tied_head=True)
    held = [stage_parameters(tied, trial(Layout(pipeline=2)), stage) for stage in (0, 1)]
    assert sum(held) == tied.parameters + tied.embedding_parameters


def test_a_tied_head_on_one_stage_is_not_counted_twice():
    tied = replace(SMALL, tied_head=True)
    assert stage_parameters(tied, trial(), 0) == tied.parameters


def test_split_matrices_are_divided_and_norms_are_not():
    matrices = SMALL.attention_parameters + SMALL.ffn_parameters
    table = SMALL.embedding_parameters
    expected = SMALL.layers * (matrices // 4 + 2 * SMALL.width) + 2 * table // 4 + SMALL.width
    assert rank_parameters(SMALL, trial(Layout(model=4)), 0) == expected


def test_layers_before_split_layer_are_held_whole():
    matrices = SMALL.attention_parameters + SMALL.ffn_parameters
    all_split = rank_parameters(SMALL, trial(Layout(model=4)), 0)
    later = rank_parameters(SMALL, trial(Layout(model=4, split_layer=3)), 0)
    whole_layers = 3 * (matrices - matrices // 4)
    whole_embedding = SMALL.embedding_parameters - SMALL.embedding_parameters // 4
    assert later - all_split == whole_layers + whole_embedding


def test_split_layer_beyond_the_last_layer_splits_nothing():
    assert rank_parameters(SMALL, trial(Layout(model=4, split_layer=8)), 0) == SMALL.parameters


@given(st.integers(0, 8), st.integers(0, 8))
def test_a_later_split_layer_never_needs_less_memory(one, other):
    early, late = sorted((one, other))

    def total(split_layer):
        layout = Layout(model=4, pipeline=2, split_layer=split_layer)
        return stage_memory(small(), trial(layout), 0, H100).total_bytes

    assert total(early) <= total(late)


def test_adamw_keeps_eight_bytes_and_sgd_none():
    adamw = stage_memory(small(), trial(), 0, H100)
    sgd = stage_memory(small(optimizer="sgd"), trial(), 0, H100)
    assert adamw.optimizer_bytes == 8 * SMALL.parameters
    assert sgd.optimizer_bytes == 0


def test_float32_keeps_four_bytes_of_weight_and_of_gradient():
    memory = stage_memory(small(), trial(), 0, H100)
    assert memory.weight_bytes == memory.gradient_bytes == 4 * SMALL.parameters


def test_bfloat16_adds_a_working_copy_of_the_weights():
    memory = stage_memory(small(precision="bfloat16"), trial(), 0, H100)
    assert memory.weight_bytes == 6 * SMALL.parameters


def test_full_sharding_divides_the_optimizer_by_the_copies():
    plain = stage_memory(small(), trial(Layout(data=4)), 0, H100)
    shard = stage_memory(small(), trial(Layout(data=4), sharding=Sharding.FULL), 0, H100)
    assert shard.optimizer_bytes == pytest.approx(plain.optimizer_bytes / 4, abs=8)


def test_hybrid_sharding_divides_by_its_group():
    pairs = trial(Layout(data=8), sharding=Sharding.HYBRID, shard_group=2)
    four = trial(Layout(data=4), sharding=Sharding.FULL)
    assert stage_memory(small(), pairs, 0, H100).optimizer_bytes == pytest.approx(
        2 * stage_memory(small(), four, 0, H100).optimizer_bytes, abs=8
    )


def v_trial(**changes):
    cuts = balance([1.0] * SMALL.layers, 8)
    return trial(Layout(pipeline=4), cuts=cuts, schedule="ZBVZeroBubble", microbatches=8, **changes)


def test_in_a_v_a_tied_head_is_not_copied():
    tied = replace(SMALL, tied_head=True)
    held = [stage_parameters(tied, v_trial(), stage) for stage in range(8)]
    assert sum(held) == tied.parameters


def test_an_embedding_that_two_stages_of_a_rank_share_is_not_sharded():
    request = small(shape=replace(SMALL, tied_head=True))
    layout = Layout(pipeline=4, data=2)
    shared = replace(v_trial(sharding=Sharding.FULL), layout=layout)
    alone = replace(shared, schedule="Interleaved1F1B")
    table = SMALL.embedding_parameters
    with_it = stage_memory(request, shared, 0, H100).optimizer_bytes
    assert with_it - stage_memory(request, alone, 0, H100).optimizer_bytes == 8 * table // 2


def test_a_split_backward_pass_keeps_gathered_weights():
    layout = Layout(pipeline=4, data=2)
    v = replace(v_trial(sharding=Sharding.FULL), layout=layout, cuts=((0, 4), *((4, 5),) * 7))
    loop = replace(v, schedule="Interleaved1F1B")
    more = stage_memory(small(), v, 0, H100).weight_bytes
    assert more - stage_memory(small(), loop, 0, H100).weight_bytes == 4 * (
        2 * SMALL.layer_parameters
    )


def test_recomputing_trades_activations_for_one_layer_at_work():
    kept, half, none = (
        activation_bytes(small(recompute=mode), trial(), 0, H100)
        for mode in ("none", "selective", "full")
    )
    assert kept > half > none


def test_sharing_out_the_sequence_saves_activations_in_split_layers_alone():
    def total(split_layer, sequence):
        layout = Layout(model=4, split_layer=split_layer, split_sequence=sequence)
        return activation_bytes(small(), trial(layout), 0, H100)

    assert total(0, True) < total(0, False)
    assert total(8, True) == total(8, False)


def test_full_sharding_counts_the_layers_that_stand_whole():
    request = small(shape=LARGE)
    layout = Layout(data=1024)
    memory = stage_memory(request, trial(layout, shape=LARGE, sharding=Sharding.FULL), 0, H100)
    assert memory.weight_bytes > 4 * 2 * LARGE.layer_parameters


@pytest.mark.parametrize(
    ("schedule", "stage", "held"),
    [("1F1B", 0, 4), ("1F1B", 3, 1), ("GPipe", 0, 6), ("GPipe", 3, 6)],
)
def test_a_stage_holds_the_microbatches_of_its_schedule(schedule, stage, held):
    four = trial(Layout(pipeline=4), schedule=schedule, microbatches=6)
    assert in_flight(four, stage) == held


def test_no_more_are_in_flight_than_there_are():
    assert in_flight(trial(Layout(pipeline=4), microbatches=2), 0) == 2


def test_accumulated_microbatches_of_one_stage_do_not_pile_up():
    one, many = trial(microbatches=1), trial(microbatches=8)
    assert activation_bytes(small(), one, 0, H100) == activation_bytes(small(), many, 0, H100)


def test_activations_grow_with_the_rows_of_a_microbatch():
    two, four = trial(rows=2), trial(rows=4)
    assert activation_bytes(small(), four, 0, H100) == 2 * activation_bytes(small(), two, 0, H100)


def test_the_pipeline_buffers_of_every_microbatch_are_counted():
    few, many = (trial(Layout(pipeline=2), microbatches=count) for count in (10, 20))
    more = activation_bytes(small(), many, 1, H100) - activation_bytes(small(), few, 1, H100)
    assert more == 10 * 4 * SMALL.width * 2 * 32


def test_of_a_module_of_unknown_size_only_the_overhead_is_known():
    memory = stage_memory(small(shape=None), trial(), 0, H100)
    assert memory.total_bytes == H100.overhead_bytes


def test_frozen_weights_have_no_gradient_and_no_optimizer():
    adapters = Adapters(rank=4, alpha=8.0, targets=("q_proj", "down_proj"))
    plain = stage_memory(small(), trial(), 0, H100)
    tuned = stage_memory(small(adapters=adapters), trial(), 0, H100)
    trained = SMALL.layers * adapters.layer_parameters(SMALL)
    assert (tuned.gradient_bytes, tuned.optimizer_bytes) == (4 * trained, 8 * trained)
    assert tuned.weight_bytes == plain.weight_bytes + 4 * trained


def test_of_each_pair_of_adapters_one_is_split():
    adapters = Adapters(rank=4, alpha=8.0, targets=("q_proj", "down_proj"))
    split = stage_memory(small(adapters=adapters), trial(Layout(model=4)), 0, H100)
    inputs, outputs = SMALL.width + SMALL.ffn_width // 4, SMALL.query_width // 4 + SMALL.width
    assert split.gradient_bytes == 4 * SMALL.layers * 4 * (inputs + outputs)


def test_muon_keeps_one_average_for_the_layers_and_two_for_the_rest():
    found = stage_memory(small(optimizer="muon"), trial(), 0, H100).optimizer_bytes
    edges = 2 * SMALL.embedding_parameters + SMALL.width
    assert found == 4 * (SMALL.parameters - edges) + 8 * edges


def test_a_context_group_shares_out_the_activations_but_no_weights():
    one, four = (stage_memory(small(), trial(Layout(context=size)), 0, H100) for size in (1, 4))
    assert one.weight_bytes == four.weight_bytes
    assert one.activation_bytes / 4 < four.activation_bytes < one.activation_bytes / 3


def test_full_sharding_goes_over_the_context_axis_too():
    both = trial(Layout(data=2, context=2), sharding=Sharding.FULL)
    data = trial(Layout(data=4), sharding=Sharding.FULL)
    weights = [stage_memory(small(), one, 0, H100).weight_bytes for one in (both, data)]
    assert weights[0] == weights[1]


def test_experts_are_shared_out_and_the_rest_of_the_layer_is_not():
    shape = MIXTURE
    whole = rank_parameters(shape, trial(Layout(data=4), shape=shape), 0)
    spread = rank_parameters(shape, trial(Layout(data=4, expert=4), shape=shape), 0)
    experts = shape.sparse_layers * shape.experts * shape.expert_parameters
    assert whole == shape.parameters
    assert spread == whole - experts + experts // 4


@pytest.mark.parametrize(
    ("layout", "shards"), [(Layout(data=8, expert=2), 4), (Layout(data=6, expert=2), 1)]
)
def test_full_sharding_shares_out_spread_experts_where_the_width_divides(layout, shards):
    request = small(shape=MIXTURE)
    plain = stage_memory(request, trial(layout, shape=MIXTURE), 0, H100)
    shard = stage_memory(request, trial(layout, shape=MIXTURE, sharding=Sharding.FULL), 0, H100)
    experts = MIXTURE.sparse_layers * MIXTURE.experts * MIXTURE.expert_parameters // 2
    rest = MIXTURE.parameters - 2 * experts
    assert plain.optimizer_bytes == 8 * (rest + experts)
    assert shard.optimizer_bytes == 8 * (-(-rest // layout.data) + experts // shards)


def test_the_model_axis_splits_experts_but_no_router():
    split = rank_parameters(MIXTURE, trial(Layout(model=4), shape=MIXTURE), 0)
    whole = MIXTURE.layers * MIXTURE.norm_parameters + MIXTURE.width
    whole += MIXTURE.sparse_layers * MIXTURE.router_parameters
    assert split == whole + (MIXTURE.parameters - whole) // 4
