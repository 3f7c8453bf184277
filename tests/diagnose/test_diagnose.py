import os
import subprocess
import sys

import pytest

from cnai.core.events import Finding
from cnai.core.runfolder import RunFolder
from cnai.diagnose import Verdict, diagnose_run
from diagnose_case import Case, traceback

GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242"


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


def test_a_rank_that_was_killed_is_the_root_and_its_peer_a_victim(case):
    case.log(0, traceback(GONE))
    case.lost(0, 1)
    case.lost(1, -9)
    found = diagnose_run(case.run)
    assert (found.verdict, found.fault, found.root_rank) == (Verdict.FAULT, "killed", 1)
    assert found.cascade_ranks == (0,)


def test_a_kill_with_exhausted_memory_is_called_so(case):
    (case.run.logs / "kernel.log").write_text(
        "Out of memory: Killed process 4242 (python) total-vm:12345kB\n"
    )
    case.lost(1, -9)
    found = diagnose_run(case.run)
    assert found.fault == "host_oom"
    assert found.root_line.file == "logs/kernel.log"
    assert found.root_line.number == 1


def test_the_root_line_has_file_and_number(case):
    case.log(1, "starting\nstill fine\n" + traceback("OSError: [Errno 28] No space left on device"))
    case.lost(1, 1)
    found = diagnose_run(case.run)
    assert found.fault == "disk_full"
    assert str(found.root_line).startswith("logs/rank-1.log:8: OSError: [Errno 28]")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ("MemoryError", "host_oom"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu_oom"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive", "ckpt_corrupt"),
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        (
            "RuntimeError: Gloo connectFullMesh failed with Connection refused",
            "rendezvous_failure",
        ),
        ("FloatingPointError: loss is nan at step 7", "nan_loss"),
        ("KeyboardInterrupt", "user_abort"),
        ("ModuleNotFoundError: No module named 'flash'", "dependency_import"),
        ("PermissionError: [Errno 13] Permission denied: '/data'", "permission_denied"),
        ("json.decoder.JSONDecodeError: Expecting value: line 1", "data_error"),
        ("IndexError: index out of range in self", "device_assert_index"),
        ("ValueError: of no known kind", "user_code_error"),
    ],
)
def test_the_last_exception_names_the_fault(case, error, fault):
    case.log(0, traceback(error))
    case.lost(0, 1)
    found = diagnose_run(case.run)
    assert found.fault == fault
    assert found.root_line.text == error
    assert found.repairs


def test_an_error_of_the_users_code_points_to_the_users_line(case):
    case.log(0, traceback("ValueError: bad shape"))
    case.lost(0, 1)
    assert "/home/me/train.py:41" in diagnose_run(case.run).repairs[0].title


def test_the_cause_of_a_chained_exception_counts(case):
    first = traceback("OSError: [Errno 28] No space left on device")
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    case.log(0, first + link + traceback("SaveError: could not save"))
    case.lost(0, 1)
    assert diagnose_run(case.run).fault == "disk_full"


def test_an_exception_that_was_handled_long_before_does_not_count(case):
    case.log(0, traceback("OSError: [Errno 28] No space left on device"))
    case.log(0, "went on\n" * 20 + traceback("ValueError: bad shape"))
    case.lost(0, 1)
    assert diagnose_run(case.run).fault == "user_code_error"


@pytest.mark.parametrize(("code", "name"), [(-11, "SIGSEGV"), (139, "SIGSEGV"), (-6, "SIGABRT")])
def test_a_crash_of_machine_code_is_read_from_the_signal(case, code, name):
    case.lost(1, code)
    found = diagnose_run(case.run)
    assert found.fault == "native_crash"
    assert name in found.summary


def test_an_abort_by_the_watchdog_is_no_crash(case):
    case.log(0, "[E ProcessGroupNCCL] Watchdog caught collective operation timeout: Work(Seq=7)\n")
    case.lost(0, -6)
    assert diagnose_run(case.run).fault == "collective_timeout"


def test_the_one_rank_that_did_not_wait_is_the_one_that_hung(case):
    case.log(0, traceback("RuntimeError: Timed out waiting 300000ms for recv operation"))
    case.lost(0, 1)
    case.lost(1, -15)
    found = diagnose_run(case.run)
    assert (found.fault, found.root_rank) == ("collective_timeout", 1)
    assert found.cascade_ranks == (0,)
    assert found.root_line is None


def test_an_error_outweighs_a_wait_that_was_noticed_earlier(case):
    case.log(0, traceback("RuntimeError: Timed out waiting 300000ms for recv operation"))
    case.log(1, traceback("ValueError: bad sample"))
    case.lost(0, 1)
    case.lost(1, 1)
    assert diagnose_run(case.run).root_rank == 1


