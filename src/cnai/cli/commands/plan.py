"""`ai-cli plan`: the layout that would be built, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cnai.cli.framework import command
from cnai.cli.options import read_spec, spec_options
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.layout import ParallelPlan
    from cnai.plan import Candidate


@command(
    "plan",
    examples=["ai-cli plan run.yaml", "ai-cli plan run.yaml --all --set resources.ranks=64"],
)
@spec_options
@click.option("--all", "everything", is_flag=True, help="Show every legal layout, also rejected.")
def verb(out: Output, spec: Path, sets: tuple[str, ...], *, everything: bool) -> None:
    """Show the layout, its memory a rank and why, without starting anything."""
    from cnai.core.records import to_dict
    from cnai.flows.plan import plan_run, weigh_run

    loaded = read_spec(spec, sets).spec
    plan = plan_run(loaded)
    others = weigh_run(loaded) if everything else ()
    out.record({
        **to_dict(plan),
        "digest": plan.digest,
        "ranks": plan.layout.ranks,
        "peak_bytes": plan.peak.memory.total_bytes,
        **({"alternatives": [to_dict(other) for other in others]} if everything else {}),
    })  # fmt: skip
    show_plan(out, plan)
    if everything:
        show_candidates(out, others)
    out.next(f"ai-cli run {spec}")


def show_plan(out: Output, plan: ParallelPlan) -> None:
    """Print a plan for people."""
    from cnai.core.units import format_bytes, format_count, format_seconds

    layout = plan.layout
    out.text(
        f"layout    {layout} = {layout.ranks} ranks"
        + (f", split from layer {layout.split_layer}" if layout.model > 1 else "")
    )
    out.text(
        f"batch     {plan.global_batch} sequences = {layout.data} x {plan.microbatches} "
        f"micro-batches x {plan.microbatch_rows}"
    )
    out.text(f"schedule  {plan.schedule}; parameters shared out over data ranks: {plan.sharding}")
    if plan.estimate is not None:
        out.text(f"step      about {format_seconds(plan.estimate.step_seconds)} (estimate)")
    out.table(
        ["stage", "layers", "parameters", "weights", "gradients", "optimizer", "activations",
         "overhead", "total a rank"],
        [
            [
                str(stage.index),
                f"{stage.first_layer}-{stage.end_layer - 1}",
                format_count(stage.parameters),
                *(
                    format_bytes(size)
                    for size in (
                        stage.memory.weight_bytes,
                        stage.memory.gradient_bytes,
                        stage.memory.optimizer_bytes,
                        stage.memory.activation_bytes,
                        stage.memory.overhead_bytes,
                        stage.memory.total_bytes,
                    )
                ),
            ]
            for stage in plan.stages
        ],
    )  # fmt: skip
    for reason in plan.reasons:
        out.text(f"- {reason}")


def show_candidates(out: Output, candidates: tuple[Candidate, ...]) -> None:
    """Print every legal layout, best first."""
    from cnai.core.units import format_bytes, format_seconds

    out.table(
        ["layout", "micro-batches", "sharding", "step", "memory a rank", "verdict"],
        [
            [
                str(one.plan.layout),
                str(one.plan.microbatches),
                str(one.plan.sharding),
                format_seconds(one.estimate.step_seconds) if one.estimate else "?",
                format_bytes(one.needed_bytes),
                one.rejected or "fits",
            ]
            for one in candidates
        ],
    )
