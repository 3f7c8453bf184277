"""Runs frozen TensorFlow graphs (and ONNX) with OpenVINO, which needs no TensorFlow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.runners.runner import InputSpec
from cnai.core.errors import RunError


class OpenVinoRunner:
    """A model in OpenVINO, computed in float32 by one thread.

    Args:
        path: The model file.
        outputs: Names of tensors to give out besides those that nothing consumes.

    Raises:
        RunError: OpenVINO does not read it.
    """

    def __init__(self, path: Path, *, outputs: Sequence[str] = ()) -> None:
        openvino: Any = importlib.import_module("openvino")
        self.runtime = f"openvino {openvino.__version__.split('-')[0]}"
        self._path, self._wanted = path, tuple(outputs)
        try:
            model = openvino.Core().read_model(str(path))
            _give_out(model, outputs)
            self._model = openvino.Core().compile_model(
                model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
            )
        except RuntimeError as error:
            raise self._refusal(error) from error
        self.inputs = tuple(
            InputSpec(
                name=one.get_any_name(),
                shape=tuple(
                    None if size.is_dynamic else size.get_length() for size in one.partial_shape
                ),
                dtype=np.dtype(one.element_type.to_dtype()).name,
            )
            for one in self._model.inputs
        )
        self.outputs = tuple(one.get_any_name() for one in self._model.outputs)

    def same_for(self, path: Path) -> OpenVinoRunner:
        """Load another model."""
        return OpenVinoRunner(path, outputs=self._wanted)

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return all outputs."""
        try:
            found = self._model(dict(feeds))
        except RuntimeError as error:
            raise self._refusal(error) from error
        return [np.asarray(found[index]) for index in range(len(self.outputs))]

    def _refusal(self, error: Exception) -> RunError:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return RunError(
            f"OpenVINO cannot run `{self._path.name}`: {lines[-1] if lines else 'no reason given'}",
            where=str(self._path),
            hint="install tensorflow, which runs every graph, or go without measuring outputs",
        )


def _give_out(model: Any, names: Sequence[str]) -> None:
    """Make tensors outputs; a name that no tensor has is refused later, with those that are."""
    there = {name for one in model.outputs for name in one.get_names()}
    tensors = {
        name
        for node in model.get_ordered_ops()
        for one in node.outputs()
        for name in one.get_names()
    }
    for name in names:
        full = name if ":" in name else f"{name}:0"
        if not {name, full} & there and {name, full} & tensors:
            model.add_outputs([full if full in tensors else name])
