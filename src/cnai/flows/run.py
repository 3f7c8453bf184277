"""`ai-cli run`: the whole chain, from text to an answer of the compressed model.

Stages that an earlier command finished are not done again. What each found lies in `results/` of
the run folder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cnai.compress import read_artifact
from cnai.core.artifact import Artifact
from cnai.core.dataset import Dataset, DatasetManifest
from cnai.core.errors import DataError
from cnai.core.layout import ParallelPlan
from cnai.core.records import decode
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec
from cnai.flows.beginning import Beginning
from cnai.flows.compress import compress_run, export_run
from cnai.flows.data import reader_of_run, store_of
from cnai.flows.evaluate import Evaluation, evaluate_run
from cnai.flows.listener import Listener
from cnai.flows.serve import Answer, answer_once
from cnai.flows.shape import steps_of
from cnai.flows.stages import Stages, written
from cnai.flows.train import TrainResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What a whole run found, and where it lies.

    Attributes:
        layout: The layout that trained last.
        model: The exported model in float32; None for a user's own module, as the two below.
        sizes_bytes: Weight files of each model by its precision.
        stage_seconds: Time of each stage when it was really done.
    """

    run: str
    layout: str
    train: TrainResult
    evaluation: Evaluation
    model: Artifact | None
    compressed: Artifact | None
    answer: Answer | None
    sizes_bytes: dict[str, int]
    stage_seconds: dict[str, float]

    @property
    def servable(self) -> str | None:
        """The smallest model that can be served."""
        best = self.compressed or self.model
        return best.path if best else None


def weights_bytes(artifact: Artifact) -> int:
    """Return the size of the weight files of a model, without tokenizer and configuration."""
    return sum(f.size_bytes for f in artifact.files if f.name.endswith(".safetensors"))


def run_chain(spec: RunSpec, run: RunFolder, plan: ParallelPlan, listener: Listener) -> RunSummary:
    """Do every stage that the spec enables and that is not done yet.

    Raises:
        CnaiError: The first stage that fails; the finished ones are kept.
    """
    return Chain(spec, run, listener).go(plan)


class Chain:
    """The stages of one run in their order."""

    def __init__(self, spec: RunSpec, run: RunFolder, listener: Listener) -> None:
        self._spec = spec
        self._run = run
        self._listener = listener
        self._stages = Stages(run, listener)
        self._beginning = Beginning(spec, run, listener, self._stages)

    def go(self, plan: ParallelPlan) -> RunSummary:
        """Run the chain."""
        manifest = self._beginning.data()
        trained = self._beginning.train(plan, manifest)
        evaluation = self._evaluate(manifest)
        model = compressed = answer = None
        if isinstance(manifest, DatasetManifest) and self._has_layout():
            model = self._export(manifest)
            compressed = self._compress(manifest) if self._spec.compress.enabled else None
            answer = self._answer(compressed or model) if self._spec.serve.enabled else None
        return RunSummary(
            run=str(self._run.root),
            layout=self._trained_layout(),
            train=trained,
            evaluation=evaluation,
            model=model,
            compressed=compressed,
            answer=answer,
            sizes_bytes={
                str(one.precision): weights_bytes(one) for one in (model, compressed) if one
            },
            stage_seconds=self._stages.seconds,
        )

    def _evaluate(self, manifest: Dataset) -> Evaluation:
        return self._stages.run(
            "evaluate",
            Evaluation,
            [self._spec.compress.validation_sequences],
            lambda: evaluate_run(
                self._spec,
                self._run,
                manifest,
                reader_of_run(self._spec, self._run, manifest),
                step=steps_of(self._spec),
            ),
        )

    def _export(self, manifest: DatasetManifest) -> Artifact:
        artifact = self._stages.run(
            "export",
            Artifact,
            [],
            lambda: export_run(
                self._spec,
                self._run,
                manifest,
                store_of(self._spec, self._run),
                step=steps_of(self._spec),
            ),
            still_good=self._is_whole,
        )
        return replace(artifact, path=str(self._folder_of(artifact)))

    def _compress(self, manifest: DatasetManifest) -> Artifact:
        artifact = self._stages.run(
            "compress",
            Artifact,
            written(self._spec.compress),
            lambda: compress_run(
                self._spec, self._run, reader_of_run(self._spec, self._run, manifest)
            ),
            still_good=self._is_whole,
        )
        return replace(artifact, path=str(self._folder_of(artifact)))

    def _answer(self, artifact: Artifact) -> Answer:
        serve = self._spec.serve
        return self._stages.run(
            "serve",
            Answer,
            [serve.prompt, serve.max_tokens],
            lambda: answer_once(Path(artifact.path), serve.prompt, serve.max_tokens),
        )

    def _has_layout(self) -> bool:
        if self._spec.model.module is None:
            return True
        if self._spec.compress.enabled or self._spec.serve.enabled:
            self._listener.warn(
                "a module of your own is trained and evaluated, but not compressed or served; "
                "set `compress.enabled: false` and `serve.enabled: false` to say so"
            )
        return False

    def _trained_layout(self) -> str:
        plan_file = self._run.plan_file
        return str(decode(ParallelPlan, plan_file.read_bytes(), where=str(plan_file)).layout)

    def _folder_of(self, artifact: Artifact) -> Path:
        """Where an artifact lies now: the run folder may have been moved since it was made."""
        return self._run.artifacts / Path(artifact.path).name

    def _is_whole(self, artifact: Artifact) -> bool:
        try:
            read_artifact(self._folder_of(artifact))
        except DataError as error:
            self._listener.warn(f"{error.message}; making it again")
            return False
        return True
