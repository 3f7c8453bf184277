"""Who works when in a step: the passes of a pipeline, laid out in time.

Every rank does what it can as soon as it can: a backward pass when it holds as many microbatches as
its schedule lets it, else the next forward pass. That is the order of 1F1B, of GPipe and close to
that of the interleaved schedules; backward takes twice as long as forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.layout import ParallelPlan
from cnai.plan.pipeline import in_flight
from cnai.plan.sensitivity import trial_of

_BACKWARD = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of one microbatch through one stage; times are in forward passes of a stage."""

    place: int
    stage: int
    microbatch: int
    is_backward: bool
    start: float
    end: float


def timeline(plan: ParallelPlan) -> tuple[Pass, ...]:
    """Return the passes of a step in the order in which they start."""
    stages, pieces = len(plan.stages), plan.microbatches
    trial = trial_of(plan)
    room = [in_flight(trial, stage) for stage in range(stages)]
    done: dict[tuple[int, int, bool], float] = {}
    free = [0.0] * plan.layout.pipeline
    begun, ended = [0] * stages, [0] * stages
    owned = [[stage.index for stage in plan.stages_of(place)] for place in range(len(free))]
    passes: list[Pass] = []
    while len(passes) < 2 * stages * pieces:
        ready = []
        for place, mine in enumerate(owned):
            for stage in mine:
                for is_backward in (True, False):
                    start = _start(stage, stages, begun, ended, done, is_backward=is_backward)
                    if start is None or (not is_backward and begun[stage] >= pieces):
                        continue
                    holds = begun[stage] - ended[stage]
                    if not is_backward and holds >= max(1, room[stage]):
                        continue
                    ready.append((max(start, free[place]), not is_backward, -stage, place, stage))
        begin, is_forward, _, place, stage = min(ready)
        number = begun[stage] if is_forward else ended[stage]
        end = begin + (1.0 if is_forward else _BACKWARD)
        passes.append(
            Pass(
                place=place, stage=stage, microbatch=number, is_backward=not is_forward,
                start=begin, end=end,
            )
        )  # fmt: skip
        done[stage, number, not is_forward] = end
        free[place] = end
        (begun if is_forward else ended)[stage] += 1
    return tuple(sorted(passes, key=lambda one: (one.start, one.place)))


def _start(
    stage: int,
    stages: int,
    begun: list[int],
    ended: list[int],
    done: dict[tuple[int, int, bool], float],
    *,
    is_backward: bool,
) -> float | None:
    """Return when the next pass of a stage has what it needs; None = not yet known."""
    if not is_backward:
        number = begun[stage]
        return 0.0 if stage == 0 else done.get((stage - 1, number, False))
    number = ended[stage]
    own = done.get((stage, number, False))
    later = own if stage == stages - 1 else done.get((stage + 1, number, True))
    return None if own is None or later is None else max(own, later)


def picture(plan: ParallelPlan, width: int = 96) -> tuple[str, ...]:
    """Return a line for each place of the pipeline: forward `1`, backward `a`, idle `.`.

    Microbatches are numbered by the last digit, and lettered a to j.
    """
    passes = timeline(plan)
    length = max(one.end for one in passes)
    lines = [["."] * width for _ in range(plan.layout.pipeline)]
    for one in passes:
        first = int(one.start / length * width)
        last = max(first + 1, int(one.end / length * width))
        sign = chr(ord("a" if one.is_backward else "0") + one.microbatch % 10)
        for column in range(first, min(last, width)):
            lines[one.place][column] = sign
    return tuple("".join(line) for line in lines)
