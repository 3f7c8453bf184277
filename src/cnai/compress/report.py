"""What compression did, for machines (JSON beside the model) and for people (Markdown)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cnai.compress.agreement import Agreement
from cnai.compress.guard.picture import bars, frontier, letter
from cnai.compress.guard.trials import GroupError, Mode, Speed, Trial
from cnai.compress.weight_only import Scheme, WeightReport
from cnai.core.artifact import Quality
from cnai.core.files import write_atomically
from cnai.core.records import encode_pretty
from cnai.core.units import format_bytes, format_seconds

JSON, MARKDOWN = ".report.json", ".report.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionReport:
    """What became of a model file, and what was measured.

    Attributes:
        before_bytes: Size of the source with its external data; `after_bytes` of the result.
        weights: What became of each float constant.
        weight_cosine: Mean of the cosines of the weights before and after rounding, by their bytes.
        agreement: Of the outputs; None where no installed runtime runs the format.
        quality: What was lost on the user's data; None where none was given.
        notes: What the user should know, in sentences.
        command: What reproduces it.
        sha256: Of the model file.
        mode: What INT8 is used for.
        speed: Against the source, on the user's data; None where it was not measured.
        trials: Every model that was tried, this one among them.
        groups: What each group does alone in INT8, where that was asked.
    """

    source: str
    target: str
    format: str
    precision: str
    before_bytes: int
    after_bytes: int
    weights: tuple[WeightReport, ...]
    weight_cosine: float
    agreement: Agreement | None
    quality: Quality | None
    notes: tuple[str, ...]
    seconds: float
    command: str
    sha256: str
    mode: Mode = Mode.WEIGHT_ONLY
    speed: Speed | None = None
    trials: tuple[Trial, ...] = ()
    groups: tuple[GroupError, ...] = ()

    @property
    def ratio(self) -> float:
        """How many times smaller the model became."""
        return self.before_bytes / self.after_bytes

    def count(self, scheme: Scheme) -> int:
        """Return how many weights became so."""
        return sum(one.scheme is scheme for one in self.weights)


def report_files(target: Path) -> tuple[Path, Path]:
    """Return where the two forms of a model's report lie."""
    return target.with_name(target.name + JSON), target.with_name(target.name + MARKDOWN)


def write_report(report: CompressionReport, target: Path) -> None:
    """Write both forms beside the model.

    Raises:
        RunError: The folder cannot be written.
    """
    machine, person = report_files(target)
    write_atomically(machine, encode_pretty(report))
    write_atomically(person, markdown(report).encode())


def markdown(report: CompressionReport) -> str:
    """Return the report for people: the sums first, then the weights from the largest."""
    lines = [
        f"# {Path(report.target).name}",
        "",
        f"Made from `{report.source}` ({report.format}) in {report.seconds:.1f} s:"
        f" {format_bytes(report.before_bytes)} to {format_bytes(report.after_bytes)},"
        f" {report.ratio:.2f} times smaller.",
        "",
        f"- weights: {report.count(Scheme.COMPUTED)} in INT8 arithmetic,"
        f" {report.count(Scheme.INT8)} stored in INT8, {report.count(Scheme.FLOAT16)} float16,"
        f" {report.count(Scheme.KEPT)} as they were; cosine {report.weight_cosine:.6f}",
    ]
    if report.quality is not None:
        lines.append(f"- loss: {quality_words(report.quality)}")
    if report.speed is not None:
        lines.append(f"- speed: {speed_words(report.speed)}")
    if report.agreement is not None:
        lines.append(f"- outputs: {agreement_words(report.agreement)}")
    lines += [f"- {note}" for note in report.notes]
    lines += ["", "Again with:", "", f"    {report.command}", "", *_trial_lines(report)]
    lines += [*_table(report.weights), ""]
    return "\n".join(lines)


def quality_words(quality: Quality) -> str:
    """Say what was lost, how sure that is, and what was allowed."""
    words = (
        f"{quality.metric} {quality.before:.4f} -> {quality.after:.4f}, "
        f"{quality.relative_loss:+.2%} (95 % interval {quality.low:+.2%} to {quality.high:+.2%}, "
        f"{quality.samples} samples); allowed {quality.allowed_loss:.2%}"
    )
    if quality.low <= quality.allowed_loss < quality.high:
        words += f"; not resolvable with {quality.samples} samples"
    return words


def speed_words(speed: Speed) -> str:
    """Say how fast the model became."""
    verdict = "faster" if speed.faster else ("slower" if speed.slower else "neither proved")
    return (
        f"{speed.ratio:.2f} x the source's ({speed.low:.2f} to {speed.high:.2f}, {verdict}; "
        f"{format_seconds(speed.after_seconds)} a run of {speed.rows}, one thread)"
    )


def _trial_lines(report: CompressionReport) -> list[str]:
    """Return the trials as a table, the frontier and what each group does alone."""
    if not report.trials:
        return []
    rows = [
        "| | tried | loss | interval | speed | size | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for index, one in enumerate(report.trials):
        quality = one.score.quality if one.score else None
        loss = f"{quality.relative_loss:+.2%}" if quality else "-"
        interval = f"{quality.low:+.2%} to {quality.high:+.2%}" if quality else "-"
        speed = f"{one.speed.ratio:.2f} x" if one.speed else "-"
        size = format_bytes(one.size_bytes) if one.size_bytes else "-"
        verdict = "**chosen**" if one.chosen else (one.reason or "good")
        name = letter(index, passed=one.passed)
        rows.append(f"| {name} | {one.name} | {loss} | {interval} | {speed} | {size} | {verdict} |")
    lines = ["## Tried", "", *rows, ""]
    for title, picture in (
        ("Speed and change of the outputs (capitals passed):", frontier(report.trials)),
        ("Change of the outputs when only this group is in INT8:", bars(report.groups)),
    ):
        lines += [title, "", *(f"    {line}" for line in picture), ""] if picture else []
    return [*lines, "## Weights", ""]


def agreement_words(agreement: Agreement) -> str:
    """Say how well the outputs agree, and on what."""
    parts = [f"cosine {agreement.cosine:.6f}"]
    if agreement.top1 is not None:
        parts.append(f"same first choice {agreement.top1:.1%}")
    if agreement.kl is not None:
        parts.append(f"divergence {agreement.kl:.2g} nats")
    where = "made-up inputs" if agreement.inputs == "made up" else "samples"
    return f"{', '.join(parts)} on {agreement.samples} {where} ({agreement.runtime})"


def _table(weights: tuple[WeightReport, ...]) -> list[str]:
    rows = [
        "| weight | use | shape | became | error | why |",
        "|---|---|---|---|---|---|",
    ]
    for one in sorted(weights, key=lambda one: -one.before_bytes):
        shape = " x ".join(map(str, one.shape))
        error = f"{one.relative_error:.2%}" if one.relative_error else "0"
        rows.append(
            f"| `{one.name}` | {one.use or '-'} | {shape} | {one.scheme} | {error} | {one.reason} |"
        )
    return rows
