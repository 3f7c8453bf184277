"""The evidence of `ai-cli validate`: rungs with gates that say what was expected and found."""

from __future__ import annotations

from dataclasses import dataclass

PASSED, FAILED, PLANNED, SKIPPED = "passed", "failed", "planned", "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One thing that must hold.

    Attributes:
        measured: What was found; empty = it is only planned.
        hint: What to change when it does not hold.
    """

    name: str
    expected: str
    measured: str = ""
    passed: bool | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of the ladder, from paper to the full job.

    Attributes:
        status: `passed`, `failed`, `planned` (the machines are not here) or `skipped` (a rung below
            failed, and nothing is spent on this one).
        seconds: Time that it took here; of a planned rung 0.
        cost: Device hours and dollars that a planned rung would take, in words.
    """

    number: int
    name: str
    status: str
    gates: tuple[Gate, ...]
    seconds: float = 0.0
    cost: str = ""


def judged(number: int, name: str, gates: list[Gate], seconds: float) -> Rung:
    """Return a rung that passed if all of its gates did."""
    good = all(gate.passed for gate in gates)
    return Rung(
        number=number,
        name=name,
        status=PASSED if good else FAILED,
        gates=tuple(gates),
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """All rungs of a validation, and where its evidence lies."""

    name: str
    layout: str
    folder: str
    rungs: tuple[Rung, ...]

    @property
    def failed(self) -> tuple[Gate, ...]:
        """The gates that did not hold."""
        return tuple(gate for rung in self.rungs for gate in rung.gates if gate.passed is False)
