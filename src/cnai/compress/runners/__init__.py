"""Runtimes that run a model file; which of them are installed is asked, never assumed."""

import importlib.util
from pathlib import Path

from cnai.compress.formats import Format
from cnai.compress.runners.onnx_runtime import OnnxRunner
from cnai.compress.runners.openvino_runtime import OpenVinoRunner
from cnai.compress.runners.runner import InputSpec, Runner
from cnai.compress.runners.tensorflow_runtime import TensorFlowRunner
from cnai.core.errors import RunError


def open_runner(kind: Format, path: Path) -> Runner | None:
    """Load a model with the best runtime that is installed and can read it.

    Returns:
        None where no installed runtime reads the format.

    Raises:
        RunError: The runtimes that are there refuse the model.
    """
    if kind is Format.ONNX:
        return OnnxRunner(path)
    refusal: RunError | None = None
    for module, runner in (("openvino", OpenVinoRunner), ("tensorflow", TensorFlowRunner)):
        if importlib.util.find_spec(module) is None:
            continue
        try:
            return runner(path)
        except RunError as error:
            refusal = error
    if refusal is not None:
        raise refusal
    return None


__all__ = ["InputSpec", "Runner", "open_runner"]
