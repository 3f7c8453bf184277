"""A rank that trains a module as a user writes them, in any layout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from cnai.cluster.local import LocalGang
from cnai.cluster.ranks import Order
from cnai.core.layout import ParallelPlan
from cnai.core.records import convert, to_dict
from cnai.core.runfolder import RunFolder
from cnai.core.spec.sections import Train
from training_case import BATCH, ENVIRONMENT, ends_of, logs_of

WIDTH, PLACES = 16, 6


def new_gang() -> LocalGang:
    return LocalGang(server="cnai.train.forkserver", preload=["module_case", "cnai.train.loop"])


def start(gang: LocalGang, folder: Path, plan: ParallelPlan, **asked: Any) -> RunFolder:
    """Start the ranks of a case; `asked` lies over what stands here."""
    run = RunFolder.create(folder)
    payload = {
        "folder": str(folder), "plan": to_dict(plan), "steps": 8, "module": "transformer",
        "loss": "cross_entropy", "checkpoint_every": 4, "resume_step": 0, "train": {}, **asked,
    }  # fmt: skip
    gang.start(
        Order(
            target="module_case:train_rank",
            ranks=plan.layout.ranks,
            payload=payload,
            logs=run.logs,
            environment=ENVIRONMENT,
            attempt=asked.get("attempt", 0),
        )
    )
    return run


def run(gang: LocalGang, folder: Path, plan: ParallelPlan, **asked: Any) -> RunFolder:
    """Run a case to its end; every rank must end well."""
    found = start(gang, folder, plan, **asked)
    codes = ends_of(gang)
    assert set(codes.values()) == {0}, logs_of(found)
    return found


class Pictures:
    """Rows of a user's dataset that depend on step and row alone: inputs and a class."""

    def rows(self, step: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        made = [np.random.default_rng((step, row)) for row in range(first, first + count)]
        classes = np.array([one.integers(2) for one in made])
        noise = np.stack([one.normal(size=(PLACES, WIDTH)) for one in made])
        return (noise + classes[:, None, None]).astype(np.float32), classes

    def prefetch(self, step: int, first: int, count: int) -> None:
        pass

    def validation(self, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        return self.rows(10**6, 0, limit or BATCH)


def train_rank(context: Any) -> int:
    """Be one rank of the case."""
    import torch

    from cnai.core.errors import CnaiError
    from cnai.models import ROW_LOSSES
    from cnai.models.user_module import module_and_table
    from cnai.train.checkpoint import Checkpoints
    from cnai.train.loop import train
    from cnai.train.module_task import ModuleTask
    from cnai.train.modules import build_module, summed_parameters
    from cnai.train.ranks import joined
    from cnai.train.trainer import Trainer, TrainJob
    from user_modules import MODULES

    asked = context.payload
    plan = convert(ParallelPlan, asked["plan"], where="payload")
    settings = Train(**{"warmup_steps": 0, "learning_rate": 1e-2, **asked["train"]})
    job = TrainJob(
        plan=plan, settings=settings, steps=asked["steps"], attempt=context.attempt,
        resume_step=asked["resume_step"], checkpoint_every=asked["checkpoint_every"],
        update_ratio_every=1,
    )  # fmt: skip
    folder = RunFolder(Path(asked["folder"]))
    with (
        joined(
            plan, context.rank, store=context.store, attempt=context.attempt,
            timeout_seconds=60, tied=False,
        ) as ranks,
        folder.writer(f"rank-{context.rank}") as writer,
    ):  # fmt: skip
        torch.manual_seed(0)
        module, table = module_and_table(MODULES[asked["module"]](), name="case:module")
        parts = build_module(module, table, plan, ranks, settings)
        task = ModuleTask(
            losses=ROW_LOSSES[asked["loss"]],
            judges_itself=asked["loss"] == "own",
            layers=table.layers,
            summed=summed_parameters(parts, table, plan.layout),
        )
        checkpoints = Checkpoints(folder, ranks, keep=9, plan_digest=plan.digest, background=True)
        try:
            train(job, Trainer(job, ranks, parts, task), Pictures(), checkpoints, writer.write)
        except CnaiError as error:
            sys.stderr.write(f"{error.message} {error.hint}\n")
            return error.exit_code
    return 0
