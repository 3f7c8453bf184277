"""Ranks of a real run that break in a chosen way at a chosen place."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cnai.cluster import LocalGang, local_fleet
from cnai.core.fleet import Fleet
from cnai.core.runfolder import RunFolder
from cnai.core.spec import load_spec
from cnai.flows.beginning import Beginning
from cnai.flows.doors import Doors, rank_environment
from cnai.flows.folder import opened_run
from cnai.flows.listener import Silence
from cnai.flows.plan import plan_run
from cnai.flows.train import TrainResult, train_run

MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")
SLOW_SECONDS = 0.15
LIMIT_BYTES = 400 * 2**20


class Told(Silence):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    warn = note


def fleet_of(nodes: int, devices: int) -> Callable[[], Fleet]:
    """Return a door to made-up machines, all of them this one."""
    (node,) = local_fleet().nodes
    made = tuple(replace(node, name=f"node-{index}", devices=devices) for index in range(nodes))
    return lambda: Fleet(nodes=made)


def train_with(
    spec: Path,
    *faults: dict[str, Any],
    fleet: Callable[[], Fleet] | None = None,
    listener: Told | None = None,
) -> tuple[RunFolder, TrainResult]:
    """Train as `ai-cli train` does, with ranks that break."""
    listener = listener or Told()
    loaded = load_spec(spec).spec
    doors = Doors(
        gang=LocalGang(server="cnai.train.forkserver", preload=["fault_case", "cnai.flows.worker"]),
        fleet=fleet or fleet_of(1, 8),
        worker="fault_case:train_rank",
        environment=lambda ranks: {
            **rank_environment(ranks),
            "FAULTS": json.dumps(faults),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                str(Path(__file__).parents[1] / name) for name in ("src", "tests")
            ),
        },
    )
    with opened_run(loaded, fresh=False) as run:
        manifest = Beginning(loaded, run, listener).data()
        return run, train_run(loaded, run, plan_run(loaded), manifest, listener, doors)


def train_rank(context: Any) -> int:
    """Be a rank that breaks where it is told to."""
    from cnai.flows import worker

    for fault in json.loads(os.environ.get("FAULTS", "[]")):
        if fault["rank"] == context.rank and context.attempt in fault.get("attempts", [0]):
            arrange(fault["kind"], fault.get("step", 0))
    return worker.train_rank(context)


def arrange(kind: str, step: int) -> None:
    """See to it that this process breaks in a step of its life, counted from 0."""
    from torch.distributed.checkpoint import FileSystemReader

    from cnai.data import DatasetReader
    from cnai.train.ranks import Ranks
    from cnai.train.trainer import Trainer

    places = {
        "data": (DatasetReader, "rows"),
        "load": (FileSystemReader, "read_metadata"),
        "total": (Ranks, "total"),
    }
    where = {"hang_data": "data", "hang_c": "data", "bad_row": "data", "store": "data",
             "shape": "total", "broken_checkpoint": "load"}  # fmt: skip
    thing, name = places.get(where.get(kind, ""), (Trainer, "_agree"))
    original = getattr(thing, name)
    count = iter(range(10**9))

    def replacement(*words: Any, **more: Any) -> Any:
        if kind == "slow":  # every step, so that somebody has time to look on
            time.sleep(SLOW_SECONDS)
            return original(*words, **more)
        if next(count) != step:
            return original(*words, **more)
        if kind == "shape":
            own, values = words
            return original(own, [*values, 0.0])
        if kind == "nan":
            trainer, (_, *rest), *others = words
            return original(trainer, [float("nan"), *rest], *others)
        BREAKS[kind]()
        return original(*words, **more)

    setattr(thing, name, replacement)


def miss_a_key() -> None:
    raise KeyError("labels")


def read_a_bad_row() -> None:
    raise ValueError("could not convert string to float: 'abc' in train/part-3.csv line 17")


def crash() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(0)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def be_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_for_a_store() -> None:
    time.sleep(3600)


def hang_in_machine_code() -> None:
    mutex, keeping = ctypes.create_string_buffer(128), ctypes.PyDLL(None)
    while True:  # the second time it waits for itself, and keeps the interpreter's lock
        keeping.pthread_mutex_lock(mutex)


def receive_what_nobody_sends() -> None:
    import torch
    import torch.distributed as dist

    dist.recv(torch.ones(1), src=(dist.get_rank() + 1) % dist.get_world_size())


def loop_for_ever() -> None:
    while True:
        sum(range(1000))


def meet_bad_memory_of_a_gpu() -> None:
    sys.stderr.write(
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=4242, name=python, An uncorrectable double bit error "
        "(DBE) has been detected on GPU\n"
    )
    raise RuntimeError(
        "CUDA error: uncorrectable ECC error encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call"
    )


def fill_a_gpu() -> None:
    raise RuntimeError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
        "of which 1.06 GiB is free."
    )


def find_the_checkpoint_broken() -> None:
    raise RuntimeError(
        "PytorchStreamReader failed reading zip archive: failed finding central directory"
    )


def lose_the_store() -> None:
    raise OSError(116, "Stale file handle", "/mnt/data/train-00.bin")


def lack_a_credential() -> None:
    raise PermissionError("401 Unauthorized: the token has expired (ExpiredToken)")


def fill_the_memory() -> None:
    """Allocate without end in a cgroup of its own, so that the kernel kills this process."""
    group = MEMORY_CGROUP / f"cnai-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    kept = []
    while True:
        kept.append(bytearray(b"x" * 2**24))


def may_limit_memory() -> bool:
    """Tell whether this process may make cgroups of memory."""
    return os.access(MEMORY_CGROUP, os.W_OK) and (MEMORY_CGROUP / "cgroup.procs").exists()


BREAKS: dict[str, Callable[[], None]] = {
    "exception": miss_a_key,
    "bad_row": read_a_bad_row,
    "segfault": crash,
    "exit0": leave,
    "kill": be_killed,
    "stop": be_stopped,
    "hang_data": wait_for_a_store,
    "hang_c": hang_in_machine_code,
    "hang_collective": receive_what_nobody_sends,
    "loop": loop_for_ever,
    "oom": fill_the_memory,
    "ecc": meet_bad_memory_of_a_gpu,
    "gpu_oom": fill_a_gpu,
    "broken_checkpoint": find_the_checkpoint_broken,
    "store": lose_the_store,
    "credential": lack_a_credential,
}
