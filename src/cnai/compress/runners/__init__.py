"""Runtimes that run a model file; which of them are installed is asked, never assumed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from cnai.compress.formats import Format
from cnai.compress.runners.chosen import ChosenRunner
from cnai.compress.runners.onnx_runtime import OnnxRunner
from cnai.compress.runners.openvino_runtime import OpenVinoRunner
from cnai.compress.runners.runner import InputSpec, Runner
from cnai.compress.runners.tensorflow_runtime import TensorFlowRunner
from cnai.core.errors import RunError, SpecError


class Engine(StrEnum):
    """What runs a model to measure it."""

    AUTO = "auto"
    NATIVE = "native"
    """ONNX Runtime for ONNX; for TensorFlow graphs what is installed."""
    ORT = "ort"
    OPENVINO = "openvino"
    TF = "tf"


_MAKERS: dict[Engine, Callable[..., Runner]] = {
    Engine.ORT: OnnxRunner,
    Engine.OPENVINO: OpenVinoRunner,
    Engine.TF: TensorFlowRunner,
}
_MODULES = {Engine.OPENVINO: "openvino", Engine.TF: "tensorflow", Engine.ORT: "onnxruntime"}
_PACKAGES = {Engine.OPENVINO: "openvino", Engine.TF: "tensorflow-cpu", Engine.ORT: "onnxruntime"}
_READ: dict[Format, tuple[Engine, ...]] = {
    Format.ONNX: (Engine.ORT, Engine.OPENVINO),
    Format.GRAPHDEF: (Engine.OPENVINO, Engine.TF),
}
RUNNABLE = frozenset(_READ)
"""Formats that some runtime reads."""


def open_runner(
    kind: Format,
    path: Path,
    *,
    engine: Engine = Engine.AUTO,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Runner | None:
    """Load a model with the best runtime that is installed and can read it.

    Args:
        engine: The runtime to take; `AUTO` = the first that works.
        inputs: Names of the inputs that are given; () = all.
        outputs: Names of the outputs that count; () = all.

    Returns:
        None where no installed runtime reads the format.

    Raises:
        RunError: The runtimes that are there refuse the model.
        SpecError: The engine is not installed or does not read the format, or a name is unknown.
    """
    runner = _open(kind, path, engine, outputs)
    if runner is None or not (inputs or outputs):
        return runner
    return ChosenRunner(runner, inputs=inputs, outputs=outputs)


def _open(kind: Format, path: Path, engine: Engine, outputs: Sequence[str]) -> Runner | None:
    refusal: RunError | None = None
    for one in _engines(kind, engine):
        try:
            return _MAKERS[one](path, outputs=outputs)
        except RunError as error:
            refusal = error
    if refusal is not None:
        raise refusal
    return None


def _engines(kind: Format, engine: Engine) -> list[Engine]:
    """Return the runtimes to try, best first."""
    readers = _READ.get(kind, ())
    if engine in {Engine.AUTO, Engine.NATIVE}:
        there = [one for one in readers if importlib.util.find_spec(_MODULES[one])]
        return there[:1] if kind is Format.ONNX else there
    if engine not in readers:
        raise SpecError(
            f"the engine `{engine}` does not run {kind} models",
            where="--engine",
            hint=f"take {' or '.join(readers) or 'auto'}",
        )
    if importlib.util.find_spec(_MODULES[engine]) is None:
        raise SpecError(
            f"the engine `{engine}` is not installed",
            where="--engine",
            hint=f"`pip install {_PACKAGES[engine]}`, or leave the option away",
        )
    return [engine]


__all__ = ["RUNNABLE", "Engine", "InputSpec", "Runner", "open_runner"]
