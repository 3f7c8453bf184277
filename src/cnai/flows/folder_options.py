"""What a user wants of a model folder that is quantized, and how its progress is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from cnai.core.units import format_bytes, format_seconds
from cnai.flows.listener import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """What the user wants of a folder.

    Attributes:
        precision: `int8`, `int4`, `fp8`, `bf16`, `fp16` or `auto`.
        max_loss: Largest relative rise of the perplexity.
        data: Text to measure on; None = the run's own validation split, or for a folder that no
            run made the docstrings of this Python.
        embeddings: Embedding and head become INT8 too.
        ignore: Regular expression; tensors whose name it finds stay as they are.
        budget_s: Seconds after which only safe forms are tried.
        measured: False = the weights are rounded and the model is not run.
        command: The command line, for the report.
    """

    precision: str = "int8"
    max_loss: float = 0.01
    data: str | None = None
    embeddings: bool = False
    ignore: str | None = None
    budget_s: float | None = None
    measured: bool = True
    command: str = ""


def told(
    listener: Listener, clock: Callable[[], float] = time.monotonic
) -> Callable[[str, int, int], None]:
    """Return a progress that tells a listener how far a stage is, and when it ends."""
    starts: dict[str, tuple[float, int]] = {}

    def progress(stage: str, done: int, total: int) -> None:
        begun, first = starts.setdefault(stage, (clock(), done))
        if done < first or done >= total:
            starts.pop(stage)
        spent = clock() - begun
        words = stage
        if stage == "quantize" and spent >= 1 and first < done < total:
            speed = (done - first) / spent
            left = format_seconds((total - done) / speed)
            words = f"{stage} ({format_bytes(speed)}/s, {left} left)"
        listener.fraction(words, done / max(1, total))

    return progress
