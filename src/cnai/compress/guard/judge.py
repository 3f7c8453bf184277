"""The verdict: what a model lost on the samples, how sure that is, and whether it still is itself.

A loss is measured against the same samples before, so that their own difficulty cancels out, and
has an interval from drawing them again (paired bootstrap). With labels it is that of the metric.
Without, it is how much less the source itself would expect of the new model's choices, or how far
the outputs turned away. Both ways the outputs must also lie close together: a metric may rise while
a model breaks, and five samples show nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cnai.compress.agreement import Agreement
from cnai.compress.bootstrap import SUSPICIOUS_GAIN, interval
from cnai.compress.guard.metrics import Metric
from cnai.compress.guard.outputs import Compared, Kind, Outputs, compare, kind_of, offset_of
from cnai.compress.guard.samples import Sample, batched
from cnai.compress.guard.trials import Score
from cnai.compress.runners import Runner
from cnai.core.artifact import Quality
from cnai.core.errors import DataError

AT_ONCE = 16
_LEAST_LIMIT = 0.01
_SAME_MODEL = 5.0
"""How much further outputs may move when labels show that the metric does not."""
_KL = 2.0
"""Nats of divergence for each unit of loss allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What may be lost.

    Attributes:
        max_loss: Largest relative loss.
        strict: Whether the whole interval must lie within, not only the measured loss.
    """

    max_loss: float = 0.01
    strict: bool = False

    @property
    def limit(self) -> float:
        """Largest distance of outputs that still are those of the same model."""
        return max(self.max_loss, _LEAST_LIMIT)


class Judge:
    """Knows what the source answers, and compares other models with it.

    Args:
        source: The model as it was.
        samples: What to judge on; all labelled or none.
        metric: Used when they are labelled.

    Raises:
        RunError: The source cannot run a sample.
        DataError: The source's answers or the labels make no sense.
    """

    def __init__(
        self, source: Runner, samples: Sequence[Sample], *, metric: Metric, goal: Goal
    ) -> None:
        self.goal = goal
        self.samples = tuple(samples)
        self._runner = source
        self._at_once = AT_ONCE
        self._before = self._answers(source)
        labelled = all(one.label is not None for one in self.samples)
        self._metric = metric if labelled else None
        self._kind = kind_of(self._before)
        self._offset = offset_of(self._before) if self._kind is Kind.NUMBERS else None
        self._values = self._measured(self._before) if self._metric else None
        if self._metric and self._values is not None:
            self._require_sense(self._metric, self._values)

    def judge(self, runner: Runner) -> Score:
        """Compare a model with the source."""
        after = self._answers(runner)
        pairs = [
            compare(one, two, self._kind, self._offset)
            for one, two in zip(self._before, after, strict=True)
        ]
        agreement = self._agreement(pairs, runner)
        quality, whole = self._quality(pairs, after)
        reason = self._reason(quality, agreement, pairs, whole=whole)
        return Score(
            quality=quality,
            agreement=agreement,
            passed=not reason,
            resolvable=_resolvable(quality),
            reason=reason,
        )

    def change(self, runner: Runner) -> float:
        """Return the norm of the outputs' change over their norm, infinite when it broke."""
        pairs = [
            compare(one, two, self._kind, self._offset)
            for one, two in zip(self._before, self._answers(runner), strict=True)
        ]
        return _relative(pairs)

    def _answers(self, runner: Runner) -> list[Outputs]:
        """Return the outputs of each sample."""
        found: list[Outputs] = []
        for feeds, rows in batched(self.samples, runner.inputs, self._at_once):
            outputs = dict(zip(runner.outputs, runner.run(feeds), strict=True))
            divisible = all(one.ndim and len(one) == rows for one in outputs.values())
            if rows > 1 and not divisible:
                self._at_once = 1
                return self._answers(runner)
            if rows == 1:
                found.append(outputs)
            else:
                found += [
                    {name: one[index : index + 1] for name, one in outputs.items()}
                    for index in range(rows)
                ]
        return found

    def _measured(self, answers: Sequence[Outputs]) -> NDArray[np.float64]:
        if self._metric is None:
            raise ValueError("no metric without labels")
        return np.array(
            [
                self._metric.of(outputs, sample.label)
                for outputs, sample in zip(answers, self.samples, strict=True)
            ],
            np.float64,
        )

    def _require_sense(self, metric: Metric, values: NDArray[np.float64]) -> None:
        before = metric.total(values)
        if not np.isfinite(before) or before <= 0:
            raise DataError(
                f"the source itself reaches {metric.name} {before:.4g} on the {len(values)} samples"
                " of `--eval`",
                where="--eval",
                hint="the labels do not belong to these inputs, or another output is meant "
                "(`--outputs`), or the metric is no number that is better when higher",
            )

    def _quality(self, pairs: list[Compared], after: list[Outputs]) -> tuple[Quality, bool]:
        """Return the quality, and whether a single sample is its smallest step."""
        if self._metric is not None and self._values is not None:
            new = self._measured(after)
            quality = quality_of(
                self._metric.name, self._values, new, self._metric.total, self.goal.max_loss
            )
            if self._metric.whole:
                quality = _with_unseen(quality, bool((new != self._values).any()))
            return quality, self._metric.whole
        name, before, now = _own_measure(self._kind, pairs)
        quality = quality_of(name, before, now, _mean, self.goal.max_loss)
        return quality, self._kind is not Kind.NUMBERS

    def _agreement(self, pairs: list[Compared], runner: Runner) -> Agreement:
        same, kl = [one.same for one in pairs], [one.kl for one in pairs]
        return Agreement(
            inputs="data",
            runtime=runner.runtime,
            samples=len(pairs),
            cosine=float(np.mean([one.cosine for one in pairs])),
            relative_error=_relative(pairs),
            top1=None if np.isnan(same).all() else float(np.mean(same)),
            kl=None if np.isnan(kl).all() else float(np.mean(kl)),
        )

    def _reason(
        self, quality: Quality, agreement: Agreement, pairs: list[Compared], *, whole: bool
    ) -> str:
        """Return the first reason to refuse a model, or nothing."""
        near = _nearness(agreement, self.goal.limit)
        # A metric that holds still speaks for the model: then its outputs may move further.
        still = quality.relative_loss >= -self.goal.limit
        known = _nearness(agreement, (_SAME_MODEL if still else 1) * self.goal.limit)
        few = whole and 1 / len(pairs) > self.goal.max_loss
        labelled = self._metric is not None
        gain = -quality.relative_loss
        far, name = _far(agreement), quality.metric
        reasons = (
            (
                not all(one.finite for one in pairs),
                "it gives numbers that are infinite or none, or of another shape",
            ),
            (not quality.passed, f"{name} lost {-gain:.2%}"),
            (
                labelled and not any(known.values()),
                f"its outputs are others ({far}), though {name} is not",
            ),
            (
                labelled and gain > SUSPICIOUS_GAIN and not all(near.values()),
                f"{name} rose by {gain:.1%}, which rounding cannot do ({far})",
            ),
            (not labelled and not near.get("kl", True), f"its outputs are others ({far})"),
            (
                few and not all(near.values()),
                f"{len(pairs)} samples cannot show its loss, and its outputs differ ({far})",
            ),
            (
                self.goal.strict and quality.high > quality.allowed_loss,
                f"the interval of its loss reaches {quality.high:.2%}",
            ),
        )
        return next((reason for holds, reason in reasons if holds), "")


