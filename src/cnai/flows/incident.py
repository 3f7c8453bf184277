"""The page of what broke a run: its events, its logs and its diagnosis put together."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from cnai.core.errors import CnaiError
from cnai.core.events import (
    AttemptStarted,
    CheckpointRejected,
    Decided,
    Event,
    Finding,
    LayoutChanged,
    RankFailed,
    RankLost,
    RankStood,
    RunEnded,
    StepDone,
)
from cnai.core.files import write_atomically
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.spec import RunSpec
from cnai.diagnose import Diagnosis, diagnose_run
from cnai.diagnose.hang import last_attempt, last_stood
from cnai.diagnose.witness import rank_lines
from cnai.flows.diagnose import changes_of
from cnai.flows.folder import spec_of
from cnai.monitor.panel.incident import Happening, Incident, Mending, RankLog, incident_page
from cnai.monitor.panel.incident_lanes import Lane, Span

_MOST_LANES = 24
_MOST_LOGS = 6
_LOG_LINES, _LAST_LINES = 16, 9
_CARETS = re.compile(r"\s*[~^]+\s*")
_STEPS_BEFORE = 8


def write_incident(run: RunFolder, target: Path) -> None:
    """Write the page of a run's incident to a file.

    Raises:
        RunError: The file cannot be written.
    """
    write_atomically(target, incident_html(run).encode())


def incident_html(run: RunFolder) -> str:
    """Return the page of what broke a run, or that nothing did."""
    return incident_page(incident_of(run))


def incident_of(run: RunFolder) -> Incident:
    """Put together all that is known of what broke a run; it may still be going on."""
    events, found = read_events(run), diagnose_run(run)
    attempt = last_attempt(events)
    of_attempt = [e for e in events if getattr(e, "attempt", attempt) == attempt]
    break_unix = _break(of_attempt, found)
    origin = break_unix or (events[0].time_unix if events else time.time())
    return Incident(
        run=run.name,
        verdict=found.verdict,
        headline=found.summary,
        when=datetime.fromtimestamp(origin, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        confidence=found.confidence,
        facts=_facts(found, attempt),
        lanes=_lanes(of_attempt, found, origin) if break_unix else (),
        break_at=0.0 if break_unix else None,
        break_label=_label(found),
        happenings=_happenings(events, found, origin) if break_unix else (),
        logs=_logs(run, events, found, attempt),
        evidence=found.evidence,
        mendings=_mendings(run, found),
        done=tuple(
            f"{e.action}: {e.reason}" + (f"; {e.node} is not used any more" if e.node else "")
            for e in events
            if isinstance(e, Decided)
        ),
    )


def _facts(found: Diagnosis, attempt: int) -> tuple[tuple[str, str], ...]:
    facts = {
        "class": found.fault,
        "rank": found.root_rank,
        "machine": found.root_host,
        "after step": found.root_step,
        "phase": found.root_phase,
        "frame": found.root_frame,
        "attempt": attempt,
        "confidence": f"{found.confidence:.0%}",
        "action": found.action,
    }
    return tuple((name, str(value)) for name, value in facts.items() if value is not None)


def _label(found: Diagnosis) -> str:
    frame = Path(found.root_frame).name if found.root_frame else None
    words = (
        "all ranks" if found.root_rank is None else f"rank {found.root_rank}",
        None if found.root_step is None else f"after step {found.root_step}",
        found.root_phase,
        frame,
    )
    return ", ".join(word for word in words if word)


def _break(events: Sequence[Event], found: Diagnosis) -> float | None:
    """Return when the root went into the phase in which it broke, else when it was lost."""
    stood = last_stood(events).get(-1 if found.root_rank is None else found.root_rank)
    if stood is not None and stood.host is not None:
        return stood.time_unix - stood.phase_seconds
    lost = [e for e in events if isinstance(e, RankLost | RankFailed)]
    own = [e for e in lost if e.rank == found.root_rank]
    hung = [e for e in events if isinstance(e, Finding) and e.detector in {"hung", "stalled"}]
    return next((e.time_unix for e in (*own, *lost, *hung)), None)


def _lanes(events: Sequence[Event], found: Diagnosis, origin: float) -> tuple[Lane, ...]:
    steps = [e for e in events if isinstance(e, StepDone)]
    ranks = sorted({e.rank for e in events if isinstance(e, StepDone | RankLost | RankStood)})
    ranks.sort(key=lambda rank: rank != found.root_rank)
    ends = {e.rank: e.time_unix for e in events if isinstance(e, RankLost | RankFailed)}
    last = max((*ends.values(), *(e.time_unix for e in events if isinstance(e, Finding))),
               default=origin)  # fmt: skip
    last = max(last, origin) + 0.02 * max(last - origin, 1.0)
    usual = median([e.step_seconds for e in steps]) if steps else 1.0
    first = origin - max(_STEPS_BEFORE * usual, (last - origin) * 0.6)
    lanes = [
        _lane(rank, [e for e in steps if e.rank == rank and e.time_unix >= first], found, origin,
              ends.get(rank), last)
        for rank in ranks[:_MOST_LANES]
    ]  # fmt: skip
    return tuple(sorted(lanes, key=lambda lane: lane.rank))


def _lane(
    rank: int,
    steps: Sequence[StepDone],
    found: Diagnosis,
    origin: float,
    end: float | None,
    last: float,
) -> Lane:
    spans: list[Span] = []
    for step in steps:
        start = step.time_unix - step.step_seconds - origin
        data = start + step.data_wait_seconds
        finish = step.time_unix - origin
        wait = finish - min(step.wait_seconds or 0.0, finish - data)
        name = f"rank {rank}, step {step.step}"
        spans += [
            Span(start=start, end=data, kind="data", title=f"{name}: waits for data"),
            Span(start=data, end=wait, kind="work", title=f"{name}: computes"),
            Span(start=wait, end=finish, kind="wait", title=f"{name}: waits for other ranks"),
        ]
    is_root = rank == found.root_rank
    begin = 0.0 if is_root or not steps else steps[-1].time_unix - origin
    finish = (last if end is None else end) - origin
    if finish > begin:
        kind = "open" if is_root else "held"
        spans.append(Span(start=begin, end=finish, kind=kind, title=f"rank {rank}: not finished"))
    ended = None if end is None else end - origin
    return Lane(rank=rank, spans=tuple(spans), is_root=is_root, end=ended)


def _happenings(events: Sequence[Event], found: Diagnosis, origin: float) -> tuple[Happening, ...]:
    rank = "all ranks" if found.root_rank is None else f"rank {found.root_rank}"
    phase = f" in phase {found.root_phase}" if found.root_phase else ""
    step = "" if found.root_step is None else f" after step {found.root_step}"
    first = Happening(seconds=0.0, who=rank, what=f"breaks off{step}{phase}", is_root=True)
    later = (
        Happening(seconds=e.time_unix - origin, who=who, what=what)
        for e in events
        if e.time_unix >= origin and (told := _told(e)) is not None
        for who, what in [told]
    )
    return (first, *sorted(later, key=lambda one: one.seconds))[:60]


def _told(event: Event) -> tuple[str, str] | None:  # noqa: PLR0911 - one line a kind
    match event:
        case Finding():
            return f"detector {event.detector}", event.message
        case RankFailed():
            return f"rank {event.rank}", f"reports: {event.message}"
        case RankLost():
            code = event.exit_code
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return f"rank {event.rank}", f"is lost, {how}"
        case Decided():
            return "supervisor", f"decides {event.action}: {event.reason}"
        case CheckpointRejected():
            return "supervisor", f"puts {Path(event.path).name} aside: {event.reason}"
        case LayoutChanged():
            return "supervisor", f"{event.before} -> {event.after}: {event.reason}"
        case AttemptStarted():
            return "supervisor", f"starts attempt {event.attempt} from step {event.resumed_step}"
        case RunEnded():
            return "supervisor", f"the run is {event.outcome} after step {event.step}"
    return None


def _logs(
    run: RunFolder, events: Sequence[Event], found: Diagnosis, attempt: int
) -> tuple[RankLog, ...]:
    ranks = {e.rank for e in events if isinstance(e, StepDone | RankLost | RankFailed | RankStood)}
    ordered = sorted(ranks, key=lambda rank: (rank != found.root_rank, rank))[:_MOST_LOGS]
    stood = last_stood([e for e in events if not isinstance(e, RankStood) or e.stack])
    return tuple(_log(run, rank, found, attempt, stood.get(rank)) for rank in ordered)


def _log(
    run: RunFolder, rank: int, found: Diagnosis, attempt: int, stood: RankStood | None
) -> RankLog:
    lines = rank_lines(run, rank, attempt)
    is_root = rank == found.root_rank
    number = found.root_line.number if is_root and found.root_line else None
    return RankLog(
        rank=rank,
        part="root" if is_root else "followed" if rank in found.cascade_ranks else "",
        file=f"logs/{run.rank_log(rank).name}",
        lines=_shown([(one.number, one.text) for one in lines], number),
        root=number,
        stack=stood.stack[:8] if stood else (),
    )


def _shown(lines: list[tuple[int, str]], root: int | None) -> tuple[tuple[int, str], ...]:
    """Return the lines around the root line, else the last, without the carets of tracebacks."""
    kept = [one for one in lines if not _CARETS.fullmatch(one[1])]
    places = [at for at, (number, _) in enumerate(kept) if number == root]
    if not places:
        return tuple(kept[-_LAST_LINES:])
    end = places[0] + _LOG_LINES // 2
    return tuple(kept[max(0, end - _LOG_LINES) : end])


def _mendings(run: RunFolder, found: Diagnosis) -> tuple[Mending, ...]:
    spec = _spec(run)
    return tuple(
        Mending(
            title=one.title,
            command=one.command,
            changes=tuple(
                (change.key, str(change.before), str(change.after))
                for change in (changes_of(spec, one.spec_patch or {}) if spec else ())
            ),
        )
        for one in found.repairs
    )


def _spec(run: RunFolder) -> RunSpec | None:
    try:
        return spec_of(run)
    except CnaiError:  # a copied folder may lack it; the page is without a diff then
        return None
