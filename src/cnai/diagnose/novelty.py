"""Lines such as healthy ranks and runs never print.

A line whose numbers, addresses, quoted words and paths are masked is a template. What a rank
printed near its end, and no healthy log printed in any form, is a suspect even where no row of the
table knows it. It never makes a diagnosis by itself: new lines are printed for many reasons.

Source: L4 (arXiv 2503.20263) filters the lines of failed jobs by those of healthy ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cnai.diagnose.diagnosis import LogLine
from cnai.diagnose.lines import read_line

_MASKS = (
    (re.compile(r"0x[0-9a-fA-F]+"), "#"),
    (re.compile(r"'[^']{0,200}'|\"[^\"]{0,200}\""), "'*'"),
    (re.compile(r"(?:/[\w.+-]+){2,}"), "/*"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "#"),
    (re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"), "#"),
)
_FRAME = re.compile(r'\s+File "|\s+\S|Traceback \(most|~*\^+~*$')
_NEAR_THE_END = 200


def template_of(text: str) -> str:
    """Return a line with all that changes from one run to the next masked."""
    shown = read_line(text, stream="", number=1).text.strip()
    for pattern, mask in _MASKS:
        shown = pattern.sub(mask, shown)
    return " ".join(shown.split())


class Healthy:
    """The templates that healthy logs have printed."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, lines: Iterable[str]) -> None:
        """Take in lines of a healthy log."""
        self._known.update(template_of(line) for line in lines)

    def never_printed(self, lines: Sequence[LogLine]) -> list[LogLine]:
        """Return the lines near the end whose template no healthy log has, without tracebacks.

        Of lines alike the first is taken.
        """
        found: dict[str, LogLine] = {}
        for line in lines[-_NEAR_THE_END:]:
            template = template_of(line.text)
            if template and template not in self._known and not _FRAME.match(line.text):
                found.setdefault(template, line)
        return list(found.values())
