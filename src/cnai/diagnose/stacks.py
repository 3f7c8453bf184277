"""Stacks as faulthandler prints them, and what a rank was doing by its stack."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FRAME = re.compile(r'\s*File "([^"]{1,400})", line (\d{1,9}) in (.{1,200})')
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]{1,20})")
_CURRENT = re.compile(r"Current thread (0x[0-9a-f]{1,20})")
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|^<")
_OURS = re.compile(r"(?:^|/)cnai/")
_TAPE = re.compile(r"torch/autograd/")
_GROUPS = re.compile(r"torch/distributed/(?!checkpoint)")
_PHASES = (
    (re.compile(r"torch/distributed/checkpoint/.* load$|cnai/train/checkpoint.* load$"), "load"),
    (re.compile(r"torch/distributed/checkpoint/|cnai/train/checkpoint"), "save"),
    (re.compile(r"cnai/train/evaluation"), "evaluate"),
    (re.compile(r"cnai/train/(?:optimizer|muon)"), "update"),
)


def read_stacks(text: str) -> dict[str, tuple[str, ...]]:
    """Return the stack of each thread, `FILE:LINE FUNCTION`, the innermost first.

    A thread that stands there twice is taken as it stands there last.
    """
    stacks: dict[str, list[str]] = {}
    frames: list[str] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            frames = stacks[f"{int(thread[1], 16):#x}"] = []
        elif found := _FRAME.match(line):
            frames.append(f"{found[1]}:{found[2]} {found[3]}")
    return {thread: tuple(frames) for thread, frames in stacks.items()}


def main_thread(text: str) -> str | None:
    """Return the main thread that the first line of a rank's file names."""
    first = text.partition("\n")[0].split()
    return f"{int(first[1], 16):#x}" if len(first) == 2 and first[0] == "main" else None


def phase_of(stack: tuple[str, ...], told: str) -> str:
    """Return the phase that a stack shows; `told` is what the rank itself noted.

    Who waits in a collective is in no other phase, except where the rank reads its data.
    """
    if any(_GROUPS.search(frame) for frame in stack):
        return "collective"
    if told == "data":
        return told
    for pattern, phase in _PHASES:
        if any(pattern.search(frame) for frame in stack):
            return phase
    if any(_TAPE.search(frame) for frame in stack):
        return "backward"
    return told


def frame_of(stack: Iterable[str]) -> str | None:
    """Return the frame that a person wants to see: of the user, else of ours, else any."""
    frames = [frame.rpartition(" ")[0] for frame in stack]
    own = [frame for frame in frames if not _LIBRARY.search(frame)]
    return next(
        (frame for frame in own if not _OURS.search(frame)),
        next(iter(own), next(iter(frames), None)),
    )


def crash_frame(lines: Iterable[str]) -> str | None:
    """Return the frame in which machine code crashed, from a log; None when it was not told.

    Where a thread without Python crashed, it is the frame in which the main thread, which is
    printed last, waited for it.
    """
    text = "\n".join(lines)
    _, _, dump = text.rpartition("Fatal Python error: ")
    stacks = read_stacks(dump)
    current = _CURRENT.search(dump)
    crashed = stacks.get(f"{int(current[1], 16):#x}", ()) if current else ()
    return frame_of(crashed or next(reversed(stacks.values()), ()))
