"""`ai-cli export`: a checkpoint of any run as a folder that others load."""

from __future__ import annotations

from pathlib import Path

from cnai.core.artifact import Artifact
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import SpecError
from cnai.core.runfolder import RunFolder
from cnai.flows.compress import export_run
from cnai.flows.data import store_of
from cnai.flows.folder import spec_of
from cnai.flows.stages import recorded


def export_again(run: RunFolder, target: Path, *, step: int | None) -> Artifact:
    """Write a checkpoint of a finished or running run, the newest one unless a step is named.

    Raises:
        SpecError: The model is a module of the user, or the target holds other files.
        DataError: The run has no data or no such checkpoint yet, or it is damaged.
        RunError: The target cannot be written.
    """
    spec = spec_of(run)
    if spec.model.module is not None:
        raise SpecError(
            f"the model is a module of your own (`{spec.model.module}`), which has no layout that "
            "others load",
            where="model.module",
            hint="load the weights with `cnai.train.checkpoint.load_weights`",
        )
    manifest = recorded(run, "data", DatasetManifest)
    return export_run(spec, run, manifest, store_of(spec, run), step=step, target=target)
