"""From the smallest and fastest forms to the safest: what is tried after a try lost too much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cnai.compress.decoder.gptq import calibrated
from cnai.compress.decoder.search import Option, admitted, ranked
from cnai.compress.decoder.smooth import smoothed, smoothing
from cnai.compress.decoder.trial import Trial, stored
from cnai.compress.decoder.units import Unit, units_of
from cnai.compress.folder.report import UnitReport
from cnai.compress.folder.treatment import Form, Treatment, group_for
from cnai.models.huggingface import HuggingFaceWeights, load_decoder, stored_names
from cnai.models.initialise import parameter_sizes

RUNGS: dict[str, tuple[tuple[Form, Form], ...]] = {
    "auto": ((Form.W8A8, Form.W8A16), (Form.W8A16, Form.BF16)),
    "int8": ((Form.W8A16, Form.BF16),),
    "int4": ((Form.W4A16, Form.W8A16), (Form.W8A16, Form.BF16)),
    "fp8": ((Form.FP8, Form.BF16),),
    "bf16": (),
    "fp16": (),
}
"""For each precision: the form that is wanted, and the one of the layers that it hurts."""
_DIRECT = frozenset({Form.W8A16, Form.FP8})
_TRIES_A_RUNG = 3
GIVEN_UP = "the guard gave it up for accuracy"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A choice to write and measure.

    Attributes:
        what: In words.
        chosen: What becomes of each tensor, by its name in the files.
    """

    what: str
    chosen: Mapping[str, Treatment]
    units: tuple[UnitReport, ...] = ()


class Ladder:
    """The steps of one precision; each is asked for only after the one before lost too much.

    Args:
        chosen: What becomes of the tensors when nothing is hurt, by their names in the files.
        calibration: Rows that are not those of the measurement.
        limit: Largest divergence in nats on them.
        deadline: Value of `time.monotonic` after which only the safe forms are tried.
    """

    def __init__(
        self,
        weights: HuggingFaceWeights,
        chosen: Mapping[str, Treatment],
        calibration: NDArray[np.int64],
        *,
        limit: float,
        deadline: float,
        short_scales: bool,
        progress: Progress,
    ) -> None:
        self._weights = weights
        self._rows = calibration
        self._limit = limit
        self._deadline = deadline
        self._short = short_scales
        self._progress = progress
        self._trial: Trial | None = None
        whole = [
            unit
            for unit in units_of(weights.shape)
            if all(
                chosen[theirs].form is not Form.KEPT
                for name in unit.names
                for theirs in stored_names(name, weights.shape)
            )
        ]
        self._units = tuple(whole)
        mixed = {
            name for unit in units_of(weights.shape) if unit not in whole for name in unit.names
        }
        # Fused layers share a form, so one that is to be left alone keeps its whole unit.
        alone = Treatment(form=Form.KEPT, reason="is ignored as asked")
        self._chosen = {**chosen, **stored(dict.fromkeys(mixed, alone), weights.shape)}

    def steps(self, precision: str) -> Iterator[Step]:
        """Yield the steps of a precision."""
        rungs = RUNGS[precision]
        if not rungs or not self._units:
            yield Step(what=precision, chosen=self._chosen)
        for small, safe in rungs:
            last = (small, safe) == rungs[-1]
            yield from self._rung(small, safe, last=last)

    def _rung(self, small: Form, safe: Form, *, last: bool) -> Iterator[Step]:
        if small in _DIRECT:
            options = [self._option(unit, small, safe) for unit in self._units]
            yield self._step(options, len(options))
        if time.monotonic() < self._deadline:
            options = list(self._prepared(small, safe))
            order = ranked(
                self._model(), options, self._deadline, lambda *at: self._progress("search", *at)
            )
            count = admitted(self._model(), order, self._limit)
            if small in _DIRECT:
                count = min(count, len(order) * 3 // 4)
            for _ in range(_TRIES_A_RUNG):
                if count == 0:
                    break
                yield self._step(order, count)
                count = count * 2 // 3
        if last:
            yield self._step([self._option(unit, small, safe) for unit in self._units], 0)

    def _model(self) -> Trial:
        if self._trial is None:
            self._trial = Trial(self._weights, self._rows, short_scales=self._short)
        return self._trial

    def _option(self, unit: Unit, small: Form, safe: Form) -> Option:
        return Option(
            unit=unit, form=small, small=self._plain(unit, small), safe=self._plain(unit, safe)
        )

    def _plain(self, unit: Unit, form: Form) -> dict[str, Treatment]:
        """Return the treatments of a unit without calibration."""
        reason = GIVEN_UP if form is Form.BF16 else ""
        sizes = parameter_sizes(self._weights.shape)
        made = {}
        if unit.kind == "experts" and form is Form.W8A8:
            form = Form.W8A16  # Nothing here rounds the activations of experts, so none are.
        for name in unit.names:
            group = group_for(sizes[name][-1]) if form is Form.W4A16 else None
            odd = form is Form.W4A16 and group is None
            made[name] = Treatment(
                form=Form.W8A16 if odd else form,
                group=group,
                reason="its inputs are no multiple of 32" if odd else reason,
            )
        return made

    def _prepared(self, small: Form, safe: Form) -> Iterator[Option]:
        """Yield the units with what calibration gives for their small form."""
        if small is Form.W4A16:
            rounded = calibrated(
                load_decoder(self._weights.folder),
                self._rows,
                short_scales=self._short,
                progress=lambda *at: self._progress("calibrate", *at),
            )
            for unit in self._units:
                option = self._option(unit, small, safe)
                ready = {name: rounded.get(name, one) for name, one in option.small.items()}
                yield replace(option, small=ready)
            return
        factors = self._factors(small) if small is Form.W8A8 else {}
        for unit in self._units:
            option, factor = self._option(unit, small, safe), factors.get(unit.name)
            yield replace(
                option,
                small=smoothed(unit, dict(option.small), factor),
                safe=smoothed(unit, dict(option.safe), factor),
            )

    def _factors(self, small: Form) -> dict[str, NDArray[np.float32]]:
        """Return the factors of smoothing when it helps all units together, else none."""
        trial = self._model()
        factors = smoothing(trial, self._units)
        found = {}
        for name, tried in (("plain", {}), ("smooth", factors)):
            used: dict[str, Treatment] = {}
            for unit in self._units:
                used |= smoothed(unit, self._plain(unit, small), tried.get(unit.name))
            trial.use(used)
            found[name] = trial.reference.divergence(trial.logits()).kl
            trial.undo(used)
        return factors if found["smooth"] < found["plain"] else {}

    def _step(self, order: list[Option] | tuple[Option, ...], count: int) -> Step:
        chosen = dict(self._chosen)
        for index, option in enumerate(order):
            chosen |= stored(option.small if index < count else option.safe, self._weights.shape)
        form = order[0].form
        what = (
            f"{form} in all layers" if count == len(order) else f"{form} in {count} of {len(order)}"
        )
        smooth = any(one.factor is not None for option in order for one in option.small.values())
        return Step(
            what=f"{what}, smoothed" if smooth else what,
            chosen=chosen,
            units=tuple(
                option.report(kept=index < count)
                for index, option in enumerate(order)
                if option.kl is not None
            ),
        )
