"""What happened in a run, as frozen records; `cnai.core.event_lines` has them as lines of text."""

from __future__ import annotations

from dataclasses import dataclass, field


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
class RankMeasured(Event):
    """What a rank measured of itself, every few steps and before its first.

    Attributes:
        step: Steps finished.
        rss_bytes: Host memory of its process; None where that is not known.
        device_bytes: Device memory of its tensors; None without a device of its own.
        copy: What it holds of the model; ranks that say the same hold the same numbers.
        weights_hash: Hash of these numbers, 16 hex digits; None when nobody holds a copy.
        batches: Hash of the rows of each step since the last such event.
        optimizer_steps: Steps that the optimizer has counted itself; None where it counts none.
        training: Share of the modules which act differently in training that are in that mode;
            None when there are none.
        chance_loss: Entropy of what is to be predicted, nats: the loss of who knows only how often
            each occurs; None where that cannot be counted.
    """

    rank: int
    attempt: int
    step: int
    rss_bytes: int | None = None
    device_bytes: int | None = None
    copy: str = ""
    weights_hash: str | None = None
    batches: tuple[str, ...] = ()
    optimizer_steps: int | None = None
    training: float | None = None
    chance_loss: float | None = None


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
class RankStood(Event):
    """Where a rank stood when nothing went on any more, or when a rank was lost.

    Attributes:
        look: Looks of the attempt are counted from 0; all ranks are looked at together.
        host: Its machine, None when it never came so far.
        step: Steps that it had finished.
        phase: What it was doing: `start`, `load`, `data`, `forward`, `backward`, `collective`,
            `update`, `evaluate`, `save`, `after` a step, or `done`.
        phase_seconds: Time since it began to.
        process: State of its process as the kernel has it: R(unning), S(leeping), D (waits for a
            disk), T (stopped); `gone` when there is none.
        busy: Share of a core that it used during the look; None where it was not measured.
        enqueued: Collectives that it has begun, by process group; empty when it did not answer.
        collective: The last of them, `all_reduce [4]`.
        odd: Whether that one has a shape that no earlier one of this rank had.
        stack: Its main thread, `FILE:LINE FUNCTION`, the innermost first; empty without an answer.
    """

    rank: int
    attempt: int
    look: int
    host: str | None
    step: int
    phase: str
    phase_seconds: float
    process: str
    busy: float | None = None
    enqueued: dict[str, int] = field(default_factory=dict)
    collective: str | None = None
    odd: bool = False
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Event):
    """What the supervisor did about a fault, and why.

    Attributes:
        fault: Class of the fault, None when it is not known.
        action: `restart_same`, `restart_exclude_node`, `previous_checkpoint`, or `stop`.
        reason: In words.
        rank: Where the fault began, None when no rank stands out.
        node: Machine that is not used any more.
        rejected_step: Checkpoint that was put aside.
        spec_patch: Proposed change of the spec; nothing is changed by itself.
    """

    attempt: int
    fault: str | None
    action: str
    reason: str
    rank: int | None = None
    node: str | None = None
    rejected_step: int | None = None
    spec_patch: dict[str, str | int | float | bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(Event):
    """A step whose loss or gradient was not finite was passed over; the weights stayed.

    Attributes:
        step: Its number, counted from 1 as in StepDone.
        message: What was not finite.
    """

    rank: int
    attempt: int
    step: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reacted(Event):
    """What was done by itself about a finding, as `monitor.reactions` asks, or taken back again.

    Attributes:
        number: Counts the reactions of the run from 1.
        action: `checkpoint`, `lower_rate`, `roll_back`, `stop`, or `undo`.
        detector: Whose finding; of `undo`, that of the reaction which is taken back.
        step: Steps done when it was decided.
        from_step: Steps done from which it holds.
        rate_factor: What the learning rate is multiplied with from there on.
        data_steps: Steps of data that are passed over from there on.
        undoes: Number of the reaction that is taken back.
    """

    number: int
    action: str
    detector: str
    step: int
    from_step: int
    reason: str
    rate_factor: float = 1.0
    data_steps: int = 0
    undoes: int | None = None


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
    """A fault or an anomaly that was detected, with what to do about it.

    Attributes:
        cause: The detector whose finding shortly before explains this one; None = it stands alone.
    """

    detector: str
    severity: str
    message: str
    step: int | None = None
    rank: int | None = None
    layer: str | None = None
    evidence: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    cause: str | None = None


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
        AttemptStarted, RankReady, StepDone, RankMeasured, EvaluationDone, CheckpointSaved,
        CheckpointRejected, RankFailed, RankLost, RankStood, Decided, StepSkipped, Reacted,
        LayoutChanged, Rebalanced, Finding, RunEnded,
    )
}  # fmt: skip
