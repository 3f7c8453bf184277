from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import SpecError
from cnai.plan import make_plan
from cnai.plan.rules import legal_model_sizes
from cnai.plan.violation import divisors, nearest
from plan_cases import MIXTURE, SMALL, fleet, small


def refused(**changes):
    with pytest.raises(SpecError) as caught:
        make_plan(small(**changes), fleet(16))
    return caught.value


@pytest.mark.parametrize(
    ("changes", "where", "value", "hint"),
    [
        ({"model": 3}, "parallel.model_parallel.size", "is 3", "2 or 4"),
        ({"model": 8}, "parallel.model_parallel.size", "kv_heads 4", "set it to 4"),
        ({"pipeline": 9}, "parallel.pipeline_parallel.stages", "is 9", "8 or less"),
        ({"data": 3}, "parallel.data_parallel.size", "is 3", "2 or 4"),
        ({"split_layer": 9, "model": 2}, "parallel.model_parallel.split_layer", "is 9", "8"),
        ({"split_layer": -1}, "parallel.model_parallel.split_layer", "-1", "0"),
        ({"microbatches": 3}, "parallel.pipeline_parallel.microbatches", "is 3", "2 or 4"),
        ({"pipeline": 4, "microbatches": 2}, "parallel.pipeline_parallel.microbatches", "2", "4"),
        ({"data": 8, "pipeline": 4}, "parallel.pipeline_parallel.stages", "share of 2", "32"),
        ({"optimizer": "lion"}, "train.optimizer", "lion", "adamw or muon or sgd"),
        ({"precision": "fp8"}, "train.precision", "fp8", "bfloat16"),
        ({"schedule": "ZB"}, "parallel.pipeline_parallel.schedule", "ZB", "GPipe"),
        (
            {"pipeline": 2, "virtual": 2},
            "parallel.pipeline_parallel.virtual",
            "is 2",
            "Interleaved",
        ),
        (
            {"pipeline": 8, "schedule": "ZBVZeroBubble"},
            "parallel.pipeline_parallel.stages",
            "8 with 2 on each rank",
            "4 or less",
        ),
        (
            {"pipeline": 4, "schedule": "DualPipeV", "microbatches": 4},
            "parallel.pipeline_parallel.microbatches",
            "less than 8",
            "8",
        ),
        (
            {"pipeline": 4, "schedule": "Interleaved1F1B", "batch": 9, "virtual": 1},
            "parallel.pipeline_parallel.stages",
            "cannot fill 4 stages",
            "train.batch: 10",
        ),
        (
            {"pipeline": 2, "schedule": "ZBVZeroBubble", "recompute": "full"},
            "train.recompute",
            "is full",
            "Interleaved1F1B",
        ),
        ({"recompute": "some"}, "train.recompute", "some", "selective"),
        (
            {"model": 4, "split_sequence": True, "sequence": 30},
            "parallel.model_parallel.size",
            "30 positions",
            "3 or 5",
        ),
        ({"data": 2, "sharding": "hybrid"}, "parallel.data_parallel.sharding", "2 copies", "4"),
        (
            {"data": 8, "sharding": "hybrid", "shard_group": 3},
            "parallel.data_parallel.shard_group",
            "is 3",
            "2 or 4",
        ),
        (
            {"data": 8, "sharding": "hybrid", "shard_group": 8},
            "parallel.data_parallel.shard_group",
            "is 8",
            "set it to 4",
        ),
        ({"context": 3}, "parallel.context_parallel.size", "8 heads of a rank", "2 or 4"),
        (
            {"context": 4, "model": 4},
            "parallel.context_parallel.size",
            "2 heads of a rank",
            "set it to 2",
        ),
        ({"context": 2, "sequence": 33}, "parallel.context_parallel.size", "33", "set it to 1"),
        (
            {"context": 2, "model": 4, "split_sequence": True, "sequence": 36},
            "parallel.model_parallel.size",
            "18 positions",
            "3 or 6",
        ),
        ({"context": 2, "shape": None}, "parallel.context_parallel.size", "is 2", "data_parallel"),
        ({"context": 0}, "parallel.context_parallel.size", "0", "1 or more"),
        ({"expert": 2}, "parallel.expert_parallel.size", "no experts", "model.experts"),
        ({"expert": 3, "shape": MIXTURE}, "parallel.expert_parallel.size", "experts 8", "2 or 4"),
        (
            {"expert": 4, "data": 2, "shape": MIXTURE},
            "parallel.expert_parallel.size",
            "data x context 2",
            "set it to 2",
        ),
        (
            {"model": 4, "shape": replace(MIXTURE, expert_width=50)},
            "parallel.model_parallel.size",
            "expert_width 50",
            "set it to 2",
        ),
        ({"expert": 2, "shape": None}, "parallel.expert_parallel.size", "is 2", "data_parallel"),
        ({"sharding": "half"}, "parallel.data_parallel.sharding", "half", "full"),
        ({"data": 0}, "parallel.data_parallel.size", "0", "1 or more"),
        ({"batch": 0}, "train.batch", "0", "1 or more"),
    ],
)
def test_a_broken_rule_names_key_value_and_what_works(changes, where, value, hint):
    error = refused(**changes)
    assert error.where == where
    assert value in error.message
    assert hint in error.hint


def test_a_product_unlike_the_ranks_names_every_factor():
    error = refused(data=2, model=2, pipeline=2, ranks=16)
    assert error.where == "resources.ranks"
    for part in ("data_parallel.size 2", "model_parallel.size 2", "stages 2", "8", "16"):
        assert part in error.message
    assert "data_parallel.size: 4" in error.hint


def test_given_sizes_that_do_not_divide_the_ranks_are_refused():
    error = refused(model=4, ranks=6)
    assert "4 does not divide the 6 ranks" in error.message


def test_layers_that_are_not_split_need_no_divisible_heads():
    plan = make_plan(small(model=3, split_layer=8, ranks=3), fleet())
    assert plan.layout.model == 3
    assert any("no layer is split" in reason for reason in plan.reasons)


def test_a_whole_embedding_with_a_tied_head_needs_no_divisible_vocab():
    shape = replace(SMALL, vocab=511, tied_head=True)
    plan = make_plan(small(shape=shape, data=1, model=2, pipeline=1, split_layer=1), fleet())
    assert plan.layout.model == 2


def test_a_split_untied_head_needs_a_divisible_vocab():
    error = refused(shape=replace(SMALL, vocab=511), model=2, split_layer=1)
    assert "model.vocab 511" in error.message


@pytest.mark.parametrize("axis", ["model", "pipeline"])
def test_a_module_of_which_nothing_is_known_is_only_copied(axis):
    error = refused(shape=None, **{axis: 2})
    assert "nothing is known of the model" in error.message


@given(st.integers(1, 5000))
def test_divisors_divide_and_are_complete(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_the_nearest_legal_values_are_one_below_and_one_above():
    assert nearest(3, [1, 2, 4, 8]) == "2 or 4"
    assert nearest(9, [1, 2, 4, 8]) == "8"


@given(st.sampled_from([1, 2, 4, 8, 12]), st.sampled_from([1, 2, 3, 4]), st.integers(1, 64))
def test_every_legal_size_divides_all_that_is_split(kv_heads, groups, ffn):
    shape = replace(SMALL, width=192, heads=kv_heads * groups, kv_heads=kv_heads, ffn_width=ffn)
    for size in legal_model_sizes(shape):
        assert not any(n % size for n in (shape.heads, kv_heads, ffn, shape.vocab))
