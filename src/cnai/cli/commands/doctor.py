"""`ai-cli doctor`: whether this machine is ready."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.output import Output
from cnai.core.errors import RunError


@command("doctor", examples=["ai-cli doctor", "ai-cli doctor --json"])
@click.option(
    "--output",
    default="runs",
    type=click.Path(path_type=Path),
    help="Folder in which the runs will lie.",
)
def verb(out: Output, output: Path) -> int:
    """Check that this machine is ready.

    Each line is ok, warn (it works, with less) or fail (it does not), with a repair. The exit
    code is 5 when one fails.
    """
    from cnai.cli.machine import Outcome, examine

    checks = examine(output)
    failed = [check for check in checks if check.outcome is Outcome.FAIL]
    out.record({"ok": not failed, "checks": checks})
    out.table(
        ["", "check", "found", "repair"],
        [(str(check.outcome), check.name, check.found, check.repair) for check in checks],
    )
    return RunError.exit_code if failed else 0
