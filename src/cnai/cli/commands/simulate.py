"""`ai-cli simulate`: what would happen, without a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import CONTEXT, Topic, command
from cnai.cli.options import DURATION
from cnai.cli.output import Output


@click.group(
    "simulate",
    cls=Topic,
    context_settings=CONTEXT,
    epilog="ai-cli simulate cluster --policy cnai,fifo",
)
def verb() -> None:
    """Play a cluster with made-up time: which policy serves these jobs best."""


@command(
    "cluster",
    examples=[
        "ai-cli simulate cluster",
        "ai-cli simulate cluster --trace synthetic:2000 --cluster 16x8 --policy cnai,las,fifo",
        "ai-cli simulate cluster --until 6h --state state.json",
    ],
)
@click.option("--trace", default="synthetic", help="A CSV table of jobs, or synthetic[:JOBS].")
@click.option("--cluster", default="8x8", help="A CSV table of nodes, GPUs, or NODESxGPUS.")
@click.option("--policy", default="cnai,backfill,fifo", help="Policies to compare, with commas.")
@click.option("--curves", type=click.Path(path_type=Path), help="Folder of scaling curves.")
@click.option("--start", metavar="DATE", help="First day of a trace with dates.")
@click.option("--end", metavar="DATE", help="Last day of a trace with dates.")
@click.option("--seed", default=0, help="Of made-up jobs and of policies that draw.")
@click.option("--restart-cost", type=DURATION, default="30s", help="What a stop costs a job.")
@click.option("--until", type=DURATION, help="Leave it as it stands then, instead of at its end.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a page with pictures.")
@click.option("--state", type=click.Path(path_type=Path), help="Write how the last policy stands.")
def cluster(
    out: Output, trace: str, cluster: str, policy: str, curves: Path | None, start: str | None,
    end: str | None, seed: int, restart_cost: float, until: float | None, report: Path | None,
    state: Path | None,
) -> None:  # fmt: skip
    """Compare policies on a trace, or on made-up jobs."""
    from cnai.cli.screen import screen
    from cnai.flows.simulate import SimulationRequest, simulate, write_report, write_state
    from cnai.schedule.simulation.report import rows

    request = SimulationRequest(
        trace=trace, cluster=cluster, curves=curves, start=start, end=end, seed=seed,
        policies=tuple(name.strip() for name in policy.split(",") if name.strip()),
        restart_seconds=restart_cost, until_seconds=float("inf") if until is None else until,
    )  # fmt: skip
    with screen(out) as listener:
        simulated = simulate(request, listener.fraction)
    if report:
        write_report(simulated, report)
    if state:
        write_state(simulated, state)
    out.record({
        "title": simulated.title,
        "policies": {one.policy: one.summary() for one in simulated.outcomes},
    })  # fmt: skip
    out.note(simulated.title)
    out.table(*rows(simulated.outcomes))
    if state:
        out.next("ai-cli cluster status --state", state)
    elif report:
        out.note(f"pictures are in {report}")


verb.add_command(cluster)
