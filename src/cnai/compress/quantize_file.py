"""From a model file to a smaller one in the same format, whole and checked, with its report.

The new model is written into a folder beside its target, read back, compared weight by weight and,
where a runtime is there, output by output; only then do the files take their names.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.agreement import Agreement, agreement_of
from cnai.compress.contents import size_of
from cnai.compress.formats import Format, ModelFile, open_model, recognise
from cnai.compress.formats.saved_model import FILE
from cnai.compress.probe import SIZES, made_up
from cnai.compress.report import CompressionReport, report_files, write_report
from cnai.compress.runners import Runner, open_runner
from cnai.compress.target import check_target_file, claimed
from cnai.compress.weight_only import Scheme, WeightReport, Wishes, shrink
from cnai.core.errors import RunError, SpecError
from cnai.core.files import PARTIAL, publish_folder, saving, sha256_of, sync_folder

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


_NOT_RUN = {Format.SAVED_MODEL, Format.GGUF}


def quantize_file(
    source: Path,
    target: Path,
    wishes: Wishes | None = None,
    *,
    command: str = "",
    progress: Progress = lambda _stage, _done, _total: None,
) -> CompressionReport:
    """Make the weights of a model file smaller.

    Args:
        source: A frozen TensorFlow graph, a SavedModel, an ONNX model or a GGUF file.
        target: The file to write; `<target>.report.json` and `.report.md` appear beside it.
        wishes: What the weights should become; None = INT8.
        command: The command line, for the report.

    Raises:
        SpecError: The format is not read, the model is quantized already or has nothing to
            quantize, or the target makes no sense.
        DataError: The source is missing or damaged, or a weight is no finite number.
        RunError: The target cannot be written, or the new model does not run.
    """
    start = time.monotonic()
    wishes = wishes or Wishes()
    kind = recognise(source)
    target = target.resolve()
    check_target_file(target, source=source, marks=report_files(target)[:1])
    model = open_model(source, target)
    with claimed(target):
        weights = shrink(model, wishes, lambda done, of: progress("quantize", done, of))
        _require_gain(model, weights, source)
        with _beside(target) as folder:
            made = folder / target.name
            model.save(made)
            progress("verify", 0, 1)
            agreement, notes = _agreement(kind, source, made)
            progress("verify", 1, 1)
            report = CompressionReport(
                source=str(source),
                target=str(target),
                format=kind,
                precision=str(wishes.scheme),
                before_bytes=size_of(source),
                after_bytes=size_of(made),
                weights=weights,
                weight_cosine=_weight_cosine(weights),
                agreement=agreement,
                quality=None,
                notes=(*notes, *_notes(weights)),
                seconds=time.monotonic() - start,
                command=command,
                sha256=sha256_of(made / FILE if made.is_dir() else made),
            )
            _publish(folder, target)
        write_report(report, target)
    return report


def _require_gain(model: ModelFile, weights: tuple[WeightReport, ...], source: Path) -> None:
    if any(one.scheme is not Scheme.KEPT for one in weights):
        return
    if model.quantized():
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
    """Return the cosine between all weights, from those of each and their sizes."""
    sizes = np.array([one.before_bytes for one in weights], np.float64)
    return float(np.average([one.cosine for one in weights], weights=sizes))


def _agreement(kind: Format, source: Path, made: Path) -> tuple[Agreement | None, list[str]]:
    """Run both models on made-up inputs, as far as they can be run."""
    if kind in _NOT_RUN:
        return None, [f"outputs were not compared: no runtime is asked for {kind} models yet"]
    try:
        before = open_runner(kind, source)
        if before is None:
            return None, [
                "outputs were not compared: no runtime for this format is installed "
                "(`pip install openvino` brings a small one)"
            ]
        feeds, expected = _run_somehow(before)
    except RunError as error:
        return None, [f"outputs were not compared: {error.message}"]
    # From here on a failure is the new model's fault, since the old one ran.
    found = before.same_for(made).run(feeds)
    agreement = agreement_of(expected, found, inputs="made up", runtime=before.runtime)
    if not np.isfinite(agreement.cosine) and all(np.isfinite(one).all() for one in expected):
        raise RunError(
            "the compressed model gives numbers that are infinite or none",
            where=str(source),
            hint="keep the guilty weights with `--ignore REGEX`; this is worth a report",
        )
    return agreement, []


def _run_somehow(runner: Runner) -> tuple[dict[str, NDArray[Any]], list[NDArray[Any]]]:
    """Run a model with the smallest free sizes that it takes."""
    for size in SIZES:
        feeds = made_up(runner.inputs, size=size)
        try:
            return feeds, runner.run(feeds)
        except RunError:
            if size == SIZES[-1]:
                raise
    raise AssertionError


def _notes(weights: tuple[WeightReport, ...]) -> list[str]:
    notes = ["not faster than the source: runtimes turn the weights back into floats at load"]
    bases = sum("fixed basis" in one.reason for one in weights)
    if bases:
        notes.append(f"{bases} fixed bases of transforms stayed floats (float16)")
    hurt = [one for one in weights if one.reason.startswith("INT8 would")]
    if hurt:
        notes.append(f"{len(hurt)} weights became float16, because INT8 would change them too much")
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


def _publish(folder: Path, target: Path) -> None:
    """Let the files take their names, the model last: it names the others."""
    with saving(target):
        sync_folder(folder)
        for report in report_files(target):
            report.unlink(missing_ok=True)
        for file in sorted(folder.iterdir(), key=lambda one: one.name == target.name):
            if file.is_dir():
                publish_folder(file, target.with_name(file.name))
            else:
                file.replace(target.with_name(file.name))
