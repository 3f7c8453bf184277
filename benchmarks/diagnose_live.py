"""Break a living training in eight ways, and see who names the right rank: ours, and torchrun.

    python benchmarks/diagnose_live.py [--kinds KIND ...] [--ours-only]

Ours are ranks of a real run under the supervisor; torchrun's do the same breaks around a plain loop
of all-reduces. One rank breaks in its ninth step. A watch of 3 s stands for the 60 s of a real run,
so that a hang takes seconds here; torchrun waits for the limit of a collective (10 s here, 30 min
by default). Prints one line a break, and the share of right ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("src", "tests")]

import fault_case  # noqa: E402 - the ranks that break are those of the tests
from chain_case import write_spec, write_texts  # noqa: E402
from cnai.core.errors import CnaiError  # noqa: E402
from cnai.core.events import Finding  # noqa: E402
from cnai.core.runfolder import RunFolder, read_events  # noqa: E402
from cnai.diagnose import diagnose_run  # noqa: E402

GUILTY, STEP, RANKS = 1, 8, 3
SPEC = {
    "train.steps": 20,
    "train.batch": 6,
    "train.max_restarts": 0,
    "train.timeout_seconds": 60,
    "checkpoint.every_steps": 5,
    "parallel.data_parallel.size": RANKS,
    "resources.ranks": None,
    "monitor.stall_seconds": 3.0,
}
KINDS = ("exception", "oom", "segfault", "shape", "exit0", "hang_data", "hang_collective", "kill")
BROKEN = {"fault_case.py"}
FRAMES = {
    "exception": BROKEN, "segfault": BROKEN, "hang_data": BROKEN, "hang_collective": BROKEN,
    "shape": {"fault_case.py", "ranks.py"},
}  # fmt: skip
"""Files of the guilty frame: where the rank was broken, or for a shape the collective.

A rank that is killed or leaves has no frame, only its step and phase."""
_ROOT = re.compile(r"Root Cause.*?rank\s+: (\d+).*?exitcode\s+: ([^\n]+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one side said of one break."""

    rank: int | None
    seconds: float
    said: str
    right_frame: bool = False


def ours(kind: str) -> Row:
    """Break a run of ours; say what the diagnosis names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        write_texts(folder / "texts")
        write_spec(folder, SPEC)
        begin = time.monotonic()
        fault = {"kind": kind, "rank": GUILTY, "step": STEP}
        with contextlib.suppress(CnaiError):
            fault_case.train_with(folder / "run.yaml", fault)
        seconds = time.monotonic() - begin
        run = RunFolder(folder / "runs" / "tiny")
        found = diagnose_run(run)
        hung = [e for e in read_events(run) if isinstance(e, Finding) and e.detector == "hung"]
        os.chdir(HERE)
    frame = Path(found.root_frame.rpartition(":")[0]).name if found.root_frame else None
    place = f" at {Path(found.root_frame).name}" if found.root_frame else ""
    return Row(
        rank=found.root_rank,
        seconds=seconds,
        said=f"{found.fault}, after step {found.root_step}, phase {found.root_phase}{place}"
        + (" (by the watch)" if hung else ""),
        right_frame=frame in FRAMES.get(kind, {None}) and found.root_step in {STEP, STEP + 1},
    )


def torchrun(kind: str) -> Row:
    """Break plain ranks under torchrun; say what its report names."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
        str(HERE / "diagnose_live_ranks.py"), kind, str(GUILTY), str(STEP),
    ]  # fmt: skip
    begin = time.monotonic()
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=180, env=_environment()
    )
    seconds = time.monotonic() - begin
    found = _ROOT.search(ran.stderr)
    if found is None:
        return Row(rank=None, seconds=seconds, said=f"no root cause, exit code {ran.returncode}")
    return Row(rank=int(found[1]), seconds=seconds, said=f"exit code {found[2].strip()}")


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join(sys.path[:2]),
    }


def main() -> None:
    """Run all breaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--ours-only", action="store_true")
    asked = parser.parse_args()
    kinds = list(asked.kinds)
    if "oom" in kinds and not fault_case.may_limit_memory():
        print("oom              left out: this process may not make cgroups of memory")
        kinds.remove("oom")
    right = frames = peers = 0
    for kind in kinds:
        row = ours(kind)
        right += row.rank == GUILTY
        frames += row.right_frame
        print(f"{kind:16} ours      rank {row.rank} in {row.seconds:5.1f} s: {row.said}")
        if not asked.ours_only:
            peer = torchrun(kind)
            peers += peer.rank == GUILTY
            print(f"{'':16} torchrun  rank {peer.rank} in {peer.seconds:5.1f} s: {peer.said}")
    print(f"right rank: ours {right} of {len(kinds)}", end="")
    print("" if asked.ours_only else f", torchrun {peers} of {len(kinds)}")
    print(f"right frame, or step where there is none: ours {frames} of {len(kinds)}")


if __name__ == "__main__":
    main()
