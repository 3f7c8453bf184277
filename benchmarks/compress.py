"""What `ai-cli quantize` makes of real model files, beside onnxruntime's own quantizer.

    python benchmarks/compress.py [ROW ...] [--cache FOLDER] [--budget SECONDS] [--json]

Models and data come from packages and are fetched once into the cache. Each row gives the samples
to `quantize_file` and measures, on the samples that nothing was calibrated on: the metric before
and after, the loss with its interval, the ratio of sizes, and the ratio of speeds (one thread, run
in turns). Beside it stand onnxruntime's `quantize_static` and `quantize_dynamic` in their default
use, judged by the same judge on the same samples. A row whose model cannot be had here says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import compress_digits
import compress_models
from compress_models import Case, Missing
from onnxruntime import quantization

from cnai.compress import CompressionReport, Order, quantize_file
from cnai.compress.formats import recognise
from cnai.compress.guard import Workshop, bench_of, read_order
from cnai.compress.guard.speed import measure_speed
from cnai.core.clock import SystemClock
from cnai.core.errors import CnaiError


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the acceptance table: what to reach, measured on an idle machine."""

    case: Callable[[Path], Case]
    size: float
    speed: float
    loss: float = 0.01


ROWS = {
    "digits-cnn": Row(case=compress_digits.cnn, size=3.4, speed=0.8),
    "digits-mlp": Row(case=compress_digits.mlp, size=3.7, speed=0.9),
    "digits-lstm": Row(case=compress_digits.lstm, size=2.7, speed=0.9),
    "digits-attention": Row(case=compress_digits.attention, size=2.1, speed=0.9),
    "magika": Row(case=compress_models.magika, size=3.7, speed=1.8),
    "ocr": Row(case=compress_models.ocr, size=3.5, speed=1.5),
    "silero": Row(case=compress_models.silero, size=3.3, speed=0.95),
    "minilm": Row(case=compress_models.minilm, size=3.8, speed=1.5),
    "efficientnet": Row(case=compress_models.efficientnet, size=3.5, speed=1.8),
}


def run(row: Row, cache: Path, budget: float) -> dict[str, Any]:
    """Return what one row measured."""
    case = row.case(cache)
    order = Order(
        evaluation=str(case.samples),
        metric=case.metric,
        outputs=case.outputs,
        budget_seconds=budget,
    )
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"small{case.model.suffix}"
        start = time.monotonic()
        report = quantize_file(case.model, target, order=order)
        seconds = time.monotonic() - start
        peers = peers_of(case, order, Path(folder)) if case.model.suffix == ".onnx" else {}
    return {**ours(report), "seconds": seconds, "reached": reached(row, report), "peers": peers}


def ours(report: CompressionReport) -> dict[str, Any]:
    """Return the numbers of a report."""
    quality, speed = report.quality, report.speed
    chosen = next(one.name for one in report.trials if one.chosen)
    return {
        "chosen": chosen,
        "metric": quality.metric if quality else "",
        "before": quality.before if quality else None,
        "after": quality.after if quality else None,
        "loss": quality.relative_loss if quality else None,
        "low": quality.low if quality else None,
        "high": quality.high if quality else None,
        "samples": quality.samples if quality else 0,
        "size": report.ratio,
        "speed": speed.ratio if speed else None,
        "speed_low": speed.low if speed else None,
        "speed_high": speed.high if speed else None,
        "cosine": report.agreement.cosine if report.agreement else None,
        "trials": len(report.trials),
    }


def reached(row: Row, report: CompressionReport) -> bool:
    """Tell whether the row of the table is reached."""
    quality, speed = report.quality, report.speed
    if quality is None or speed is None:
        return False
    return (
        quality.relative_loss <= row.loss and report.ratio >= row.size and speed.ratio >= row.speed
    )


