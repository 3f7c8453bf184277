"""A machine that broke is not used any more."""

import pytest

from balance_case import Notes
from cnai.core.runfolder import RunFolder
from cnai.core.spec import load_spec
from cnai.flows.capacity import Capacity
from cnai.flows.layouts import Layouts
from cnai.flows.plan import plan_run
from fault_case import fleet_of

SPEC = {
    "model": {"layers": 4, "width": 32, "heads": 2, "vocab": 300, "sequence": 32},
    "parallel": {"data_parallel": {"size": 2}},
    "resources": {"ranks": 2},
    "train": {"batch": 4},
}


@pytest.fixture
def layouts(tmp_path):
    def make(nodes, devices, *, elastic=False):
        spec = load_spec({**SPEC, "train": {"batch": 4, "elastic": elastic}}).spec
        capacity = Capacity(spec, fleet_of(nodes, devices), lambda: 0.0)
        run = RunFolder.create(tmp_path / "run")
        notes = Notes()
        notes.warn = notes.note
        return Layouts(spec, run, plan_run(spec), capacity, notes), capacity

    return make


def test_with_room_elsewhere_a_machine_may_be_given_up(layouts):
    made, capacity = layouts(2, 2)
    assert made.may_exclude(1)
    assert made.exclude(1) == "node-0"
    assert [node.name for node in capacity.fleet().nodes] == ["node-1"]


def test_the_only_machine_may_not(layouts):
    assert not layouts(1, 2)[0].may_exclude(1)


def test_a_run_that_needs_all_machines_keeps_them(layouts):
    assert not layouts(2, 1)[0].may_exclude(1)


def test_an_elastic_run_goes_on_with_fewer(layouts):
    made, _ = layouts(2, 1, elastic=True)
    assert made.may_exclude(1)
    assert made.exclude(1) == "node-1"
    change = made.change()
    assert change.plan.layout.ranks == 1


def test_no_rank_is_on_no_machine(layouts):
    assert not layouts(2, 2)[0].may_exclude(None)
