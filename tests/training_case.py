"""A small training run that tests start as real processes, without the data and plan rooms."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cnai.cluster.local import LocalGang
from cnai.cluster.ranks import Order, RankEnded
from cnai.core.balance import Measures, Move
from cnai.core.events import Event, RankReady, StepDone
from cnai.core.layout import Layout, Memory, ParallelPlan, Sharding, Stage
from cnai.core.records import convert, to_dict
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.schedules import schedule_named
from cnai.core.shape import DecoderShape
from cnai.core.spec.sections import Train

SHAPE = DecoderShape(
    layers=4, width=32, heads=4, kv_heads=2, ffn_width=64, vocab=64, sequence=16, tied_head=True
)
BATCH = 8
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONPATH": os.pathsep.join(
        str(Path(__file__).parents[1] / name) for name in ("src", "tests")
    ),
}
NOTHING = Memory(
    weight_bytes=0, gradient_bytes=0, optimizer_bytes=0, activation_bytes=0, overhead_bytes=0
)


def plan_of(
    layout: Layout,
    *,
    layers: int = SHAPE.layers,
    virtual: int | None = None,
    cuts: tuple[int, ...] | None = None,
    microbatches: int | None = None,
    sharding: Sharding = Sharding.NONE,
    shard_group: int = 1,
    schedule: str = "1F1B",
) -> ParallelPlan:
    """Plan the case in a layout; `cuts` are the layers where stages begin."""
    asked = schedule_named(schedule)
    stages = layout.pipeline * ((virtual or asked.virtual) if layout.pipeline > 1 else 1)
    starts = cuts or tuple(layers * stage // stages for stage in range(stages))
    ends = (*starts[1:], layers)
    pieces = microbatches or max(2, asked.fewest(layout.pipeline)) if layout.data < BATCH else 1
    return ParallelPlan(
        layout=layout,
        stages=tuple(
            Stage(index=index, first_layer=first, end_layer=end, parameters=0, memory=NOTHING)
            for index, (first, end) in enumerate(zip(starts, ends, strict=True))
        ),
        microbatches=pieces,
        microbatch_rows=BATCH // layout.data // pieces,
        schedule=schedule,
        sharding=sharding,
        shard_group=shard_group,
    )


class MadeUpRows:
    """Rows that depend on the step and the row alone: a noisy arithmetic sequence."""

    def rows(self, step: int, first: int, count: int) -> np.ndarray:
        return np.stack([self._row(step, row) for row in range(first, first + count)])

    def prefetch(self, step: int, first: int, count: int) -> None:
        pass

    def validation(self, limit: int | None = None) -> np.ndarray:
        return self.rows(10**6, 0, limit or 8)

    @staticmethod
    def _row(step: int, row: int) -> np.ndarray:
        noise = np.random.default_rng((step, row))
        start = noise.integers(SHAPE.vocab)
        line = (start + 3 * np.arange(SHAPE.sequence + 1)) % SHAPE.vocab
        wrong = noise.random(line.size) < 0.1
        return np.where(wrong, noise.integers(SHAPE.vocab, size=line.size), line)


@dataclass
class Case:
    """One run of the case.

    Attributes:
        shape: Fields of the shape that differ.
        folder_of_weights: A model folder to start from, which fixes the shape.
        kill: (rank, step) that dies by SIGKILL in the middle of that step.
        slow_save: Seconds that the writing of every checkpoint takes longer.
        dropout: Share of the embedding's outputs that is zeroed at random.
        slow: Seconds that each layer of a rank sleeps for each row, by rank.
        balance: Threshold of a balancer of rows; None = none.
        script: Rows of the data ranks from the step after this one on, whatever is measured.
        probe: Steps between measurements of the layers; 0 = nobody looks inside.
        poison: (rank, step, module) whose output is infinite in that zero-based step.
        traffic: Whether the ranks write what they sent in the second step of the attempt.
        separator: Token with which a document begins, where none is to see another.
    """

    folder: Path
    plan: ParallelPlan
    steps: int = 4
    tied: bool = True
    shape: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    checkpoint_every: int = 2
    attempt: int = 0
    resume_step: int = 0
    background: bool = True
    keep: int = 2
    slow_save: float = 0.0
    dropout: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)
    balance: float | None = None
    script: dict[int, tuple[int, ...]] = field(default_factory=dict)
    probe: int = 0
    poison: tuple[int, int, str] | None = None
    traffic: bool = False
    separator: int | None = None
    kill: tuple[int, int] | None = None
    folder_of_weights: Path | None = None

    def start(self, gang: LocalGang) -> RunFolder:
        run = RunFolder.create(self.folder)
        payload = {
            "folder": str(self.folder),
            "plan": to_dict(self.plan),
            "steps": self.steps,
            "shape": {"tied_head": self.tied, **self.shape},
            "train": {"warmup_steps": 0, **self.train},
            "checkpoint_every": self.checkpoint_every,
            "resume_step": self.resume_step,
            "kill": self.kill,
            "weights": str(self.folder_of_weights) if self.folder_of_weights else None,
            "background": self.background,
            "keep": self.keep,
            "slow_save": self.slow_save,
            "dropout": self.dropout,
            "slow": [self.slow.get(rank, 0.0) for rank in range(self.plan.layout.ranks)],
            "balance": self.balance,
            "script": [[step, list(rows)] for step, rows in self.script.items()],
            "probe": self.probe,
            "poison": self.poison,
            "traffic": self.traffic,
            "separator": self.separator,
        }
        gang.start(
            Order(
                target="training_case:train_rank",
                ranks=self.plan.layout.ranks,
                payload=payload,
                logs=run.logs,
                environment=ENVIRONMENT,
                attempt=self.attempt,
            )
        )
        return run

    def run(self, gang: LocalGang) -> RunFolder:
        """Run to the end; every rank must end well."""
        run = self.start(gang)
        codes = ends_of(gang)
        assert set(codes.values()) == {0}, logs_of(run)
        return run


Curve = tuple[dict[int, float], dict[int, float]]
"""Loss and norm of the gradient, by step."""

STEPS = 8


def curve(
    gang: LocalGang, folder: Path, plan: ParallelPlan, *, tied: bool = True, **train: Any
) -> Curve:
    """Train in a layout and return the curve."""
    run = Case(folder, plan, steps=STEPS, tied=tied, train=train).run(gang)
    return losses(run), norms(run)


def same(found: Curve, expected: Curve, limit: float) -> None:
    """Hold one curve against another."""
    assert found[0] == pytest.approx(expected[0], abs=limit)
    assert found[1] == pytest.approx(expected[1], rel=1e-4)


def new_gang() -> LocalGang:
    return LocalGang(server="cnai.train.forkserver", preload=["training_case", "cnai.train.loop"])


def ends_of(gang: LocalGang, seconds: float = 120) -> dict[int, int]:
    """Wait until all ranks have ended; return their exit codes."""
    ended: list[RankEnded] = []
    deadline = time.monotonic() + seconds
    while gang.living and time.monotonic() < deadline:
        ended += gang.poll(0.2)
    assert not gang.living, "ranks still run"
    return {end.rank: end.code for end in ended}


def logs_of(run: RunFolder) -> str:
    return "\n".join(
        f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(run.logs.iterdir())
    )


def losses(run: RunFolder, rank: int = 0) -> dict[int, float]:
    """Loss by step; a step that was repeated counts as done last."""
    return {e.step: e.loss for e in steps(run) if e.rank == rank}


def norms(run: RunFolder) -> dict[int, float]:
    return {e.step: e.grad_norm for e in steps(run) if e.rank == 0}


def steps(run: RunFolder) -> list[StepDone]:
    return [event for event in read_events(run) if isinstance(event, StepDone)]


def whole_state(run: RunFolder, step: int) -> dict[str, Any]:
    """Read weights and optimizer of a checkpoint into one process."""
    import torch
    import torch.distributed.checkpoint as dcp

    folder = run.checkpoint(step)
    metadata = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {name: torch.empty(value.size) for name, value in metadata.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def slow_down(parts: Any, seconds: float) -> None:
    """Let each layer sleep for each row that it forwards, which is what tells ranks apart here."""
    for part in parts:
        for layer in part.layers.values() if seconds else ():
            layer.register_forward_pre_hook(
                lambda _module, inputs: time.sleep(seconds * len(inputs[0]))
            )


def count_traffic(trainer: Any, ranks: Any, run: RunFolder) -> None:
    """Let a rank count what it sends in its second step."""
    from cnai.train.traffic import Traffic

    step, seen = trainer.step, []

    def counted(*words: Any, **more: Any) -> Any:
        seen.append(words)
        if len(seen) != 2:
            return step(*words, **more)
        with Traffic(ranks) as traffic:
            done = step(*words, **more)
        (run.root / f"traffic-{ranks.place.rank}.json").write_text(json.dumps(traffic.sent_bytes))
        return done

    trainer.step = counted


def look_inside(asked: dict[str, Any], trainer: Any, parts: Any, sink: Any, rank: int) -> None:
    """Put a probe into a rank, and something for it to find."""
    from cnai.train.probe_trainer import ProbeSettings

    if asked["probe"]:
        settings = ProbeSettings(layers_every=1, activations_every=1, ranks_every=asked["probe"])
        trainer.look_inside(settings, sink)
    if asked["poison"] and asked["poison"][0] == rank:
        poison(trainer, parts, *asked["poison"][1:])


def poison(trainer: Any, parts: Any, step: int, name: str) -> None:
    """Let the output of a module be infinite from a step on."""
    taken, begun = trainer.step, []

    def stepped(number: int, *words: Any, **more: Any) -> Any:
        begun.append(number)
        return taken(number, *words, **more)

    trainer.step = stepped
    module = next(one for part in parts for path, one in part.named_modules() if path == name)
    module.register_forward_hook(
        lambda _module, _inputs, out: out * float("inf") if begun[-1] >= step else out
    )


class Scripted:
    """A balancer that moves rows when it is told to."""

    def __init__(self, script: list[Any]) -> None:
        self._script = {step: tuple(rows) for step, rows in script}
        self._now: tuple[int, ...] = ()

    def decide(self, measures: Measures) -> Move | None:
        if measures.step not in self._script:
            return None
        before, self._now = self._now, self._script[measures.step]
        return Move(before=before, after=self._now, gain=1.0, reason="the script says so")


def balancer_of(plan: ParallelPlan, asked: dict[str, Any]) -> Any:
    from cnai.plan import ShareBalancer, share_rule

    if asked["script"]:
        return Scripted(asked["script"])
    rule = share_rule(plan)
    if asked["balance"] is None or isinstance(rule, str):
        return None
    return ShareBalancer(plan, rule, asked["balance"])


def train_rank(context: Any) -> int:
    """Be one rank of the case."""
    from dataclasses import replace

    import torch
    import torch.distributed.checkpoint as dcp

    from cnai.models import AdaptedWeights, HuggingFaceWeights, Weights, initial_weights
    from cnai.train.build import build_decoder
    from cnai.train.checkpoint import Checkpoints
    from cnai.train.loop import train
    from cnai.train.probe_record import careful_sink
    from cnai.train.ranks import joined
    from cnai.train.trainer import Trainer, TrainJob

    asked = context.payload
    plan = convert(ParallelPlan, asked["plan"], where="payload")
    shape = replace(SHAPE, **{"layers": plan.stages[-1].end_layer, **asked["shape"]})
    weights: Weights = initial_weights(shape, 0)
    if asked["weights"]:
        weights = HuggingFaceWeights(Path(asked["weights"]))
        shape = weights.shape
    adapters = Train(**asked["train"]).lora.adapters()
    base = None
    if adapters is not None:
        base = "the case"
        weights = AdaptedWeights(weights, shape, adapters, 0)
    run = RunFolder(Path(asked["folder"]))
    with (
        joined(
            plan,
            context.rank,
            store=context.store,
            attempt=context.attempt,
            timeout_seconds=60,
            tied=shape.tied_head,
        ) as ranks,
        run.writer(f"rank-{context.rank}") as writer,
    ):
        settings = Train(**asked["train"])
        job = TrainJob(
            plan=plan,
            settings=settings,
            steps=asked["steps"],
            attempt=context.attempt,
            resume_step=asked["resume_step"],
            checkpoint_every=asked["checkpoint_every"],
            update_ratio_every=1,
            separator=asked["separator"],
        )
        parts = build_decoder(shape, plan, ranks, weights, settings)
        if asked["dropout"]:
            parts[0].embedding.register_forward_hook(
                lambda _module, _inputs, out: torch.nn.functional.dropout(out, asked["dropout"])
            )
        slow_down(parts, asked["slow"][context.rank])
        if asked["slow_save"]:
            write = dcp.save

            def slow(*words: Any, **more: Any) -> Any:
                time.sleep(asked["slow_save"])
                return write(*words, **more)

            dcp.save = slow
        trainer = Trainer(job, ranks, parts, balancer=balancer_of(plan, asked))
        look_inside(asked, trainer, parts, careful_sink(run, writer.write), context.rank)
        if asked["traffic"]:
            count_traffic(trainer, ranks, run)
        checkpoints = Checkpoints(
            run,
            ranks,
            keep=asked["keep"],
            plan_digest=plan.digest,
            background=asked["background"],
            base=base,
        )
        writer.write(
            RankReady(
                time_unix=time.time(),
                rank=context.rank,
                attempt=context.attempt,
                pid=os.getpid(),
                host="localhost",
                parameters=trainer.parameters,
                trainable=trainer.trainable,
                frozen=trainer.frozen,
            )
        )

        def record(event: Event) -> None:
            writer.write(event)
            kill = asked["kill"]
            if kill and isinstance(event, StepDone) and [event.rank, event.step] == list(kill):
                os.kill(os.getpid(), signal.SIGKILL)

        train(job, trainer, MadeUpRows(), checkpoints, record)
    return 0
