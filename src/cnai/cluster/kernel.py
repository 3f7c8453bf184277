"""What the kernel of this machine says of memory that ran out.

A process that is killed for memory says nothing; the kernel counts it (`/proc/vmstat` for the
machine, the cgroup for the container) and logs it. Each source is read where it may be, since none
of them is readable everywhere.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

_WORDS = re.compile(
    r"out of memory|oom-kill|oom_reaper|killed process|hung task|Xid|I/O error", re.IGNORECASE
)
_RECORD_BYTES = 8192
_MOST_LINES = 200
_COUNTERS = {
    "/proc/vmstat": "oom_kill",
    "/sys/fs/cgroup/memory.events": "oom_kill",
    "/sys/fs/cgroup/memory/memory.oom_control": "oom_kill",
}


class KernelNews:
    """Tells what is new in the kernel's counters and log since the last look.

    Args:
        counters: Files of lines `NAME NUMBER`, each with the name that is watched.
        log: The kernel's log; what stands in it already is passed over.
    """

    def __init__(
        self, counters: Mapping[str, str] = _COUNTERS, log: Path = Path("/dev/kmsg")
    ) -> None:
        self._counters = dict(counters)
        self._counts = self._read_counters()
        self._handle = _opened(log)

    def read(self) -> list[str]:
        """Return what is new, as lines such as the table of signatures knows them."""
        before, self._counts = self._counts, self._read_counters()
        rises = [
            f"{file}: {self._counters[file]} {before.get(file, count)} -> {count}: "
            "Out of memory: Killed process"
            for file, count in self._counts.items()
            if count > before.get(file, count)
        ]
        return rises + self._read_log()

    def close(self) -> None:
        """Close the log."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _read_counters(self) -> dict[str, int]:
        found = {}
        for file, name in self._counters.items():
            with contextlib.suppress(OSError):
                for line in Path(file).read_text().splitlines():
                    words = line.split()
                    if len(words) == 2 and words[0] == name and words[1].isdigit():
                        found[file] = int(words[1])
        return found

    def _read_log(self) -> list[str]:
        lines: list[str] = []
        while self._handle is not None:
            try:
                record = os.read(self._handle, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel has overwritten records that we had not read
                continue
            except OSError:
                self.close()
                break
            if not record:
                break
            text = record.decode(errors="replace").partition(";")[2].split("\n")[0]
            if _WORDS.search(text):
                lines.append(text)
        return lines[-_MOST_LINES:]


def _opened(log: Path) -> int | None:
    """Open the log at its end; None where it may not be read."""
    try:
        handle = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        os.lseek(handle, 0, os.SEEK_END)
    except OSError:
        os.close(handle)
        return None
    return handle
