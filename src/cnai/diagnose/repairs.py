"""What to do about a fault: the table's advice with this run's own paths."""

from __future__ import annotations

from pathlib import Path

from cnai.core.events import Repair
from cnai.core.runfolder import RunFolder
from cnai.diagnose.faults import TRY_AGAIN, Advice, faults

_AGAIN_FIRST = frozenset({"killed", "preempted", "user_abort"})
_AGAIN_TOO = frozenset({"disk_full", "host_oom", "port_in_use"})
_ALREADY_AGAIN = "ai-cli run {spec}"


def repairs_for(
    fault: str | None,
    run: RunFolder,
    *,
    frame: str | None = None,
    hint: str | None = None,
    recovered: bool = False,
) -> tuple[Repair, ...]:
    """Return the repairs of a fault in a run, best first.

    Args:
        fault: The class, None when it is not known.
        run: Its paths and checkpoints are named.
        frame: `FILE:LINE` of the user's code.
        hint: The repair that the error itself proposed.
        recovered: The run went on, so that it need not be run again.
    """
    own = (Repair(title=hint),) if hint else ()
    if fault is None:
        return own + (() if recovered else (_again(run),))
    known_fault = faults()[fault]
    advice = [
        one for one in known_fault.repairs if one.safe or one.command != _ALREADY_AGAIN
    ]  # fmt: skip
    known = tuple(filled(one, run=run.root, spec=run.spec_file, frame=frame) for one in advice)
    helps = (known_fault.action in TRY_AGAIN and fault != "ckpt_corrupt") or fault in _AGAIN_TOO
    again = (_again(run),) if helps and not recovered else ()
    return own + (again + known if fault in _AGAIN_FIRST else known + again)


def filled(
    advice: Advice, *, run: Path | None, spec: Path | None, frame: str | None = None
) -> Repair:
    """Fill the paths into an advice; a command whose path is not known is left out."""
    words = {
        "{place}": f" at {frame}" if frame else "",
        "{run}": None if run is None else str(run),
        "{spec}": None if spec is None else str(spec),
    }
    title, command = advice.title, advice.command
    for word, value in words.items():
        title = title.replace(word, value or "")
        if command is not None and word in command:
            command = None if value is None else command.replace(word, value)
    return Repair(title=title, command=command, spec_patch=advice.patch, safe=advice.safe)


def _again(run: RunFolder) -> Repair:
    steps = run.checkpoint_steps()
    place = f"from the checkpoint of step {steps[-1]}" if steps else "from the start"
    return Repair(
        title=f"run it again; it goes on {place}", command=f"ai-cli run {run.spec_file}", safe=True
    )
