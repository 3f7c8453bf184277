"""Fault bench of the detectors: 27 faults in two small models, healthy runs, published baselines.

    python benchmarks/detect.py --seeds 1 --healthy 20

Each fault is put into a short training of a transformer on text and of a CNN on digits (two faults
are of text alone). A fault counts as found when the detector of its name speaks after its onset; as
rightly explained when its finding is the primary one; a healthy run with any finding is a false
alarm. Times of other ranks and their memory are made up, all else happens in a real training.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from detect_baselines import BASELINES
from detect_case import Setting
from detect_faults import FAULTS, Healthy

from cnai.monitor import DETECTORS, Watch
from cnai.monitor.detectors import primary


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the detectors said of a run.

    Attributes:
        fault: What was wrong; None = nothing.
        delay: Steps from the onset to the finding of the right name; None = not found.
        baselines: Whether each baseline found it, by name.
    """

    fault: str | None
    model: str
    seed: int
    found: list[str]
    primary: str | None
    delay: int | None
    baselines: dict[str, bool]
    covered: dict[str, bool]
    seconds: float
    note: str = ""


def judged(job: tuple[int, str, int]) -> Outcome:
    """Run one case; a fault by its number, a healthy run by a negative one."""
    number, model, seed = job
    start = time.perf_counter()
    setting = Setting(model=model, seed=seed)
    case = FAULTS[number](setting) if number >= 0 else Healthy(setting, -number)
    events = case.run()
    watch = Watch.of(list(DETECTORS.values()))
    findings = [one for event in events for one in watch.update(event)]
    right = [one for one in findings if one.detector == case.name]
    first = primary(findings)
    return Outcome(
        fault=case.name or None,
        model=model,
        seed=seed if number >= 0 else -number,
        found=[one.detector for one in findings],
        primary=first.detector if first else None,
        delay=max(0, (right[0].step or 0) - case.onset) if right else None,
        baselines={name: one.speaks(case.name, events) for name, one in BASELINES.items()},
        covered={name: case.name in one.covers for name, one in BASELINES.items()},
        seconds=time.perf_counter() - start,
        note=str([one.message for one in findings])
        + ("" if case.name else f" {case.setting} {case.habit}"),
    )


def jobs_of(
    seeds: int, healthy: int, only: Iterable[str], first: int = 0
) -> list[tuple[int, str, int]]:
    """List the runs."""
    faults = [
        (number, model, seed)
        for seed in range(first, first + seeds)
        for number, fault in enumerate(FAULTS)
        for model in fault.models
        if not only or fault.name in only
    ]
    wells = [
        (-number - first, ("text", "digits")[number % 2], 0) for number in range(1, healthy + 1)
    ]
    return faults + wells


def main() -> int:
    """Run the bench; the exit code is 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each fault and model")
    parser.add_argument("--healthy", type=int, default=150, help="healthy trainings")
    parser.add_argument("--first", type=int, default=0, help="first seed, for seeds never used")
    parser.add_argument("--only", nargs="*", default=(), help="names of faults")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", action="store_true", help="one JSON object with every run")
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    asked = parser.parse_args()
    jobs = jobs_of(asked.seeds, asked.healthy, asked.only, asked.first)
    with ProcessPoolExecutor(asked.jobs) as pool:
        outcomes = list(pool.map(judged, jobs, chunksize=2))
    report = summary(outcomes)
    if asked.json:
        print(json.dumps({**report, "runs": [asdict(one) for one in outcomes]}))
    else:
        show(report, outcomes, misses=asked.misses)
    return 0 if report["good"] else 1


def summary(outcomes: list[Outcome]) -> dict[str, object]:
    """Return the shares, and whether the goals are met."""
    faults = [one for one in outcomes if one.fault]
    healthy = [one for one in outcomes if not one.fault]
    found = [one for one in faults if one.delay is not None]
    alarms = sum(bool(one.found) for one in healthy)
    recall = len(found) / len(faults) if faults else 1.0
    right = sum(one.primary == one.fault for one in faults) / len(faults) if faults else 1.0
    soon = sum(one.delay is not None and one.delay <= 30 for one in faults)
    baselines = {}
    for name in BASELINES:
        of_its_own = [one for one in faults if one.covered[name]]
        baselines[name] = {
            "recall": _share(sum(one.baselines[name] for one in faults), len(faults)),
            "recall_of_its_own": _share(
                sum(one.baselines[name] for one in of_its_own), len(of_its_own)
            ),
            "healthy_flagged": sum(one.baselines[name] for one in healthy),
        }
    return {
        "faults": len(faults),
        "recall": recall,
        "primary": right,
        "within_30_steps": _share(soon, len(faults)),
        "median_delay": median([one.delay for one in found if one.delay is not None] or [0]),
        "healthy": len(healthy),
        "healthy_flagged": alarms,
        "baselines": baselines,
        "seconds_a_run": median(one.seconds for one in outcomes),
        "good": recall >= 0.95 and right >= 0.9 and alarms <= max(2, len(healthy) * 2 // 150),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def show(report: dict[str, object], outcomes: list[Outcome], *, misses: bool) -> None:
    """Print a line a fault, the misses if asked, and the shares."""
    print(f"{'fault':18} {'found':>7} {'primary':>8} {'steps':>6}")
    for fault in FAULTS:
        mine = [one for one in outcomes if one.fault == fault.name]
        if mine:
            hits = [one.delay for one in mine if one.delay is not None]
            first = sum(one.primary == fault.name for one in mine)
            steps = f"{median(hits):.0f}" if hits else "-"
            runs = len(mine)
            shares = f"{len(hits):>3}/{runs:<3} {first:>4}/{runs:<3}"
            print(f"{fault.name:18} {shares} {steps:>6}")
    for one in outcomes if misses else ():
        if one.primary != one.fault or (one.fault and one.delay is None):
            print(f"  {one.fault or 'healthy'} {one.model} {one.seed}: {one.found} {one.note}")
    print(
        f"right class {report['recall']:.3f}, primary {report['primary']:.3f}, within 30 steps "
        f"{report['within_30_steps']:.3f}, median delay {report['median_delay']} steps"
    )
    print(f"healthy runs flagged: {report['healthy_flagged']} of {report['healthy']}")
    for name, one in report["baselines"].items():  # type: ignore[attr-defined]
        print(
            f"{name}: right class {one['recall']:.3f} of all, {one['recall_of_its_own']:.3f} of "
            f"what it covers, healthy flagged {one['healthy_flagged']}"
        )
    print(f"seconds a run, median: {report['seconds_a_run']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
