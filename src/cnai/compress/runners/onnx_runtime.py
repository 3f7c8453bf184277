"""Runs ONNX models with ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from cnai.compress.runners.runner import InputSpec
from cnai.core.errors import RunError

_TYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "string": "str",
}
_FATAL = 4


class OnnxRunner:
    """An ONNX model in ONNX Runtime.

    Args:
        path: The model file.
        outputs: Not needed; ONNX models declare theirs.
        threads: Threads for one operation; 1 makes two measurements comparable.

    Raises:
        RunError: ONNX Runtime does not load it.
    """

    def __init__(self, path: Path, *, outputs: Sequence[str] = (), threads: int = 1) -> None:
        del outputs
        self.runtime = f"onnxruntime {onnxruntime.__version__}"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = _FATAL
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise _refusal(path, error) from error
        self.inputs = tuple(
            InputSpec(
                name=one.name,
                shape=tuple(size if isinstance(size, int) else None for size in one.shape or ()),
                dtype=_dtype(one.type),
            )
            for one in self._session.get_inputs()
        )
        self.outputs = tuple(one.name for one in self._session.get_outputs())
        self._path = path

    def same_for(self, path: Path) -> OnnxRunner:
        """Load another model."""
        return OnnxRunner(path)

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return all outputs."""
        try:
            found: list[NDArray[Any]] = self._session.run(None, dict(feeds))
        except Exception as error:
            raise _refusal(self._path, error) from error
        return found


def _dtype(written: str) -> str:
    """Turn `tensor(float)` into `float32`."""
    inner = written.removeprefix("tensor(").removesuffix(")")
    return _TYPES.get(inner, inner)


def _refusal(path: Path, error: Exception) -> RunError:
    """The runtime's errors have no common class of their own."""
    reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return RunError(
        f"ONNX Runtime cannot run `{path.name}`: {reason}",
        where=str(path),
        hint="check that the model itself runs, and with which inputs",
    )
