"""The folder of a run: made for a spec, kept for that spec, never mixed with another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cnai.core.errors import RunError, SpecError
from cnai.core.files import saving, write_atomically
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec, load_spec, same_work, to_yaml
from cnai.flows.stopping import sigterm_interrupts


def run_path(spec: RunSpec) -> Path:
    """Return where the run of a spec lies."""
    return Path(spec.output) / spec.name


@contextmanager
def opened_run(spec: RunSpec, *, fresh: bool) -> Iterator[RunFolder]:
    """Keep the folder of a run for this process: a new one, or one made for the same work.

    Nothing in a folder is touched before it is certain that nobody else works there. While the
    block runs SIGTERM, which `ai-cli stop` sends, ends it as Ctrl-C does.

    Args:
        fresh: Move a folder that stands there aside and start from nothing.

    Raises:
        SpecError: The folder holds a run whose spec asks for other work.
        RunError: The place cannot be written, or the run is in use.
    """
    root = run_path(spec)
    if fresh and root.exists():
        _move_aside(RunFolder(root))
    run = RunFolder.create(root)
    with run.locked(), sigterm_interrupts():
        if run.spec_file.exists():
            _check_same_work(run, spec)
        write_atomically(run.spec_file, to_yaml(spec))
        yield run


def check_place(path: Path | None, spec: RunSpec) -> None:
    """Refuse the spec of a run folder that has been moved: it would start anew elsewhere.

    Args:
        path: The file that the spec was read from.

    Raises:
        SpecError: The file lies in a run folder, and the spec means another.
    """
    if path is None:
        return
    run = RunFolder(path.parent)
    moved = run.events.is_dir() and run.spec_file.resolve() == path.resolve()
    if moved and run.root.resolve() != run_path(spec).resolve():
        raise SpecError(
            f"this is the spec of the run in `{run.root}`, but it means `{run_path(spec)}`",
            where=str(path),
            hint=f"the folder was moved; go on in it with `--set output={run.root.parent} "
            f"--set name={run.root.name}`",
        )


def spec_of(run: RunFolder) -> RunSpec:
    """Read the spec that a run was made for."""
    return load_spec(run.spec_file, user_config=None).spec


def _check_same_work(run: RunFolder, spec: RunSpec) -> None:
    differ = same_work(spec_of(run), spec)
    if differ:
        raise SpecError(
            f"run `{run.name}` was made for another spec; these keys differ: {', '.join(differ)}",
            where=str(run.spec_file),
            hint="give this run another name with `--set name=NAME`, or start over with `--fresh`, "
            "which keeps the old folder under another name",
        )


def _move_aside(run: RunFolder) -> None:
    owner = run.owner()
    if owner is not None:
        raise RunError(
            f"run `{run.name}` is in use by process {owner}",
            where=str(run.root),
            hint=f"stop it with `ai-cli stop {run.root}`, or give this one another name",
        )
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = run.root.with_name(f"{run.name}.{stamp}")
    number = 2
    while aside.exists():
        aside = run.root.with_name(f"{run.name}.{stamp}-{number}")
        number += 1
    with saving(run.root):
        run.root.rename(aside)
