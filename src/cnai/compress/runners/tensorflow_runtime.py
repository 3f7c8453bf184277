"""Runs frozen TensorFlow graphs with TensorFlow itself, where it is installed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.runners.runner import InputSpec
from cnai.core.errors import RunError

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


class TensorFlowRunner:
    """A frozen graph in a session of TensorFlow.

    Its inputs are the placeholders that something consumes, its outputs the nodes that nothing
    consumes. One thread computes.

    Args:
        path: The model file.
        outputs: Names of tensors to give out besides those that nothing consumes.

    Raises:
        RunError: TensorFlow does not load it.
    """

    def __init__(self, path: Path, *, outputs: Sequence[str] = ()) -> None:
        for key, value in _QUIET.items():
            os.environ.setdefault(key, value)
        tensorflow: Any = importlib.import_module("tensorflow")
        self.runtime = f"tensorflow {tensorflow.__version__}"
        self._path, self._wanted = path, tuple(outputs)
        self._tf = tensorflow.compat.v1
        graph_def = self._tf.GraphDef()
        graph_def.ParseFromString(path.read_bytes())
        graph = self._tf.Graph()
        try:
            with graph.as_default():
                self._tf.import_graph_def(graph_def, name="")
        except (ValueError, tensorflow.errors.OpError) as error:
            raise self._refusal(error) from error
        self._errors = (ValueError, TypeError, tensorflow.errors.OpError)
        operations = graph.get_operations()
        self.inputs = tuple(
            _input_spec(one.outputs[0])
            for one in operations
            if one.type == "Placeholder" and one.outputs[0].consumers()
        )
        ends = [
            tensor.name
            for one in operations
            for tensor in one.outputs
            if one.type not in {"Const", "Placeholder", "NoOp"} and not tensor.consumers()
        ]
        tensors = {tensor.name for one in operations for tensor in one.outputs}
        full = [name if ":" in name else f"{name}:0" for name in outputs]
        ends += [name for name in full if name in tensors and name not in ends]
        self.outputs = tuple(ends)
        config = self._tf.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
        )
        self._session = self._tf.Session(graph=graph, config=config)

    def same_for(self, path: Path) -> TensorFlowRunner:
        """Load another model."""
        return TensorFlowRunner(path, outputs=self._wanted)

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return all outputs."""
        try:
            found = self._session.run(list(self.outputs), dict(feeds))
        except self._errors as error:
            raise self._refusal(error) from error
        return [np.asarray(one) for one in found]

    def _refusal(self, error: Exception) -> RunError:
        return RunError(
            f"TensorFlow cannot run `{self._path.name}`: {str(error).splitlines()[0]}",
            where=str(self._path),
            hint="check that the model itself runs, and with which inputs",
        )


def _input_spec(tensor: Any) -> InputSpec:
    shape = () if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    kind = "str" if tensor.dtype.name == "string" else tensor.dtype.name
    return InputSpec(name=tensor.name, shape=shape, dtype=kind)
