"""The probe of any PyTorch loop, in two lines.

    probe = Probe(model, optimizer)       # before the loop; writes runs/run
    probe.done(loss)                      # after each optimizer.step()

It hangs itself into the optimizer, so that it sees gradients and updates where they are final. What
it measures of a step lies on the device and travels, in one message of all ranks, while the next
step computes; it is read when that one is done. Only whether all gradients are finite is looked at
within the step.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from cnai.core.events import (
    AttemptStarted,
    EvaluationDone,
    RankMeasured,
    RankReady,
    RunEnded,
    StepDone,
)
from cnai.core.runfolder import EventWriter, RunFolder, read_events
from cnai.core.vectors import LayersMeasured
from cnai.train.probe_activations import GROUPS, Activations
from cnai.train.probe_columns import NORMS, Places, gathered
from cnai.train.probe_origin import origin_of
from cnai.train.probe_record import Sink, careful_sink
from cnai.train.probe_spread import Spread, copies_of, is_distributed, local_gradient
from cnai.train.probe_trainer import ProbeSettings
from cnai.train.probe_vitals import (
    Targets,
    arrays_of,
    device_bytes,
    hash_of_rows,
    hash_of_weights,
    optimizer_steps,
    resident_bytes,
    training_share,
)
from cnai.train.shards import local_of, squares_of


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A step that is done, whose vector may still be on its way."""

    event: StepDone
    message: Tensor | None
    work: Any
    _: KW_ONLY
    has_activations: bool