def peers_of(case: Case, order: Order, folder: Path) -> dict[str, Any]:
    """Judge onnxruntime's own results by the same samples; its failures are results too."""
    kind = recognise(case.model)
    prepared = read_order(order, kind, case.model)
    workshop = Workshop(kind=kind, source=case.model, folder=folder, name="peer.onnx")
    bench = bench_of(order, prepared, workshop, SystemClock(), lambda *_: None)
    found = {}
    for name, make in (("ort static", static), ("ort dynamic", dynamic)):
        target = folder / f"{name.replace(' ', '-')}.onnx"
        try:
            # The peer leaves files in the working folder.
            with chdir(folder), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make(case.model, target, list(workshop.calibration))
            runner = prepared.source.same_for(target)
            score = bench.judge.judge(runner)
            feeds, rows = bench.timed
            before, after = partial(prepared.source.run, feeds), partial(runner.run, feeds)
            speed = measure_speed(before, after, SystemClock(), rows=rows)
        except CnaiError as error:
            found[name] = {"failed": error.message[:200]}
        except Exception as error:  # noqa: BLE001 - whatever the peer raises is its result
            found[name] = {"failed": f"{type(error).__name__}: {str(error).strip()[:160]}"}
        else:
            found[name] = {
                "loss": score.quality.relative_loss,
                "size": case.model.stat().st_size / target.stat().st_size,
                "speed": speed.ratio,
            }
    return found


class Reader(quantization.CalibrationDataReader):
    """Gives the same calibration samples to onnxruntime's quantizer."""

    def __init__(self, batches: list[Any]) -> None:
        self._left = iter(batches)

    def get_next(self) -> Any:
        """Return the next batch, None at the end."""
        return next(self._left, None)


def static(source: Path, target: Path, batches: list[Any]) -> None:
    """Quantize as onnxruntime's documentation begins."""
    cleaned = target.with_name(f"clean-{target.name}")
    quantization.shape_inference.quant_pre_process(str(source), str(cleaned))
    quantization.quantize_static(str(cleaned), str(target), Reader(batches), per_channel=True)


def dynamic(source: Path, target: Path, batches: list[Any]) -> None:
    """Quantize as onnxruntime's documentation begins."""
    del batches
    quantization.quantize_dynamic(str(source), str(target))


def line(name: str, found: dict[str, Any]) -> list[str]:
    """Return the printed lines of one row."""
    if "missing" in found:
        return [f"{name:<17} not run: {found['missing']}"]
    lines = [
        f"{name:<17}{found['before']:>8.4f}{found['after']:>8.4f}{found['loss']:>+9.2%} "
        f"[{found['low']:+.2%}, {found['high']:+.2%}] n={found['samples']:<5}"
        f"{found['size']:>6.2f} x {found['speed'] or 0:>6.2f} x {found['seconds']:>6.0f} s  "
        f"{'reached' if found['reached'] else 'NOT reached'}; {found['chosen']}"
    ]
    for peer, one in found["peers"].items():
        if "failed" in one:
            lines.append(f"  {peer:<15}failed: {one['failed']}")
        else:
            lines.append(
                f"  {peer:<31}{one['loss']:>+9.2%}{one['size']:>35.2f} x {one['speed']:>6.2f} x"
            )
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/cnai/bench-compress")
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    unknown = set(arguments.rows) - set(ROWS)
    if unknown:
        sys.exit(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    cache = arguments.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    results = {}
    if not arguments.json:
        print(
            f"{'row':<17}{'FP32':>8}{'INT8':>8}{'loss':>9} [95 % interval]"
            f"{'smaller':>18}{'faster':>9}"
        )
    for name in arguments.rows:
        try:
            results[name] = run(ROWS[name], cache, arguments.budget)
        except Missing as reason:
            results[name] = {"missing": str(reason)}
        except CnaiError as error:
            results[name] = {"missing": error.message}
        if not arguments.json:
            print("\n".join(line(name, results[name])), flush=True)
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
