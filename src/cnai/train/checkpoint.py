"""Sharded checkpoints, written by all ranks and readable in any layout.

torch.distributed.checkpoint keeps each tensor under its name in the whole model with the offsets of
its pieces, so a checkpoint does not know the layout that wrote it. The ranks write into a folder
whose name starts with a dot; rank 0 hashes the files and gives it its name in one step. What has a
name `step-N` is therefore complete, and a crash leaves at most dotted folders that the next save
removes.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from cnai.core.errors import CnaiError, DataError, RunError
from cnai.core.events import CheckpointSaved, Event
from cnai.core.files import (
    PARTIAL,
    publish_folder,
    saving,
    sync_folder,
    write_atomically,
    write_error,
)
from cnai.core.records import encode_pretty
from cnai.core.runfolder import RunFolder
from cnai.train.manifest import (
    MANIFEST,
    CheckpointManifest,
    check_base,
    list_files,
    read_manifest,
    verify_checkpoint,
)
from cnai.train.ranks import Ranks
from cnai.train.shards import local_of

State = dict[str, dict[str, Tensor]]
Record = Callable[[Event], None]


class Checkpoints:
    """The checkpoints of one run, as one rank sees them.

    In the background a thread writes from a copy of the state while training goes on; the copy is
    made before `save` returns, so what the next steps do to the weights does not reach it. There is
    one thread and one copy: a save waits for the one before. Leaving the context waits for the
    last.

    Args:
        keep: Newest checkpoints kept.
        background: Whether to write while training goes on.
        base: What adapters belong to; None where the weights themselves are trained.
    """

    def __init__(
        self,
        run: RunFolder,
        ranks: Ranks,
        *,
        keep: int,
        plan_digest: str,
        background: bool,
        base: str | None = None,
    ) -> None:
        self._run = run
        self._ranks = ranks
        self._keep = keep
        self._plan_digest = plan_digest
        self._base = base
        self._background = background
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=ranks.device.type == "cuda",
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save(self, step: int, state: State, record: Record, *, last: bool) -> None:
        """Save a checkpoint; every rank calls this at the same step.

        Args:
            record: Takes the event, on rank 0, once the checkpoint has its name; perhaps called
                from the thread.
            last: Return only when it is written.

        Raises:
            RunError: This checkpoint or the one before cannot be written, for instance because the
                disk is full; earlier ones stay.
        """
        start = time.perf_counter()
        self.finish()
        if last or not self._background:
            self._write(step, state, record, start, blocked=None)
            return
        copy: Any = self._stager.stage(state)
        blocked = time.perf_counter() - start
        self._writing = self._thread.submit(self._write, step, copy, record, start, blocked)

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return self._writing is None or self._writing.done()

    def check(self) -> None:
        """Raise what went wrong in the background, if it is known already.

        Raises:
            RunError: As `save`.
        """
        if self.idle:
            self.finish()

    def finish(self) -> None:
        """Wait until what is being written is written.

        Raises:
            RunError: As `save`.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish; an error that is on its way already is the one to tell."""
        if error is None:
            self.finish()
        elif self._writing is not None:
            wait([self._writing])
        self._thread.shutdown()

    def _write(
        self, step: int, state: State, record: Record, start: float, blocked: float | None
    ) -> None:
        """Let all ranks write their pieces, then give the checkpoint its name on rank 0."""
        target = self._run.checkpoint(step)
        partial = target.with_name(f".{target.name}{PARTIAL}")
        first = self._ranks.place.rank == 0
        if first:
            with saving(target):
                self._clear()
                partial.mkdir(parents=True)
        self._ranks.wait_for_writers()
        try:
            dcp.save(state, checkpoint_id=partial, process_group=self._ranks.writers)
        except CheckpointException as failure:
            # It is raised on all ranks alike, so all of them look at the disk before it is cleared.
            full = self._ranks.any_writer(_is_full(partial, state))
            shutil.rmtree(partial, ignore_errors=True)
            raise _reason(failure, target, full=full) from failure
        if first:
            size = self._publish(step, partial, target)
            seconds = time.perf_counter() - start
            record(
                CheckpointSaved(
                    time_unix=time.time(),
                    step=step,
                    path=str(target.relative_to(self._run.root)),
                    size_bytes=size,
                    seconds=seconds,
                    blocked_seconds=seconds if blocked is None else blocked,
                )
            )

    def _publish(self, step: int, partial: Path, target: Path) -> int:
        """Hash, flush and rename; return the size in bytes."""
        with saving(target):
            manifest = CheckpointManifest(
                step=step,
                plan_digest=self._plan_digest,
                files=list_files(partial),
                base=self._base,
            )
            write_atomically(partial / MANIFEST, encode_pretty(manifest))
            sync_folder(partial)
            publish_folder(partial, target)
            for old in self._run.checkpoint_steps()[: -self._keep]:
                self._remove(old)
        return manifest.size_bytes

    def _remove(self, step: int) -> None:
        """Take a checkpoint's name away first, so that no half of it is found after a crash."""
        nameless = self._run.checkpoints / f".step-{step}.old{PARTIAL}"
        self._run.checkpoint(step).rename(nameless)
        shutil.rmtree(nameless)

    def _clear(self) -> None:
        """Remove what ranks that were killed left unfinished."""
        for left in self._run.checkpoints.glob(f".step-*{PARTIAL}"):
            shutil.rmtree(left, ignore_errors=True)

    def load(self, step: int, state: State) -> None:
        """Fill the tensors of `state` in place, whatever layout wrote them.

        Raises:
            DataError: The checkpoint cannot be read or belongs to another model.
        """
        folder = self._run.checkpoint(step)
        check_base(read_manifest(folder), self._base, where=folder)
        # What goes wrong on a rank comes as a CheckpointException on all; a bare RuntimeError is
        # the network's, when another rank was lost meanwhile, and starting again mends that.
        with reading(folder, CheckpointException):
            dcp.load(state, checkpoint_id=folder)


