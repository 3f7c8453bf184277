"""Which plan the next attempt has, when layers are to move; without processes."""

import pytest

from balance_case import Notes
from cnai.core.balance import Move
from cnai.core.runfolder import RunFolder
from cnai.core.spec import load_spec
from cnai.flows import layouts as module
from cnai.flows.capacity import Capacity
from cnai.flows.layouts import Layouts
from cnai.flows.machines import fleet_of
from cnai.flows.plan import plan_run
from monitor_case import step

SPEC = {
    "model": {"layers": 4, "width": 32, "heads": 2, "vocab": 300, "sequence": 32},
    "parallel": {"data_parallel": {"size": 1}, "pipeline_parallel": {"stages": 2}},
    "train": {"batch": 4},
}
MOVE = Move(before=(2, 2), after=(3, 1), gain=1.5, reason="rank 1 is slow")


class Balancer:
    """Says what it is told to, once."""

    cuts = ((0, 3), (3, 4))

    def __init__(self, says):
        self.says = [says]

    def update(self, event):
        said = self.says.pop() if self.says else None
        if isinstance(said, Exception):
            raise said
        return said


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make layouts whose balancer says something; return them with what the user is told."""

    def make(says, **more):
        spec = load_spec(SPEC | more).spec
        monkeypatch.setattr(module, "layers_of", lambda *_: Balancer(says))
        capacity = Capacity(spec, lambda: fleet_of(spec), lambda: 0.0)
        notes = Notes()
        notes.warn = notes.note
        run = RunFolder.create(tmp_path / "run")
        return Layouts(spec, run, plan_run(spec), capacity, notes), notes

    return make


def test_a_move_of_layers_is_a_change_of_plan_in_the_same_layout(made):
    layouts, _ = made(MOVE)
    assert layouts.change() is None
    layouts.hear(step(1))
    change = layouts.change()
    assert (change.move, change.reason) == (MOVE, "rank 1 is slow")
    assert [(s.first_layer, s.end_layer) for s in change.plan.stages] == [(0, 3), (3, 4)]
    assert change.plan.layout == layouts.plan.layout
    layouts.take(change)
    assert layouts.change() is None
    assert layouts.plan.digest == change.plan.digest


def test_a_balancer_that_throws_is_switched_off_and_told(made):
    layouts, notes = made(ValueError("no such layer"))
    layouts.hear(step(1))
    layouts.hear(step(2))
    assert notes.told == ["layers are no longer balanced: ValueError: no such layer"]
    assert layouts.change() is None


def test_what_the_user_asks_for_overrules_a_move(made, tmp_path):
    from cnai.core.files import write_atomically
    from cnai.core.spec import to_yaml
    from cnai.flows.scale import scale_run

    layouts, _ = made(MOVE)
    run = RunFolder(tmp_path / "run")
    write_atomically(run.spec_file, to_yaml(load_spec(SPEC).spec))
    layouts.hear(step(1))
    scale_run(run, ["parallel.pipeline_parallel.stages=1"])
    change = layouts.change()
    assert change.move is None
    assert change.plan.layout.pipeline == 1
    assert change.reason == "asked for with `ai-cli scale`"


@pytest.mark.parametrize(
    "off",
    [
        {"train": {"batch": 4, "deterministic": True}},
        {"train": {"batch": 4, "balance": {"layers": False}}},
        {"parallel": {"data_parallel": {"size": 2}, "pipeline_parallel": {"stages": 1}}},
    ],
    ids=["deterministic", "off", "no pipeline"],
)
def test_layers_stay_where_they_must(off):
    from cnai.flows.balancing import layers_of

    spec = load_spec(SPEC | off).spec
    assert layers_of(spec, plan_run(spec), lambda: fleet_of(spec)) is None


@pytest.mark.parametrize(
    ("train", "moves"),
    [({}, True), ({"balance": {"rows": False}}, False), ({"deterministic": True}, False)],
)
def test_rows_move_unless_the_user_or_the_bits_forbid_it(train, moves):
    from cnai.flows.balancing import rows_of

    spec = load_spec({
        **SPEC, "parallel": {"data_parallel": {"size": 2}}, "train": {"batch": 8, **train},
    }).spec  # fmt: skip
    assert (rows_of(spec, plan_run(spec)) is not None) is moves
