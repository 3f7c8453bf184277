"""From a model file to a smaller one in the same format, whole and checked, with its report.

The new model is written into a folder beside its target and, where a runtime is there, loaded and
compared with the source; only then do the files take their names.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cnai.compress.agreement import Agreement, agreement_of
from cnai.compress.contents import size_of
from cnai.compress.formats import Format, open_model, recognise
from cnai.compress.formats.saved_model import FILE
from cnai.compress.guard import (
    Found,
    Guard,
    Mode,
    Order,
    Score,
    Trial,
    Workshop,
    bench_of,
    check_order,
    read_order,
)
from cnai.compress.probe import run_made_up
from cnai.compress.report import CompressionReport, report_files, write_report
from cnai.compress.runners import RUNNABLE, open_runner
from cnai.compress.target import check_target_file, claimed
from cnai.compress.weight_only import BASIS, ROUGH, Scheme, WeightReport, Wishes, shrink
from cnai.core.clock import Clock, SystemClock
from cnai.core.errors import AccuracyError, RunError, SpecError
from cnai.core.files import PARTIAL, publish_folder, saving, sha256_of, sync_folder

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A model that was made, with what was measured of it."""

    path: Path
    weights: tuple[WeightReport, ...]
    agreement: Agreement | None
    notes: tuple[str, ...]
    found: Found | None = None

    @property
    def missed(self) -> str:
        """Why the goal is missed; empty when it is not."""
        return "" if self.found is None or self.found.passed else self.found.trial.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One model file to make small.

    Attributes:
        source: A model file of a known format.
        target: The file to write; `<target>.report.json` and `.report.md` appear beside it.
        wishes: What the weights should become.
        order: How the loss is measured, and what is tried.
        command: The command line, for the report.
    """

    source: Path
    target: Path
    wishes: Wishes
    order: Order
    command: str


def quantize_file(
    source: Path,
    target: Path,
    wishes: Wishes | None = None,
    *,
    order: Order | None = None,
    command: str = "",
    progress: Progress = lambda _stage, _done, _total: None,
    clock: Clock | None = None,
) -> CompressionReport:
    """Make a model file smaller, and faster where data proves that it may be.

    Args:
        source: A frozen TensorFlow graph, a SavedModel, an ONNX model or a GGUF file.
        target: The file to write; `<target>.report.json` and `.report.md` appear beside it.
        wishes: What the weights should become; None = INT8.
        order: How the loss is measured, and what is tried; None = weight-only, not measured.
        command: The command line, for the report.

    Raises:
        SpecError: The format is not read, the model is quantized already or has nothing to
            quantize, or the target or the order makes no sense.
        DataError: The source or the data is missing or damaged, or a weight is no finite number.
        RunError: The target cannot be written, or the new model does not run.
        AccuracyError: The goal is missed; the best model stands beside the target.
    """
    job = Job(
        source=source,
        target=target.resolve(),
        wishes=wishes or Wishes(),
        order=order or Order(),
        command=command,
    )
    clock = clock or SystemClock()
    start = clock.monotonic()
    kind = recognise(source)
    check_order(job.order, kind)
    check_target_file(job.target, source=source, marks=report_files(job.target)[:1])
    with claimed(job.target), _beside(job.target) as folder:
        if job.order.measured:
            result = _guarded(job, kind, folder, clock, progress)
        else:
            result = _unmeasured(job, kind, folder, progress)
        where = _free_name(job.target) if result.missed else job.target
        report = _report(job, kind, result, where, clock.monotonic() - start)
        write_report(report, result.path)
        _publish(result.path.parent, result.path.name, where)
    if result.missed and report.quality is not None:
        raise AccuracyError(
            f"no way was found to keep within {report.quality.allowed_loss:.2%}: "
            f"{result.missed}; the best model is `{where.name}`",
            where=str(where),
            hint=f"see `{report_files(where)[1]}`; allow more with `--max-loss`, or give more "
            "samples or a longer `--budget`",
        )
    return report


def _report(
    job: Job, kind: Format, result: _Result, target: Path, seconds: float
) -> CompressionReport:
    found = result.found
    trial = found.trial if found else None
    made = result.path
    return CompressionReport(
        source=str(job.source),
        target=str(target),
        format=kind,
        precision=str(job.wishes.scheme),
        before_bytes=size_of(job.source),
        after_bytes=size_of(made),
        weights=result.weights,
        weight_cosine=_weight_cosine(result.weights),
        agreement=result.agreement,
        quality=trial.score.quality if trial and trial.score else None,
        notes=(*result.notes, *_notes(result.weights, trial)),
        seconds=seconds,
        command=job.command,
        sha256=sha256_of(made / FILE if made.is_dir() else made),
        mode=trial.mode if trial else Mode.WEIGHT_ONLY,
        speed=trial.speed if trial else None,
        trials=found.trials if found else (),
        groups=found.groups if found else (),
    )


def _unmeasured(job: Job, kind: Format, folder: Path, progress: Progress) -> _Result:
    """Make the weights smaller without data."""
    model = open_model(job.source, job.target)
    weights = shrink(model, job.wishes, lambda done, of: progress("quantize", done, of))
    _require_gain(weights, job.source)
    made = folder / "model" / job.target.name
    made.parent.mkdir()
    model.save(made)
    progress("verify", 0, 1)
    agreement, notes = _agreement(kind, job, made)
    progress("verify", 1, 1)
    return _Result(path=made, weights=weights, agreement=agreement, notes=tuple(notes))


def _guarded(job: Job, kind: Format, folder: Path, clock: Clock, progress: Progress) -> _Result:
    """Let the guard find the best model that the data allows."""
    prepared = read_order(job.order, kind, job.source)
    workshop = Workshop(kind=kind, source=job.source, folder=folder, name=job.target.name)
    progress("baseline", 0, 1)
    bench = bench_of(job.order, prepared, workshop, clock, progress)
    progress("baseline", 1, 1)
    found = Guard(bench, job.order.mode, job.wishes).search()
    _require_gain(found.made.weights, job.source)
    score = found.trial.score
    return _Result(
        path=found.made.path,
        weights=found.made.weights,
        agreement=score.agreement if score else None,
        notes=(*prepared.notes, *found.notes),
        found=found,
    )


def _free_name(target: Path) -> Path:
    """Return a name beside the target that nothing has, for a model that missed the goal."""
    for number in itertools.count(1):
        words = "missed" if number == 1 else f"missed-{number}"
        name = target.with_name(f"{target.stem}.{words}{target.suffix}")
        if not any(one.exists() for one in (name, *report_files(name))):
            return name
    raise AssertionError


def _require_gain(weights: tuple[WeightReport, ...], source: Path) -> None:
    if any(one.scheme is not Scheme.KEPT for one in weights):
        return
    if open_model(source).quantized():
        raise SpecError(
            f"`{source.name}` is quantized already: its weights are 8-bit numbers",
            where=str(source),
            hint="give the model that it was made from",
        )
    reasons = {one.reason for one in weights} or {"it holds no weights of floats"}
    raise SpecError(
        f"nothing in `{source.name}` can be made smaller ({'; '.join(sorted(reasons))})",
        where=str(source),
        hint="look at it with `ai-cli inspect`; variables that are not frozen are no constants",
    )


def _weight_cosine(weights: tuple[WeightReport, ...]) -> float:
    """Return the mean of the weights' cosines; each counts by its bytes."""
    sizes = np.array([one.before_bytes for one in weights], np.float64)
    return float(np.average([one.cosine for one in weights], weights=sizes))


