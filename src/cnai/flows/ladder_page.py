"""The evidence of a validation as a page for a browser; one file, no scripts, nothing fetched."""

from __future__ import annotations

from html import escape

from cnai.flows.rungs import Gate, Ladder, Rung

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
  color: #1c2430; background: #fff; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #d8dde5;
  vertical-align: top; }
.passed { color: #12703a; } .failed { color: #b3261e; font-weight: 600; }
.planned, .skipped { color: #5b6675; }
@media (prefers-color-scheme: dark) { body { color: #e6e9ee; background: #14181f; }
  th, td { border-color: #333b47; } .passed { color: #6bd38f; } .failed { color: #ff8a80; } }
"""


def page(ladder: Ladder) -> str:
    """Return the page."""
    rungs = "\n".join(_rung(rung) for rung in ladder.rungs)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">\n'
        f"<title>Validation of {escape(ladder.name)}</title>\n<style>{_STYLE}</style>\n"
        f"<h1>Validation of {escape(ladder.name)}</h1>\n<p>Layout {escape(ladder.layout)}.</p>\n"
        f"{rungs}\n</html>\n"
    )


def _rung(rung: Rung) -> str:
    cost = f", {escape(rung.cost)}" if rung.cost else ""
    rows = "\n".join(_gate(gate, rung.status) for gate in rung.gates)
    return (
        f"<h2>Rung {rung.number}: {escape(rung.name)}</h2>\n"
        f'<p class="{rung.status}">{rung.status}, {rung.seconds:.1f} s here{cost}</p>\n'
        "<table><tr><th>gate</th><th>expected</th><th>found</th><th>verdict</th></tr>\n"
        f"{rows}\n</table>"
    )


def _gate(gate: Gate, status: str) -> str:
    verdict = verdict_of(gate, status)
    hint = f"<br>{escape(gate.hint)}" if gate.passed is False and gate.hint else ""
    return (
        f"<tr><td>{escape(gate.name)}</td><td>{escape(gate.expected)}</td>"
        f'<td>{escape(gate.measured)}{hint}</td><td class="{verdict}">{verdict}</td></tr>'
    )


def verdict_of(gate: Gate, status: str) -> str:
    """Return the word for a gate: that of its rung where it was not measured."""
    if gate.passed is None:
        return status
    return "passed" if gate.passed else "failed"
