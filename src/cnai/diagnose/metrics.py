"""Numbers that a training prints: progress, and losses, norms and loss scales that go wrong."""

from __future__ import annotations

import math
import re
import statistics
from collections import deque
from dataclasses import dataclass, field

_NUMBER = r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d[\d,]*\.?\d*(?:e[-+]?\d+)?))"
_LOSS = re.compile(
    rf"\b(?:train[_/ ]?|lm |total |mean )?loss\b['\"]?\s*[:=|]?\s*{_NUMBER}\b", re.IGNORECASE
)
_NORM = re.compile(
    rf"\b(?:grad(?:ient)?[_ ]?norm|gnorm|total_norm)\b['\"]?\s*[:=|]?\s*{_NUMBER}", re.IGNORECASE
)
_SCALE = re.compile(
    rf"loss[_ ]scale\b.{{0,40}}?(?:to|:|=|from [\d.e+-]+,? (?:reducing )?to)\s*{_NUMBER}",
    re.IGNORECASE,
)
_PROGRESS = re.compile(
    r"\d(?:it/s|s/it)\b|\b(?:step|iteration|iter|epoch)\b\W{0,4}\d", re.IGNORECASE
)
_RANKED = re.compile(r'(?P<name>[\w:]+)\{[^}]{0,200}\brank="(?P<rank>\d+)"[^}]{0,200}\}\s+'
                     r"(?P<value>[\d.eE+-]+)")  # fmt: skip
_PROGRESS_WORDS = ("step", "it/s", "s/it", "iter", "epoch")
_WINDOW = 20
_FEWEST = 3
_NORM_JUMP, _LOSS_JUMP, _LOSS_RISE = 20.0, 2.5, 1.0
_FEW_SCALES = 4
_WORTH_A_LOOK = 1.2
_SLOWER = 1.5


@dataclass(slots=True)
class Oddity:
    """A number that is wrong: the class it points to, the line, and whether it went away."""

    fault: str
    number: int
    raw: str
    weight: float
    over: bool = False


@dataclass(slots=True)
class Metrics:
    """Follows the numbers of one stream."""

    losses: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    scales: list[float] = field(default_factory=list)
    oddities: dict[str, Oddity] = field(default_factory=dict)
    ranked: dict[str, dict[str, tuple[float, int, str]]] = field(default_factory=dict)
    last_progress: int = 0
    lines: int = 0

    def hear(self, number: int, text: str, raw: str) -> None:
        """Take in a line."""
        lowered = text.lower()
        if "loss" in lowered or "norm" in lowered:
            self._numbers(number, text, raw)
        elif "{" in text:
            self._of_a_rank(number, text, raw)
        hopeful = any(word in lowered for word in _PROGRESS_WORDS)
        if hopeful and "error" not in lowered and _PROGRESS.search(text):
            self.last_progress = number

    def found(self) -> list[Oddity]:
        """Return what is wrong at the end of the log."""
        slow = [odd for values in self.ranked.values() if (odd := _slowest(values))]
        return [*(one for one in self.oddities.values() if not one.over), *slow[:1]]

    def _numbers(self, number: int, text: str, raw: str) -> None:
        if scale := _SCALE.search(text):
            self._scale(number, _float(scale["value"]), raw)
            return
        loss, norm = _LOSS.search(text), _NORM.search(text)
        if loss:
            self._loss(number, _float(loss["value"]), raw)
        if norm:
            self._norm(number, _float(norm["value"]), raw, alone=loss is None)
        if loss and math.isfinite(_float(loss["value"])):
            self.last_progress = number

    def _loss(self, number: int, value: float, raw: str) -> None:
        if not math.isfinite(value):
            self._note("nan_loss", number, raw, 0.95)
            return
        if len(self.losses) >= _FEWEST and value > _WORTH_A_LOOK * self.losses[-1]:
            usual = statistics.median(self.losses)
            if value > max(_LOSS_JUMP * abs(usual), usual + _LOSS_RISE):
                self._note("loss_spike", number, raw, 0.9)
                return
        if value and not ("nan_loss" in self.oddities and "nan" in raw.lower()):
            self._calm("nan_loss", "loss_spike")
        self.losses.append(value)

    def _norm(self, number: int, value: float, raw: str, *, alone: bool) -> None:
        if not math.isfinite(value):
            self._note("nan_loss", number, raw, 0.6 if alone else 0.7)
            return
        jumped = len(self.norms) >= _FEWEST and value > _WORTH_A_LOOK * self.norms[-1]
        if jumped and value > _NORM_JUMP * statistics.median(self.norms) > 0:
            self._note("loss_spike", number, raw, 0.8)
            return
        self.norms.append(value)

    def _scale(self, number: int, value: float, raw: str) -> None:
        if self.scales and value >= self.scales[-1]:
            self.scales.clear()
            self._calm("loss_scale_collapse")
        self.scales.append(value)
        if value < 1 or (value <= 2 and len(self.scales) >= _FEW_SCALES):
            self._note("loss_scale_collapse", number, raw, 1.0)

    def _of_a_rank(self, number: int, text: str, raw: str) -> None:
        found = _RANKED.search(text)
        if found and len(self.ranked) < _WINDOW:
            values = self.ranked.setdefault(found["name"], {})
            values[found["rank"]] = (_float(found["value"]), number, raw)

    def _note(self, fault: str, number: int, raw: str, weight: float) -> None:
        old = self.oddities.get(fault)
        if old is None or old.over:
            self.oddities[fault] = Oddity(fault=fault, number=number, raw=raw, weight=weight)
        else:
            old.weight = max(old.weight, weight)

    def _calm(self, *faults: str) -> None:
        for fault in faults:
            if fault in self.oddities:
                self.oddities[fault].over = True


def _slowest(values: dict[str, tuple[float, int, str]]) -> Oddity | None:
    """Return the one rank that takes far longer than the others."""
    if len(values) < _FEWEST:
        return None
    ordered = sorted(values.values())
    middle = statistics.median(value for value, _, _ in ordered[:-1])
    worst, number, raw = ordered[-1]
    name = raw.lower()
    if middle > 0 and worst > _SLOWER * middle and ("second" in name or "time" in name):
        return Oddity(fault="gpu_slow_throttle", number=number, raw=raw, weight=1.1)
    return None


def _float(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan
