"""The stages with which each run begins, and all that `ai-cli train` does: pack text and train.

Apart from the rest of the chain because this process needs no torch for them; only its ranks do.
"""

from __future__ import annotations

from cnai.core.dataset import Dataset, DatasetManifest, IndexedDataset
from cnai.core.errors import DataError
from cnai.core.layout import ParallelPlan
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec, is_free
from cnai.data import load_manifest
from cnai.flows.data import prepare_data, store_of
from cnai.flows.listener import Listener
from cnai.flows.shape import steps_of
from cnai.flows.stages import Stages, written
from cnai.flows.train import TrainResult, train_run
from cnai.train.manifest import verify_checkpoint


class Beginning:
    """The stages `data` and `train` of one run."""

    def __init__(
        self, spec: RunSpec, run: RunFolder, listener: Listener, stages: Stages | None = None
    ) -> None:
        self._spec = spec
        self._run = run
        self._listener = listener
        self._stages = stages or Stages(run, listener)

    def data(self) -> Dataset:
        """Pack the text, or take what is packed: a run stays with the text that it began with."""
        spec = self._spec
        kind: type[Dataset] = IndexedDataset if spec.data.function else DatasetManifest
        return self._stages.run(
            "data",
            kind,
            [written(spec.data), written(spec.model)],
            lambda: prepare_data(spec, self._run, self._listener),
            still_good=self._is_stored,
        )

    def train(self, plan: ParallelPlan, manifest: Dataset) -> TrainResult:
        """Train to the last step."""
        free = {name for name in type(self._spec.train).model_fields if is_free(f"train.{name}")}
        settings = {k: v for k, v in written(self._spec.train).items() if k not in free}
        return self._stages.run(
            "train",
            TrainResult,
            [manifest.digest, settings],
            lambda: train_run(self._spec, self._run, plan, manifest, self._listener),
            still_good=lambda _: self._is_trained(),
        )

    def _is_stored(self, manifest: Dataset) -> bool:
        if isinstance(manifest, IndexedDataset):
            return True  # the ranks look at it before they read
        try:
            load_manifest(store_of(self._spec, self._run), manifest.digest)
        except DataError as error:
            self._listener.warn(f"{error.message}; packing the text again")
            return False
        return True

    def _is_trained(self) -> bool:
        try:
            verify_checkpoint(self._run.checkpoint(steps_of(self._spec)))
        except DataError as error:
            self._listener.warn(f"{error.message}; training goes on from an earlier checkpoint")
            return False
        return True
