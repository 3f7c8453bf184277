"""`ai-cli monitor`: the panel of a run in the browser, and its measures for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command(
    "monitor",
    examples=[
        "ai-cli monitor runs/quickstart",
        "ai-cli monitor runs/quickstart --port 9460",
        "ai-cli monitor runs/quickstart --host 0.0.0.0",
        "ai-cli monitor runs/quickstart --stack",
    ],
)
@run_argument
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9460, help="Port of the page; 0 = any free."
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. One that other machines reach needs CNAI_MONITOR_TOKEN.",
)
@click.option("--with-parent", is_flag=True, help="End when stdin ends, too.")
@click.option(
    "--stack",
    is_flag=True,
    help="Also start what is installed of Prometheus, Alertmanager and Grafana, wired to this run.",
)
def verb(out: Output, run: Path, port: int, host: str, *, with_parent: bool, stack: bool) -> None:
    """Show a run in the browser and serve /metrics, until Ctrl-C.

    The run may be training, over, or copied from elsewhere. On another address than this
    machine's own, visitors need the token in the environment variable CNAI_MONITOR_TOKEN: they
    open the page with ?token=TOKEN, and Prometheus sends it as a bearer token.
    """
    from functools import partial

    from cnai.core.errors import SpecError
    from cnai.core.runfolder import RunFolder
    from cnai.flows.panel import show_panel
    from cnai.flows.stack import stack_beside

    def tell(url: str, others: dict[str, str]) -> None:
        out.record({"url": url, "metrics": f"{url}metrics", **others})
        out.note(f"panel of {run} at {url}, metrics at {url}metrics; Ctrl-C ends it")

    if stack and host != "127.0.0.1":
        raise SpecError(
            f"the stack is for this machine alone, and the panel listens on {host}",
            where="--stack",
            hint="leave --host out; for other machines take `ai-cli dashboards export`",
        )
    folder = RunFolder.existing(run)
    beside = partial(stack_beside, folder, tell=out.note) if stack else None
    show_panel(folder, port, host=host, with_parent=with_parent, beside=beside, on_ready=tell)