class Probe:
    """Measures every step of a loop and writes it into a run folder, as our own loop does.

    Args:
        into: Folder of the run, or what takes the events instead.
        steps: Steps of the whole run; None = not known.
        done: Steps done before, when a run goes on.
        settings: How often what is measured.

    Raises:
        RunError: The folder cannot be made.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        into: str | Path | Sink = "runs/run",
        steps: int | None = None,
        done: int = 0,
        settings: ProbeSettings | None = None,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._settings = settings or ProbeSettings()
        self.rank = dist.get_rank() if is_distributed() else 0
        self.ranks = dist.get_world_size() if is_distributed() else 1
        self._writer: EventWriter | None = None
        self._sink: Sink
        self._attempt = 0
        if isinstance(into, str | Path):
            folder = RunFolder.create(Path(into))
            starts = [one for one in read_events(folder) if isinstance(one, AttemptStarted)]
            self._attempt = len(starts)
            self._writer = folder.writer(f"rank-{self.rank}")
            self._sink = careful_sink(folder, self._writer.write)
        else:
            self._sink = into
        parameters = [(name, one) for name, one in model.named_parameters()]
        self._parameters = [one for _, one in parameters]
        self._activations = Activations([model], logits=self._settings.logits)
        copies = copies_of(parameters)
        self._places = Places(
            [(name, copies[name]) for name, _ in parameters],
            self._activations.names,
            {name: one.numel() for name, one in parameters if one.dim() > 1},
        )
        # Only what every rank holds whole can be compared without knowing the layout.
        self._copied = [
            one
            for name, one in parameters
            if self.ranks > 1 and copies[name] == self.ranks and local_of(one) is one
        ]
        self._spread = Spread(self._places, self._parameters)
        self._step = done
        self._before: list[Tensor] = []
        self._message: Tensor | None = None
        self._work: Any = None
        self._waiting: _Waiting | None = None
        self._broken = False
        self._batches: list[str] = []
        self._targets = Targets()
        self._waited = 0.0
        self._started = time.perf_counter()
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_update),
            optimizer.register_step_post_hook(self._after_update),
        ]
        self._announce(steps, done, parameters)
        self._activate()

    # --- what a loop calls ------------------------------------------------------------------

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield what a loader yields, count the time that the loop waits for it, and hash it."""
        source = iter(loader)
        while True:
            start = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            self._waited += time.perf_counter() - start
            self.saw(batch)
            yield batch

    def saw(self, batch: Any) -> None:
        """Note the rows of a step, from which repeated data shows."""
        rows = arrays_of(batch)
        self._batches.append(hash_of_rows(rows))
        self._targets.add(rows)

    def done(self, loss: Tensor | float, *, tokens: int = 0, waited: float | None = None) -> None:
        """Note the loss of a step; call it after `optimizer.step()`.

        Args:
            loss: Mean loss of this rank's rows, nats.
            tokens: Tokens of the global batch.
            waited: Seconds that the step waited for data; None = what `batches` has counted.
        """
        now = time.perf_counter()
        self._finish()
        self._step += 1
        event = StepDone(
            time_unix=time.time(),
            rank=self.rank,
            attempt=self._attempt,
            step=self._step,
            loss=float(loss.detach()) if isinstance(loss, Tensor) else loss,
            grad_norm=math.nan,
            update_ratio=None,
            learning_rate=float(self._optimizer.param_groups[0]["lr"]),
            tokens=tokens,
            step_seconds=now - self._started,
            data_wait_seconds=self._waited if waited is None else waited,
        )
        measured = self._activations.active
        self._waiting = _Waiting(event, self._message, self._work, has_activations=measured)
        self._message = self._work = None
        broken, self._broken = self._broken, False
        self._started, self._waited = now, 0.0
        if broken or not math.isfinite(event.loss):
            self._finish()
        every = self._settings.ranks_every
        if every and self._step % every == 0:
            self._measure_rank()
        self._activate()

    def evaluated(self, loss: float, sequences: int = 0, seconds: float = 0.0) -> None:
        """Note the loss on validation rows."""
        if self.rank == 0:
            self._sink(
                EvaluationDone(
                    time_unix=time.time(),
                    attempt=self._attempt,
                    step=self._step,
                    loss=loss,
                    sequences=sequences,
                    seconds=seconds,
                )
            )

    def origin(self, forward: Callable[[], object]) -> str:
        """Say where the first number arose that is not finite; all ranks call it, after `backward`.

        Args:
            forward: Runs the forward pass of the broken step again.
        """
        finite = {
            name: one.grad is None or bool(torch.isfinite(local_of(one.grad)).all())
            for name, one in self._model.named_parameters()
        }
        mine = origin_of([self._model], forward, finite)
        said = gathered({"": [mine] if mine else []})
        places = [(rank, one[""][0]) for rank, one in enumerate(said) if one[""]]
        outright = [one for one in places if not one[1].startswith("the gradient")]
        rank, what = min(outright or places or [(0, "none of the modules")])
        return f"{what} on rank {rank}" if self.ranks > 1 else what

    def close(self, outcome: str = "done") -> None:
        """Write what is still on its way, and take all hooks away."""
        self._finish()
        for hook in self._hooks:
            hook.remove()
        self._activations.remove()
        if self.rank == 0:
            self._sink(
                RunEnded(time_unix=time.time(), outcome=outcome, step=self._step, seconds=0.0)
            )
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("failed" if kind else "done")

    # --- what the optimizer calls -----------------------------------------------------------

    def _before_update(self, *_: Any) -> None:
        """Measure the gradients, and keep the weights."""
        every = self._settings.layers_every
        if not every or self._step % every:
            return
        with torch.no_grad():
            gradients = [local_gradient(one) for one in self._parameters]
            self._message = self._spread.begun(squares_of(gradients))
            self._broken = not bool(torch.isfinite(self._message).all())
            weights = [local_of(one.detach()) for one in self._parameters]
            self._before = [one.clone() for one in weights]

    def _after_update(self, *_: Any) -> None:
        """Measure the update, and send the vector on its way."""
        if self._message is None or not self._before:
            return
        with torch.no_grad():
            now = [local_of(one.detach()) for one in self._parameters]
            weights = squares_of(self._before)
            torch._foreach_sub_(self._before, now)
            self._spread.add(self._message, "update", squares_of(self._before))
            self._spread.add(self._message, "weight", weights)
            self._before = []
            if self._activations.active:
                for group in self._activations.names:
                    taken = self._places.part(group, self._activations.taken(group))
                    self._spread.put(self._message, group, taken)
            if self.ranks > 1:
                self._work = dist.all_reduce(self._message, async_op=True)

    # --- one step late ----------------------------------------------------------------------

    def _finish(self) -> None:
        """Read what is known of the step before and hand it on."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        event, message = waiting.event, waiting.message
        if message is None:
            self._sink(event)
            return
        if waiting.work is not None:
            waiting.work.wait()
        values = self._whole(message.cpu().numpy(), measured=waiting.has_activations)
        norms = {group: _norm(values[self._places.columns.place(group)]) for group in NORMS}
        self._sink(_with(event, norms["gradient"], norms["update"], norms["weight"]))
        if self.rank == 0:
            self._sink(
                LayersMeasured(
                    time_unix=event.time_unix,
                    attempt=self._attempt,
                    step=event.step,
                    columns=self._places.columns,
                    values=values,
                )
            )

    def _whole(self, sums: np.ndarray[Any, Any], *, measured: bool) -> np.ndarray[Any, Any]:
        columns = self._places.columns
        values = np.full(columns.width, np.nan, dtype=np.float32)
        for group in (*NORMS, *(GROUPS if measured else ())):
            place = columns.place(group)
            values[place] = self._places.whole(group, sums[place])
        return values

    def _activate(self) -> None:
        every = self._settings.activations_every
        self._activations.active = bool(every) and self._step % every == 0

    # --- of a rank --------------------------------------------------------------------------

    def _announce(
        self,
        steps: int | None,
        done: int,
        parameters: list[tuple[str, nn.Parameter]],
    ) -> None:
        now = time.time()
        held = [(name, local_of(one.detach()).numel(), one) for name, one in parameters]
        if self.rank == 0:
            self._sink(
                AttemptStarted(
                    time_unix=now,
                    attempt=self._attempt,
                    ranks=self.ranks,
                    steps=steps or 0,
                    plan_digest="",
                    layout=f"{self.ranks} ranks",
                    resumed_step=done,
                )
            )
        frozen = tuple(name for name, _, one in held if not one.requires_grad)
        self._sink(
            RankReady(
                time_unix=now,
                rank=self.rank,
                attempt=self._attempt,
                pid=os.getpid(),
                host=socket.gethostname(),
                parameters=sum(count for _, count, _ in held),
                trainable=sum(count for _, count, one in held if one.requires_grad),
                frozen=frozen if self._settings.declared_frozen else (),
            )
        )
        if self._settings.ranks_every:
            self._measure_rank()

    def _measure_rank(self) -> None:
        self._sink(
            RankMeasured(
                time_unix=time.time(),
                rank=self.rank,
                attempt=self._attempt,
                step=self._step,
                rss_bytes=resident_bytes(),
                device_bytes=device_bytes(self._spread.device),
                weights_hash=hash_of_weights(self._copied) if self._copied else None,
                batches=tuple(self._batches),
                optimizer_steps=optimizer_steps([self._optimizer]),
                training=training_share([self._model]),
                chance_loss=self._targets.entropy(),
            )
        )
        self._batches.clear()


def _norm(values: np.ndarray[Any, Any]) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).sum()))


def _with(event: StepDone, gradient: float, update: float, weight: float) -> StepDone:
    ratio = update / weight if weight else 0.0
    return replace(event, grad_norm=gradient, update_ratio=ratio)
