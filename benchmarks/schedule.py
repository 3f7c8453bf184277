"""Our scheduler beside the usual policies, on traces that you name.

    python benchmarks/schedule.py openb   --nodes F --pods F --seeds 42-51
    python benchmarks/schedule.py cost
    python benchmarks/schedule.py jct     --jobs F --gpus 512 --start 2017-10-09 --end 2017-11-05
    python benchmarks/schedule.py phases  --jobs F --gpus 560 --start 2017-10-09 --end 2017-11-05
    python benchmarks/schedule.py elastic --jobs F --curves DIR --gpus 64 --speedup 4
    python benchmarks/schedule.py serving --load F --cold-start 600
    python benchmarks/schedule.py lending --load F --jobs F --curves DIR
    python benchmarks/schedule.py all     --traces DIR

With `--json` one object: `value` has a number a policy, `policies` all numbers, `ratios` ours over
each yardstick. All policies go through the same `decide` in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cnai.core.errors import CnaiError
from cnai.schedule.decide import Policy, decide
from cnai.schedule.demand import Demand
from cnai.schedule.jobs import JobRow
from cnai.schedule.nodes import NodeRow, Nodes
from cnai.schedule.placement.fragmentation import Fragmentation
from cnai.schedule.placement.scores import QuantisedGradient
from cnai.schedule.policies import ORACLES, make_policy
from cnai.schedule.policies.adaptive import Adaptive
from cnai.schedule.policies.hpa import Hpa
from cnai.schedule.policies.replicas import Replicas
from cnai.schedule.simulation.engine import NodeEvent, SimulatedJob, Simulation
from cnai.schedule.simulation.pods import fill
from cnai.schedule.simulation.serving import bursty, serve_load
from cnai.schedule.traces import elasticflow, openb, philly, servegen
from cnai.schedule.traces.synthetic import make_nodes
from cnai.schedule.view import ClusterView

Result = dict[str, Any]
OURS = "cnai"


def result(name: str, metric: str, policies: dict[str, Result]) -> Result:
    """Put the numbers of all policies into one object, with ours over each of the others."""
    value = {policy: numbers[metric] for policy, numbers in policies.items()}
    ours = value.get(OURS)
    ratios = {
        f"{OURS}/{policy}": ours / number
        for policy, number in value.items()
        if ours is not None and policy != OURS and number
    }
    return {"benchmark": name, "metric": metric, "value": value, "ratios": ratios,
            "policies": policies}  # fmt: skip


def seeds_of(text: str) -> list[int]:
    """Read `42-51` or `42,43`."""
    first, dash, last = text.partition("-")
    if dash:
        return list(range(int(first), int(last) + 1))
    return [int(seed) for seed in text.split(",")]


def run_openb(args: argparse.Namespace) -> Result:
    """Fill a cluster with pods that share GPUs: how much of it can be handed out."""
    nodes, pods = openb.read_nodes(args.nodes), openb.read_pods(args.pods)
    capacity = Nodes(nodes).capacity_milli
    found: dict[str, Result] = {}
    for name in ("random", "best-fit", "fgd", OURS):
        runs = []
        for seed in seeds_of(args.seeds):
            tell(f"{name}, seed {seed}")
            coming = openb.arrivals(pods, capacity, seed=seed, load=args.load)
            runs.append(fill(nodes, coming, make_policy(name, pods, seed)))
        shares = [100 * run.allocated for run in runs]
        found[name] = {
            "allocated_percent": float(np.mean(shares)),
            "allocated_sd": float(np.std(shares)),
            "by_seed": [round(share, 3) for share in shares],
            "decisions_per_cpu_second": float(
                np.mean([run.decisions_per_cpu_second for run in runs])
            ),
        }
    told = result("openb", "allocated_percent", found)
    told["unallocated_over_best_fit"] = (100 - told["value"][OURS]) / (
        100 - told["value"]["best-fit"]
    )
    return told


def play(
    jobs: Sequence[SimulatedJob], gpus: int, name: str, policy: Policy | None = None, **more: Any
) -> Result:
    """Simulate one policy and return its numbers."""
    tell(f"{name}, {len(jobs)} jobs")
    seen = [Demand(gpus=size) for size in (1, 2, 4, 8)]
    began = time.process_time()
    outcome = Simulation(
        nodes=make_nodes(gpus),
        jobs=jobs,
        policy=policy or make_policy(name, seen),
        knows_truth=name in ORACLES,
        **more,
    ).run()
    return {**outcome.summary(), "policy": name, "cpu_seconds": time.process_time() - began}


def run_jct(args: argparse.Namespace) -> Result:
    """Weeks of gangs whose durations nobody knows: mean completion time."""
    jobs = philly.read_jobs(args.jobs, start=args.start, end=args.end)
    names = ["fifo", "easy", "backfill", "sjf", "las", "las-2d", "srsf", OURS]
    found = {name: play(jobs, args.gpus, name) for name in names}
    told = result("jct", "mean_jct_h", found)
    told["p99_ratios"] = {
        f"{OURS}/{name}": found[OURS]["p99_jct_h"] / numbers["p99_jct_h"]
        for name, numbers in found.items()
        if name != OURS
    }
    return told


def run_phases(args: argparse.Namespace) -> Result:
    """Jobs whose first part needs no GPU: GPUs held from the start, or asked for when needed."""
    found: dict[str, Result] = {}
    for share in args.shares:
        for name in ("backfill", OURS):
            for holds in (True, False):
                jobs = philly.read_jobs(
                    args.jobs, start=args.start, end=args.end, cpu_share=share, holds_gpus=holds
                )
                label = f"{name}-{'hold' if holds else 'release'}-{share:g}"
                found[label] = play(jobs, args.gpus, name) | {"policy": label}
    told = result("phases", "mean_jct_h", found)
    told["ratios"] = {
        f"{name}-{share:g}": {
            metric: found[f"{name}-release-{share:g}"][metric]
            / found[f"{name}-hold-{share:g}"][metric]
            for metric in ("mean_jct_h", "gpu_hours")
        }
        for name in ("backfill", OURS)
        for share in args.shares
    }
    return told


def run_elastic(args: argparse.Namespace) -> Result:
    """Jobs with measured curves that may be resized, beside the sizes that they asked for."""
    curves = elasticflow.read_curves(args.curves)

    def jobs(*, elastic: bool) -> list[SimulatedJob]:
        return elasticflow.read_jobs(
            args.jobs, curves, speedup=args.speedup, most=args.gpus, elastic=elastic
        )

    found = {name: play(jobs(elastic=False), args.gpus, name) for name in ("backfill", "sjf")}
    found[f"{OURS}-undeclared"] = play(
        jobs(elastic=True), args.gpus, f"{OURS}-undeclared", Adaptive(uses_declared=False)
    )
    found[OURS] = play(jobs(elastic=True), args.gpus, OURS)
    told = result("elastic", "mean_jct_h", found)
    told["gpu_hour_ratios"] = {
        f"{OURS}/{name}": found[OURS]["gpu_hours"] / numbers["gpu_hours"]
        for name, numbers in found.items()
        if name != OURS
    }
    return told


GRID = (0.85, 0.7, 0.6, 0.55, 0.5, 0.45)


def run_serving(args: argparse.Namespace) -> Result:
    """Replicas for a load that moves: hours paid at the same share of requests in time."""
    times, rates = servegen.read_rates(args.load)
    load = bursty(times, rates, replicas=args.replicas, seed=args.seed)
    found: dict[str, Result] = {}
    for policy in (*(Hpa(target) for target in GRID), Replicas()):
        tell(policy.name)
        outcome = serve_load(load, policy, args.cold_start)
        found[policy.name] = {
            "replica_hours": outcome.replica_hours,
            "slo_percent": 100 * outcome.slo,
            "changes": outcome.changes,
        }
    told = result("serving", "replica_hours", found)
    enough = [name for name in found if name != OURS and found[name]["slo_percent"] >= 99.5]
    best = min((found[name]["replica_hours"] for name in enough), default=float("nan"))
    told["best_hpa"] = {"replica_hours": best, "ours_over": found[OURS]["replica_hours"] / best}
    line = sorted((found[name]["slo_percent"], found[name]["replica_hours"]) for name in found
                  if name != OURS)  # fmt: skip
    same = float(np.interp(found[OURS]["slo_percent"], *zip(*line, strict=True)))
    told["hpa_at_our_slo"] = {
        "replica_hours": same, "ours_over": found[OURS]["replica_hours"] / same
    }  # fmt: skip
    return told


def run_lending(args: argparse.Namespace) -> Result:
    """GPUs of idle replicas lent to elastic training, and taken back within a minute."""
    times, rates = servegen.read_rates(args.load)
    load = bursty(times, rates, replicas=args.replicas, seed=args.seed)
    alone = serve_load(load, Replicas(), args.cold_start)
    lending = serve_load(load, Replicas(), args.cold_start + args.reclaim)
    curves = elasticflow.read_curves(args.curves)
    jobs = elasticflow.read_jobs(
        args.jobs, curves, speedup=args.speedup, most=args.gpus, elastic=True
    )
    fleet = int(lending.ready.max())
    events, groups = lent(lending.ready, fleet, jobs[-1].arrives * 2, first=args.gpus // 8)
    tell("without lending")
    found = {"own": play(jobs, args.gpus, OURS)}
    tell("with lending")
    nodes = [*make_nodes(args.gpus), *(
        NodeRow(name=f"lent-{place}", gpus=GROUP, spot=True) for place in range(groups)
    )]  # fmt: skip
    outcome = Simulation(nodes=nodes, jobs=jobs, policy=Adaptive(), node_events=events).run()
    found[OURS] = dict(outcome.summary())
    told = result("lending", "mean_jct_h", found)
    told["slo_loss_points"] = 100 * (alone.slo - lending.slo)
    told["fleet_gpus"] = fleet
    return told


GROUP = 4
_CALM_TICKS = 120


def lent(
    ready: np.ndarray[Any, Any], fleet: int, until: float, first: int
) -> tuple[list[NodeEvent], int]:
    """Return when groups of idle GPUs come and go; a group is lent after half an hour of calm."""
    busy = np.array([ready[max(0, at - _CALM_TICKS) : at + 1].max() for at in range(len(ready))])
    idle = (fleet - busy) // GROUP
    groups = int(idle.max(initial=0))
    events = [NodeEvent(time=0.0, node=first + group, up=False) for group in range(groups)]
    up = 0
    for tick in range(int(until / 15)):
        now = int(idle[tick % len(idle)])
        events += [NodeEvent(time=tick * 15.0, node=first + g, up=True) for g in range(up, now)]
        events += [NodeEvent(time=tick * 15.0, node=first + g, up=False) for g in range(now, up)]
        up = now
    return events, groups


def best_of(work: Callable[[], Any], times: int) -> float:
    """Return the shortest CPU time of several calls, in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.process_time_ns()
        work()
        spent.append(time.process_time_ns() - began)
    return min(spent) / 1e6


