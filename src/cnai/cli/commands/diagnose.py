"""`ai-cli diagnose`: where a run broke, why, and what to do."""

from __future__ import annotations

from pathlib import Path

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output

FAULT, UNKNOWN = 10, 11


@command("diagnose", examples=["ai-cli diagnose runs/quickstart"])
@run_argument
def verb(out: Output, run: Path) -> int:
    """Find where a run broke, the class of the fault, and repairs.

    The exit code is 0 when the run is healthy, 10 when a fault was found, 11 when there is one
    that is not known.
    """
    from cnai.core.runfolder import RunFolder
    from cnai.flows.diagnose import diagnose

    found = diagnose(RunFolder.existing(run))
    out.record(found)
    out.text(f"{found.verdict}: {found.summary}")
    for repair in found.repairs:
        out.text(f"- {repair.title}" + (f": {repair.command}" if repair.command else ""))
    return {"healthy": 0, "fault": FAULT}.get(str(found.verdict), UNKNOWN)
