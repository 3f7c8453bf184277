"""`ai-cli diagnose`: where a run broke, why, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cnai.cli.framework import command
from cnai.cli.options import yes_flag
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.events import Repair
    from cnai.diagnose import Diagnosis

FAULT, UNKNOWN = 10, 11


@command(
    "diagnose",
    examples=[
        "ai-cli diagnose runs/quickstart",
        "ai-cli diagnose rank-0.log rank-1.log dmesg.txt",
        "ai-cli diagnose - < train.log",
        "ai-cli diagnose --explain gpu_oom",
    ],
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--top", type=click.IntRange(min=1), default=3, help="Classes of fault to name.")
@click.option("--explain", metavar="CLASS", help="Tell what a class means and what mends it.")
@click.option("--apply", is_flag=True, help="Show the change of the spec, ask, and write it.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the page of a run's incident.")
@click.option("--follow", is_flag=True, help="Watch a run, and tell when the diagnosis changes.")
@yes_flag
def verb(
    out: Output,
    paths: tuple[Path, ...],
    *,
    top: int,
    explain: str | None,
    apply: bool,
    html: Path | None,
    follow: bool,
    yes: bool,
) -> int:
    """Find where a run broke, the class of the fault, and repairs.

    PATHS is a run folder, or logs of any launcher: files, folders, `.gz`, `-` for stdin. The exit
    code is 0 when all is healthy, 10 when a fault was found, 11 when it is one that is not known.
    """
    from cnai.flows.diagnose import diagnose

    if explain is not None:
        _explain(out, explain)
        return 0
    found = _followed(out, paths) if follow else diagnose(paths, top=top)
    if html is not None:
        _write_page(out, paths, html)
    if not apply:
        out.record(found)
    _show(out, found, top)
    if apply:
        _apply(out, found, paths, yes=yes)
    return {"healthy": 0, "fault": FAULT}.get(str(found.verdict), UNKNOWN)


def _followed(out: Output, paths: tuple[Path, ...]) -> Diagnosis:
    from cnai.flows.diagnose import follow_run, only_run

    return follow_run(only_run(paths, "--follow"), tell=out.note)


def _write_page(out: Output, paths: tuple[Path, ...], html: Path) -> None:
    from cnai.flows.diagnose import only_run
    from cnai.flows.incident import write_incident

    write_incident(only_run(paths, "--html"), html)
    out.note(f"the page of the incident is in `{html}`")


def _show(out: Output, found: Diagnosis, top: int) -> None:
    out.text(f"{found.verdict}: {found.summary}")
    if found.root_line is not None:
        out.detail(f"at {found.root_line.file}:{found.root_line.number}")
    for other in found.top[1:top]:
        out.detail(f"or {other.fault} ({other.confidence:.0%})")
    for reason in found.evidence:
        out.detail(reason)
    for repair in found.repairs:
        out.text(_told(repair))
    if found.action is not None:
        out.text(f"action: {found.action}")


def _told(repair: Repair) -> str:
    parts = [f"- {repair.title}"]
    if repair.spec_patch:
        parts.append("; ".join(f"{key}: {value}" for key, value in repair.spec_patch.items()))
    if repair.command:
        parts.append(repair.command)
    return ": ".join(parts)


def _explain(out: Output, name: str) -> None:
    from cnai.diagnose import fault_of

    fault = fault_of(name)
    titles = [one.title.replace("{place}", "") for one in fault.repairs]
    out.record({"class": name, "group": fault.group, "meaning": fault.meaning,
                "action": fault.action, "near": list(fault.near),
                "repairs": titles})  # fmt: skip
    out.text(f"{name} ({fault.group}): {fault.meaning}")
    for title in titles:
        out.text(f"- {title}")
    out.text(f"action: {fault.action}; often taken for: {', '.join(fault.near)}")


def _apply(out: Output, found: Diagnosis, paths: tuple[Path, ...], *, yes: bool) -> None:
    from cnai.flows.diagnose import propose, write_proposal

    proposal = propose(found, paths)
    for change in proposal.changes:
        out.note(f"{change.key}: {change.before} -> {change.after}")
    out.confirm(f"Write these changes to `{proposal.target}`?", yes=yes)
    write_proposal(proposal)
    out.record({"diagnosis": found, "spec": str(proposal.target),
                "changes": [change.to_dict() for change in proposal.changes]})  # fmt: skip
    if not proposal.goes_on:
        out.note(f"it starts anew as `{proposal.spec.name}`: these keys change what is trained")
    out.next("ai-cli run", proposal.target)
