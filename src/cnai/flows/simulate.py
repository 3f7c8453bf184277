"""`ai-cli simulate cluster`: policies on a trace or on made-up jobs, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cnai.core.errors import SpecError
from cnai.core.files import read_bytes, write_atomically
from cnai.core.records import decode, encode_pretty
from cnai.schedule import Explanation, Outcome, Simulation, explain, make_policy
from cnai.schedule.nodes import NodeRow
from cnai.schedule.policies import ORACLES
from cnai.schedule.simulation.engine import SimulatedJob
from cnai.schedule.simulation.report import html_report
from cnai.schedule.state import ClusterState, state_of, view_of
from cnai.schedule.traces.kinds import read_cluster, read_trace

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """What to simulate.

    Attributes:
        trace: A table of jobs, or `synthetic` with a number of jobs behind a colon.
        cluster: A table of nodes, a number of GPUs, or nodes x GPUs such as `16x8`.
        policies: Names of policies, each played on the same jobs.
        curves: Folder of scaling curves, for traces of elastic jobs.
        start: First day, for traces with dates.
        end: Last day.
        until_seconds: When to leave the simulation as it stands; infinity means at its end.
    """

    trace: str
    cluster: str
    policies: tuple[str, ...]
    curves: Path | None = None
    start: str | None = None
    end: str | None = None
    seed: int = 0
    restart_seconds: float = 30.0
    until_seconds: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What came of it.

    Attributes:
        state: The cluster at the end of the last policy, for `explain`.
    """

    title: str
    outcomes: tuple[Outcome, ...]
    state: ClusterState


def simulate(request: SimulationRequest, on_progress: Progress) -> Simulated:
    """Play every policy on the same jobs.

    Raises:
        SpecError: A policy, a cluster or a trace is not known.
        DataError: A table cannot be read.
    """
    if not request.policies:
        raise SpecError("no policy is named", where="--policy", hint="write for instance cnai,fifo")
    nodes = read_cluster(request.cluster)
    jobs = read_trace(
        request.trace,
        gpus=sum(node.gpus for node in nodes),
        curves=request.curves,
        days=(request.start, request.end),
        seed=request.seed,
    )
    outcomes = []
    simulation = None
    for name in request.policies:
        simulation = _simulation(request, nodes, jobs, name, on_progress)
        outcomes.append(simulation.run())
        on_progress(name, 1.0)
    if simulation is None:
        raise RuntimeError("no policy was played")
    gpus = sum(node.gpus for node in nodes)
    title = f"{len(jobs):,} jobs of {Path(request.trace).name} on {gpus:,} GPUs"
    state = state_of(simulation.view, tuple(nodes), simulation.now)
    return Simulated(title=title, outcomes=tuple(outcomes), state=state)


def _simulation(
    request: SimulationRequest, nodes: Sequence[NodeRow], jobs: Sequence[SimulatedJob], name: str,
    on_progress: Progress,
) -> Simulation:  # fmt: skip
    seen = [phase.row.demand for job in jobs for phase in job.phases]
    return Simulation(
        nodes=nodes,
        jobs=jobs,
        policy=make_policy(name, seen, request.seed),
        knows_truth=name in ORACLES,
        restart_seconds=request.restart_seconds,
        until=request.until_seconds,
        on_progress=lambda done, every: on_progress(name, done / max(every, 1)),
    )


def write_report(simulated: Simulated, path: Path) -> None:
    """Write the page.

    Raises:
        RunError: The file cannot be written.
    """
    write_atomically(path, html_report(simulated.outcomes, simulated.title).encode())


def write_state(simulated: Simulated, path: Path) -> None:
    """Write the cluster as it stands, for `ai-cli cluster`.

    Raises:
        RunError: The file cannot be written.
    """
    write_atomically(path, encode_pretty(simulated.state))


def read_state(path: Path) -> ClusterState:
    """Read a cluster that was written down.

    Raises:
        DataError: It cannot be read.
    """
    hint = "write one with `ai-cli simulate cluster --until 2h --state FILE`"
    return decode(ClusterState, read_bytes(path, hint=hint), where=str(path))


def explain_job(path: Path, job: str) -> Explanation:
    """Say why a job of a cluster that was written down waits.

    Raises:
        SpecError: It has no such job.
        DataError: The file cannot be read.
    """
    return explain(view_of(read_state(path), str(path)), job)
