"""How a rank answers when it is asked where it stands, whatever its main thread is stuck in.

Stacks are written by faulthandler from inside the signal handler, in C and without the interpreter,
so that also a rank whose C code holds the interpreter's lock gives them. What it knows of its
collectives comes from PyTorch's flight recorder, asked by a thread that the signal wakes through a
pipe; it needs the interpreter, but not the main thread.

The recorder's own dump with stacks is not used: it did not return while training was blocked.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import torch._C._distributed_c10d as c10d

from cnai.core.errors import CnaiError
from cnai.core.files import write_atomically
from cnai.train.questions import (
    COLLECTIVES_SIGNAL,
    STACKS_SIGNAL,
    collectives_of,
    stacks_of,
)
from cnai.train.standing import Page, page_of

_RECORDS = "256"
_NEWEST, _ENOUGH = 6, 16
"""A shape that was sent once only is odd among the newest, when enough were sent to tell."""


@contextlib.contextmanager
def answering(folder: Path, rank: int, step: int) -> Iterator[Page]:
    """Keep a page and answer questions while the block runs; call it in the main thread.

    When the block ends by an error, what is known of the collectives is written down too, since
    afterwards nobody can be asked.

    Args:
        folder: Folder of pages and answers.
        rank: This rank.
        step: Steps that are done already.
    """
    page = Page(page_of(folder, rank), step)
    stacks, told = stacks_of(folder, rank), collectives_of(folder, rank)
    with contextlib.suppress(OSError):
        told.unlink(missing_ok=True)
    # Read when the first process group is made.
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", _RECORDS)
    with _opened(stacks) as file:
        faulthandler.enable()
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True)
        _answer_by_thread(told)
        try:
            yield page
        except BaseException:
            _tell(told)
            raise
        finally:
            signal.signal(COLLECTIVES_SIGNAL, signal.SIG_IGN)
            faulthandler.unregister(STACKS_SIGNAL)
            signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
        page.enter("done")


def _opened(stacks: Path) -> TextIO:
    """Open the file for stacks, begun with the main thread; nowhere, where there can be none."""
    try:
        stacks.write_text(f"main {threading.get_ident():#018x}\n")
        return stacks.open("a")
    except OSError:
        return Path(os.devnull).open("a")


def _answer_by_thread(told: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(COLLECTIVES_SIGNAL, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def answer() -> None:
        while numbers := os.read(read, 64):
            if COLLECTIVES_SIGNAL in numbers:
                _tell(told)

    threading.Thread(target=answer, name="cnai-answering", daemon=True).start()


def _tell(path: Path) -> None:
    """Write down what the flight recorder knows of this rank's collectives."""
    trace = json.loads(c10d._dump_fr_trace_json())  # type: ignore[attr-defined]
    # A full disk has errors enough of its own; this answer is a help and no more.
    with contextlib.suppress(CnaiError):
        write_atomically(path, json.dumps(_summary(trace)).encode())


def _summary(trace: dict[str, Any]) -> dict[str, Any]:
    """Return how many collectives each group has begun, and the last one of the main thread."""
    entries = trace.get("entries", [])
    main = str(threading.main_thread().ident)
    own = [one for one in entries if one.get("thread_id") == main] or entries
    named = [f"{_name(one)} {_sizes(one)}" for one in own]
    return {
        "enqueued": {
            group: int(status["last_enqueued_collective"])
            for group, status in trace.get("pg_status", {}).items()
        },
        "collective": named[-1] if named else None,
        "odd": any(named.count(one) == 1 for one in named[-_NEWEST:]) and len(named) > _ENOUGH,
    }


def _name(entry: dict[str, Any]) -> str:
    return str(entry.get("profiling_name", "?")).rpartition(":")[2]


def _sizes(entry: dict[str, Any]) -> str:
    sizes = entry.get("input_sizes") or [[]]
    return "+".join(str(size) for size in sizes)
