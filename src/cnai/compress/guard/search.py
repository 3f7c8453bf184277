"""The guard: tries models from the safest to the fastest, mends what fails, keeps the best.

Weight-only comes first, so that there is a result whatever happens afterwards. Then what computes
in INT8: a model that loses too much is taken apart, one group in INT8 at a time, and the guilty
groups go back to weight-only. The data that finds the guilty is not the data that judges. Every
model that was made stands in the record; nothing is tried after the budget has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from cnai.compress.guard.judge import Judge
from cnai.compress.guard.speed import measure_speed
from cnai.compress.guard.trials import GroupError, Mode, Speed, Trial
from cnai.compress.guard.workshop import Candidate, Made, Workshop
from cnai.compress.onnx_int8 import OpSet
from cnai.compress.runners import Runner
from cnai.compress.weight_only import BASIS, ROUGH, Scheme, Wishes
from cnai.core.clock import Clock
from cnai.core.errors import CnaiError, RunError

NARROWED = 0.9999
"""Share of the numbers that the ranges of the second static candidate hold."""
_GAIN = 1.05
_MOST_GROUPS = 200

_DARED = (
    "weights that stay floats without data became INT8, since it did no harm on this data; parts "
    "of the model that the data does not reach were not proved"
)

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the guard works with.

    Attributes:
        source: The model as it was, loaded.
        judge: Decides; on samples that nothing else has seen.
        finder: Finds guilty groups; on samples of the calibration.
        timed: Inputs of one run for measuring speed, and how many samples they hold.
        deadline: Of the clock's `monotonic`; after it nothing new is tried.
    """

    workshop: Workshop
    source: Runner
    judge: Judge
    finder: Judge
    timed: tuple[Mapping[str, NDArray[Any]], int]
    clock: Clock
    deadline: float
    progress: Progress = lambda _stage, _done, _total: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a search.

    Attributes:
        made: The best model.
        trial: What was measured of it.
        trials: All of them, in the order of trying.
        groups: What each group does alone, where that was asked.
        passed: Whether the best model reaches the goal.
    """

    made: Made
    trial: Trial
    trials: tuple[Trial, ...]
    groups: tuple[GroupError, ...]
    notes: tuple[str, ...]
    passed: bool


@dataclass(slots=True)
class _Entry:
    candidate: Candidate
    made: Made | None
    trial: Trial


@dataclass(slots=True)
class Guard:
    """One search. Call `search` once."""

    bench: Bench
    mode: Mode
    wishes: Wishes
    entries: list[_Entry] = field(default_factory=list)
    errors: dict[str, GroupError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def search(self) -> Found:
        """Try models and return the best.

        Raises:
            RunError: The mode that was asked for is not possible.
        """
        if self.mode in {Mode.AUTO, Mode.WEIGHT_ONLY}:
            self._weight_only()
        if self.mode is not Mode.WEIGHT_ONLY:
            self._computed()
        stored = [one for one in self.entries if one.candidate.mode is Mode.WEIGHT_ONLY]
        if stored and not any(self._acceptable(one) for one in self.entries):
            self._mend_weights(stored[0])
        best = self._best()
        if best.made is None:
            raise RunError(
                f"`--mode {self.mode}` gave no model: {best.trial.reason}",
                where="--mode",
                hint="`--mode auto` takes what is possible",
            )
        if self._over() and self.mode is not Mode.WEIGHT_ONLY:
            self.notes.append("the budget ended before everything was tried; `--budget` gives more")
        if best.candidate.wishes.bases or best.candidate.wishes.rough:
            self.notes.append(_DARED)
        chosen = replace(best.trial, chosen=True)
        back = set(best.candidate.back)
        return Found(
            made=best.made,
            trial=chosen,
            trials=tuple(chosen if one is best else one.trial for one in self.entries),
            groups=tuple(replace(one, back=one.group in back) for one in self.errors.values()),
            notes=tuple(self.notes),
            passed=best.trial.passed,
        )

    def _over(self) -> bool:
        return self.bench.clock.monotonic() >= self.bench.deadline

    def _try(self, candidate: Candidate) -> _Entry:
        """Make, judge and time one model; a failure is a result too."""
        clock = self.bench.clock
        start = clock.monotonic()
        self.bench.progress(candidate.name, 0, 1)
        made, score, speed, reason = None, None, None, ""
        try:
            made = self.bench.workshop.make(candidate)
            runner = self.bench.source.same_for(made.path)
            score = self.bench.judge.judge(runner)
            reason = score.reason
            speed = self._speed(runner) if not self._over() else None
        except CnaiError as error:
            reason = error.message
            if candidate.mode is Mode.WEIGHT_ONLY and made is None:
                raise
        trial = Trial(
            name=candidate.name,
            mode=candidate.mode,
            score=score,
            speed=speed,
            size_bytes=made.size_bytes if made else 0,
            back=candidate.back,
            seconds=clock.monotonic() - start,
            reason=reason,
        )
        entry = _Entry(candidate, made, trial)
        self.entries.append(entry)
        self.bench.progress(candidate.name, 1, 1)
        return entry

    def _speed(self, runner: Runner) -> Speed:
        feeds, rows = self.bench.timed
        return measure_speed(
            lambda: self.bench.source.run(feeds),
            lambda: runner.run(feeds),
            self.bench.clock,
            rows=rows,
        )

    def _weight_only(self) -> None:
        """Make the model that is always there, and one that dares more, since data judges."""
        first = self._try(Candidate(name="weight-only", mode=Mode.WEIGHT_ONLY, wishes=self.wishes))
        if first.made is None or not first.trial.passed:
            return
        reasons = [one.reason for one in first.made.weights if one.scheme is Scheme.FLOAT16]
        bases = any(one.startswith(BASIS) for one in reasons)
        rough = any(one.startswith(ROUGH) for one in reasons)
        for name, wishes, sensible in (
            ("weight-only, all in INT8", replace(self.wishes, bases=True, rough=True), rough),
            ("weight-only, fixed bases too", replace(self.wishes, bases=True), bases),
        ):
            if not sensible or self._over():
                continue
            if self._try(Candidate(name=name, mode=Mode.WEIGHT_ONLY, wishes=wishes)).trial.passed:
                self.wishes = wishes
                return

    def _mend_weights(self, entry: _Entry) -> None:
        """Turn the weights whose INT8 costs most into float16; the last resort."""
        if entry.made is None:
            return
        names = [one.name for one in entry.made.weights if one.scheme is Scheme.INT8]
        names = names[:_MOST_GROUPS]
        order = self._guilty(replace(entry.candidate, groups=tuple(names)))

        def without(count: int) -> Candidate:
            back = tuple(order[:count])
            wishes = replace(self.wishes, half=self.wishes.half | set(back))
            name = f"weight-only, {count} of {len(names)} in float16"
            return Candidate(name=name, mode=Mode.WEIGHT_ONLY, wishes=wishes, back=back)

        self._fewest(without, len(order))

    def _computed(self) -> None:
        """Try what computes in INT8, then mend the fastest that failed."""
        for candidate in self._candidates():
            if self._over() and self._has_result():
                return
            self._try(candidate)
        failed = [
            one
            for one in self.entries
            if one.candidate.mode is not Mode.WEIGHT_ONLY
            and one.trial.score
            and not one.trial.passed
        ]
        for entry in sorted(failed, key=lambda one: -_ratio(one.trial)):
            best = max((_ratio(one.trial) for one in self.entries if one.trial.passed), default=0.0)
            forced = self.mode is not Mode.AUTO and not best
            if self._over() or not (forced or _ratio(entry.trial) > max(1.0, best) * _GAIN):
                return
            self._mend_groups(entry)

    def _has_result(self) -> bool:
        return any(one.made is not None for one in self.entries)

    def _candidates(self) -> list[Candidate]:
        """Return what computes in INT8, from the fastest to the safest."""
        wanted: list[tuple[str, Mode, OpSet, float | None]] = []
        if self.mode in {Mode.AUTO, Mode.STATIC}:
            wanted += [
                ("static, all operations", Mode.STATIC, OpSet.ALL, None),
                ("static, convolutions and products", Mode.STATIC, OpSet.WEIGHTED, None),
                (f"static, {NARROWED:.2%} of the range", Mode.STATIC, OpSet.WEIGHTED, NARROWED),
            ]
        if self.mode in {Mode.AUTO, Mode.DYNAMIC}:
            wanted.append(("dynamic, products", Mode.DYNAMIC, OpSet.WEIGHTED, None))
        found, seen = [], set()
        for name, mode, ops, share in wanted:
            try:
                groups = self.bench.workshop.groups(mode, ops, self.wishes)
            except RunError as error:
                self.notes.append(error.message)
                break
            if groups and (mode, groups, share) not in seen:
                seen.add((mode, groups, share))
                found.append(
                    Candidate(name=name, mode=mode, wishes=self.wishes, groups=groups, share=share)
                )
        return found

    def _mend_groups(self, entry: _Entry) -> None:
        """Take the groups whose INT8 arithmetic costs most back to weight-only."""
        candidate = entry.candidate
        order = self._guilty(replace(candidate, groups=candidate.groups[:_MOST_GROUPS]))

        def without(count: int) -> Candidate:
            back = tuple(order[:count])
            groups = tuple(one for one in candidate.groups if one not in back)
            name = f"{candidate.name}, {count} of {len(candidate.groups)} groups back"
            return replace(candidate, name=name, groups=groups, back=back)

        self._fewest(without, len(order) - 1)

    def _guilty(self, candidate: Candidate) -> list[str]:
        """Return the groups of a candidate from the most guilty, as far as the budget reaches."""
        groups = candidate.groups
        found: dict[str, float] = {}
        for number, group in enumerate(groups):
            if self._over():
                break
            self.bench.progress("sensitivity", number, len(groups))
            found[group] = self._alone(candidate, group)
            self.errors[group] = GroupError(group=group, error=found[group])
        return sorted(found, key=lambda one: -found[one])

    def _alone(self, candidate: Candidate, group: str) -> float:
        """Return how far the outputs turn away when only this group is in INT8."""
        try:
            with self.bench.workshop.alone(candidate, group) as path:
                return self.bench.finder.change(self.bench.source.same_for(path))
        except CnaiError:
            # A group that does not even run alone is the guiltiest.
            return math.inf

    def _fewest(self, without: Callable[[int], Candidate], most: int) -> _Entry | None:
        """Find about the fewest groups that must go back: doubling, then halving the gap."""
        low, high, best = 0, 1, None
        while high <= most and not self._over():
            entry = self._try(without(high))
            if entry.trial.passed:
                best = entry
                break
            low, high = high, min(2 * high, most) if high < most else most + 1
        while best is not None and high - low > 1 and not self._over():
            middle = (low + high) // 2
            entry = self._try(without(middle))
            if entry.trial.passed:
                best, high = entry, middle
            else:
                low = middle
        return best

    def _acceptable(self, entry: _Entry) -> bool:
        """Tell whether a model passed and, where it computes in INT8 unasked, is not slower."""
        speed = entry.trial.speed
        stored = entry.candidate.mode is Mode.WEIGHT_ONLY or self.mode is not Mode.AUTO
        return entry.trial.passed and (stored or (speed is not None and not speed.slower))

    def _best(self) -> _Entry:
        """Return the fastest that passed and is proved faster; else the smallest that passed.

        When nothing passed: the one that lost least, so that a result is there.
        """
        made = [one for one in self.entries if one.made is not None]
        if not made:
            return self.entries[-1] if self.entries else self._nothing()
        passed = [one for one in made if one.trial.passed]
        if not passed:
            return min(made, key=_loss)
        if self.mode in {Mode.STATIC, Mode.DYNAMIC}:
            return max(passed, key=_worth)
        fast = [
            one
            for one in passed
            if one.candidate.mode is not Mode.WEIGHT_ONLY
            and one.trial.speed is not None
            and one.trial.speed.faster
        ]
        if fast:
            return max(fast, key=_worth)
        stored = [one for one in passed if one.candidate.mode is Mode.WEIGHT_ONLY]
        fair = stored or [one for one in passed if self._acceptable(one)]
        return min(fair or passed, key=lambda one: one.trial.size_bytes)

    def _nothing(self) -> _Entry:
        reason = "; ".join(self.notes) or "it has no products or convolutions with weights"
        candidate = Candidate(name=str(self.mode), mode=self.mode, wishes=self.wishes)
        trial = Trial(
            name=str(self.mode),
            mode=self.mode,
            score=None,
            speed=None,
            size_bytes=0,
            back=(),
            seconds=0.0,
            reason=reason,
        )
        return _Entry(candidate, None, trial)


def _ratio(trial: Trial) -> float:
    return trial.speed.ratio if trial.speed is not None else 0.0


def _worth(entry: _Entry) -> tuple[float, int, int]:
    """Order by speed as far as it can be told apart, then by size, then by what stayed in INT8."""
    trial = entry.trial
    return round(_ratio(trial), 1), -trial.size_bytes, -len(trial.back)


def _loss(entry: _Entry) -> float:
    """Return how far the outputs turned away; a metric of a broken model may be anything."""
    score = entry.trial.score
    error = math.inf if score is None else score.agreement.relative_error
    return math.inf if math.isnan(error) else error
