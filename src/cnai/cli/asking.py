"""Show the plan and ask, before anything costs time or money."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cnai.cli.options import read_spec
from cnai.cli.output import Output
from cnai.cli.plan_page import show_plan
from cnai.core.records import to_dict

if TYPE_CHECKING:
    from cnai.core.layout import ParallelPlan
    from cnai.core.spec import RunSpec


def spec_to_train(spec: Path, sets: tuple[str, ...], *, on: str | None, fresh: bool) -> RunSpec:
    """Read a spec that is to be trained, with the layout that `ai-cli scale` chose for its run.

    Raises:
        SpecError: Something is wrong in it, or its run folder has been moved.
    """
    from cnai.flows.folder import check_place
    from cnai.flows.scale import scaled_spec

    loaded = read_spec(spec, (*sets, *([f"resources.on={on}"] if on else [])))
    check_place(loaded.path, loaded.spec)
    return loaded.spec if fresh else scaled_spec(loaded.spec)


def planned(out: Output, spec: RunSpec, *, yes: bool, dry_run: bool) -> ParallelPlan | None:
    """Return the plan that the user agreed to; None when only the plan was wanted.

    Raises:
        PlanError: Nothing fits the machines.
        SpecError: Nobody is there to ask.
        click.Abort: The user said no.
    """
    from cnai.flows.here import check_is_here
    from cnai.flows.plan import plan_run
    from cnai.flows.shape import steps_of

    plan = plan_run(spec)
    if not dry_run:
        check_is_here(spec)
    if dry_run:
        out.record(to_dict(plan))
        show_plan(out, plan)
        return None
    if not yes and out.interactive:
        show_plan(out, plan)
    question = f"Train `{spec.name}` for {steps_of(spec)} steps on {plan.layout.ranks} ranks?"
    out.confirm(question, yes=yes)
    return plan
