from dataclasses import replace

import pytest

from cnai.core.events import Decided, Finding, RankStood
from cnai.diagnose import Verdict, diagnose_run
from diagnose_case import Case

STOOD = RankStood(
    time_unix=150.0, rank=1, attempt=0, look=0, host="node-a", step=5, phase="data",
    phase_seconds=40.0, process="S", stack=("/home/me/store.py:7 fetch",), enqueued={"0": 9},
)  # fmt: skip
WAITS = replace(
    STOOD, rank=0, phase="collective", enqueued={"0": 10},
    stack=("/v/torch/distributed/distributed_c10d.py:1 all_reduce",),
)  # fmt: skip
HUNG = Finding(time_unix=151.0, detector="hung", severity="critical", message="rank 1 hangs")


@pytest.fixture
def case(tmp_path):
    made = Case(tmp_path)
    for rank in (0, 1):
        made.step(rank, 5)
    for event in (WAITS, STOOD):
        made.record(event)
    return made


def test_a_hang_names_rank_machine_step_phase_and_frame(case):
    case.record(HUNG)
    found = diagnose_run(case.run)
    assert (found.verdict, found.fault, found.root_rank) == (
        Verdict.FAULT, "collective_timeout", 1,
    )  # fmt: skip
    assert (found.root_host, found.root_step, found.root_phase) == ("node-a", 5, "data")
    assert found.root_frame == "/home/me/store.py:7"
    assert found.cascade_ranks == (0,)
    assert not found.recovered


def test_the_kill_that_ended_a_hang_is_not_taken_for_its_cause(case):
    case.record(HUNG)
    case.lost(1, -9)
    assert diagnose_run(case.run).fault == "collective_timeout"


def test_a_look_without_a_finding_is_no_hang(case):
    case.lost(1, -9)
    assert diagnose_run(case.run).fault == "killed"


def test_a_run_that_went_on_by_itself_does_not_hang(case):
    case.record(replace(HUNG, severity="warning"))
    event = 0
    for event in range(60):
        case.step(0, 6 + event)
    assert diagnose_run(case.run).fault != "collective_timeout"


def test_the_newest_look_counts(case):
    for one in (replace(WAITS, rank=1), replace(STOOD, rank=0)):
        case.record(replace(one, look=1, time_unix=160.0))
    case.record(replace(HUNG, time_unix=161.0))
    assert diagnose_run(case.run).root_rank == 0


def test_a_rank_that_left_with_exit_code_0_is_the_root(tmp_path):
    case = Case(tmp_path)
    case.log(0, "RuntimeError: Connection closed by peer [127.0.0.1]:5\n")
    case.lost(1, 0)
    case.lost(0, 1)
    found = diagnose_run(case.run)
    assert (found.root_rank, found.fault) == (1, "collective_mismatch")
    assert "left with exit code 0" in found.summary


def test_of_ranks_that_disagree_the_odd_one_is_the_root(tmp_path):
    case = Case(tmp_path)
    said = "RuntimeError: Received data size doesn't match expected size. collective mismatch\n"
    for rank in (0, 1):
        case.log(rank, f"Traceback (most recent call last):\n{said}")
        case.record(replace(STOOD, rank=rank, odd=rank == 1))
        case.lost(rank, 1)
    found = diagnose_run(case.run)
    assert (found.root_rank, found.fault) == (1, "collective_mismatch")
    assert "never sent before" in found.summary


def test_a_kill_of_an_attempt_is_not_explained_by_memory_of_another(tmp_path):
    case = Case(tmp_path)
    log = case.run.logs / "kernel.log"
    log.write_text("=== attempt 0\nOut of memory: Killed process 7 (python)\n=== attempt 1\n")
    case.lost(1, -9, attempt=1)
    assert diagnose_run(case.run).fault == "killed"


def test_a_layout_that_the_supervisor_proposed_is_the_first_repair(tmp_path):
    case = Case(tmp_path)
    case.log(1, "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory\n")
    case.lost(1, 1)
    patch = {"train.recompute": "selective"}
    case.record(
        Decided(time_unix=200.0, attempt=0, fault="gpu_oom", action="stop", reason="",
                spec_patch=patch)
    )  # fmt: skip
    assert diagnose_run(case.run).repairs[0].spec_patch == patch