def run_cost(args: argparse.Namespace) -> Result:
    """CPU time of one decision by the number of nodes, beside numpy's argmax over one column."""
    found: dict[str, Result] = {}
    for count in (1_000, 5_000, 50_000):
        tell(f"{count} nodes")
        found[str(count)] = decision_cost(count, args.repeats)
    told = result("cost", "warm_ms", found)
    told["growth_5k_to_50k"] = {
        kind: found["50000"][kind] / found["5000"][kind] for kind in ("warm_ms", "cold_ms")
    }
    return told


def decision_cost(count: int, repeats: int) -> Result:
    """Measure a pod with scores kept, one with all scores made anew, and a gang of 64."""
    random = np.random.default_rng(0)
    rows = [
        NodeRow(name=str(n), cpu_milli=96_000, memory_mib=2**19, gpus=8, rack=str(n // 16))
        for n in range(count)
    ]
    demands = [Demand(cpu_milli=8000 * g, memory_mib=2**15, gpus=g) for g in (1, 2, 4, 8)]
    view = ClusterView(nodes=Nodes(rows))
    for node, used in enumerate(random.integers(0, 8, size=count).tolist()):
        view.nodes.take(demands[0], (view.nodes.slot(node, demands[0], used),))

    def policy() -> Adaptive:
        return Adaptive(scorer=QuantisedGradient(Fragmentation(demands)))

    def timed(workers: int, *, warm: bool) -> float:
        place = view.jobs.add(JobRow(name="new", demand=demands[0], workers=workers), 0.0)
        kept = policy()
        decide(view, 0.0, kept)
        spent = []
        for _ in range(repeats):
            one = kept if warm else policy()
            spent.append(best_of(lambda one=one: decide(view, 0.0, one), 1))  # type: ignore[misc]
        view.jobs.remove([place])
        return min(spent)

    column = random.random(count)
    return {
        "warm_ms": timed(1, warm=True),
        "cold_ms": timed(1, warm=False),
        "gang_64_ms": timed(64, warm=True),
        "argmax_ms": best_of(column.argmax, repeats),
    }


def run_all(args: argparse.Namespace) -> Result:
    """Everything, on the folder of traces with its usual names."""
    at = args.traces
    calls: list[list[str]] = [
        ["openb", "--nodes", str(at / "openb/openb_node_list_gpu_node.csv"),
         "--pods", str(at / "openb/openb_pod_list_default.csv"), "--seeds", args.seeds],
        ["cost"],
        ["jct", "--jobs", str(at / "philly/philly_jobs.csv")],
        ["elastic", "--jobs", str(at / "elasticflow/philly_103959.csv"),
         "--curves", str(at / "elasticflow/throughputs_A100")],
        ["phases", "--jobs", str(at / "philly/philly_jobs.csv")],
        *(["serving", "--load", str(at / "servegen/m-large_10min.csv"), "--cold-start", start]
          for start in ("600", "180")),
        ["lending", "--load", str(at / "servegen/m-large_10min.csv"),
         "--jobs", str(at / "elasticflow/philly_103959.csv"),
         "--curves", str(at / "elasticflow/throughputs_A100")],
    ]  # fmt: skip
    found = []
    for call in calls:
        one = parser().parse_args(call)
        told = one.run(one)
        found.append(told)
        if not args.json:
            show(told)
    return {"benchmarks": found}


def tell(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr, flush=True)


def show(told: Result) -> None:
    """Print the numbers for people."""
    if "benchmarks" in told:
        return
    print(f"{told['benchmark']}: {told['metric']}")
    for name, numbers in told["policies"].items():
        parts = (f"{key} {value:.4g}" for key, value in numbers.items()
                 if isinstance(value, float) and value)  # fmt: skip
        print(f"  {name:24} {'  '.join(parts)}")
    for key in told.keys() - {"benchmark", "metric", "policies", "value"}:
        print(f"  {key}: {json.dumps(told[key], default=float)}")


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    whole = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = whole.add_subparsers(required=True)

    def add(name: str, run: Callable[[argparse.Namespace], Result]) -> argparse.ArgumentParser:
        one = kinds.add_parser(name, help=(run.__doc__ or "").splitlines()[0])
        one.set_defaults(run=run)
        one.add_argument("--json", action="store_true")
        return one

    one = add("openb", run_openb)
    one.add_argument("--nodes", type=Path, required=True)
    one.add_argument("--pods", type=Path, required=True)
    one.add_argument("--seeds", default="42-51")
    one.add_argument("--load", type=float, default=1.3)
    add("cost", run_cost).add_argument("--repeats", type=int, default=50)
    for name, run, gpus in (("jct", run_jct, 512), ("phases", run_phases, 560)):
        one = add(name, run)
        one.add_argument("--jobs", type=Path, required=True)
        one.add_argument("--gpus", type=int, default=gpus)
        one.add_argument("--start", default="2017-10-09")
        one.add_argument("--end", default="2017-11-05")
        if name == "phases":
            one.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    for name, run in (("elastic", run_elastic), ("lending", run_lending)):
        one = add(name, run)
        one.add_argument("--jobs", type=Path, required=True)
        one.add_argument("--curves", type=Path, required=True)
        one.add_argument("--gpus", type=int, default=64)
        one.add_argument("--speedup", type=float, default=4.0)
    one.add_argument("--reclaim", type=float, default=60.0)
    for kind, start in ((add("serving", run_serving), 600.0), (one, 180.0)):
        kind.add_argument("--load", type=Path, required=True)
        kind.add_argument("--cold-start", type=float, default=start)
        kind.add_argument("--replicas", type=float, default=20.0)
        kind.add_argument("--seed", type=int, default=0)
    one = add("all", run_all)
    one.add_argument("--traces", type=Path, required=True)
    one.add_argument("--seeds", default="42-51")
    return whole


def main() -> int:
    """Run one benchmark."""
    args = parser().parse_args()
    try:
        told = args.run(args)
    except CnaiError as error:
        print(f"error: {error.message}\nwhere: {error.where}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    if args.json:
        print(json.dumps(told, default=float))
    else:
        show(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
