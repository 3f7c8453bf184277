"""What `quantize_file` would do, without doing it: nothing is written and no model is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cnai.compress.formats import Format, open_model, recognise
from cnai.compress.guard import Mode, Order, check_order, read_order
from cnai.compress.report import report_files
from cnai.compress.target import check_target_file
from cnai.compress.weight_only import Scheme, WeightReport, Wishes, shrink


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The plan for one file.

    Attributes:
        weights: What each would become if nothing but weights changed.
        before_bytes: Of the float constants; `after_bytes` of what they would become.
        calibration: Samples to find ranges on; 0 without data.
        evaluation: Samples to judge by.
        modes: What would be tried.
    """

    source: str
    target: str
    format: Format
    weights: tuple[WeightReport, ...]
    before_bytes: int
    after_bytes: int
    calibration: int
    evaluation: int
    modes: tuple[Mode, ...]

    def count(self, scheme: Scheme) -> int:
        """Return how many weights would become so."""
        return sum(one.scheme is scheme for one in self.weights)


def dry_run(source: Path, target: Path, wishes: Wishes, order: Order) -> DryRun:
    """Check everything that `quantize_file` checks before its work, and count.

    Raises:
        SpecError: The format, the target or the order makes no sense.
        DataError: The source or the data is missing or damaged.
        RunError: The target cannot be written, or no runtime runs the model.
    """
    kind = recognise(source)
    check_order(order, kind)
    check_target_file(target.resolve(), source=source, marks=report_files(target.resolve())[:1])
    weights = shrink(open_model(source, target), wishes)
    prepared = read_order(order, kind, source) if order.measured else None
    return DryRun(
        source=str(source),
        target=str(target.resolve()),
        format=kind,
        weights=weights,
        before_bytes=sum(one.before_bytes for one in weights),
        after_bytes=sum(one.after_bytes for one in weights),
        calibration=len(prepared.calibration) if prepared else 0,
        evaluation=len(prepared.evaluation) if prepared else 0,
        modes=_modes(order, kind),
    )


def _modes(order: Order, kind: Format) -> tuple[Mode, ...]:
    if order.mode is not Mode.AUTO:
        return (order.mode,)
    computed = order.measured and kind is Format.ONNX
    return (Mode.WEIGHT_ONLY, Mode.STATIC, Mode.DYNAMIC) if computed else (Mode.WEIGHT_ONLY,)
