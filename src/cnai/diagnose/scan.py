"""One log, read once from its first line to its last, with what it says of a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from cnai.diagnose.lines import Line, read_line, spoken_rank
from cnai.diagnose.metrics import Metrics
from cnai.diagnose.signatures import Matcher, Role, Signature

_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d+)')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>|/bin/torchrun")
_CHAINED = ("direct cause of the following", "During handling of the above")
_ERROR = re.compile(
    r"[A-Za-z_][\w.]{0,120}(?::|$)|[A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt)\b"
)
_ATTEMPT = re.compile(
    r"=== attempt |\[default\] (re)?start(ing|ed) worker group|Restarting worker group|"
    r"restart count[^0-9]{1,4}[1-9]|TORCHELASTIC_RESTART_COUNT=[1-9]|\bAttempt [1-9]\d* "
)
_SAID_LIMIT = 400
_ANY_EXCEPTION = "any_exception"
_HANDLED_AFTER = 6
_SOFT = re.compile(r"(?<!NCCL )\bwarn(ing)?\b(?!\s{2,})|\bINFO\b|\bDEBUG\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line that a row of the table knows.

    Attributes:
        row: The row.
        attempt: Restarts that the log told of before it.
        ended: It is the exception that a traceback ended in.
        chain: Exceptions before it that led to it.
        frame: `FILE:LINE` of the user's code, when a traceback told it.
        soft: The line calls itself a warning or an information, or is advice.
        weight: How much it says.
    """

    row: Signature
    line: Line
    attempt: int
    weight: float
    ended: bool = False
    chain: int = 0
    frame: str | None = None
    soft: bool = False


@dataclass(slots=True)
class _Voice:
    """What one rank (or whoever prints without a prefix) is in the midst of saying."""

    metrics: Metrics = field(default_factory=Metrics)
    inside: bool = False
    frame: str | None = None
    own: bool = False
    chain: int = 0
    linked: bool = False
    since: int = 0
    went_on: int = 0


class Scanner:
    """Reads a log line by line in bounded memory.

    Args:
        stream: The log's name.
        matcher: Shared by all logs of a run.
    """

    def __init__(self, stream: str, matcher: Matcher) -> None:
        self.stream = stream
        self.said: list[Said] = []
        self.lines = 0
        self._matcher = matcher
        self._attempt = 0
        self._voices: dict[int | None, _Voice] = {}

    def hear(self, raw: str) -> None:
        """Take in the next line."""
        self.lines += 1
        line = read_line(raw, stream=self.stream, number=self.lines)
        if not line.text:
            return
        voice = self._voices.setdefault(line.rank, _Voice())
        if _ATTEMPT.search(line.raw):
            self._attempt += 1
        ended = self._follow(voice, line)
        if ended is None:
            return
        rows = self._matcher.find(line.text)
        if rows:
            self._note(voice, line, rows, ended=ended)
        voice.metrics.hear(line.number, line.text, line.raw)

    def result(self) -> Heard:
        """Return all that was said, with the numbers that went wrong."""
        said, went_on = list(self.said), {}
        for rank, voice in self._voices.items():
            went_on[rank] = max(voice.metrics.last_progress, voice.went_on)
        odd = [(rank, one) for rank, voice in self._voices.items() for one in voice.metrics.found()]
        return Heard(
            stream=self.stream,
            lines=self.lines,
            said=said,
            odd=[
                (one.fault, self._line(one.number, one.raw, rank), one.weight) for rank, one in odd
            ],
            went_on=went_on,
            attempts=self._attempt,
        )

    def _line(self, number: int, raw: str, rank: int | None) -> Line:
        return replace(read_line(raw, stream=self.stream, number=number), rank=rank)

    def _follow(self, voice: _Voice, line: Line) -> bool | None:
        """Keep track of tracebacks.

        Returns:
            Whether the line names the exception of a traceback; None when it is inside of one.
        """
        text = line.text
        if _TRACEBACK in text:
            voice.chain = voice.chain + 1 if voice.linked else 0
            if not voice.linked and voice.since > _HANDLED_AFTER:
                voice.went_on = line.number
            voice.since = 0
            voice.inside, voice.linked, voice.frame, voice.own = True, False, None, False
            return None
        if any(words in text for words in _CHAINED):
            voice.linked = True
            return None
        if not voice.inside:
            voice.since += 1
            return False
        if text[0].isspace():
            self._frame(voice, text)
            return None
        voice.inside = False
        return bool(_ERROR.match(text))

    @staticmethod
    def _frame(voice: _Voice, text: str) -> None:
        found = _FRAME.match(text)
        if not found:
            return
        own = not _LIBRARY.search(found["file"])
        if own or not voice.own:
            voice.frame, voice.own = f"{found['file']}:{found['line']}", own

    def _note(self, voice: _Voice, line: Line, rows: list[Signature], *, ended: bool) -> None:
        if any(row.fault == "progress" for row in rows):
            voice.went_on = line.number
            return
        advice = any(row.role is Role.BENIGN for row in rows)
        if advice and not ended and not _names_an_error(line.text):
            return
        soft = advice or (bool(_SOFT.search(line.raw)) and "elastic" not in line.raw)
        spoken = [row for row in rows if row.role is not Role.BENIGN]
        for row in spoken:
            if row.name == _ANY_EXCEPTION and len(spoken) > 1:
                continue
            if len(self.said) >= _SAID_LIMIT:
                self._make_room()
            self.said.append(
                Said(
                    row=row,
                    line=replace(
                        line, rank=spoken_rank(line.raw) if line.rank is None else line.rank
                    ),
                    attempt=self._attempt,
                    weight=row.weight,
                    ended=ended,
                    chain=voice.chain if ended else 0,
                    frame=voice.frame if ended else None,
                    soft=soft and not ended,
                )
            )

    def _make_room(self) -> None:
        """Keep the first that each row said, and the newest half."""
        seen: set[str] = set()
        firsts: list[Said] = []
        for one in self.said:
            if one.row.name not in seen:
                seen.add(one.row.name)
                firsts.append(one)
        half = self.said[-_SAID_LIMIT // 2 :]
        kept = {id(one) for one in half}
        self.said = [*(one for one in firsts if id(one) not in kept), *half]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A whole log.

    Attributes:
        odd: Numbers that went wrong: class, line, weight.
        went_on: Last line that shows progress, by rank (None: lines without a rank).
        attempts: Restarts that it tells of.
    """

    stream: str
    lines: int
    said: list[Said]
    odd: list[tuple[str, Line, float]]
    went_on: dict[int | None, int]
    attempts: int


_NAMED = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)\b|^\W*(?:ERROR|FATAL|CRITICAL)\b")


def _names_an_error(text: str) -> bool:
    return bool(_NAMED.match(text))
