"""Two models side by side: how far their outputs lie apart, their sizes, and their speeds in pairs.

The two runs of a pair follow each other at once and take turns in going first, so that what slows
the machine down for a while slows both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from cnai.compress.agreement import Agreement, agreement_of
from cnai.compress.contents import size_of
from cnai.compress.formats import recognise
from cnai.compress.probe import run_made_up
from cnai.compress.runners import RUNNABLE, InputSpec, Runner, open_runner
from cnai.core.errors import DataError, RunError, SpecError

PAIRS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two models compared.

    Attributes:
        speed: How many times faster the second is (median over pairs of runs); 1 = as fast.
        low: Lower quartile of it over the pairs; `high` the upper one.
        pairs: Pairs of runs measured.
    """

    first: str
    second: str
    first_bytes: int
    second_bytes: int
    agreement: Agreement
    speed: float
    low: float
    high: float
    pairs: int


def compare(first: Path, second: Path, data: Path | None = None) -> Comparison:
    """Run two models of one format on the same inputs.

    Args:
        data: An .npz file with an array for each input; None = made-up inputs.

    Raises:
        SpecError: They are of formats that cannot be compared, or have other inputs or outputs.
        DataError: A model or the data is missing, damaged or does not fit.
        RunError: No runtime is installed, or one of them does not run.
    """
    one = _opened(first)
    other = one.same_for(second)
    if {spec.name for spec in one.inputs} != {spec.name for spec in other.inputs}:
        raise SpecError(
            f"the models have other inputs: {_names(one)} and {_names(other)}",
            where=str(second),
            hint="give two versions of one model",
        )
    if data is None:
        feeds, expected = run_made_up(one)
    else:
        feeds = _read(data, one.inputs)
        expected = one.run(feeds)
    found = other.run(feeds)
    try:
        agreement = agreement_of(
            expected, found, inputs="data" if data else "made up", runtime=one.runtime
        )
    except ValueError as error:
        raise SpecError(
            f"the models cannot be compared: {error}",
            where=str(second),
            hint="give two versions of one model",
        ) from error
    ratios = _ratios(one, other, feeds)
    return Comparison(
        first=str(first),
        second=str(second),
        first_bytes=size_of(first),
        second_bytes=size_of(second),
        agreement=agreement,
        speed=float(np.median(ratios)),
        low=float(np.quantile(ratios, 0.25)),
        high=float(np.quantile(ratios, 0.75)),
        pairs=len(ratios),
    )


def _opened(path: Path) -> Runner:
    kind = recognise(path)
    if kind not in RUNNABLE:
        raise SpecError(
            f"`{path.name}` is a {kind} model; compared are frozen graphs (.pb) and ONNX models",
            where=str(path),
            hint="for a folder, `ai-cli quantize` measures the perplexity before and after",
        )
    runner = open_runner(kind, path)
    if runner is None:
        raise RunError(
            f"no runtime that runs {kind} models is installed",
            where=str(path),
            hint="`pip install openvino` brings a small one",
        )
    return runner


def _names(runner: Runner) -> list[str]:
    return sorted(spec.name for spec in runner.inputs)


def _read(data: Path, inputs: tuple[InputSpec, ...]) -> dict[str, NDArray[Any]]:
    hint = f"write it with `numpy.savez(FILE, {', '.join(spec.name for spec in inputs)}=...)`"
    try:
        with data.open("rb") as file, np.load(file, allow_pickle=False) as opened:
            held = {name: opened[name] for name in opened.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, BadZipFile) as error:
        raise DataError(
            f"cannot read `{data}` as arrays: {error}", where=str(data), hint=hint
        ) from error
    missing = [spec.name for spec in inputs if spec.name not in held]
    if missing:
        raise DataError(
            f"`{data.name}` has no array for the input `{missing[0]}`", where=str(data), hint=hint
        )
    return {spec.name: held[spec.name].astype(_kind(spec)) for spec in inputs}


def _kind(spec: InputSpec) -> Any:
    return object if spec.dtype == "str" else np.dtype(spec.dtype)


def _ratios(one: Runner, other: Runner, feeds: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return how many times faster the second is, pair by pair."""
    ratios = []
    for number in range(PAIRS):
        if number % 2:
            second, first = _seconds(other, feeds), _seconds(one, feeds)
        else:
            first, second = _seconds(one, feeds), _seconds(other, feeds)
        ratios.append(first / max(second, 1e-9))
    return np.array(ratios)


def _seconds(runner: Runner, feeds: Mapping[str, NDArray[Any]]) -> float:
    start = time.perf_counter()
    runner.run(feeds)
    return time.perf_counter() - start
