"""Faults in a living training: the right rank, class and action, and the curve goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import fault_case
from chain_case import curve, run_in, settle, write_spec
from cnai import api
from cnai.core.errors import RunError
from cnai.core.events import AttemptStarted, CheckpointRejected, Decided, Finding, RankStood
from cnai.core.runfolder import read_events
from cnai.diagnose import diagnose_run
from fault_case import Told, fleet_of, may_limit_memory, train_with

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 20
SPEC = {
    "train.steps": STEPS,
    "train.batch": 4,
    "train.timeout_seconds": 60,
    "train.max_restarts": 2,
    "checkpoint.every_steps": 5,
    "resources.ranks": None,
    "monitor.stall_seconds": 3.0,
}
GOES_ON = {
    "segfault": ("native_crash", "fault_case.py"),
    "kill": ("killed", None),
    "oom": ("host_oom", None),
    "hang_data": ("collective_timeout", "fault_case.py"),
    "hang_collective": ("collective_timeout", "fault_case.py"),
    "hang_c": ("collective_timeout", "fault_case.py"),
    "stop": ("collective_timeout", None),
}
STOPS = {
    "exception": ("data_error", "fault_case.py"),
    "shape": ("collective_mismatch", "ranks.py"),
    "exit0": ("collective_mismatch", None),
    "gpu_oom": ("gpu_oom", "fault_case.py"),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        settle(folder, patch)
        write_spec(folder, SPEC)
        api.train("run.yaml")
    return pytest.approx(curve(run_in(folder)), abs=1e-5)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that is not begun yet, in a folder of its own."""
    settle(tmp_path, monkeypatch)
    write_spec(tmp_path, SPEC)
    return run_in(tmp_path)


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def broken(kind, *, rank=1, step=8, **more):
    return {"kind": kind, "rank": rank, "step": step, **more}


def is_found(run, fault, file):
    found = diagnose_run(run)
    assert (found.root_rank, found.fault) == (1, fault), found
    frame = found.root_frame
    assert (frame and Path(frame.rpartition(":")[0]).name) == file, found
    assert found.root_step in {8, 9}
    return True


@pytest.mark.parametrize("kind", GOES_ON)
def test_a_fault_that_may_pass_is_located_and_the_curve_goes_on(run, undisturbed, kind):
    if kind == "oom" and not may_limit_memory():
        pytest.skip("this process may not make cgroups of memory")
    _, result = train_with(Path("run.yaml"), broken(kind))
    assert is_found(run, *GOES_ON[kind])
    (decided,) = of(Decided, run)
    assert (decided.action, decided.rank) == ("restart_same", 1)
    assert decided.reason
    assert result.restarts == 1
    assert curve(run) == undisturbed


@pytest.mark.parametrize("kind", STOPS)
def test_a_fault_that_would_come_again_stops_at_once_and_goes_on_when_it_is_mended(
    run, undisturbed, kind
):
    with pytest.raises(RunError, match="training failed") as raised:
        train_with(Path("run.yaml"), broken(kind, attempts=[0, 1, 2]))
    assert is_found(run, *STOPS[kind])
    assert [one.action for one in of(Decided, run)] == ["stop"]
    assert len(of(AttemptStarted, run)) == 1
    assert "ai-cli diagnose" in raised.value.hint
    train_with(Path("run.yaml"))
    assert curve(run) == undisturbed


def test_a_hang_is_told_with_rank_machine_phase_and_frame(run):
    listener = Told()
    train_with(Path("run.yaml"), broken("hang_data"), listener=listener)
    (finding,) = [one for one in of(Finding, run) if one.detector == "hung"]
    assert (finding.rank, finding.step, finding.severity) == (1, 8, "critical")
    assert "in phase data" in finding.message
    assert any(line.startswith("hung: rank 1") for line in listener.lines)
    stood = {one.rank: one for one in of(RankStood, run) if one.stack}
    assert stood[0].phase == "collective"
    assert stood[1].stack[0].endswith("wait_for_a_store")


def test_a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before(run, undisturbed):
    write_spec(Path.cwd(), {**SPEC, "checkpoint.mode": "sync"})
    train_with(
        Path("run.yaml"),
        broken("kill", step=12),
        broken("broken_checkpoint", step=0, attempts=[1]),
    )
    assert [one.action for one in of(Decided, run)] == ["restart_same", "previous_checkpoint"]
    assert [one.resumed_step for one in of(AttemptStarted, run)] == [0, 10, 5]
    (rejected,) = of(CheckpointRejected, run)
    assert Path(rejected.path).name.startswith(".rejected-step-10")
    assert curve(run) == undisturbed


def test_a_broken_machine_is_given_up_where_there_is_another(run, undisturbed):
    train_with(Path("run.yaml"), broken("ecc"), fleet=fleet_of(2, 2))
    (decided,) = of(Decided, run)
    assert (decided.fault, decided.action, decided.node) == (
        "gpu_ecc", "restart_exclude_node", "node-0",
    )  # fmt: skip
    assert curve(run) == undisturbed


def test_a_crash_that_comes_back_stops_after_three_times(run):
    write_spec(Path.cwd(), {**SPEC, "train.max_restarts": 9})
    crash = broken("segfault", step=1, attempts=list(range(9)))
    with pytest.raises(RunError, match="struck the same rank 3 times"):
        train_with(Path("run.yaml"), crash)
    assert len(of(AttemptStarted, run)) == 3


def test_a_rank_that_computes_is_given_more_time_than_one_that_sleeps(run, undisturbed):
    write_spec(Path.cwd(), {**SPEC, "monitor.stall_seconds": 1.0})
    train_with(Path("run.yaml"), broken("loop"))
    first, *_, last = [one for one in of(Finding, run) if one.detector == "hung"]
    assert (first.severity, last.severity) == ("warning", "critical")
    assert curve(run) == undisturbed


def test_the_faults_of_this_file_are_those_that_the_ranks_know():
    kinds = {*GOES_ON, *STOPS} - {"shape"}
    assert kinds <= set(fault_case.BREAKS)
