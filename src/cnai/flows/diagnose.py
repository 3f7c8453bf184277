"""`ai-cli diagnose`: where a run broke, why, and the repair."""

from __future__ import annotations

from cnai.core.runfolder import RunFolder
from cnai.diagnose import Diagnosis, diagnose_run


def diagnose(run: RunFolder) -> Diagnosis:
    """Find the root of what ended a run, from its events and logs."""
    return diagnose_run(run)
