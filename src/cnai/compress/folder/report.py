"""What became of a model folder and what was measured, beside the model in two forms."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cnai.compress.folder.encode import TensorReport
from cnai.compress.folder.treatment import QUANTIZED, Form
from cnai.core.artifact import Precision, Quality
from cnai.core.files import saving
from cnai.core.records import encode_pretty
from cnai.core.units import format_bytes, format_seconds

REPORT_JSON, REPORT_MARKDOWN = "report.json", "report.md"
_PRECISIONS = {
    Form.W8A8: Precision.INT8,
    Form.W8A16: Precision.INT8,
    Form.W4A16: Precision.INT4,
    Form.FP8: Precision.FP8,
    Form.BF16: Precision.BF16,
    Form.FP16: Precision.FP16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """How far the predictions of two models lie apart on the same tokens.

    Attributes:
        kl: Mean divergence in nats of the next token's distribution.
        top1: Share of the tokens where both give the same first choice.
        tokens: Predictions compared.
    """

    kl: float
    top1: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A choice of forms that was written and measured."""

    what: str
    quality: Quality
    divergence: Divergence
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReport:
    """What one group of layers costs when it alone takes the smaller form.

    Attributes:
        kl: Divergence on the calibration rows; None where the time was up before it was measured.
    """

    unit: str
    form: Form
    kl: float | None
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReport:
    """What became of a model folder.

    Attributes:
        quality: None when the model was not measured; `notes` says why.
        attempts: All that was tried; the last is what was kept unless a better one was.
    """

    source: str
    target: str
    precision: Precision
    before_bytes: int
    after_bytes: int
    tensors: tuple[TensorReport, ...]
    quality: Quality | None = None
    divergence: Divergence | None = None
    attempts: tuple[Attempt, ...] = ()
    units: tuple[UnitReport, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    command: str = ""

    @property
    def ratio(self) -> float:
        """How many times smaller the weights became."""
        return self.before_bytes / max(1, self.after_bytes)


def precision_of(tensors: tuple[TensorReport, ...]) -> Precision:
    """Return the number format that most of the changed weights have."""
    sizes: Counter[Precision] = Counter()
    for one in tensors:
        if one.form in _PRECISIONS and (one.form in QUANTIZED or len(one.shape) > 1):
            weight = 1 if one.form in QUANTIZED else 0
            sizes[_PRECISIONS[one.form]] += one.before_bytes * weight
            sizes[_PRECISIONS[one.form]] += 1
    return sizes.most_common(1)[0][0] if sizes else Precision.FP32


def write_folder_report(report: FolderReport, folder: Path) -> None:
    """Write both forms into the model's folder.

    Raises:
        RunError: It cannot be written.
    """
    with saving(folder):
        (folder / REPORT_JSON).write_bytes(encode_pretty(report))
        (folder / REPORT_MARKDOWN).write_text(folder_markdown(report), encoding="utf-8")


def folder_markdown(report: FolderReport) -> str:
    """Return the report for people: what was measured, then the layers in their order."""
    lines = [
        f"# {Path(report.target).name}",
        "",
        f"Made from `{report.source}` in {format_seconds(report.seconds)}:"
        f" {format_bytes(report.before_bytes)} to {format_bytes(report.after_bytes)},"
        f" {report.ratio:.2f} times smaller.",
        "",
        *_measured(report),
        *(f"- {note}" for note in report.notes),
        *_attempts(report.attempts),
        *_units(report.units),
    ]
    if report.command:
        lines += ["", "Again with:", "", f"    {report.command}"]
    lines += ["", "| tensor | shape | was | became | error | why |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{one.name}` | {' x '.join(map(str, one.shape))} | {one.dtype} | {one.form} |"
        f" {one.error:.2%} | {one.reason} |"
        for one in report.tensors
    ]
    return "\n".join([*lines, ""])


def _measured(report: FolderReport) -> list[str]:
    quality, divergence = report.quality, report.divergence
    if quality is None:
        return ["- not measured"]
    lines = [
        f"- {quality.metric} {quality.before:.4g} -> {quality.after:.4g},"
        f" {quality.relative_loss:+.3%} (95 % interval {quality.low:+.3%} to {quality.high:+.3%},"
        f" {quality.samples} sequences; allowed {quality.allowed_loss:.2%})"
    ]
    if quality.low <= 0 <= quality.high:
        lines.append(f"- the loss cannot be told from none with {quality.samples} sequences")
    if divergence is not None:
        lines.append(
            f"- same first choice {divergence.top1:.1%}, divergence {divergence.kl:.2g} nats,"
            f" on {divergence.tokens} tokens"
        )
    return lines


def _attempts(attempts: tuple[Attempt, ...]) -> list[str]:
    if len(attempts) < 2:
        return []
    rows = [
        f"| {one.what} | {one.quality.relative_loss:+.3%} | {one.divergence.kl:.2g} |"
        f" {format_seconds(one.seconds)} |"
        for one in attempts
    ]
    return ["", "| tried | loss | divergence | time |", "|---|---|---|---|", *rows]


def _units(units: tuple[UnitReport, ...]) -> list[str]:
    if not units:
        return []
    rows = [
        f"| {one.unit} | {one.form} | {'-' if one.kl is None else f'{one.kl:.2g}'} |"
        f" {'yes' if one.kept else 'no'} |"
        for one in units
    ]
    head = ["", "| layers | form | divergence alone | taken |", "|---|---|---|---|"]
    return [*head, *rows]
