"""What `ai-cli doctor` looks at: small checks that say what they found and how to mend it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import psutil

from cnai.core.units import format_bytes

PYTHON = (3, 11)
MEMORY_BYTES = 2 * 2**30
DISK_BYTES = 5 * 2**30
OPEN_FILES = 1024
PORTS = MappingProxyType({
    8000: "serve elsewhere with `--set serve.port=0`",
    9090: "give Prometheus another port",
})  # fmt: skip


class Outcome(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report; `repair` is empty when nothing needs one."""

    name: str
    outcome: Outcome
    found: str
    repair: str = ""


def examine(runs: Path) -> list[Check]:
    """Check everything.

    Args:
        runs: The folder in which the runs will lie; it need not be there yet.
    """
    return [
        python_version(),
        *packages(),
        torch_present(),
        cores(),
        memory(),
        disk(runs),
        temporary_folder(),
        open_files(),
        *(port(number, repair) for number, repair in PORTS.items()),
    ]


def python_version() -> Check:
    """Check the interpreter."""
    good = sys.version_info >= PYTHON
    wanted = ".".join(map(str, PYTHON))
    return _check("python", platform.python_version(), good, f"install Python {wanted} or newer")


def packages() -> Iterator[Check]:
    """Check what the package needs, from its own metadata."""
    try:
        wanted = metadata.requires("cnai") or []
    except metadata.PackageNotFoundError:
        yield Check(
            name="packages",
            outcome=Outcome.WARN,
            found="cnai runs from its source, so its needs are not known",
            repair="pip install -e .",
        )
        return
    names = [re.split(r"[^A-Za-z0-9._-]", one)[0] for one in wanted if "extra ==" not in one]
    missing = [name for name in names if not _installed(name)]
    found = f"{len(names) - len(missing)} of {len(names)}"
    yield _check("packages", found, not missing, f"pip install {' '.join(missing)}")


def torch_present() -> Check:
    """Check torch without importing it, which takes seconds."""
    if importlib.util.find_spec("torch") is None:
        return Check(
            name="torch",
            outcome=Outcome.WARN,
            found="not installed; planning and watching work without it, training does not",
            repair="pip install 'cnai[torch]'",
        )
    return _check("torch", metadata.version("torch"), good=True)


def cores() -> Check:
    """Check the cores that this process may use."""
    count = len(os.sched_getaffinity(0))
    return _check("cores", str(count), count > 1, "more than one core trains faster", Outcome.WARN)


def memory() -> Check:
    """Check free memory."""
    free = psutil.virtual_memory().available
    found = f"{format_bytes(free)} free"
    return _check("memory", found, free >= MEMORY_BYTES, "close other programs", Outcome.WARN)


def disk(runs: Path) -> Check:
    """Check that the runs' folder can be written and has room."""
    place = runs.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        return Check(
            name="disk",
            outcome=Outcome.FAIL,
            found=f"{place} cannot be written",
            repair="choose another folder with `--set output=FOLDER`",
        )
    free = shutil.disk_usage(place).free
    found = f"{format_bytes(free)} free at {place}"
    return _check("disk", found, free >= DISK_BYTES, "free some space", Outcome.WARN)


def temporary_folder() -> Check:
    """Check that temporary files can be written."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return _check("temporary folder", str(error), False, "set TMPDIR to a folder with room")
    return _check("temporary folder", tempfile.gettempdir(), good=True)


def open_files() -> Check:
    """Check how many files a process may open; each rank needs some dozens."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _check("open files", str(limit), limit >= OPEN_FILES, "ulimit -n 4096", Outcome.WARN)


def port(number: int, repair: str) -> Check:
    """Check that a port of this machine is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            return _check(f"port {number}", error.strerror or "busy", False, repair, Outcome.WARN)
    return _check(f"port {number}", "free", good=True)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _check(
    name: str, found: str, good: bool, repair: str = "", bad: Outcome = Outcome.FAIL
) -> Check:
    if good:
        return Check(name=name, outcome=Outcome.OK, found=found)
    return Check(name=name, outcome=bad, found=found, repair=repair)
