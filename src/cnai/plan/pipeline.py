"""What a pipeline schedule costs: microbatches held at once, and time in which a rank idles.

Units: p ranks with v stages each, m microbatches, passes forward, backward by the activations and
backward by the weights that take equally long, and no time for sending. A test runs the operations
that torch's schedules list through such a machine and compares. Sources are those of
`core.schedules`; the tables of Narayanan et al. (section 2.2) and Qi et al. (table 1 and section 6)
agree, but for one thing: they let a rank begin its next step while others are still at work. Here
all ranks agree on the norm of the gradient first, so that a V idles too, while it fills.
"""

from __future__ import annotations

from cnai.core.layout import ParallelPlan
from cnai.core.schedules import Placement, schedule_named
from cnai.plan.request import Trial


def idle_pieces(trial: Trial | ParallelPlan) -> float:
    """Return how long a rank idles in a step, in times of one microbatch on one rank."""
    ranks, virtual = trial.layout.pipeline, trial.virtual
    schedule = schedule_named(trial.schedule)
    idle = (ranks - 1) / virtual
    if schedule.splits_backward:
        idle /= 3
    if schedule.placement is Placement.V and trial.microbatches < 2 * ranks - 1:
        idle *= 2
    return idle


def in_flight(trial: Trial, stage: int) -> int:
    """Return how many microbatches' activations a stage holds when its rank is fullest.

    A single stage finishes each before the next.
    """
    pieces = trial.microbatches
    if trial.layout.pipeline == 1:
        return 1
    if trial.schedule in {"GPipe", "LoopedBFS"}:
        return pieces
    if schedule_named(trial.schedule).placement is Placement.V:
        return min(pieces, _held_in_a_v(trial, stage))
    return _held_in_a_loop(trial, stage)


def _held_in_a_v(trial: Trial, stage: int) -> int:
    """A rank holds 2p pieces, DualPipeV one more: the later the stage is, the fewer of it."""
    rank, ranks = trial.owner(stage), trial.layout.pipeline
    if stage >= ranks:
        return rank + 1
    return 2 * ranks - rank - (trial.schedule == "ZBVZeroBubble")


def _held_in_a_loop(trial: Trial, stage: int) -> int:
    """Count what a rank has begun before it finishes its first: the stages in turn, by rounds."""
    ranks, virtual, pieces = trial.layout.pipeline, trial.virtual, trial.microbatches
    loop, rank = divmod(stage, ranks)
    if trial.schedule == "1F1B":
        return min(ranks - rank, pieces)
    round_pieces = pieces // max(1, pieces // ranks)
    begun = (virtual - 1) * round_pieces
    begun += ranks if schedule_named(trial.schedule).splits_backward else 2 * (ranks - rank) - 1
    rounds, rest = divmod(min(begun, virtual * pieces), virtual * round_pieces)
    return rounds * round_pieces + min(round_pieces, max(0, rest - loop * round_pieces))
