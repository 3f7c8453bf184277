"""Which finding explains which: one fault shows in many ways, and a person wants the first of them.

The graph says what follows from what; an edge holds where both were found within 60 steps. The
primary finding of a group is the one from which most of the others follow, and of several such the
one that was found first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from cnai.core.events import AttemptStarted, Event, Finding

WITHIN_STEPS = 60

CAUSES: dict[str, tuple[str, ...]] = {
    "nonfinite": (
        "replica_mismatch", "rate_high", "exploding", "logit_drift", "entropy_collapse",
        "wrong_sign", "schedule_reset",
    ),
    "exploding": (
        "desync", "replica_mismatch", "optimizer_lost", "schedule_reset", "rate_high",
        "wrong_sign", "logit_drift", "entropy_collapse",
    ),
    "loss_spike": (
        "desync", "replica_mismatch", "mode_mixup", "optimizer_lost", "schedule_reset",
        "rate_high", "wrong_sign", "decay_blowup", "exploding", "entropy_collapse",
        "logit_drift", "repeated_data",
    ),
    "rate_high": ("optimizer_lost", "schedule_reset", "wrong_sign"),
    "decay_blowup": ("rate_high",),
    "dead_units": ("rate_high", "exploding", "decay_blowup", "schedule_reset", "wrong_sign"),
    "saturation": ("rate_high", "exploding", "wrong_sign"),
    "entropy_collapse": ("rate_high", "exploding", "wrong_sign", "schedule_reset"),
    "logit_drift": ("wrong_sign", "rate_high", "exploding", "schedule_reset"),
    "wrong_sign": ("decay_blowup", "rate_high", "desync", "logit_drift"),
    "vanishing": ("decay_blowup", "dead_units", "saturation"),
    "labels_shuffled": (
        "vanishing", "dead_units", "saturation", "rate_high", "rate_low", "frozen",
        "decay_blowup", "unused_rows", "exploding", "entropy_collapse",
    ),
    "plateau": (
        "overfit", "vanishing", "dead_units", "saturation", "rate_high", "rate_low", "frozen",
        "decay_blowup", "labels_shuffled", "entropy_collapse", "exploding", "schedule_reset",
        "mode_mixup", "logit_drift", "unused_rows", "repeated_data",
    ),
    "frozen": ("vanishing", "dead_units", "saturation", "rate_low"),
    "overfit": (
        "repeated_data", "mode_mixup", "labels_shuffled", "rate_high", "wrong_sign", "logit_drift",
    ),
    "replica_mismatch": ("desync",),
    "stalled": ("unequal_steps", "slow_data", "memory_leak"),
    "lagging_rank": ("memory_leak",),
}  # fmt: skip
"""What may explain each finding, the likeliest first."""


class Resolver:
    """Says of each finding which earlier one explains it."""

    def __init__(self) -> None:
        self._recent: deque[Finding] = deque(maxlen=50)

    def update(self, event: Event) -> None:
        """Forget at the start of an attempt."""
        if isinstance(event, AttemptStarted):
            self._recent.clear()

    def explained(self, finding: Finding) -> Finding:
        """Return the finding with its cause, where one was found before."""
        causes = CAUSES.get(finding.detector, ())
        known = {one.detector for one in self._recent if is_near(one, finding)}
        cause = next((name for name in causes if name in known), None)
        self._recent.append(finding)
        return replace(finding, cause=cause) if cause else finding


def is_near(one: Finding, other: Finding) -> bool:
    """Tell whether two findings may be of one fault."""
    if one.step is None or other.step is None:
        return True
    return abs(one.step - other.step) <= WITHIN_STEPS


def primary(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that explains the most of others; None when there are none.

    The first finding and those near it make up the group.
    """
    if not findings:
        return None
    group = [one for one in findings if is_near(findings[0], one)]

    def followers(one: Finding) -> int:
        return sum(one.detector in CAUSES.get(other.detector, ()) for other in group)

    def explained(one: Finding) -> bool:
        causes = CAUSES.get(one.detector, ())
        return any(other.detector in causes for other in group)

    roots = [one for one in group if not explained(one)] or group
    return max(roots, key=lambda one: (followers(one), -group.index(one)))
