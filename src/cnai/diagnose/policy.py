"""What a supervisor does about a fault: try again, and how, or stop with advice.

It decides from the diagnosis and a few counts alone, so that every case can be tested without a
run. What would fail again in the same way is not tried again: that only costs time on machines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from cnai.diagnose.diagnosis import Diagnosis, Verdict

_SURE = 0.5
_SAME_AT_MOST = 2
_MEMORY = frozenset({"gpu_oom", "host_oom"})
_PERHAPS_A_NEIGHBOUR = frozenset({"host_oom", "port_in_use", "k8s_evicted", "k8s_probe_failed"})
"""Classes that another process on the machine may have caused: worth one more try."""
_DETERMINISTIC = frozenset({"native_crash", "collective_timeout", "rendezvous_failure"})
"""Classes worth trying again, but not again and again in the same place."""


class Action(StrEnum):
    """What is done."""

    RESTART_SAME = "restart_same"
    EXCLUDE_NODE = "restart_exclude_node"
    PREVIOUS_CHECKPOINT = "previous_checkpoint"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What matters besides the diagnosis.

    Attributes:
        restarts: How often the run was started again by this command.
        most_restarts: How often it may be.
        same: How often this fault struck this rank before, with no newer checkpoint since.
        resumed_step: Step of the checkpoint from which the lost attempt went on, 0 = from nothing.
        may_exclude: Whether the run has room without the machine of the root rank.
        reported: A rank reported an error that starting again does not mend by itself.
    """

    restarts: int
    most_restarts: int
    same: int = 0
    resumed_step: int = 0
    may_exclude: bool = False
    reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, with the reason; `lighter` asks for a plan that needs less memory."""

    action: Action
    reason: str
    lighter: bool = False


def decide(found: Diagnosis, now: Circumstances) -> Decision:
    """Decide what to do about a loss."""
    wish = _wish(found, now)
    if wish.action is Action.STOP or now.restarts < now.most_restarts:
        return wish
    return Decision(
        action=Action.STOP,
        reason=f"it was started again {now.restarts} times already (`train.max_restarts`)",
        lighter=wish.lighter,
    )


def _wish(found: Diagnosis, now: Circumstances) -> Decision:
    fault = found.fault
    if found.verdict is not Verdict.FAULT or fault is None:
        if now.reported:
            return _stop("the rank that failed says what has to be changed")
        return _again("no rule knows the fault, and it may pass")
    if found.confidence < _SURE and not now.reported:
        return _again(f"`{fault}` is not sure enough to do more")
    return _RULES.get(found.action or "", _change)(fault, now)


def _exclude(fault: str, now: Circumstances) -> Decision:
    if not now.may_exclude:
        return _again(f"`{fault}` is a fault of the machine, but there is no room without it")
    return Decision(
        action=Action.EXCLUDE_NODE,
        reason=f"`{fault}` is a fault of the machine, and there is room without it",
    )


def _mend(fault: str, _: Circumstances) -> Decision:
    return _stop(f"`{fault}` would come again: the code or the data has to be mended")


def _restart(fault: str, now: Circumstances) -> Decision:
    if fault in _DETERMINISTIC and now.same >= _SAME_AT_MOST:
        times = now.same + 1
        return _stop(f"`{fault}` struck the same rank {times} times without a newer checkpoint")
    return _again(f"`{fault}` may pass")


def _previous(fault: str, now: Circumstances) -> Decision:
    if fault in {"nan_loss", "loss_spike"}:
        return _stop(f"`{fault}` would come again with the same rate and the same data")
    if now.resumed_step == 0:
        return _again(f"`{fault}`, but no checkpoint was in use")
    return Decision(
        action=Action.PREVIOUS_CHECKPOINT,
        reason=f"`{fault}`: the checkpoint of step {now.resumed_step} is put aside",
    )


def _change(fault: str, now: Circumstances) -> Decision:
    """Decide about what waits for a person, or for another configuration."""
    if fault in _PERHAPS_A_NEIGHBOUR and not now.same and not now.reported:
        return _again(f"`{fault}` may be the work of another process; once more")
    if fault in _MEMORY:
        return Decision(
            action=Action.STOP,
            reason=f"`{fault}` would come again in the same layout",
            lighter=True,
        )
    return _stop(f"`{fault}` would come again until its cause is changed")


def _again(reason: str) -> Decision:
    return Decision(action=Action.RESTART_SAME, reason=reason)


def _stop(reason: str) -> Decision:
    return Decision(action=Action.STOP, reason=reason)


_RULES: dict[str, Callable[[str, Circumstances], Decision]] = {
    "restart_same": _restart,
    "restart_exclude_node": _exclude,
    "previous_checkpoint": _previous,
    "fix_code": _mend,
}
"""What the default action of a class comes to; `change_config` and `hold` wait for a person."""
