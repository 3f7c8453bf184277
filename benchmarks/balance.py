"""What balancing brings where a rank or a stage is slow, and what it costs where none is.

    python benchmarks/balance.py [--steps 60] [--layer-ms 8] [--only equal]

Real processes over gloo. Slow means a sleep for each micro-batch and layer: on a machine with few
cores real slowness would slow down all. Every rank sleeps, so that computing is what a step is made
of; the slow ones two or three times as long. Prints one JSON object: seconds of a step before the
move and from the tenth step after the start on, their ratio beside the goal, the largest difference
of the losses to one undisturbed process, and for equal ranks the ratio of a run with balancing to
one without, in wall time and in CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from cnai.cluster.local import LocalGang
from cnai.core.events import Rebalanced, StepDone
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.spec import load_spec
from cnai.core.spec.sections import RunSpec
from cnai.flows.beginning import Beginning
from cnai.flows.doors import Doors
from cnai.flows.folder import opened_run
from cnai.flows.listener import Silence
from cnai.flows.machines import fleet_of
from cnai.flows.plan import plan_run
from cnai.flows.train import train_run

LAYERS, BATCH = 12, 16
CASES: dict[str, tuple[dict[str, Any], list[float], float]] = {
    "rank 3 x slow": ({"data_parallel": {"size": 2}}, [1, 3], 1.35),
    "stage 2 x slow": ({"pipeline_parallel": {"stages": 4}}, [1, 2, 1, 1], 1.25),
}
"""Parallel sizes, how much slower each rank is, and the goal."""


def spec_of(parallel: dict[str, Any], steps: int, folder: str, *, balance: bool) -> RunSpec:
    """Return the run of a case."""
    sizes = {"data_parallel": {"size": 1}, "model_parallel": {"size": 1}, **parallel}
    pieces = BATCH // sizes["data_parallel"]["size"]
    sizes["pipeline_parallel"] = {
        "stages": 1, **sizes.get("pipeline_parallel", {}), "microbatches": pieces,
    }  # fmt: skip
    return load_spec({
        "name": "balance", "output": folder,
        "model": {"layers": LAYERS, "width": 32, "heads": 2, "vocab": 300, "sequence": 32},
        "data": {"source": str(Path(folder) / "texts"), "block_rows": 64},
        "parallel": sizes,
        "train": {
            "steps": steps, "batch": BATCH, "warmup_steps": 2,
            "balance": {"rows": balance, "layers": balance},
        },
        "checkpoint": {"every_steps": 10**6},
    }).spec  # fmt: skip


def rank(context: Any) -> int:
    """Be a rank whose layers sleep before each forward pass."""
    from cnai.flows import worker

    asked = json.loads(os.environ["SLEEP"])
    build = worker.build_decoder

    def built(*words: Any) -> Any:
        parts = build(*words)
        seconds = asked["seconds"][context.rank]
        for part in parts:
            for layer in part.layers.values() if seconds else ():
                layer.register_forward_pre_hook(lambda *_: time.sleep(seconds))
        return parts

    worker.build_decoder = built
    code = worker.train_rank(context)
    used = Path(asked["folder"]) / f"cpu-{context.attempt}-{context.rank}"
    used.write_text(str(time.process_time()))
    return code


def run_of(spec: RunSpec, slow: list[float], layer_seconds: float) -> RunFolder:
    """Train on ranks that are slow, as `ai-cli train` does."""
    folder = str(spec.output)
    doors = Doors(
        gang=LocalGang(server="cnai.train.forkserver", preload=["balance", "cnai.flows.worker"]),
        fleet=lambda: fleet_of(spec),
        worker="balance:rank",
        environment=lambda _: {
            "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo",
            "TOKENIZERS_PARALLELISM": "false",
            "SLEEP": json.dumps({
                "seconds": [times * layer_seconds for times in slow], "folder": folder,
            }),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        },
    )  # fmt: skip
    with opened_run(spec, fresh=True) as run:
        manifest = Beginning(spec, run, Silence()).data()
        train_run(spec, run, plan_run(spec), manifest, Silence(), doors)
    return run


def steps_of(run: RunFolder) -> list[StepDone]:
    """Return the steps of the first rank."""
    return [e for e in read_events(run) if isinstance(e, StepDone) and e.rank == 0]


def write_texts(folder: Path) -> None:
    """Write text that is the same each time."""
    (folder / "texts").mkdir(parents=True)
    words = [f"word{number}" for number in range(20)]
    for file in range(40):
        lines = [" ".join(words[(file + n * k) % 20] for k in range(9)) for n in range(1, 100)]
        (folder / "texts" / f"{file}.txt").write_text(". ".join(lines))


def in_folder(
    parallel: dict[str, Any], steps: int, slow: list[float], layer: float, **more: Any
) -> Any:
    """Run a case in a folder of its own; return what its events and ranks tell."""
    with tempfile.TemporaryDirectory() as folder:
        write_texts(Path(folder))
        start = time.perf_counter()
        run = run_of(spec_of(parallel, steps, folder, **more), slow, layer)
        return {
            "steps": steps_of(run),
            "moves": [e for e in read_events(run) if isinstance(e, Rebalanced)],
            "cpu": sum(float(file.read_text()) for file in Path(folder).glob("cpu-*")),
            "wall": time.perf_counter() - start,
        }


def gain_of(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Measure a case with a slow rank against its goal."""
    parallel, slow, goal = CASES[name]
    found = in_folder(parallel, asked.steps, slow, asked.layer_ms / 1000, balance=True)
    alone = in_folder({}, asked.steps, [0.0], 0.0, balance=True)
    moves, steps = found["moves"], found["steps"]
    first = moves[0].step if moves else 10
    before = median(e.step_seconds for e in steps if 2 <= e.step <= first)
    after = median(e.step_seconds for e in steps if e.step > max(10, first + 1))
    losses = {e.step: e.loss for e in steps}
    return {
        "before_seconds": before, "after_seconds": after, "ratio": before / after, "goal": goal,
        "moved_after_step": first,
        "moves": [{"moved": m.moved, "after": m.after, "expected": m.gain} for m in moves],
        "largest_loss_difference": max(abs(losses[e.step] - e.loss) for e in alone["steps"]),
    }  # fmt: skip


def overhead_of(parallel: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """Compare runs with and without balancing where no rank is slow, in turn, several times."""
    ranks = 2
    found: dict[bool, list[Any]] = {True: [], False: []}
    for _ in range(asked.rounds):
        for balance in (True, False):
            one = in_folder(parallel, asked.overhead_steps, [0.0] * ranks, 0.0, balance=balance)
            seconds = median(e.step_seconds for e in one["steps"] if e.step > 5)
            found[balance].append((seconds, one["cpu"], len(one["moves"])))
    on, off = ([min(column) for column in zip(*found[key], strict=True)] for key in (True, False))
    return {
        "step_seconds_ratio": on[0] / off[0], "cpu_seconds_ratio": on[1] / off[1],
        "step_seconds": on[0], "moves": max(one[2] for one in found[True]), "goal": 1.02,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layer-ms", type=float, default=8.0)
    parser.add_argument("--overhead-steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[*CASES, "equal"], help="measure this alone")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    found: dict[str, Any] = {}
    for name in CASES if asked.only is None else {asked.only} & CASES.keys():
        found[name] = gain_of(name, asked)
        print(name, found[name], file=sys.stderr)
    if asked.only in {None, "equal"}:
        found["no rank slow, dp2"] = overhead_of({"data_parallel": {"size": 2}}, asked)
        found["no rank slow, pp2"] = overhead_of({"pipeline_parallel": {"stages": 2}}, asked)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
