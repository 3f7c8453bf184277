"""Metrics on labelled samples: all are better when higher, and all can be resampled.

A new metric is one entry in `METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.guard.reading import function_of
from cnai.core.errors import DataError, SpecError

Outputs = Mapping[str, NDArray[Any]]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric in two steps, so that samples can be drawn again without running the model.

    Attributes:
        name: As reports write it.
        of: From the outputs of one sample and its label to a few numbers.
        total: From the numbers of samples (N, k) to the metric.
        whole: Whether one sample counts as right or wrong, so that 1 / N is the smallest step.
    """

    name: str
    of: Callable[[Outputs, Any], tuple[float, ...]]
    total: Callable[[Values], float]
    whole: bool = False


def _first(outputs: Outputs) -> NDArray[Any]:
    return next(iter(outputs.values()))


def _choices(outputs: Outputs, label: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the chosen and the true classes of a sample; one place each."""
    scores, truth = _first(outputs), np.asarray(label)
    if truth.dtype.kind not in "iufb":
        raise DataError(
            f"the label {label!r} is no class number",
            where="--metric",
            hint="give whole numbers, `--metric cer` for texts, or `--metric module:function`",
        )
    if scores.dtype.kind in "iu" and scores.size == truth.size:
        chosen = scores
    elif scores.ndim == 0 or scores.shape[-1] == 1:
        chosen = (scores > 0.5).astype(np.int64)
    else:
        chosen = scores.argmax(axis=-1)
        if truth.size == scores.size and truth.size > 1:
            truth = truth.reshape(scores.shape).argmax(axis=-1)
    if chosen.size != truth.size:
        raise DataError(
            f"a sample has {chosen.size} answers (output `{next(iter(outputs))}` has the shape "
            f"{' x '.join(map(str, scores.shape))}), but its label {truth.size}",
            where="--eval",
            hint="name the output to judge with `--outputs`, or give `--metric module:function`",
        )
    return chosen.reshape(-1), truth.reshape(-1)


def _accuracy(outputs: Outputs, label: Any) -> tuple[float, ...]:
    chosen, truth = _choices(outputs, label)
    return (float((chosen == truth).mean()),)


def _pair(outputs: Outputs, label: Any) -> tuple[float, ...]:
    chosen, truth = _choices(outputs, label)
    if chosen.size != 1:
        raise DataError(
            f"f1 needs one class a sample, not {chosen.size}",
            where="--metric",
            hint="use accuracy, or `--metric module:function`",
        )
    return float(chosen[0]), float(truth[0])


def _macro_f1(values: Values) -> float:
    """Return the mean over the true classes of the harmonic mean of precision and recall."""
    chosen, truth = values.T
    found = []
    for one in np.unique(truth):
        hit = float(((chosen == one) & (truth == one)).sum())
        found.append(2 * hit / float((chosen == one).sum() + (truth == one).sum()))
    return float(np.mean(found))


def _mean(values: Values) -> float:
    return float(values[:, 0].mean())


def _share_of_right_characters(values: Values) -> float:
    return 1.0 - float(values[:, 0].sum() / max(1.0, values[:, 1].sum()))


def _cosine(outputs: Outputs, label: Any) -> tuple[float, ...]:
    one, two = _first(outputs).reshape(-1), np.asarray(label, np.float64).reshape(-1)
    if one.shape != two.shape:
        raise DataError(
            f"a sample has {one.size} numbers, but its label {two.size}",
            where="--eval",
            hint="give the vector that should come out as the label",
        )
    length = float(np.linalg.norm(one) * np.linalg.norm(two))
    return (float(one @ two) / length if length else 0.0,)


def edits(one: Sequence[Any], two: Sequence[Any]) -> int:
    """Return the Levenshtein distance."""
    row = list(range(len(two) + 1))
    for place, left in enumerate(one, 1):
        before, row[0] = row[0], place
        for index, right in enumerate(two, 1):
            before, row[index] = (
                row[index],
                min(row[index] + 1, row[index - 1] + 1, before + (left != right)),
            )
    return row[-1]


def _characters(alphabet: Sequence[str]) -> Callable[[Outputs, Any], tuple[float, ...]]:
    """Return a reader of scores (T, C) by CTC's rule: repeats and class 0 fall away."""

    def of(outputs: Outputs, label: Any) -> tuple[float, ...]:
        scores = _first(outputs)
        best = scores.reshape(-1, scores.shape[-1]).argmax(axis=-1)
        kept = best[(best != 0) & (best != np.concatenate([[-1], best[:-1]]))]
        text = "".join(alphabet[one] if one < len(alphabet) else "" for one in kept)
        truth = str(label)
        return float(edits(text, truth)), float(len(truth))

    return of


METRICS = {
    "accuracy": Metric(name="accuracy", of=_accuracy, total=_mean, whole=True),
    "f1": Metric(name="f1", of=_pair, total=_macro_f1, whole=True),
    "cosine": Metric(name="cosine", of=_cosine, total=_mean),
}
NAMES = (*METRICS, "cer")


def metric_of(name: str, *, alphabet: Sequence[str] = ()) -> Metric:
    """Return a metric by its name or by `module:function`.

    Args:
        alphabet: Of a model that reads texts: the character of each class.

    Raises:
        SpecError: There is none of that name.
    """
    if name in METRICS:
        return METRICS[name]
    if name == "cer":
        if not alphabet:
            raise SpecError(
                "`cer` needs the model's alphabet, which its metadata `character` does not hold",
                where="--metric",
                hint="decode yourself: `--metric module:function`, from (outputs, label) to a "
                "number that is better when higher",
            )
        return Metric(
            name="characters read right (1 - cer)",
            of=_characters(alphabet),
            total=_share_of_right_characters,
        )
    if ":" in name:
        return _own(name)
    raise SpecError(
        f"there is no metric `{name}`",
        where="--metric",
        hint=f"take {', '.join(NAMES)} or `module:function`",
    )


def _own(name: str) -> Metric:
    function = function_of(name, flag="--metric")

    def of(outputs: Outputs, label: Any) -> tuple[float, ...]:
        try:
            return (float(function(dict(outputs), label)),)
        except Exception as error:
            raise DataError(
                f"`{name}` failed: {type(error).__name__}: {error}",
                where="--metric",
                hint="it gets a dict of outputs by name and the label, and returns a number",
            ) from error

    return Metric(name=name.rpartition(":")[2], of=of, total=_mean)
