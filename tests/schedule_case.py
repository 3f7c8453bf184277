"""Small clusters and jobs for the tests of the scheduler."""

import numpy as np

from cnai.schedule.demand import Demand
from cnai.schedule.goodput import curve_of
from cnai.schedule.jobs import JobRow
from cnai.schedule.nodes import NodeRow, Nodes
from cnai.schedule.queues import Queue, Queues
from cnai.schedule.simulation.engine import NodeEvent, SimulatedJob, SimulatedPhase, Simulation
from cnai.schedule.view import ClusterView

GPU = Demand(gpus=1)


def node(name="n", gpus=8, **more):
    return NodeRow(name=name, gpus=gpus, cpu_milli=64_000, memory_mib=2**18, **more)


def cluster(*gpus, **more):
    """Nodes with so many GPUs each."""
    return [node(f"n{place}", count, **more) for place, count in enumerate(gpus)]


def view_of(*gpus, queues=()):
    return ClusterView(nodes=Nodes(cluster(*gpus)), queues=Queues(queues))


def add(view, name, workers=1, demand=GPU, now=0.0, **more):
    return view.jobs.add(JobRow(name=name, demand=demand, workers=workers, **more), now)


def job(name, seconds, workers=1, arrives=0.0, demand=GPU, **more):
    row = JobRow(
        name=name, demand=demand, workers=workers, arrived=arrives, oracle_seconds=seconds, **more
    )
    phase = SimulatedPhase(row=row, seconds=seconds)
    return SimulatedJob(name=name, arrives=arrives, phases=(phase,))


def play(jobs, policy, *gpus, **more):
    """Simulate and return outcomes by name, and the outcome."""
    nodes = more.pop("nodes", None) or cluster(*gpus)
    outcome = Simulation(nodes=nodes, jobs=jobs, policy=policy, **more).run()
    return {one.name: one for one in outcome.jobs}, outcome


QUEUES = (
    Queue(name="all", limit_milli=20_000),
    Queue(name="red", guaranteed_milli=6_000, limit_milli=14_000, parent="all"),
    Queue(name="blue", guaranteed_milli=4_000, parent="all"),
)


def random_jobs(seed, count, *, queues=("",)):
    """Gangs, elastic gangs in units, shares of GPUs and work of the CPU alone."""
    random = np.random.default_rng(seed)
    return [_random_job(random, place, queues) for place in range(count)]


def _random_job(random, place, queues):
    kind = random.choice(["gang", "elastic", "share", "cpu", "phases"])
    seconds = float(random.lognormal(6, 1.5)) + 1
    arrives = float(random.uniform(0, 20_000))
    more = {
        "queue": str(random.choice(queues)),
        "priority": int(random.integers(0, 2)),
        "arrives": arrives,
    }
    name = f"j{place}"
    size = int(random.choice([1, 2, 4, 8]))
    if kind == "share":
        milli = int(random.choice([100, 250, 500, 810]))
        return job(name, seconds, demand=Demand(gpus=1, gpu_milli=milli, cpu_milli=500), **more)
    if kind == "cpu":
        return job(name, seconds, demand=Demand(cpu_milli=8000, memory_mib=1000), **more)
    if kind == "elastic":
        unit = int(random.choice([1, 2]))
        curve = curve_of({n: n**0.7 for n in (1, 2, 4, 8)})
        return job(
            name, seconds, max(size, unit), unit=unit, least=unit, most=8, curve=curve,
            declared_seconds=seconds, **more,
        )  # fmt: skip
    main = job(name, seconds, size, demand=Demand(gpus=1, cpu_milli=2000), **more)
    if kind == "gang":
        return main
    first = job(name, 60.0, demand=Demand(cpu_milli=1000), **more).phases[0]
    return SimulatedJob(name=name, arrives=arrives, phases=(first, *main.phases))


def random_node_events(seed, nodes, count):
    """Nodes that go and always come back."""
    random = np.random.default_rng(seed)
    events = []
    for _ in range(count):
        at, gone = float(random.uniform(0, 20_000)), float(random.uniform(10, 3000))
        which = int(random.integers(0, nodes))
        events += [NodeEvent(time=at, node=which, up=False), NodeEvent(time=at + gone, node=which, up=True)]  # fmt: skip
    return events
