"""Plans for a user's own module, of which sizes are counted and nothing is guessed."""

from dataclasses import replace

import pytest

from cnai.core.errors import PlanError, SpecError
from cnai.core.layout import Sharding
from cnai.core.module import ModuleFacts, Unit
from cnai.plan import PlanRequest, make_plan
from plan_cases import fleet

LAYER = Unit(whole=100, split=800, trained_whole=100, trained_split=800)
FACTS = ModuleFacts(
    name="a:b",
    layers=(LAYER,) * 4,
    inlet=Unit(whole=50, trained_whole=50),
    outlet=Unit(whole=1000, trained_whole=1000),
    widths=(("heads", 4), ("blocks.0.up", 64)),
    no_split=None,
    no_cut=None,
    no_recompute=None,
)
MACHINE = fleet(kind="cpu", devices=4, gib=16)


def plan(facts=FACTS, machine=MACHINE, **asked):
    request = PlanRequest(shape=None, module=facts, batch=8, sequence=1, **asked)
    return make_plan(request, machine)


def refused(facts=FACTS, **asked):
    with pytest.raises(SpecError) as caught:
        plan(facts, **{"data": 1, "model": 1, "pipeline": 1, **asked})
    assert caught.value.hint
    return caught.value


def test_sizes_left_open_become_copies():
    found = plan()
    assert str(found.layout) == "dp4 x tp1 x pp1"
    assert found.estimate is None
    assert "not known" in found.reasons[0]


def test_weights_gradients_and_optimizer_are_counted_exactly():
    found = plan(data=1, model=2, pipeline=1)
    held = 4 * (100 + 400) + 50 + 1000
    memory = found.stages[0].memory
    assert memory.weight_bytes == memory.gradient_bytes == 4 * held
    assert memory.optimizer_bytes == 8 * held
    assert memory.activation_bytes == 0


def test_stages_are_balanced_with_what_lies_before_and_after_the_layers():
    found = plan(data=1, model=1, pipeline=2)
    assert [(one.first_layer, one.end_layer) for one in found.stages] == [(0, 3), (3, 4)]
    assert sum(one.parameters for one in found.stages) == FACTS.parameters


def test_what_cannot_fit_is_sharded_or_refused():
    large = replace(FACTS, outlet=Unit(whole=500_000_000, trained_whole=500_000_000))
    assert plan(large, MACHINE, data=4, model=1, pipeline=1).sharding is Sharding.FULL
    huge = replace(FACTS, outlet=Unit(whole=2 * 10**9, trained_whole=2 * 10**9))
    with pytest.raises(PlanError, match="no plan fits"):
        plan(huge, data=1, model=1, pipeline=1)


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        ({"no_split": "no table"}, {"model": 2}, "cannot be split: no table"),
        ({"no_cut": "`x` lies outside"}, {"pipeline": 2}, "cannot be cut: `x` lies outside"),
        ({}, {"model": 8}, "does not divide `heads` 4"),
        ({}, {"model": 3}, "does not divide `heads` 4 and 1 more"),
        ({}, {"pipeline": 8}, "the model has 4 layers"),
        ({}, {"model": 2, "split_layer": 5}, "`a:b` has 4 layers"),
        ({}, {"model": 2, "split_sequence": True}, "only the layers of a decoder"),
        ({"no_recompute": "it counts"}, {"recompute": "full"}, "recomputed: it counts"),
    ],
)
def test_what_the_table_does_not_allow_is_told(changes, asked, message):
    assert message in refused(replace(FACTS, **changes), **asked).message


def test_the_sizes_that_divide_are_named():
    assert "2 or 4" in refused(model=3).hint
