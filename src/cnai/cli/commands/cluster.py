"""`ai-cli cluster`: how a cluster stands, and why a job waits."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import CONTEXT, Topic, command
from cnai.cli.output import Output

state_option = click.option(
    "--state",
    type=click.Path(path_type=Path),
    default="state.json",
    help="A cluster written down by `ai-cli simulate cluster`.",
)


@click.group(
    "cluster",
    cls=Topic,
    context_settings=CONTEXT,
    epilog="ai-cli cluster explain job-17 --state state.json",
)
def verb() -> None:
    """Look at a cluster that was written down."""


@command("status", examples=["ai-cli cluster status --state state.json"])
@state_option
def status(out: Output, state: Path) -> None:
    """List the jobs of a cluster: who runs where, who waits."""
    from cnai.core.units import format_seconds
    from cnai.flows.simulate import read_state

    found = read_state(state)
    out.record(found)
    gpus = sum(node.gpus for node in found.nodes)
    held = sum(len(slot.gpus) * job.demand.gpu_milli for job in found.jobs for slot in job.slots)
    waiting = sum(not job.slots for job in found.jobs)
    out.note(f"{held / 1000:g} of {gpus} GPUs are held; {waiting} of {len(found.jobs)} jobs wait")
    columns = ["job", "state", "workers", "queue", "phase", "since", "nodes"]
    out.table(columns, [
        (
            job.name, "running" if job.slots else "waiting",
            f"{sum(slot.workers for slot in job.slots)}/{job.workers}", job.queue or "-", job.phase,
            format_seconds(max(found.now - job.since, 0.0)),
            " ".join(found.nodes[slot.node].name for slot in job.slots) or "-",
        )
        for job in found.jobs
    ])  # fmt: skip


@command("explain", examples=["ai-cli cluster explain job-17 --state state.json"])
@click.argument("job")
@state_option
def explain(out: Output, job: str, state: Path) -> None:
    """Say why a job waits, who holds what it needs, and what would let it start."""
    from cnai.core.units import format_seconds
    from cnai.flows.simulate import explain_job

    found = explain_job(state, job)
    out.record(found)
    out.text(f"{found.job} is {found.state} ({found.code}): {found.message}")
    if found.blockers:
        out.text(f"held by   {', '.join(found.blockers)}")
    if found.state == "waiting":
        estimate = found.start_in_seconds
        out.text(f"starts in {'never, as it is' if estimate is None else format_seconds(estimate)}")
    if found.change:
        out.hint(found.change)


verb.add_command(status)
verb.add_command(explain)
