"""Which model folder a user means by a path."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder
from cnai.core.spec.sections import Serve
from cnai.flows.folder import spec_of


def serving_of(path: Path) -> Serve:
    """Return how the run at a path wants to be served; the defaults for a mere model folder."""
    run = RunFolder(path)
    return spec_of(run).serve if run.events.is_dir() and run.spec_file.is_file() else Serve()


def servable(path: Path) -> Path:
    """Return a model folder: the path itself, or the smallest model of the run at the path.

    Raises:
        DataError: There is no such path, or the run has no model yet.
    """
    if not path.exists():
        raise DataError(
            f"no model at `{path}`",
            where=str(path),
            hint="give a model folder or a run folder; list the runs with `ai-cli runs`",
        )
    run = RunFolder(path)
    if not run.events.is_dir():
        return path
    for name in ("model-int8", "model"):
        folder = run.artifacts / name
        if folder.is_dir():
            return folder
    raise DataError(
        f"run `{run.name}` has no model yet",
        where=str(run.artifacts),
        hint=f"finish it with `ai-cli run {run.spec_file}`",
    )
