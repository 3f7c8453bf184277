"""What happened in a run, as frozen records; one JSON line each.

A line is `{"kind": "StepDone", "v": 1, "time_unix": ..., <fields of the record>}`. A reader skips
kinds that it does not know, so that an older panel can watch a newer run.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.errors import DataError
from cnai.core.records import convert, decode, encode, to_dict

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at a time (seconds since the epoch)."""

    time_unix: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """The ranks of a run were started; `attempt` counts from 0."""

    attempt: int
    ranks: int
    steps: int
    plan_digest: str
    layout: str
    resumed_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReady(Event):
    """A rank has built its part of the model.

    Attributes:
        parameters: Numbers that it holds.
        trainable: Those of them that training changes; None in events of older versions.
        frozen: Names of the parameters that training leaves alone on purpose, with `*` for the
            index of the layer.
        seconds: Time from the start of its process; None in events of older versions.
    """

    rank: int
    attempt: int
    pid: int
    host: str
    parameters: int
    trainable: int | None = None
    frozen: tuple[str, ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Event):
    """A rank finished a step.

    Attributes:
        step: Steps finished, counted from 1.
        loss: Mean cross-entropy of the global batch in nats, the same on every rank.
        grad_norm: L2 norm of the whole gradient before clipping.
        update_ratio: Norm of the update over norm of the weights of this rank's part; None on
            steps where it was not measured.
        tokens: Tokens of the global batch.
        noise_scale: Gradient noise scale in sequences, a running average over this attempt's
            steps; None where there is one data rank, under full sharding, or before it shows.
        step_seconds: Wall time of the step, with `data_wait_seconds` of it spent waiting for data.
        rows: Sequences that this rank took; None in events of older versions.
        stage_seconds: Time that it computed, forward and backward, for each of its stages.
        wait_seconds: Time that it waited for other ranks, and in messages to them.
    """

    rank: int
    attempt: int
    step: int
    loss: float
    grad_norm: float
    update_ratio: float | None
    learning_rate: float
    tokens: int
    step_seconds: float
    data_wait_seconds: float
    noise_scale: float | None = None
    rows: int | None = None
    stage_seconds: tuple[float, ...] = ()
    wait_seconds: float | None = None

    @property
    def compute_seconds(self) -> float:
        """Time that this rank computed, without any wait."""
        return sum(self.stage_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDone(Event):
    """The model was measured on validation sequences while it was trained.

    Attributes:
        step: Steps done by then.
        loss: Mean cross-entropy in nats a token; exp of it is the perplexity.
        sequences: Validation sequences measured.
        seconds: Time that it took.
    """

    attempt: int
    step: int
    loss: float
    sequences: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(Event):
    """A checkpoint is complete on the store.

    Attributes:
        seconds: From the end of the step to the moment in which the checkpoint got its name.
        blocked_seconds: The part of it in which rank 0 could not train: the copy of the state, and
            the wait for an earlier checkpoint that was still being written.
    """

    step: int
    path: str
    size_bytes: int
    seconds: float
    blocked_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRejected(Event):
    """A checkpoint was found damaged and passed over."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailed(Event):
    """A rank met a CnaiError: the user can act on it, and starting again would not help."""

    rank: int
    attempt: int
    code: str
    message: str
    hint: str
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLost(Event):
    """A rank ended before its work was done.

    Attributes:
        exit_code: Exit code, or minus the signal number as in subprocess.
        step: Last step that it reported, None when it reported none.
        log_tail: Last lines of its log.
    """

    rank: int
    attempt: int
    exit_code: int
    step: int | None
    log_tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChanged(Event):
    """The next attempt lies over its ranks in another way than the one before.

    Attributes:
        before: Layout until now, `dp4 x tp1 x pp1`.
        after: Layout from now on.
        plan_digest: The new plan.
        step: Step of the checkpoint from which it goes on.
        reason: Who or what asked for it, in words.
    """

    before: str
    after: str
    plan_digest: str
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced(Event):
    """Work was moved from slow ranks to fast ones, or such a move was taken back.

    Attributes:
        step: Step after which it holds.
        moved: `rows` of the batch between data ranks, or `layers` between stages of the pipeline.
        before: Rows of each data rank, or layers of each stage, until then.
        after: The same from then on.
        gain: Throughput that was expected over the one before; of a move that is taken back, what
            was measured.
        reason: Why, with the numbers.
        is_rollback: Whether it takes the move before it back.
    """

    attempt: int
    step: int
    moved: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: float
    reason: str
    is_rollback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One way to mend a fault.

    Attributes:
        title: What to do, in a sentence.
        command: A command that does it, when there is one.
        spec_patch: Spec keys to change, as `a.b` to value.
        safe: Whether the runtime may do it by itself.
    """

    title: str
    command: str | None = None
    spec_patch: dict[str, str | int | float | bool] | None = None
    safe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Event):
    """A fault or an anomaly that was detected, with what to do about it."""

    detector: str
    severity: str
    message: str
    step: int | None = None
    rank: int | None = None
    layer: str | None = None
    evidence: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
    """Training ended: `done`, `stopped` by the user, or `failed`."""

    outcome: str
    step: int
    seconds: float
    reason: str = ""


KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        AttemptStarted, RankReady, StepDone, EvaluationDone, CheckpointSaved, CheckpointRejected,
        RankFailed, RankLost, LayoutChanged, Rebalanced, Finding, RunEnded,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    kind: str
    v: int


def event_line(event: Event) -> bytes:
    """Return the event as one JSON line, newline included."""
    return encode({"kind": type(event).__name__, "v": VERSION, **to_dict(event)}) + b"\n"


def parse_event(line: bytes, *, where: str) -> Event | None:
    """Read one line; None when it is torn, damaged, or of a kind that this version does not know.

    Args:
        line: One line of an event file.
        where: The file.
    """
    try:
        plain = decode(dict, line, where=where)
        header = convert(_Header, plain, where=where)
        kind = KINDS.get(header.kind)
        return convert(kind, plain, where=where) if kind and header.v <= VERSION else None
    except DataError:
        return None
