"""`ai-cli dashboards`: rules and dashboards for the servers that watch runs."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import Topic, command
from cnai.cli.output import Output

verb = Topic("dashboards", help="Rules and dashboards for Prometheus, Grafana and clusters.")


@command(
    "export",
    examples=["ai-cli dashboards export", "ai-cli dashboards export --dir monitoring"],
)
@click.option(
    "--dir",
    "folder",
    default="deploy",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder to write into; files of the same names are replaced.",
)
def export_verb(out: Output, folder: Path) -> None:
    """Write alert rules, dashboards, provisioning files and what a cluster needs."""
    from cnai.flows.dashboards import export_stack

    files = export_stack(folder)
    out.record({"folder": str(folder), "files": files})
    out.table(["file"], [[str(folder / name)] for name in files])


verb.add_command(export_verb)