def test_ranks_that_all_end_by_sigterm_were_preempted(case):
    case.lost(0, -15)
    case.lost(1, 143)
    assert diagnose_run(case.run).fault == "preempted"


def test_victims_alone_are_unknown(case):
    for rank in (0, 1):
        case.log(rank, traceback(GONE))
        case.lost(rank, 1)
    found = diagnose_run(case.run)
    assert found.verdict is Verdict.UNKNOWN
    assert found.fault is None
    assert found.cascade_ranks == (0, 1)


def test_an_exit_code_without_a_word_is_unknown(case):
    case.log(0, "epoch 3 is fine\n")
    case.lost(0, 7)
    found = diagnose_run(case.run)
    assert found.verdict is Verdict.UNKNOWN
    assert "exit code 7" in found.summary


@pytest.mark.parametrize(
    ("code", "message", "fault"),
    [
        ("run", "loss nan with gradient norm nan at step 8", "nan_loss"),
        ("run", "no space left while writing `manifest.json`", "disk_full"),
        ("data", "checkpoint file `w.bin` is damaged: its SHA-256 differs", "ckpt_corrupt"),
        ("data", "row 7 cannot be read", "data_error"),
        ("spec", "cannot load `my:model`", "config_error"),
    ],
)
def test_an_error_that_a_rank_reported_is_taken_with_its_hint(case, code, message, fault):
    case.log(0, f"error: {message}\nhint: do this\n")
    case.failed(0, code, message)
    found = diagnose_run(case.run)
    assert found.fault == fault
    assert found.repairs[0].title == "do this"
    assert found.root_line.number == 1


def test_a_run_that_ended_well_is_healthy(case):
    case.log(0, "warning: retrying after Connection reset by peer\n")
    case.ended("done")
    found = diagnose_run(case.run)
    assert (found.verdict, found.fault, found.repairs) == (Verdict.HEALTHY, None, ())


def test_a_run_that_the_user_stopped_is_healthy(case):
    case.ended("stopped")
    assert diagnose_run(case.run).verdict is Verdict.HEALTHY


def test_a_fault_after_which_the_run_went_on_says_so(case):
    case.lost(1, -9)
    case.step(0, 6, attempt=1)
    case.ended("done")
    found = diagnose_run(case.run)
    assert found.fault == "killed"
    assert found.recovered
    assert not any(repair.safe for repair in found.repairs)
    assert "went on" in found.summary


def test_the_newest_attempt_is_diagnosed(case):
    case.lost(0, -9)
    case.log(1, traceback("ValueError: bad shape"))
    case.lost(1, 1, attempt=1)
    found = diagnose_run(case.run)
    assert (found.fault, found.root_rank) == ("user_code_error", 1)


def test_a_run_whose_supervisor_is_gone_is_unknown_and_can_be_run_again(case):
    case.step(0, 3)
    found = diagnose_run(case.run)
    assert found.verdict is Verdict.UNKNOWN
    assert "supervisor was killed" in found.summary
    assert found.repairs[0].command.startswith("ai-cli run ")


def test_a_run_that_somebody_works_on_is_healthy(case):
    case.step(0, 3)
    with case.run.locked():
        found = diagnose_run(case.run)
    assert found.verdict is Verdict.HEALTHY
    assert str(os.getpid()) in found.summary


def test_a_run_without_events_is_unknown(tmp_path):
    found = diagnose_run(RunFolder.create(tmp_path / "empty"))
    assert found.verdict is Verdict.UNKNOWN


def test_without_recorded_ends_the_logs_speak(case):
    case.log(0, traceback(GONE))
    case.log(1, traceback("OSError: [Errno 28] No space left on device"))
    found = diagnose_run(case.run)
    assert (found.fault, found.root_rank, found.cascade_ranks) == ("disk_full", 1, (0,))


def test_a_loss_that_a_detector_found_not_finite_is_a_fault(case):
    case.record(
        Finding(time_unix=200.0, detector="nonfinite", severity="critical", message="loss is nan")
    )
    case.ended("done")
    assert diagnose_run(case.run).fault == "nan_loss"


def test_the_tail_in_the_event_serves_when_the_log_is_gone(case):
    case.lost(0, 1, tail=traceback("MemoryError"))
    found = diagnose_run(case.run)
    assert found.fault == "host_oom"


def test_a_binary_log_does_not_stop_the_diagnosis(case):
    case.run.rank_log(0).write_bytes(os.urandom(4096) + b"\nTraceback (most recent call last):\n")
    case.lost(0, 1)
    assert diagnose_run(case.run).verdict in set(Verdict)


def test_the_checkpoint_to_go_on_from_is_named(case):
    case.run.checkpoint(40).mkdir()
    case.lost(1, -9)
    assert "step 40" in diagnose_run(case.run).repairs[0].title


def test_diagnosing_does_not_load_torch():
    code = "import sys, cnai.diagnose; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
