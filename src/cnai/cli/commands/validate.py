"""`ai-cli validate`: proof for a plan, rung by rung, before the machines are paid for."""

from __future__ import annotations

from pathlib import Path

from cnai.cli.framework import command
from cnai.cli.options import read_spec, spec_options
from cnai.cli.output import Output


@command(
    "validate",
    examples=["ai-cli validate run.yaml", "ai-cli validate run.yaml --set resources.nodes=64"],
)
@spec_options
def verb(out: Output, spec: Path, sets: tuple[str, ...]) -> None:
    """Prove a plan step by step: on paper, in a small copy, without memory.

    The small copy has the same axes, two ranks each, as processes of this machine; the full model
    is then built without memory. A rung is only climbed when the one below it holds. What needs
    machines that are not here is planned, with its gates and its price. The evidence and a page
    for the browser are kept in NAME-validate beside the runs.
    """
    from cnai.cli.screen import screen
    from cnai.core.errors import PlanError
    from cnai.core.files import write_atomically
    from cnai.flows.ladder_page import page, verdict_of
    from cnai.flows.validate import validate_run

    loaded = read_spec(spec, sets).spec
    with screen(out) as listener:
        ladder = validate_run(loaded, listener)
    report = Path(ladder.folder) / "report.html"
    write_atomically(report, page(ladder).encode())
    out.record(ladder)
    for rung in ladder.rungs:
        took = f" in {rung.seconds:.1f} s" if rung.seconds else ""
        cost = f" ({rung.cost})" if rung.cost else ""
        out.text(f"rung {rung.number}, {rung.name}: {rung.status}{took}{cost}")
        if rung.gates:
            out.table(
                ["gate", "expected", "found", "verdict"],
                [
                    [gate.name, gate.expected, gate.measured, verdict_of(gate, rung.status)]
                    for gate in rung.gates
                ],
            )
    out.note(f"report in {report}")
    for gate in ladder.failed[:1]:
        raise PlanError(
            f"{gate.name}: expected {gate.expected}, found {gate.measured}",
            where=str(report),
            hint=gate.hint or "see the report",
        )