def load_weights(
    folder: Path,
    sizes: Mapping[str, Sequence[int]],
    *,
    base: str | None = None,
    buffers: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Read the trained weights into one process.

    Args:
        folder: A checkpoint.
        sizes: The size of every trained parameter by its name.
        base: Identity of the frozen model; None = the weights are the whole model.
        buffers: Running statistics of a user's module, filled in place.

    Raises:
        DataError: The checkpoint is damaged or belongs to a model of another shape.
    """
    check_base(verify_checkpoint(folder), base, where=folder)
    state: dict[str, Any] = {
        "model": {name: torch.empty(tuple(size)) for name, size in sizes.items()}
    }
    if buffers:
        state["buffers"] = buffers
    failures = (CheckpointException, RuntimeError, ValueError, OSError, EOFError)
    with reading(folder, *failures), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    weights: dict[str, Tensor] = state["model"]
    return weights


@contextmanager
def reading(folder: Path, *failures: type[BaseException]) -> Iterator[None]:
    """Turn the library's errors into one that names the checkpoint."""
    try:
        yield
    except failures as failure:
        raise DataError(
            f"cannot read the checkpoint: {_first_line(failure)}",
            where=str(folder),
            hint="it is damaged or belongs to a model of another shape; choose another checkpoint",
        ) from failure


def _is_full(folder: Path, state: State) -> bool:
    """Ask the disk for as much as this rank wanted to write.

    The library's writer in C++ loses the operating system's reason and tells of a wrong position.
    """
    tensors = (value for part in state.values() for value in part.values())
    wanted = sum(tensor.nbytes for tensor in map(local_of, tensors))
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, max(1, wanted))
    except OSError as error:
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return False


def _reason(failure: CheckpointException, target: Path, *, full: bool) -> CnaiError:
    """Find the operating system's reason behind the ranks' failures."""
    if full:
        return write_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), target)
    for error, _ in failure.failures.values():
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno is not None:
                return write_error(cause, target)
            cause = cause.__cause__ or cause.__context__
    return RunError(
        f"cannot write the checkpoint: {_first_line(failure)}",
        where=str(target),
        hint="look at the disk and the logs, then run the same command again",
    )


def _first_line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return lines[-1] if lines else type(failure).__name__
