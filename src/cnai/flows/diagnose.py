"""`ai-cli diagnose`: where a run broke, why, and the repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cnai.core.errors import DataError, SpecError
from cnai.core.files import write_atomically
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec, is_free, load_spec, to_yaml, value_of
from cnai.diagnose import Diagnosis, diagnose_logs, diagnose_run
from cnai.flows.folder import spec_of

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A key of the spec with its value before and after."""

    key: str
    before: Value | None
    after: Value

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return {"key": self.key, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A repaired spec that is not written yet.

    Attributes:
        target: Where it is to be written.
        goes_on: Whether the run goes on with it; else it is another run, under another name.
    """

    spec: RunSpec
    changes: tuple[Change, ...]
    target: Path
    goes_on: bool


def diagnose(paths: Sequence[Path], *, top: int = 3) -> Diagnosis:
    """Find the root of what ended a run, from its folder, or from logs of any kind.

    Raises:
        DataError: Nothing is named, or what is named does not exist.
    """
    if not paths:
        raise DataError(
            "there is nothing to diagnose",
            where="PATHS",
            hint="name a run folder, log files, or `-` for stdin",
        )
    if len(paths) == 1 and (run := RunFolder(paths[0])).events.is_dir():
        return diagnose_run(run)
    return diagnose_logs(paths, top=top)


def propose(found: Diagnosis, paths: Sequence[Path]) -> Proposal:
    """Turn the first repair that changes the spec of a run into a new spec.

    Raises:
        SpecError: No repair changes the spec, or the changed spec contradicts itself.
        DataError: It is no run.
    """
    if len(paths) != 1:
        raise DataError(
            "`--apply` needs a run", where="PATHS", hint="name one run folder and no logs"
        )
    run = RunFolder.existing(paths[0])
    spec = spec_of(run)
    for repair in found.repairs:
        changes = _changes(spec, repair.spec_patch or {})
        if changes:
            return _proposal(run, spec, changes)
    raise SpecError(
        f"no repair of `{found.fault or found.verdict}` changes the spec",
        where="--apply",
        hint="do what the repairs say by hand, then run the same command again",
    )


def write_proposal(proposal: Proposal) -> None:
    """Write the repaired spec; the run's own stays as it is.

    Raises:
        RunError: The place cannot be written.
    """
    write_atomically(proposal.target, to_yaml(proposal.spec))


def _proposal(run: RunFolder, spec: RunSpec, changes: tuple[Change, ...]) -> Proposal:
    goes_on = all(is_free(change.key) for change in changes)
    sets = [f"{change.key}={_word(change.after)}" for change in changes]
    if not goes_on:
        sets.append(f"name={spec.name}-repaired")
    return Proposal(
        spec=load_spec(run.spec_file, sets=sets).spec,
        changes=changes,
        target=run.root / "spec-repaired.yaml",
        goes_on=goes_on,
    )


def _changes(spec: RunSpec, patch: Mapping[str, Value]) -> tuple[Change, ...]:
    found = []
    for key, wanted in patch.items():
        before = value_of(spec, key)
        after = _after(before, wanted)
        if after is not None and after != before:
            found.append(Change(key=key, before=before, after=after))
    return tuple(found)


def _after(before: Value | None, wanted: Value) -> Value | None:
    """Return the new value; None when half or twice of it makes no sense."""
    if wanted not in {"/2", "*2"}:
        return wanted
    if isinstance(before, bool) or not isinstance(before, int | float):
        return None
    if isinstance(before, int):
        return before * 2 if wanted == "*2" else (before // 2 or None)
    return before * 2 if wanted == "*2" else before / 2


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
