"""Find out why a run broke off, from its events and logs alone.

Each lost rank is heard as a witness. A rank that names a cause outweighs one that waited, and that
one outweighs a rank whose peer was gone; among equals the rank that was lost first is the root. A
launcher that blames the first rank that it noticed often blames a victim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cnai.core.events import (
    AttemptStarted,
    Decided,
    Event,
    Finding,
    RankFailed,
    RankLost,
    Repair,
    RunEnded,
    StepDone,
)
from cnai.core.runfolder import RunFolder, read_events
from cnai.diagnose.diagnosis import Diagnosis, Guess, LogLine, Verdict
from cnai.diagnose.faults import faults
from cnai.diagnose.hang import hang_of, last_attempt, last_stood
from cnai.diagnose.repairs import repairs_for
from cnai.diagnose.signatures import Matcher, Role
from cnai.diagnose.standing import Hang
from cnai.diagnose.suspects import suspect_lines
from cnai.diagnose.tail import read_tail
from cnai.diagnose.witness import Part, Witness, of_failure, of_log, of_loss, rank_lines

_FAULT_OF_DETECTOR = {"nonfinite": "nan_loss", "stalled": "collective_timeout"}
_MEMORY_FAULTS = {"host_oom"}
_OTHERS = 2


def diagnose_run(run: RunFolder) -> Diagnosis:
    """Diagnose the newest attempt of a run that lost a rank, or say that there is no fault.

    Never raises on damaged logs or missing files: what cannot be read is no evidence.
    """
    events = read_events(run)
    hung = hang_of(events)
    if hung is not None:
        return _of_hang(run, events, *hung)
    witnesses = _witnesses(run, events)
    if witnesses:
        return _judge(run, events, witnesses)
    return _without_witnesses(run, events)


def _of_hang(run: RunFolder, events: Sequence[Event], hang: Hang, finding: Finding) -> Diagnosis:
    """Say which rank held up the others when all stood still."""
    recovered = _recovered(events, finding.time_unix)
    near = faults()[hang.fault].near[:_OTHERS]
    left = round((1 - hang.confidence) / (len(near) + 1), 2)
    return Diagnosis(
        verdict=Verdict.FAULT,
        fault=hang.fault,
        action=_action(hang.fault),
        root_stream=None if hang.rank is None else str(hang.rank),
        top=(
            Guess(fault=hang.fault, confidence=hang.confidence),
            *(Guess(fault=one, confidence=left) for one in near),
        ),
        summary=f"{hang.summary}{'; the run went on' if recovered else ''}",
        root_rank=hang.rank,
        cascade_ranks=hang.waiting,
        confidence=hang.confidence,
        evidence=hang.evidence,
        repairs=_proposed(events) + repairs_for(
            hang.fault, run, frame=hang.frame, recovered=recovered
        ),
        recovered=recovered,
        root_frame=hang.frame,
        root_step=hang.step,
        root_phase=hang.phase,
        root_host=hang.host,
    )  # fmt: skip


def _proposed(events: Sequence[Event]) -> tuple[Repair, ...]:
    """Return the change that the supervisor proposed last."""
    decided = next((e for e in reversed(events) if isinstance(e, Decided)), None)
    if decided is None or not decided.spec_patch:
        return ()
    title = "take the planner's next layout, which needs less memory"
    return (Repair(title=title, spec_patch=decided.spec_patch),)


def _witnesses(run: RunFolder, events: Sequence[Event]) -> list[Witness]:
    losses = [event for event in events if isinstance(event, RankLost | RankFailed)]
    if not losses:
        return []
    attempt = max(event.attempt for event in losses)
    memory = _memory_lines(run, attempt)
    heard: dict[int, Witness] = {}
    for event in losses:
        if event.attempt != attempt:
            continue
        lines = rank_lines(run, event.rank, attempt)
        if isinstance(event, RankFailed):
            heard[event.rank] = of_failure(event, lines)
        elif event.rank not in heard:
            heard[event.rank] = of_loss(event, lines or _tail_lines(event), memory)
    return list(heard.values())


def _tail_lines(event: RankLost) -> list[LogLine]:
    """Fall back on the lines that the event carries, when the log is gone."""
    return [
        LogLine(file=f"RankLost of rank {event.rank}", number=number, text=text)
        for number, text in enumerate(event.log_tail.splitlines(), start=1)
    ]


def _memory_lines(run: RunFolder, attempt: int) -> list[LogLine]:
    """Return the lines of all logs that tell of exhausted memory."""
    matcher = Matcher()
    return [
        line
        for path in sorted(run.logs.glob("*.log"))
        for line in read_tail(path, name=str(path.relative_to(run.root)), attempt=attempt)
        if any(
            row.fault in _MEMORY_FAULTS and row.role is Role.ROOT for row in matcher.find(line.text)
        )
    ]


def _judge(run: RunFolder, events: Sequence[Event], witnesses: Sequence[Witness]) -> Diagnosis:
    root = max(witnesses, key=lambda one: (one.names_a_fault, one.part, -one.time_unix))
    if not root.names_a_fault:
        return _nobody_knows(run, events, root, witnesses)
    root = _odd_one(events, witnesses, root)
    others = [one for one in witnesses if one.rank != root.rank]
    cascade = sorted(one.rank for one in others if one.part < root.part or not one.names_a_fault)
    rivals = {one.fault for one in others if one.part is root.part} - {root.fault}
    silent = _silent_rank(events, witnesses) if root.part is Part.WAITED else None
    rank = root.rank if silent is None else silent
    recovered = _recovered(events, root.time_unix)
    stood = last_stood(events).get(rank)
    confidence = round(root.confidence * (0.7 if rivals else 1.0), 2)
    return Diagnosis(
        verdict=Verdict.FAULT,
        fault=root.fault,
        action=_action(root.fault),
        root_stream=str(rank),
        top=_guesses(root, confidence),
        summary=_summary(root, rank, recovered=recovered),
        root_rank=rank,
        root_line=root.line if rank == root.rank else None,
        cascade_ranks=tuple(sorted({*cascade, root.rank} - {rank})) if silent is not None
        else tuple(cascade),
        confidence=confidence,
        evidence=tuple(one.why for one in (root, *others)),
        repairs=_proposed(events) + repairs_for(
            root.fault, run, frame=root.frame, hint=root.hint, recovered=recovered
        ),
        recovered=recovered,
        root_frame=root.frame if rank == root.rank else None,
        root_step=stood.step if stood else root.step,
        root_phase=stood.phase if stood else None,
        root_host=stood.host if stood else None,
    )  # fmt: skip


def _odd_one(events: Sequence[Event], witnesses: Sequence[Witness], root: Witness) -> Witness:
    """Of ranks that disagree in a collective take the one that did what it never did before."""
    if root.fault != "collective_mismatch" or root.line is None:
        return root
    odd = {rank for rank, one in last_stood(events).items() if one.odd}
    found = [one for one in witnesses if one.rank in odd]
    if len(odd) != 1 or not found:
        return root
    why = f"rank {found[0].rank} sent a shape that it had never sent before"
    fault, part, confidence = root.fault, root.part, root.confidence
    return replace(found[0], fault=fault, part=part, confidence=confidence, why=why, said=why)


def _action(fault: str | None) -> str | None:
    return faults()[fault].action if fault in faults() else None


def _guesses(root: Witness, confidence: float) -> tuple[Guess, ...]:
    """Return the class with those that it may be instead, which share what is left."""
    near = faults()[root.fault].near if root.fault in faults() else ()
    others = [one for one in dict.fromkeys((*root.others, *near)) if one != root.fault][:_OTHERS]
    left = round((1 - confidence) / (len(others) + 1), 2)
    guesses = [Guess(fault=one, confidence=left) for one in others]
    return (Guess(fault=root.fault or "", confidence=confidence), *guesses)


def _summary(root: Witness, rank: int, *, recovered: bool) -> str:
    what = f"{root.fault} on rank {rank}"
    if rank != root.rank:
        what += f", for which rank {root.rank} waited"
    told = root.said or (root.line.text.strip() if root.line else None)
    detail = f": {told}" if told else f" ({root.why})"
    return f"{what}{detail}{'; the run went on' if recovered else ''}"


def _silent_rank(events: Sequence[Event], witnesses: Sequence[Witness]) -> int | None:
    """Return the one rank of the attempt that did not complain of waiting; it hung.

    None when there is no such rank or several.
    """
    ranks = next((e.ranks for e in reversed(events) if isinstance(e, AttemptStarted)), 0)
    waited = {one.rank for one in witnesses if one.fault == "collective_timeout"}
    silent = set(range(ranks)) - waited
    return silent.pop() if len(silent) == 1 else None


def _recovered(events: Sequence[Event], since: float) -> bool:
    later = [event for event in events if event.time_unix > since]
    return any(isinstance(event, StepDone) for event in later) or any(
        isinstance(event, RunEnded) and event.outcome == "done" for event in later
    )


def _nobody_knows(
    run: RunFolder, events: Sequence[Event], first: Witness, witnesses: Sequence[Witness]
) -> Diagnosis:
    """Say unknown: every rank only lost its peer, or ended without a known word."""
    ranks = tuple(sorted(one.rank for one in witnesses))
    others = {one.rank for one in witnesses if one.part is not Part.VICTIM}
    suspects = suspect_lines(run, last_attempt(events), others or set(ranks))
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        summary=f"{first.why}, for no reason that is known",
        root_rank=first.rank if len(ranks) == 1 else None,
        root_line=first.line or (suspects[-1] if suspects else None),
        cascade_ranks=ranks if first.part is Part.VICTIM else (),
        confidence=0.2,
        evidence=(
            *(one.why for one in witnesses),
            *(f"no healthy log has a line like {line}" for line in suspects),
        ),
        repairs=repairs_for(None, run),
    )


def _without_witnesses(run: RunFolder, events: Sequence[Event]) -> Diagnosis:
    ended = next((e for e in reversed(events) if isinstance(e, RunEnded)), None)
    finding = next(
        (e for e in events if isinstance(e, Finding) and e.detector in _FAULT_OF_DETECTOR), None
    )
    if ended is not None and ended.outcome in {"done", "stopped"} and finding is None:
        words = {"done": f"done after step {ended.step}", "stopped": "stopped by the user"}
        return Diagnosis(
            verdict=Verdict.HEALTHY, summary=f"the run is {words[ended.outcome]}", confidence=0.95
        )
    if finding is not None:
        return _of_finding(run, finding)
    spoken = _of_logs(run)
    if spoken is not None:
        return _judge(run, events, spoken)
    return _no_sign(run, events, ended)


def _of_finding(run: RunFolder, finding: Finding) -> Diagnosis:
    fault = _FAULT_OF_DETECTOR[finding.detector]
    witness = Witness(
        rank=finding.rank or 0,
        time_unix=finding.time_unix,
        fault=fault,
        part=Part.ROOT,
        confidence=0.8,
        why=f"the detector {finding.detector} found: {finding.message}",
    )
    return Diagnosis(
        verdict=Verdict.FAULT,
        fault=fault,
        action=_action(fault),
        root_stream=None if finding.rank is None else str(finding.rank),
        top=_guesses(witness, witness.confidence),
        summary=f"{fault}: {finding.message}",
        root_rank=finding.rank,
        confidence=witness.confidence,
        evidence=(witness.why, *finding.evidence),
        repairs=finding.repairs or repairs_for(fault, run),
    )


def _of_logs(run: RunFolder) -> list[Witness] | None:
    """Hear the logs of ranks whose end nobody recorded; only words that name a cause count."""
    heard: list[Witness] = []
    for path in sorted(run.logs.glob("rank-*.log")):
        number = path.stem.removeprefix("rank-")
        if not number.isdigit():
            continue
        witness = of_log(int(number), math.inf, rank_lines(run, int(number)))
        if witness is not None:
            heard.append(witness)
    return heard if any(one.part is Part.ROOT for one in heard) else None


def _no_sign(run: RunFolder, events: Sequence[Event], ended: RunEnded | None) -> Diagnosis:
    owner = run.owner()
    if owner is not None and ended is None:
        return Diagnosis(
            verdict=Verdict.HEALTHY, summary=f"process {owner} works on it", confidence=0.7
        )
    if ended is not None:
        summary = f"the run {ended.outcome}: {ended.reason or 'no reason was recorded'}"
    elif events:
        summary = "the run has no recorded end and nobody works on it: its supervisor was killed"
    else:
        summary = "the run has no events"
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        summary=summary,
        confidence=0.2,
        repairs=repairs_for(None, run),
    )
