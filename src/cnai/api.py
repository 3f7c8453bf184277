"""The public Python API: the verbs as functions.

    from cnai import api

    spec = {"model": {"layers": 4}, "parallel": {"data_parallel": {"size": 2}}}
    plan = api.plan(spec)
    summary = api.run(spec | {"name": "first"})
    api.serve(summary.servable, port=8000)

They are functions of a module of their own because packages of the same names exist. Each raises a
`cnai.core.errors.CnaiError` with a hint, and none prints or asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cnai.core.errors import SpecError
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec, load_spec
from cnai.flows.listener import Listener, Silence

if TYPE_CHECKING:
    from cnai.compress import CompressionReport
    from cnai.core.artifact import Artifact
    from cnai.core.layout import ParallelPlan
    from cnai.diagnose import Diagnosis
    from cnai.flows.evaluate import Evaluation
    from cnai.flows.run import RunSummary
    from cnai.flows.scale import Scaled
    from cnai.flows.train import TrainResult

Source = Path | str | Mapping[str, Any] | RunSpec

__all__ = [
    "diagnose",
    "evaluate",
    "export",
    "plan",
    "quantize",
    "run",
    "scale",
    "serve",
    "spec",
    "train",
]


def spec(source: Source, *, sets: Sequence[str] = ()) -> RunSpec:
    """Load and check a spec.

    Args:
        source: A YAML or JSON file, the same keys as a dict, or a spec.
        sets: `a.b=c` each, laid over it.
    """
    if isinstance(source, RunSpec):
        return source
    if not isinstance(source, str | Path | Mapping):
        raise SpecError(
            f"a spec is a file, a dict or a RunSpec, not {type(source).__name__}",
            where="spec",
            hint="give the path of a YAML file, or its keys as a dict",
        )
    return load_spec(source, sets=sets).spec


def plan(source: Source) -> ParallelPlan:
    """Check or choose the parallel layout; starts nothing and needs no torch."""
    from cnai.flows.plan import plan_run

    return plan_run(spec(source))


def train(source: Source, *, fresh: bool = False, listener: Listener | None = None) -> TrainResult:
    """Train to the last step, or go on with an interrupted training."""
    from cnai.flows.beginning import Beginning
    from cnai.flows.folder import opened_run

    chosen = _at_its_size(spec(source), fresh=fresh)
    layout = plan(chosen)
    with opened_run(chosen, fresh=fresh) as folder:
        beginning = Beginning(chosen, folder, listener or Silence())
        return beginning.train(layout, beginning.data())


def run(source: Source, *, fresh: bool = False, listener: Listener | None = None) -> RunSummary:
    """Do the whole chain: plan, data, train, evaluate, compress, serve one request."""
    from cnai.flows.folder import opened_run
    from cnai.flows.run import run_chain

    chosen = _at_its_size(spec(source), fresh=fresh)
    layout = plan(chosen)
    with opened_run(chosen, fresh=fresh) as folder:
        return run_chain(chosen, folder, layout, listener or Silence())


def scale(run_folder: Path | str, *, sets: Sequence[str]) -> Scaled:
    """Change the layout of a run: at its next step if it is alive, else at its next start.

    Args:
        sets: `a.b=c` each, keys of `parallel` or `resources.ranks`.
    """
    from cnai.flows.scale import scale_run

    return scale_run(RunFolder.existing(Path(run_folder)), sets)


def evaluate(run_folder: Path | str, *, step: int | None = None) -> Evaluation:
    """Measure a checkpoint of a run on its validation split; None = the newest."""
    from cnai.flows.evaluate import evaluate_again

    return evaluate_again(RunFolder.existing(Path(run_folder)), step=step)


def export(run_folder: Path | str, target: Path | str, *, step: int | None = None) -> Artifact:
    """Write a checkpoint of a run as a model folder that transformers loads; None = the newest."""
    from cnai.flows.export import export_again

    return export_again(RunFolder.existing(Path(run_folder)), Path(target), step=step)


def quantize(
    source: Path | str,
    target: Path | str,
    *,
    precision: str = "int8",
    max_loss: float = 0.01,
    data: str | None = None,
    listener: Listener | None = None,
) -> Artifact | CompressionReport:
    """Make a model small and measure what it lost.

    Args:
        source: A run or a model folder in Hugging Face layout, whose result is kept only within
            the limit; or a frozen TensorFlow graph or an ONNX model.
        precision: `int8` or `fp16`; for a folder also `int4`, `fp8`, `bf16` or `auto`.
        max_loss: Largest relative rise of the perplexity of a folder.
        data: Text to measure a folder on; None = the run's own, or the docstrings of this Python.
    """
    from cnai.compress import FILES, recognise

    place, to, heard = Path(source), Path(target), listener or Silence()
    if recognise(place) in FILES:
        from cnai.flows.quantize_file import quantize_graph

        return quantize_graph(place, to, precision=precision, ignore=None, listener=heard)
    from cnai.flows.folder_options import FolderOptions
    from cnai.flows.quantize_folder import quantize_folder

    options = FolderOptions(precision=precision, max_loss=max_loss, data=data)
    return quantize_folder(place, to, options, heard)


def serve(
    model: Path | str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_tokens: int = 32,
    on_ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve a model folder, or the smallest model of a run, until a signal ends it."""
    from cnai.flows.servable import servable
    from cnai.flows.serve import serve_model

    serve_model(
        servable(Path(model)), host=host, port=port, max_tokens=max_tokens, on_ready=on_ready
    )


def diagnose(run_folder: Path | str) -> Diagnosis:
    """Find where a run broke, why, and the repair."""
    from cnai.flows.diagnose import diagnose as find

    return find((RunFolder.existing(Path(run_folder)).root,))


def _at_its_size(chosen: RunSpec, *, fresh: bool) -> RunSpec:
    """Return the spec with the sizes that the run was scaled to."""
    from cnai.flows.scale import scaled_spec

    return chosen if fresh else scaled_spec(chosen)