def quality_of(
    name: str,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    total: Callable[[NDArray[np.float64]], float],
    allowed: float,
) -> Quality:
    """Compare a metric on the same samples, with its interval.

    Args:
        before: What the metric keeps of each sample, shape (N, k).
        total: From samples to the metric, better when higher.
    """
    first, second = total(before), total(after)
    low, high = interval(
        len(before), lambda drawn: _loss(total(before[drawn]), total(after[drawn]))
    )
    return Quality(
        metric=name,
        before=first,
        after=second,
        relative_loss=_loss(first, second),
        low=low,
        high=high,
        samples=len(before),
        allowed_loss=allowed,
    )


def _loss(before: float, after: float) -> float:
    return (before - after) / abs(before) if before else float("nan")


def _mean(values: NDArray[np.float64]) -> float:
    return float(values[:, 0].mean())


def _with_unseen(quality: Quality, changed: bool) -> Quality:
    """Widen the interval where no sample changed: drawing them again cannot show what was not seen.

    Of N samples none changed, so with 97.5 % fewer than 1 - 0.025^(1/N) of all do.
    """
    if changed:
        return quality
    unseen = 1 - 0.025 ** (1 / quality.samples)
    return replace(quality, low=-unseen, high=unseen)


def _resolvable(quality: Quality) -> bool:
    return quality.high <= quality.allowed_loss or quality.low > quality.allowed_loss


def _own_measure(
    kind: Kind, pairs: list[Compared]
) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    """Return what is measured without labels: its name, and its values before and after."""
    if kind is Kind.PROBABILITIES:
        return (
            "expected accuracy",
            np.array([[one.own] for one in pairs]),
            np.array([[one.kept] for one in pairs]),
        )
    choices = not np.isnan([one.same for one in pairs]).all()
    name = "same decisions" if choices else "cosine of outputs"
    values = [[one.same if choices else one.cosine] for one in pairs]
    return name, np.ones((len(pairs), 1)), np.array(values)


def _relative(pairs: list[Compared]) -> float:
    if not all(one.finite for one in pairs):
        return float("inf")
    energy = sum(one.energy for one in pairs)
    change = sum(one.change for one in pairs)
    if not energy:
        return 0.0 if not change else float("inf")
    return float(np.sqrt(change / energy))


def _nearness(agreement: Agreement, limit: float) -> dict[str, bool]:
    """Return which measures of distance say that the outputs still are the same model's."""
    near = {"cosine": 1 - agreement.cosine <= limit}
    if agreement.top1 is not None:
        near["top1"] = 1 - agreement.top1 <= limit
    if agreement.kl is not None:
        near["kl"] = agreement.kl <= _KL * limit
    return near


def _far(agreement: Agreement) -> str:
    words = [f"cosine {agreement.cosine:.4f}"]
    if agreement.top1 is not None:
        words.append(f"same choice {agreement.top1:.1%}")
    if agreement.kl is not None:
        words.append(f"divergence {agreement.kl:.2g} nats")
    return ", ".join(words)
