"""A layout built without memory holds what a real rank of it holds."""

from dataclasses import replace

import pytest

from cnai.core.errors import PlanError
from cnai.core.layout import Layout, Sharding
from cnai.core.spec.sections import Train
from cnai.train.rehearsal import rehearse
from training_case import SHAPE, plan_of

pytestmark = pytest.mark.slow


def planned(layout: Layout, **more):
    """The case's plan with the parameters of its stages filled in."""
    plan = plan_of(layout, **more)
    stages = []
    for stage in plan.stages:
        layers = stage.end_layer - stage.first_layer
        parameters = layers * SHAPE.layer_parameters
        if stage.index == 0:
            parameters += SHAPE.embedding_parameters
        if stage.index == len(plan.stages) - 1:
            copy = SHAPE.embedding_parameters if len(plan.stages) > 1 else 0
            parameters += SHAPE.width + copy
        stages.append(replace(stage, parameters=parameters))
    return replace(plan, stages=tuple(stages))


def test_one_rank_holds_the_whole_model():
    (one,) = rehearse(SHAPE, planned(Layout()), Train())
    assert one.parameters == one.whole_parameters == SHAPE.parameters


def test_a_split_layer_is_halved_but_for_its_norms():
    (one,) = rehearse(SHAPE, planned(Layout(model=2)), Train())
    norms = (2 * SHAPE.layers + 1) * SHAPE.width
    assert one.parameters == (SHAPE.parameters - norms) // 2 + norms


def test_full_sharding_divides_what_is_left_by_the_data_ranks():
    ranks = rehearse(
        SHAPE, planned(Layout(data=2, model=2, pipeline=2), sharding=Sharding.FULL), Train()
    )
    assert [one.pipeline for one in ranks] == [0, 1]
    whole = rehearse(SHAPE, planned(Layout(data=2, model=2, pipeline=2)), Train())
    assert [one.parameters * 2 for one in ranks] == [one.parameters for one in whole]


def test_stages_that_are_not_those_of_the_plan_are_told():
    plan = planned(Layout(pipeline=2))
    wrong = replace(plan, stages=(replace(plan.stages[0], parameters=1), plan.stages[1]))
    with pytest.raises(PlanError, match="and the plan says 1"):
        rehearse(SHAPE, wrong, Train())
