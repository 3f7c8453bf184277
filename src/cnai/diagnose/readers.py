"""Logs of any kind from files, folders, compressed files or a pipe, as streams of lines."""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from cnai.core.errors import DataError
from cnai.diagnose.diagnosis import Diagnosis, Guess, LogLine, Verdict
from cnai.diagnose.faults import faults
from cnai.diagnose.lines import LONGEST
from cnai.diagnose.logs import LogVerdict, judge_logs
from cnai.diagnose.ranking import rank_of
from cnai.diagnose.repairs import filled
from cnai.diagnose.scan import Scanner
from cnai.diagnose.signatures import Matcher

STDIN = "-"
_RANK_NAME = re.compile(r"(?:rank|worker|proc)[-_]?(\d{1,6})\b", re.IGNORECASE)
_KINDS = ("dmesg", "slurm", "events", "agent", "monitor", "server")
_PIECE = 64 * 1024


def diagnose_logs(paths: Sequence[Path], *, top: int = 3) -> Diagnosis:
    """Diagnose files and folders of logs; `-` is what comes from stdin.

    Each file is one log: of a rank when its name (or that of its folder) says so, else interleaved.

    Raises:
        DataError: There is no such file, or no log in a folder.
    """
    matcher = Matcher()
    scanners: dict[str, tuple[Scanner, Path]] = {}
    for path in _files(paths):
        name = _unused(stream_name(path), scanners)
        scanner = Scanner(name, matcher)
        scanners[name] = (scanner, path)
        for line in read_lines(path):
            scanner.hear(line)
    found = judge_logs([scanner.result() for scanner, _ in scanners.values()], top=top)
    return _diagnosis(found, {name: path for name, (_, path) in scanners.items()})


def stream_name(path: Path) -> str:
    """Name a log: a rank's number, `dmesg:NODE`, or the file's name without its endings."""
    name = re.sub(r"(\.(log|txt|out|err|gz|jsonl?))+$", "", path.name, flags=re.IGNORECASE)
    found = _RANK_NAME.search(name)
    if found:
        return found[1]
    if name in {"stdout", "stderr"} and path.parent.name.isdigit():
        return path.parent.name
    kind = next((kind for kind in _KINDS if name.lower().startswith(kind)), None)
    if kind is None:
        return name or str(path)
    node = name[len(kind) :].strip("-_:.")
    return f"{kind}:{node}" if node else kind


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log, gzip or not; a line of any length takes bounded memory.

    Raises:
        DataError: The file cannot be read.
    """
    if str(path) == STDIN:
        yield from _cut(sys.stdin.buffer)
        return
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            yield from _cut(file)
    except (EOFError, zlib.error):
        return  # A torn end of a compressed log: what came before it counts.
    except OSError as error:
        raise DataError(
            f"cannot read the log: {error.strerror or error}",
            where=str(path),
            hint="name a log file, a folder of logs, a run folder, or `-` for stdin",
        ) from error


def _cut(file: IO[bytes] | gzip.GzipFile) -> Iterator[str]:
    whole = True
    while piece := file.readline(_PIECE):
        if whole:
            yield piece[: 2 * LONGEST].decode(errors="replace").rstrip("\r\n")
        whole = piece.endswith(b"\n")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if str(path) == STDIN or path.is_file():
            yield path
        elif path.is_dir():
            inside = [one for one in sorted(path.rglob("*")) if one.is_file() and _is_log(one)]
            if not inside:
                raise DataError(
                    f"no logs in `{path}`", where=str(path), hint="name the files themselves"
                )
            yield from inside
        else:
            raise DataError(
                f"no run at `{path}`, and no log",
                where=str(path),
                hint="name a log file, a folder of logs, a run folder, or `-` for stdin",
            )


def _is_log(path: Path) -> bool:
    names = (".log", ".txt", ".out", ".err", ".gz", "")
    return path.suffix.lower() in names and not path.name.startswith(".")


def _unused(name: str, taken: Iterable[str]) -> str:
    names, number = set(taken), 2
    while (found := name if number == 2 else f"{name}#{number - 1}") in names:
        number += 1
    return found


def _diagnosis(found: LogVerdict, places: dict[str, Path]) -> Diagnosis:
    guesses = tuple(
        Guess(fault=name, confidence=sure)
        for name, sure in zip(found.top, found.confidence, strict=True)
        if name in faults()
    )
    if found.stream is None:
        return Diagnosis(verdict=Verdict.HEALTHY, summary="no log tells of a fault", confidence=0.8)
    line = None
    if found.line is not None:
        line = LogLine(
            file=str(places[found.stream]), number=found.line.number, text=found.line.raw
        )
    fault = faults()[found.fault]
    ranks = [rank for name in found.cascade if (rank := rank_of(name)) is not None]
    where = f" on rank {found.rank}" if found.rank is not None else f" in {found.stream}"
    return Diagnosis(
        verdict=Verdict.FAULT,
        fault=found.fault,
        summary=f"{found.fault}{where}: {line.text if line else 'it printed nothing'}",
        confidence=found.confidence[0],
        root_rank=found.rank,
        root_line=line,
        root_stream=found.stream,
        cascade_ranks=tuple(sorted(ranks)),
        evidence=_evidence(found, places),
        repairs=tuple(filled(one, run=None, spec=None, frame=found.frame) for one in fault.repairs),
        action=fault.action,
        top=guesses,
        recovered=False,
    )


def _evidence(found: LogVerdict, places: dict[str, Path]) -> tuple[str, ...]:
    heaviest = sorted(found.ranking.clues, key=lambda clue: -clue.score)[:5]
    return tuple(
        f"{clue.fault} ({clue.role}): {places[clue.line.stream]}:{clue.line.number}: "
        f"{clue.line.raw[:200]}"
        for clue in heaviest
    )
