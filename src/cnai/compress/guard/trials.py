"""What the guard records: each model that it tried, what that lost and gained, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cnai.compress.agreement import Agreement
from cnai.core.artifact import Quality


class Mode(StrEnum):
    """What INT8 is used for."""

    AUTO = "auto"
    WEIGHT_ONLY = "weight-only"
    """Weights are stored in INT8 and computed with as floats."""
    DYNAMIC = "dynamic"
    """Products compute in INT8; their inputs are rounded as they come."""
    STATIC = "static"
    """Operations compute in INT8, with ranges found on data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How much faster the new model is, one thread each, run in turns.

    Attributes:
        ratio: Median of the seconds before over the seconds after, pair by pair.
        low: Lower end of its 95 % interval (bootstrap over pairs).
        high: Upper end of it.
        before_seconds: Median of one run of the source.
        after_seconds: Median of one run of the new model.
        rows: Samples in one run.
    """

    ratio: float
    low: float
    high: float
    before_seconds: float
    after_seconds: float
    pairs: int
    rows: int

    @property
    def faster(self) -> bool:
        """Whether the whole interval says so."""
        return self.low > 1

    @property
    def slower(self) -> bool:
        """Whether the whole interval says so, by more than clocks differ."""
        return self.high < 1 and self.ratio < 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The verdict on one model.

    Attributes:
        quality: The metric before and after; without labels that of agreement with the source.
        agreement: How far the outputs lie apart.
        passed: Whether the loss is allowed and the outputs are still those of the same model.
        resolvable: Whether the samples are enough to tell: the interval does not contain the limit.
        reason: Why it did not pass; empty when it did.
    """

    quality: Quality
    agreement: Agreement
    passed: bool
    resolvable: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One model that was made and judged.

    Attributes:
        score: None when it could not be made or run; `reason` says why.
        speed: None when it was not measured.
        back: Groups that were taken back from INT8 arithmetic (or from INT8).
        chosen: Whether it is the result.
    """

    name: str
    mode: Mode
    score: Score | None
    speed: Speed | None
    size_bytes: int
    back: tuple[str, ...]
    seconds: float
    reason: str = ""
    chosen: bool = False

    @property
    def passed(self) -> bool:
        """Whether it may be the result."""
        return self.score is not None and self.score.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupError:
    """What one group does alone: everything else stays in floats.

    Attributes:
        error: Norm of the outputs' change over their norm.
        back: Whether the result leaves it out.
    """

    group: str
    error: float
    back: bool = False
