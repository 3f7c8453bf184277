"""Logs of our own making, of kinds that people have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.diagnose import diagnose_streams

STEPS = [f"step {n} loss {2.7 - n / 100:.3f} grad_norm 0.9" for n in range(1, 8)]
WATCHDOG = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600020 "
    "milliseconds before timing out."
)
TRACE = "Traceback (most recent call last):"


def found(**streams):
    return diagnose_streams(
        {name.replace("_", ":").strip("r"): lines for name, lines in streams.items()}
    )


HARMLESS = {
    "retry": [
        "botocore: SlowDown, retrying in 2 s (attempt 1)",
        "Connection reset by peer, retrying",
    ],
    "scale": [
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"
    ],
    "batch finder": ["CUDA out of memory with batch 64, decreasing batch size to 32"],
    "plugin": ["NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file"],
    "del": ["Exception ignored in: <function Pool.__del__ at 0x7f>", "OSError: [Errno 9] Bad file"],
    "tracker": ["wandb: WARNING Network error (ConnectTimeout), entering retry loop."],
    "optional": ["No module named 'flash_attn', falling back to eager attention"],
    "future": ["FutureWarning: torch.load with weights_only=False may fail in future"],
    "tf": ["Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN"],
    "blip": ["step 8 loss 2.9 grad_norm 6.1"],
    "sample": ["WARNING skipping corrupt sample 81 (cannot identify image file)"],
    "corrected": ["EDAC MC0: 1 CE memory read error", "correctable ECC errors: 3"],
    "nan check": ["check_nan enabled: will stop when loss is nan"],
    "leak": ["resource_tracker: There appear to be 3 leaked semaphore objects to clean up"],
    "heartbeat": ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC is set to 600"],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_training_that_goes_on_is_healthy(name):
    assert found(r0=[*STEPS, *HARMLESS[name], *STEPS]).fault == "no_fault"


def test_progress_alone_is_healthy():
    assert found(r0=STEPS, r1=STEPS).fault == "no_fault"


def test_no_line_is_healthy():
    assert found(r0=[]).fault == "no_fault"


def test_pods_that_found_their_node_at_last_are_healthy():
    lines = [
        "Warning  FailedScheduling  5m  default-scheduler  0/4 nodes are available: 4 Insufficient cpu.",
        "Normal   Scheduled         4m  default-scheduler  Successfully assigned ns/train-0 to a",
        "Normal   Started           4m  kubelet  Started container trainer",
    ]
    assert found(events=lines).fault == "no_fault"


def test_the_rank_that_ran_out_of_memory_is_the_root_of_the_others_timeouts():
    told = found(
        r0=[*STEPS, WATCHDOG.format(0, 9)],
        r1=[*STEPS, TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"],
    )
    assert (told.fault, told.stream, told.rank) == ("gpu_oom", "1", 1)
    assert told.cascade == ("0",)


def test_the_rank_that_said_nothing_is_the_one_that_hung():
    told = found(r0=[*STEPS, WATCHDOG.format(0, 9)], r1=STEPS, r2=[*STEPS, WATCHDOG.format(2, 9)])
    assert (told.fault, told.stream, told.line) == ("collective_timeout", "1", None)


def test_when_all_waited_the_one_that_was_behind_is_the_root():
    told = found(
        r0=[WATCHDOG.format(0, 96)], r1=[WATCHDOG.format(1, 64)], r2=[WATCHDOG.format(2, 96)]
    )
    assert (told.stream, "SeqNum=64" in told.line.raw) == ("1", True)


def test_the_kernel_knows_better_than_the_launcher():
    told = found(
        agent=["E api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 71)"],
        dmesg=["[88.1] Out of memory: Killed process 71 (python3) total-vm:9kB"],
    )
    assert (told.fault, told.stream) == ("host_oom", "dmesg")


def test_broken_memory_explains_an_illegal_access():
    told = found(
        r0=[TRACE, "RuntimeError: CUDA error: an illegal memory access was encountered"],
        dmesg_b=["NVRM: Xid (PCI:0000:3b:00): 95, pid=71, Uncontained error"],
    )
    assert (told.fault, told.stream) == ("gpu_ecc", "dmesg:b")


def test_a_page_fault_alone_is_the_applications():
    told = found(dmesg=["NVRM: Xid (PCI:0000:3b:00): 31, pid=71, MMU Fault"])
    assert told.fault == "cuda_illegal_access"


def test_the_port_that_a_second_attempt_missed_is_no_cause():
    told = found(
        agent=[
            *STEPS, TRACE, "KeyError: 'labels'", "Restarting worker group",
            TRACE, "OSError: [Errno 98] Address already in use",
        ]
    )  # fmt: skip
    assert told.top[0] != "port_in_use" or told.line.number < 10


def test_a_jump_that_stays_is_a_spike():
    told = found(r0=[*STEPS, "step 8 loss 31.0 grad_norm 900", "step 9 loss 29.0 grad_norm 500"])
    assert (told.fault, told.line.number) == ("loss_spike", 8)


def test_a_loss_that_is_nan_to_the_end_is_told_with_its_first_line():
    told = found(r0=[*STEPS, "step 8 loss nan grad_norm nan", "step 9 loss nan grad_norm nan"])
    assert (told.fault, told.line.number) == ("nan_loss", 8)


def test_a_scale_that_only_falls_has_collapsed():
    falling = [
        f"Gradient overflow. Skipping step, reducing loss scale to {2.0**-n}" for n in range(4)
    ]
    assert found(r0=[*STEPS, *falling]).fault == "loss_scale_collapse"


def test_one_slow_rank_among_equals_is_found_by_its_numbers():
    lines = [f'compute_seconds{{rank="{rank}"}} {0.97 if rank == 2 else 0.48}' for rank in range(4)]
    told = found(monitor=lines)
    assert (told.fault, 'rank="2"' in told.line.raw) == ("gpu_slow_throttle", True)


def test_an_interleaved_log_tells_the_rank():
    told = found(all=["[rank0]: step 1 loss 2.0", "[rank3]: " + TRACE, "[rank3]: KeyError: 'x'"])
    assert (told.fault, told.stream, told.rank) == ("user_code_error", "all", 3)


def test_tracebacks_of_two_ranks_may_be_mixed_line_by_line():
    told = found(
        all=[
            "[rank1]: " + TRACE,
            "[rank0]: step 5 loss 2.0",
            '[rank1]:   File "/home/me/train.py", line 7, in main',
            "[rank0]: step 6 loss 2.0",
            "[rank1]: ValueError: no such shape",
        ]
    )
    assert (told.fault, told.frame) == ("user_code_error", "/home/me/train.py:7")


@pytest.mark.parametrize(
    "prefix",
    [
        "", "[rank0]: ", "[default0]:", "0: ", "worker-0: ", "\x1b[31m", "2026-01-02T03:04:05.6Z ",
        "2026-01-02T03:04:05.6Z stderr F ", "(RayTrainWorker pid=71, ip=10.0.0.1) ",
        "[2026-01-02 03:04:05,123] ", "Jan  2 03:04:05 node-a kernel: ", "[  88.123456] ",
    ],
)  # fmt: skip
def test_a_prefix_changes_nothing(prefix):
    lines = [TRACE, '  File "/w/a.py", line 3, in f', "OSError: [Errno 28] No space left on device"]
    told = found(r0=[prefix + line for line in lines])
    assert (told.fault, told.frame) == ("disk_full", "/w/a.py:3")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=80), st.sampled_from([TRACE, *STEPS])), max_size=30),
    st.integers(0, 3),
)
def test_any_lines_get_an_answer(lines, rank):
    told = diagnose_streams({str(rank): lines, "agent": lines})
    assert len(told.top) == len(told.confidence)
    assert all(0 <= sure <= 1 for sure in told.confidence)


def test_an_exception_that_was_outlived_does_not_count():
    told = found(r0=[TRACE, "OSError: [Errno 28] No space left on device", *STEPS, *STEPS])
    assert told.fault == "no_fault"
