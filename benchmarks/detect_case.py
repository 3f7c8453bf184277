"""One short training of a small model, healthy unless a subclass breaks it somewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import detect_models
import numpy as np
import torch
from torch import Tensor, nn

from cnai.core.events import AttemptStarted, Event, RankMeasured, StepDone
from cnai.train.probe import Probe
from cnai.train.probe_trainer import ProbeSettings

STEPS = 120


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Hyper-parameters of a run.

    Attributes:
        horizon: Steps that the run is said to have; the schedule goes on until then.
        rows: Training rows used; None = all.
    """

    model: str
    seed: int
    rate: float = 3e-3
    warm_up: int = 10
    schedule: str = "cosine"
    weight_decay: float = 0.1
    clip: float | None = 1.0
    optimizer: str = "adamw"
    activation: type[nn.Module] = nn.ReLU
    dropout: float = 0.1
    batch: int = 16
    plain: bool = False
    layers: int = 3
    horizon: int = STEPS
    rows: int | None = None


class Case:
    """A healthy run; what a fault overrides is where it breaks.

    Attributes:
        name: Detector that should name it.
        onset: Steps done when it begins.
        models: Models that it can happen to.
    """

    name: ClassVar[str] = ""
    onset: ClassVar[int] = 0
    models: ClassVar[tuple[str, ...]] = ("text", "digits")
    declared_frozen: ClassVar[bool] = True
    changes: ClassVar[dict[str, object]] = {}

    def __init__(self, setting: Setting, **changes: object) -> None:
        self.setting = replace(setting, **{**self.changes, **changes})
        self.random = np.random.default_rng((self.setting.seed, 7))
        self.events: list[Event] = []

    def built(self, model: nn.Module) -> None:
        """Change the model before it is trained."""

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of a step."""
        return x, y

    def loss(self, step: int, loss: Tensor, logits: Tensor) -> Tensor:
        """Return what is minimised."""
        return loss

    def rate(self, step: int, rate: float) -> float:
        """Return the learning rate of a step."""
        return rate

    def stepped(self, step: int) -> None:
        """Do something after so many steps."""

    def told(self, event: Event) -> list[Event]:
        """Return what the detectors see of an event of rank 0."""
        return [event]

    # --- the run ----------------------------------------------------------------------------

    def run(self) -> list[Event]:
        """Train, and return all events."""
        asked = self.setting
        torch.manual_seed(asked.seed)
        kind, source = detect_models.MODELS[asked.model]
        self.model = kind(asked.activation, asked.dropout, plain=asked.plain, layers=asked.layers)
        self.built(self.model)
        self.source = source()
        self.begin(0)
        for step in range(STEPS):
            self._step(step)
            self.stepped(step + 1)
            if (step + 1) % 10 == 0:
                self._evaluate()
        self.probe.close()
        return self.events

    def begin(self, done: int) -> None:
        """Begin an attempt with a new optimizer and a new probe."""
        asked = self.setting
        parameters = [one for one in self.model.parameters() if one.requires_grad]
        if asked.optimizer == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
                parameters, lr=1.0, momentum=0.9, weight_decay=1e-4
            )
        else:
            self.optimizer = torch.optim.AdamW(parameters, weight_decay=asked.weight_decay)
        self.watch(done)

    def watch(self, done: int) -> None:
        """Hang a new probe in."""
        self.probe = Probe(
            self.model,
            self.optimizer,
            into=self._tell,
            steps=self.setting.horizon,
            done=done,
            settings=ProbeSettings(
                activations_every=5, ranks_every=5, declared_frozen=self.declared_frozen
            ),
        )

    def _tell(self, event: Event) -> None:
        self.events += self.told(event)

    def _step(self, step: int) -> None:
        asked = self.setting
        order, _ = self.source.split()
        rows = self.random.choice(order[: asked.rows], asked.batch, replace=False)
        x, y = torch.tensor(self.source.inputs[rows]), torch.tensor(self.source.targets[rows])
        x, y = self.batch(step, x, y)
        self.probe.saw((x, y))
        logits = self.model(x)
        loss = detect_models.loss_of(logits, y)
        self.loss(step, loss, logits).backward()
        if asked.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), asked.clip)
        rate = detect_models.rate_at(step, asked.horizon, asked.rate, asked.warm_up, asked.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step, rate)
        self.optimizer.step()
        self.probe.done(loss)
        self.optimizer.zero_grad()

    def _evaluate(self) -> None:
        _, held = self.source.split()
        was = self.model.training
        self.model.eval()
        with torch.no_grad():
            x = torch.tensor(self.source.inputs[held[:64]])
            y = torch.tensor(self.source.targets[held[:64]])
            self.probe.evaluated(float(detect_models.loss_of(self.model(x), y)), 64)
        self.model.train(was)


Twist = Callable[[int, Event], list[Event]]


def four_ranks(event: Event, random: np.random.Generator) -> list[Event]:
    """Return what four ranks would tell, of which the first is the one that trains.

    Their times are made up: a step takes 0.2 s, of which 0.15 s are computing, give or take.
    """
    if isinstance(event, StepDone):
        found = []
        for rank in range(4):
            compute = 0.15 * (1 + 0.05 * abs(random.standard_normal()))
            wait = 0.002 * (1 + abs(random.standard_normal()))
            found.append(
                replace(
                    event, rank=rank, step_seconds=0.2, data_wait_seconds=wait, rows=4,
                    stage_seconds=(compute,), wait_seconds=max(0.0, 0.198 - compute - wait),
                )
            )  # fmt: skip
        return found
    if isinstance(event, AttemptStarted):
        return [replace(event, ranks=4)]
    if isinstance(event, RankMeasured):
        return [replace(event, rank=rank) for rank in range(4)]
    return [event]
