"""What compression makes and serving takes, with the proof of its quality."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """Number format of the weights of an artifact."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One metric before and after compression, on the same samples.

    Attributes:
        metric: Name of the metric; lower is better for `perplexity`.
        relative_loss: How much worse, as a share of `before` (0.01 = 1 %); negative = better.
        low: Lower end of the 95 % interval of `relative_loss` (paired bootstrap over samples).
        high: Upper end of it.
        samples: Sequences measured.
        allowed_loss: The gate: `relative_loss` above it is refused.
    """

    metric: str
    before: float
    after: float
    relative_loss: float
    low: float
    high: float
    samples: int
    allowed_loss: float

    @property
    def passed(self) -> bool:
        """Whether the loss lies within the gate; a loss that is no number does not pass."""
        return self.relative_loss <= self.allowed_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFile:
    """One file of an artifact."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A model folder in Hugging Face layout that can be served.

    Attributes:
        path: The folder.
        source: What it was made from: a checkpoint or another model folder.
        parameters: Parameters of the model.
        files: Weight files and tokenizer with their checksums.
        quality: None for an export that changed no number.
    """

    path: str
    source: str
    precision: Precision
    parameters: int
    files: tuple[ArtifactFile, ...]
    quality: Quality | None = None

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)
