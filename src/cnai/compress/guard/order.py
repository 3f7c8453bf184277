"""What the user ordered of the guard, and the bench that is made ready from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from cnai.compress.formats import Format
from cnai.compress.guard.judge import Goal, Judge
from cnai.compress.guard.metrics import metric_of
from cnai.compress.guard.reading import read_samples
from cnai.compress.guard.samples import MOST_TO_CALIBRATE, Sample, batched, drawn, split
from cnai.compress.guard.search import Bench
from cnai.compress.guard.trials import Mode
from cnai.compress.guard.workshop import Workshop
from cnai.compress.runners import Engine, Runner, open_runner
from cnai.core.clock import Clock
from cnai.core.errors import RunError, SpecError

_TO_FIND = 32
_CALIBRATION_ROWS = 8
_TIMED_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a file's loss is measured, and what is tried.

    Attributes:
        evaluation: Where samples to judge on are; see `guard.reading`. None = none.
        calibration: Where samples to find ranges on are; None = some of the evaluation's.
        metric: Name of a metric, or `module:function`; used when the samples are labelled.
        inputs: Names of the inputs that the data gives; () = all.
        outputs: Names of the outputs that count, the one to judge first; () = all.
        budget_seconds: After these nothing new is tried.
    """

    evaluation: str | None = None
    calibration: str | None = None
    metric: str = "accuracy"
    goal: Goal = field(default_factory=Goal)
    mode: Mode = Mode.AUTO
    engine: Engine = Engine.AUTO
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    budget_seconds: float = 600.0
    seed: int = 0

    @property
    def measured(self) -> bool:
        """Whether there is data to measure on."""
        return bool(self.evaluation or self.calibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that was read and opened before the first model is made.

    Attributes:
        notes: What the user should know of his data.
    """

    source: Runner
    calibration: tuple[Sample, ...]
    evaluation: tuple[Sample, ...]
    notes: tuple[str, ...]


def check_order(order: Order, kind: Format) -> None:
    """Refuse what cannot be done, before anything is read.

    Raises:
        SpecError: INT8 arithmetic without data, or of a format that has none.
    """
    if order.mode not in {Mode.STATIC, Mode.DYNAMIC}:
        return
    if kind is not Format.ONNX:
        raise SpecError(
            f"`--mode {order.mode}` is not written for {kind} models yet",
            where="--mode",
            hint="leave the option away, or give the model as ONNX",
        )
    if not order.measured:
        raise SpecError(
            f"`--mode {order.mode}` needs data: noise calibrates a model to noise, and without "
            "data nobody knows what it costs",
            where="--mode",
            hint="give real inputs with `--eval DATA` or `--calib DATA`; a few dozen will do",
        )


def read_order(order: Order, kind: Format, source: Path) -> Prepared:
    """Open the source and read the data.

    Raises:
        SpecError: A name or form is unknown.
        DataError: The data does not fit the model.
        RunError: No runtime runs the model.
    """
    runner = open_runner(
        kind, source, engine=order.engine, inputs=order.inputs, outputs=order.outputs
    )
    if runner is None:
        raise RunError(
            f"no runtime that runs {kind} models is installed, so nothing can be measured",
            where=str(source),
            hint="`pip install openvino` brings a small one; or leave `--eval` and `--calib` away",
        )
    notes: list[str] = []
    calibration = _read(order.calibration, runner, "--calib")
    evaluation = _read(order.evaluation, runner, "--eval")
    if not (calibration and evaluation):
        which = "--eval" if evaluation else "--calib"
        calibration, evaluation, apart = split(evaluation or calibration, seed=order.seed)
        notes.append(
            f"calibrated on {len(calibration)} and judged by {len(evaluation)} samples of `{which}`"
            if apart
            else f"`{which}` has a single sample: it both calibrates and judges"
        )
    calibration = drawn(calibration, MOST_TO_CALIBRATE, seed=order.seed)
    return Prepared(
        source=runner, calibration=calibration, evaluation=evaluation, notes=tuple(notes)
    )


def _read(where: str | None, runner: Runner, flag: str) -> tuple[Sample, ...]:
    return read_samples(where, runner.inputs, flag=flag) if where else ()


def bench_of(
    order: Order,
    prepared: Prepared,
    workshop: Workshop,
    clock: Clock,
    progress: Callable[[str, int, int], None],
) -> Bench:
    """Let the source answer all samples, and make everything ready for the search.

    Raises:
        DataError: The labels or the source's answers make no sense.
        SpecError: The metric is unknown.
    """
    start = clock.monotonic()
    runner, calibration = prepared.source, prepared.calibration
    metric = metric_of(order.metric, alphabet=_alphabet(workshop.kind, workshop.source))
    plain = [Sample(feeds=one.feeds) for one in calibration]
    workshop.calibration = [feeds for feeds, _ in batched(plain, runner.inputs, _CALIBRATION_ROWS)]
    timed, rows = next(batched(prepared.evaluation[:_TIMED_ROWS], runner.inputs, _TIMED_ROWS))
    return Bench(
        workshop=workshop,
        source=runner,
        judge=Judge(runner, prepared.evaluation, metric=metric, goal=order.goal),
        finder=Judge(
            runner,
            drawn(plain, _TO_FIND, seed=order.seed),
            metric=metric,
            goal=order.goal,
        ),
        timed=(timed, rows),
        clock=clock,
        deadline=start + order.budget_seconds,
        progress=progress,
    )


def _alphabet(kind: Format, source: Path) -> list[str]:
    """Return the characters of the classes of a model that reads texts; class 0 is the blank."""
    if kind is not Format.ONNX:
        return []
    model = onnx.load(str(source), load_external_data=False)
    for one in model.metadata_props:
        if one.key == "character":
            return ["", *one.value.splitlines(), " "]
    return []
