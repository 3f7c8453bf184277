from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cnai.core.layout import Layout, Memory, ParallelPlan, Sharding, Stage

SIZES = st.integers(1, 6)
LAYOUTS = st.builds(Layout, data=SIZES, model=SIZES, pipeline=SIZES, context=SIZES)
MEMORY = Memory(
    weight_bytes=1, gradient_bytes=2, optimizer_bytes=3, activation_bytes=4, overhead_bytes=5
)


def a_plan(**changes):
    stage = Stage(index=0, first_layer=0, end_layer=2, parameters=10, memory=MEMORY)
    second = replace(
        stage, index=1, first_layer=2, end_layer=4, memory=replace(MEMORY, weight_bytes=9)
    )
    plan = ParallelPlan(
        layout=Layout(data=2, model=1, pipeline=2), stages=(stage, second), microbatches=4,
        microbatch_rows=2, schedule="1F1B", sharding=Sharding.NONE,
    )  # fmt: skip
    return replace(plan, **changes)


@given(LAYOUTS)
def test_every_rank_has_a_place_of_its_own(layout):
    places = {(place.pipeline, place.data, place.context, place.model) for place in layout.places()}
    assert len(places) == layout.ranks


@given(LAYOUTS)
def test_every_place_lies_in_the_mesh(layout):
    assert all(
        place.pipeline < layout.pipeline
        and place.data < layout.data
        and place.context < layout.context
        and place.model < layout.model
        for place in layout.places()
    )


@given(LAYOUTS)
def test_a_place_leads_back_to_its_rank(layout):
    assert (
        [
            ((place.pipeline * layout.data + place.data) * layout.context + place.context)
            * layout.model
            + place.model
            for place in layout.places()
        ]
        == [place.rank for place in layout.places()]
        == list(range(layout.ranks))
    )


@given(LAYOUTS)
def test_members_of_a_model_group_are_neighbours(layout):
    groups = {}
    for place in layout.places():
        groups.setdefault((place.pipeline, place.data, place.context), []).append(place.rank)
    assert all(ranks == list(range(ranks[0], ranks[0] + layout.model)) for ranks in groups.values())


@given(LAYOUTS, st.integers(0, 9))
def test_layers_from_the_split_layer_on_are_split(layout, layer):
    assert layout.is_split(layer) == (layout.model > 1 and layer >= layout.split_layer)


def test_a_layout_is_written_in_short():
    assert str(Layout(data=8, model=4, pipeline=4)) == "dp8 x tp4 x pp4"


def test_the_memory_of_a_rank_is_the_sum():
    assert MEMORY.total_bytes == 15


def test_the_peak_is_the_rank_that_needs_most():
    assert a_plan().peak.pipeline == 1


def test_the_global_batch_is_over_all_copies():
    assert a_plan().global_batch == 2 * 4 * 2


def test_reasons_and_estimates_do_not_change_the_digest():
    plan = a_plan()
    stages = tuple(replace(stage, memory=MEMORY, parameters=1) for stage in plan.stages)
    assert replace(plan, reasons=("because",), stages=stages).digest == plan.digest


def test_what_is_built_changes_the_digest():
    plan = a_plan()
    others = [
        replace(plan, layout=replace(plan.layout, split_layer=1)),
        replace(plan, microbatches=2),
        replace(plan, microbatch_rows=1),
        replace(plan, schedule="GPipe"),
        replace(plan, sharding=Sharding.FULL),
        replace(plan, stages=(plan.stages[0], replace(plan.stages[1], first_layer=3))),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 7
