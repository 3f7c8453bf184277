"""`ai-cli scale`: other parallel sizes for a run, living or not."""

from __future__ import annotations

from pathlib import Path

from cnai.cli.framework import command
from cnai.cli.options import run_argument, set_option
from cnai.cli.output import Output


@command("scale", examples=["ai-cli scale runs/quickstart --set parallel.data_parallel.size=4"])
@run_argument
@set_option
def verb(out: Output, run: Path, sets: tuple[str, ...]) -> None:
    """Change the layout of a run: at its next step if it is alive, else at its next start.

    Any key of `parallel` may be set, and `resources.ranks`. The curve goes on as it was; sizes that
    `ai-cli plan` would refuse leave the run as it is.
    """
    from cnai.core.errors import SpecError
    from cnai.core.runfolder import RunFolder
    from cnai.flows.scale import scale_run

    if not sets:
        raise SpecError(
            "nothing is to be changed",
            where="--set",
            hint="name a size, for instance `--set parallel.data_parallel.size=4`",
        )
    scaled = scale_run(RunFolder.existing(run), sets)
    out.record(scaled)
    change = f"{scaled.before or 'not started'} -> {scaled.after}"
    if scaled.process is None:
        out.text(f"{change} when run {run} is started again")
    else:
        out.text(f"{change}: asked process {scaled.process}, which changes over after its step")
        out.next("ai-cli watch", run)
