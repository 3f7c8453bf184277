"""A plan and its rivals as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cnai.cli.output import Output
from cnai.core.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from cnai.core.layout import ParallelPlan
    from cnai.flows.plan import Bill
    from cnai.plan import Candidate
    from cnai.plan.sensitivity import Change


def show_plan(out: Output, plan: ParallelPlan) -> None:
    """Print a plan for people."""
    layout = plan.layout
    out.text(
        f"layout    {layout} = {layout.ranks} ranks"
        + (f", split from layer {layout.split_layer}" if layout.model > 1 else "")
    )
    out.text(
        f"batch     {plan.global_batch} sequences = {layout.data} x {plan.microbatches} "
        f"micro-batches x {plan.microbatch_rows}"
    )
    if layout.context > 1:
        out.text(f"context   each of {layout.context} ranks has a part of every sequence")
    if layout.expert > 1:
        out.text(f"experts   each of {layout.expert} ranks holds a part of every layer's experts")
    out.text(f"schedule  {plan.schedule}; parameters shared out over data ranks: {plan.sharding}")
    if plan.estimate is not None:
        out.text(f"step      about {format_seconds(plan.estimate.step_seconds)} (estimate)")
    out.table(
        ["stage", "layers", "parameters", "weights", "gradients", "optimizer", "activations",
         "overhead", "total a rank" if plan.virtual == 1 else "total"],
        [
            [
                str(stage.index) + (f" (rank {plan.owner_of(stage.index)})" * (plan.virtual > 1)),
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
    if not candidates:
        return
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


def show_bill(out: Output, bill: Bill | None) -> None:
    """Print what the whole run costs, if that is known."""
    if bill is None:
        return
    money = f", about ${bill.dollars:,.0f}" if bill.dollars else ""
    power = f", {bill.kilowatt_hours:,.0f} kWh" if bill.kilowatt_hours else ""
    out.text(
        f"run       {bill.days:,.2f} days, {bill.device_hours:,.1f} device hours{money}{power}"
    )


def show_changes(out: Output, changes: tuple[Change, ...]) -> None:
    """Print what other machines would bring."""
    if not changes:
        return
    out.table(
        ["with", "step", "throughput"],
        [
            [one.what, format_seconds(one.step_seconds), f"{100 * (one.gain - 1):+.1f} %"]
            for one in changes
        ],
    )


def show_timeline(out: Output, plan: ParallelPlan) -> None:
    """Draw the passes of a step, a line for each place of the pipeline."""
    from cnai.plan.timeline import picture

    out.text("a step: forward 0-9, backward a-j (the last digit of the microbatch), idle .")
    for place, line in enumerate(picture(plan)):
        out.text(f"{place:>3} {line}")
