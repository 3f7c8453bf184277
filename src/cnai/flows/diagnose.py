"""`ai-cli diagnose`: where a run broke, why, and the repair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cnai.core.clock import Clock, SystemClock
from cnai.core.errors import DataError, SpecError
from cnai.core.files import write_atomically
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec, is_free, load_spec, to_yaml, value_of
from cnai.diagnose import Diagnosis, diagnose_logs, diagnose_run
from cnai.flows.folder import spec_of

Value = str | int | float | bool
_FOLLOW_SECONDS = 1.0


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
    run = only_run(paths, "--apply")
    spec = spec_of(run)
    for repair in found.repairs:
        changes = changes_of(spec, repair.spec_patch or {})
        if changes:
            return _proposal(run, spec, changes)
    raise SpecError(
        f"no repair of `{found.fault or found.verdict}` changes the spec",
        where="--apply",
        hint="do what the repairs say by hand, then run the same command again",
    )


def only_run(paths: Sequence[Path], flag: str) -> RunFolder:
    """Return the one run that a flag needs.

    Raises:
        DataError: It is no run, or more than one.
    """
    if len(paths) != 1:
        raise DataError(
            f"`{flag}` needs a run", where="PATHS", hint="name one run folder and no logs"
        )
    return RunFolder.existing(paths[0])


def follow_run(
    run: RunFolder, *, tell: Callable[[str], None], clock: Clock | None = None
) -> Diagnosis:
    """Diagnose a run again and again while somebody works on it; tell whenever it changes.

    Args:
        run: The run.
        tell: Takes a sentence.
        clock: To wait with.

    Returns:
        The diagnosis when nobody works on it any more.
    """
    clock, told = clock or SystemClock(), ""
    while True:
        works = run.owner() is not None
        found = diagnose_run(run)
        said = f"{found.verdict}: {found.summary}"
        if said != told:
            tell(said)
            told = said
        if not works:
            return found
        clock.sleep(_FOLLOW_SECONDS)


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


def changes_of(spec: RunSpec, patch: Mapping[str, Value]) -> tuple[Change, ...]:
    """Return what a repair's patch changes in a spec."""
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
