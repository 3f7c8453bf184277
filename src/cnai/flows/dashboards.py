"""`ai-cli dashboards`: files for Prometheus, Grafana and clusters, written into a folder."""

from __future__ import annotations

from pathlib import Path

from cnai.core.files import saving, write_atomically
from cnai.monitor.stack import stack_files


def export_stack(folder: Path) -> list[str]:
    """Write the files and return their paths inside the folder.

    Raises:
        RunError: The folder cannot be written.
    """
    files = stack_files()
    for name, content in files.items():
        path = folder / name
        with saving(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return list(files)
