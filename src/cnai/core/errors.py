"""Every error that a user can meet, with its exit code.

    CnaiError                       code      exit
    |-- SpecError                   spec      2   a spec or flag is wrong, or contradicts itself
    |-- PlanError                   plan      3   the spec is sound, but no layout fits
    |-- DataError                   data      4   data, a model or a checkpoint is broken
    |-- RunError                    run       5   a run failed, or its folder cannot be used
    |-- AccuracyError               accuracy  6   compression lost more accuracy than allowed
    |-- ClusterError                cluster   7   machines cannot be reached or refused
    `-- Interrupted                 interrupted 130

Each says what (with the value), where, and a hint that repairs it. Anything else that escapes is a
bug and ends with exit code 1.
"""

from __future__ import annotations

from typing import ClassVar


class CnaiError(Exception):
    """A mistake or failure that the user can act on.

    Args:
        message: What is wrong, with the offending value.
        hint: What to do about it, as a sentence or a command.
        where: The place: a spec key, a file with line, a flag.
    """

    code: ClassVar[str] = "bug"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.where))

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the one JSON object that `--json` prints for an error."""
        return {
            "error": self.message,
            "code": self.code,
            "exit_code": self.exit_code,
            "where": self.where,
            "hint": self.hint,
        }


def _rebuild(kind: type[CnaiError], message: str, hint: str, where: str | None) -> CnaiError:
    return kind(message, hint=hint, where=where)


class SpecError(CnaiError):
    """A spec, key, value or flag is wrong.

    Args:
        message: The first mistake.
        hint: What to do about it.
        where: Its place.
        others: Further mistakes found in the same reading, so that a spec is mended in one go.
    """

    code = "spec"
    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        hint: str,
        where: str | None = None,
        others: tuple[SpecError, ...] = (),
    ) -> None:
        super().__init__(message, hint=hint, where=where)
        self.others = others

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_spec, (self.message, self.hint, self.where, self.others))

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the one JSON object; `others` only when there are any."""
        others = [error.to_dict() for error in self.others]
        return {**super().to_dict(), **({"others": others} if others else {})}


def _rebuild_spec(
    message: str, hint: str, where: str | None, others: tuple[SpecError, ...]
) -> SpecError:
    return SpecError(message, hint=hint, where=where, others=others)


class PlanError(CnaiError):
    """No layout fits the machines."""

    code = "plan"
    exit_code = 3


class DataError(CnaiError):
    """Data, a model or a checkpoint is missing, empty or broken."""

    code = "data"
    exit_code = 4


class RunError(CnaiError):
    """A run failed and could not recover, or its folder cannot be used."""

    code = "run"
    exit_code = 5


class AccuracyError(CnaiError):
    """A compressed model is worse than the gate allows."""

    code = "accuracy"
    exit_code = 6


class ClusterError(CnaiError):
    """Processes or machines could not be started or reached."""

    code = "cluster"
    exit_code = 7


class Interrupted(CnaiError):  # noqa: N818 - it is an outcome, and reads as one in messages
    """The user stopped the command; what was finished is kept."""

    code = "interrupted"
    exit_code = 130


def error_of(code: str, message: str, *, hint: str, where: str | None) -> CnaiError:
    """Make the error of a code again, for instance one that another process met."""
    kinds = {kind.code: kind for kind in CnaiError.__subclasses__()}
    return kinds.get(code, CnaiError)(message, hint=hint, where=where)