def _agreement(kind: Format, job: Job, made: Path) -> tuple[Agreement | None, list[str]]:
    """Run both models on made-up inputs, as far as they can be run."""
    if kind not in RUNNABLE:
        return None, [f"outputs were not compared: no runtime is asked for {kind} models yet"]
    try:
        before = open_runner(kind, job.source, engine=job.order.engine, outputs=job.order.outputs)
        if before is None:
            return None, [
                "outputs were not compared: no runtime for this format is installed "
                "(`pip install openvino` brings a small one)"
            ]
        feeds, expected = run_made_up(before)
    except RunError as error:
        return None, [f"outputs were not compared: {error.message}"]
    # From here on a failure is the new model's fault, since the old one ran.
    found = before.same_for(made).run(feeds)
    agreement = agreement_of(expected, found, inputs="made up", runtime=before.runtime)
    if not np.isfinite(agreement.cosine) and all(np.isfinite(one).all() for one in expected):
        raise RunError(
            "the compressed model gives numbers that are infinite or none",
            where=str(job.source),
            hint="keep the guilty weights with `--ignore REGEX`; this is worth a report",
        )
    return agreement, []


def _notes(weights: tuple[WeightReport, ...], trial: Trial | None) -> list[str]:
    notes = _speed_notes(trial)
    if trial is not None and trial.score is not None:
        notes += _loss_notes(trial.score)
    bases = sum(one.reason.startswith(BASIS) for one in weights)
    if bases:
        notes.append(f"{bases} fixed bases of transforms stayed floats (float16)")
    hurt = [one for one in weights if one.reason.startswith(ROUGH)]
    if hurt:
        notes.append(f"{len(hurt)} weights became float16, because INT8 would change them too much")
    return notes


def _speed_notes(trial: Trial | None) -> list[str]:
    if trial is None or trial.speed is None:
        if trial is not None and trial.mode is not Mode.WEIGHT_ONLY:
            return ["whether it is faster was not measured"]
        return ["not faster than the source: runtimes turn the weights back into floats at load"]
    if trial.speed.faster:
        return []
    return ["slower than the source" if trial.speed.slower else "not faster than the source"]


def _loss_notes(score: Score) -> list[str]:
    notes = []
    if not score.resolvable:
        quality = score.quality
        notes.append(
            f"a loss of {quality.allowed_loss:.2%} is not resolvable with {quality.samples} "
            f"samples: it may be up to {quality.high:.2%}"
        )
    return notes


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    folder = target.with_name(f".{target.name}{PARTIAL}")
    with saving(target):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, name: str, target: Path) -> None:
    """Let the files take their names, the model last: it names the others.

    Args:
        name: Of the model in the folder; its reports and files of weights begin with it.
    """
    with saving(target):
        sync_folder(folder)
        for file in sorted(folder.iterdir(), key=lambda one: one.name == name):
            place = target.with_name(target.name + file.name.removeprefix(name))
            if file.is_dir():
                publish_folder(file, place)
            else:
                file.replace(place)
