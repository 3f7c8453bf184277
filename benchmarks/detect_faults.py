"""The 27 faults: each is a healthy run that is broken in one place."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import torch
from detect_case import STEPS, Case, Setting, four_ranks
from torch import Tensor, nn

from cnai.core.events import AttemptStarted, Event, RankMeasured, StepDone
from cnai.train.probe_vitals import hash_of_weights


def matrices(model: nn.Module) -> list[nn.Parameter]:
    return [one for name, one in model.named_parameters() if one.dim() > 1 and "embed" not in name]


class Vanishing(Case):
    """Ten layers of sigmoids without a way around them."""

    name = "vanishing"
    changes = {"activation": nn.Sigmoid, "plain": True, "layers": 10}


class Exploding(Case):
    """Initial weights six times too large, no norms, no clipping."""

    name = "exploding"
    changes = {"plain": True, "layers": 8, "clip": None}

    def built(self, model: nn.Module) -> None:
        with torch.no_grad():
            for one in matrices(model):
                one.mul_(6.0)


class DeadUnits(Case):
    """Biases so low that no unit fires."""

    name = "dead_units"

    def built(self, model: nn.Module) -> None:
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d) or hasattr(module, "up"):
                    getattr(module, "up", module).bias.fill_(-8.0)


class Saturation(Case):
    """Inputs of tanh thirty times too large."""

    name = "saturation"
    changes = {"activation": nn.Tanh}

    def built(self, model: nn.Module) -> None:
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d) or hasattr(module, "up"):
                    getattr(module, "up", module).weight.mul_(30.0)


class RateHigh(Case):
    """A rate three hundred times too high."""

    name = "rate_high"

    def rate(self, step: int, rate: float) -> float:
        return 300 * rate


class RateLow(Case):
    """A rate a million times too low."""

    name = "rate_low"

    def rate(self, step: int, rate: float) -> float:
        return rate * 1e-6


class Frozen(Case):
    """A layer that nobody said was to be frozen."""

    name = "frozen"
    declared_frozen = False

    def built(self, model: nn.Module) -> None:
        matrices(model)[2].requires_grad = False


class WrongSign(Case):
    """The loss is maximised."""

    name = "wrong_sign"

    def loss(self, step: int, loss: Tensor, logits: Tensor) -> Tensor:
        return -loss


class LabelsShuffled(Case):
    """Targets that belong to other rows."""

    name = "labels_shuffled"

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        flat = y.reshape(-1)
        order = torch.tensor(self.random.permutation(len(flat)))
        return x, flat[order].reshape(y.shape)


class RepeatedData(Case):
    """From step 30 on the loader gives the same four batches."""

    name = "repeated_data"
    onset = 30

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.__dict__.setdefault("kept", [])
        if step < self.onset + 4:
            if step >= self.onset:
                kept.append((x, y))
            return x, y
        return kept[step % 4]


class NonFinite(Case):
    """A logarithm of zero in one step."""

    name = "nonfinite"
    onset = 60

    def loss(self, step: int, loss: Tensor, logits: Tensor) -> Tensor:
        return loss + torch.log(0 * logits.square().sum()) if step == self.onset else loss


class OptimizerLost(Case):
    """A new attempt with the weights, but without the state of the optimizer."""

    name = "optimizer_lost"
    onset = 60

    def stepped(self, step: int) -> None:
        if step == self.onset:
            self.probe.close("stopped")
            self.begin(step)


class ScheduleReset(Case):
    """The rate goes back to its peak."""

    name = "schedule_reset"
    onset = 80

    def rate(self, step: int, rate: float) -> float:
        return rate if step < self.onset else self.setting.rate


class DecayBlowup(Case):
    """A weight decay of 30."""

    name = "decay_blowup"
    changes = {"weight_decay": 30.0}


class UnusedRows(Case):
    """Ids of another tokenizer, which has a third of the rows."""

    name = "unused_rows"
    models = ("text",)

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x // 3, y // 3


class EntropyCollapse(Case):
    """Queries sixty times too large."""

    name = "entropy_collapse"
    models = ("text",)

    def built(self, model: nn.Module) -> None:
        with torch.no_grad():
            for module in model.modules():
                if hasattr(module, "attend"):
                    module.q.weight.mul_(60.0)


class LogitDrift(Case):
    """A term in the loss that pulls all logits up."""

    name = "logit_drift"
    onset = 20

    def loss(self, step: int, loss: Tensor, logits: Tensor) -> Tensor:
        return loss if step < self.onset else loss - 2 * logits.logsumexp(-1).mean()


class LossSpike(Case):
    """Four bad batches, whose targets belong to other inputs."""

    name = "loss_spike"
    onset = 80

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.onset <= step < self.onset + 4:
            return x, (y + 1) % self.source.classes
        return x, y


class ReplicaMismatch(Case):
    """A second copy of the model, of which one bit flips."""

    name = "replica_mismatch"
    onset = 60

    def built(self, model: nn.Module) -> None:
        self.twin = copy.deepcopy(model)

    def begin(self, done: int) -> None:
        self.twin_rule = torch.optim.AdamW(
            self.twin.parameters(), weight_decay=self.setting.weight_decay
        )
        super().begin(done)
        self.optimizer.register_step_pre_hook(self._twin_step)

    def _twin_step(self, *_: object) -> None:
        for one, other in zip(self.model.parameters(), self.twin.parameters(), strict=True):
            other.grad = one.grad
        self.twin_rule.param_groups[0]["lr"] = self.optimizer.param_groups[0]["lr"]
        self.twin_rule.step()

    def stepped(self, step: int) -> None:
        if step == self.onset:
            flat = next(iter(self.twin.parameters())).detach().view(-1).view(torch.int32)
            flat[3] ^= 1 << 20

    def told(self, event: Event) -> list[Event]:
        if isinstance(event, AttemptStarted):
            return [replace(event, ranks=2)]
        if not isinstance(event, RankMeasured):
            return [event]
        hashes = (hash_of_weights(one.parameters()) for one in (self.model, self.twin))
        return [replace(event, rank=rank, weights_hash=one) for rank, one in enumerate(hashes)]


class Desync(ReplicaMismatch):
    """A second copy that began from another seed."""

    name = "desync"
    onset = 0

    def built(self, model: nn.Module) -> None:
        super().built(model)
        with torch.no_grad():
            for one in matrices(self.twin):
                one.add_(0.01)

    def stepped(self, step: int) -> None:
        """Leave the copies as they are."""


class Straggler(Case):
    """A rank that computes for twice as long."""

    name = "lagging_rank"
    onset = 40

    def told(self, event: Event) -> list[Event]:
        found = four_ranks(event, self.random)
        if isinstance(event, StepDone) and event.step > self.onset:
            found[2] = replace(found[2], stage_seconds=(0.3,), step_seconds=0.31)
        return found


class SlowData(Case):
    """Every rank waits for data."""

    name = "slow_data"
    onset = 40

    def told(self, event: Event) -> list[Event]:
        found = four_ranks(event, self.random)
        if isinstance(event, StepDone) and event.step > self.onset:
            return [replace(one, data_wait_seconds=0.09, step_seconds=0.29) for one in found]
        return found


class MemoryLeak(Case):
    """A rank whose memory grows by 4 MB a step, with noise of a megabyte."""

    name = "memory_leak"
    onset = 30

    def told(self, event: Event) -> list[Event]:
        found = four_ranks(event, self.random)
        if not isinstance(event, RankMeasured):
            return found
        noise = self.random.standard_normal(4) * 1e6
        leak = 4e6 * max(0, event.step - self.onset)
        return [
            replace(one, rss_bytes=int(1e9 + noise[rank] + (leak if rank == 1 else 0)))
            for rank, one in enumerate(found)
        ]


class UnequalSteps(Case):
    """A rank that leaves early."""

    name = "unequal_steps"
    onset = 90

    def told(self, event: Event) -> list[Event]:
        found = four_ranks(event, self.random)
        if isinstance(event, StepDone) and event.step > self.onset:
            return found[:3]
        return found


class ModeMixup(Case):
    """Nobody calls train() after an evaluation."""

    name = "mode_mixup"
    onset = 60

    def stepped(self, step: int) -> None:
        if step == self.onset:
            self.model.eval()


class Overfit(Case):
    """Twenty rows, learnt by heart."""

    name = "overfit"
    changes = {"rows": 20, "dropout": 0.0, "weight_decay": 0.0, "rate": 2e-2, "layers": 4}


class Plateau(Case):
    """A schedule that ends the learning when a tenth of the run is done."""

    name = "plateau"
    onset = 40
    changes = {"horizon": 4 * STEPS}

    def rate(self, step: int, rate: float) -> float:
        return rate if step < self.onset else rate * 2e-3


FAULTS: tuple[type[Case], ...] = (
    Vanishing, Exploding, DeadUnits, Saturation, RateHigh, RateLow, Frozen, WrongSign,
    LabelsShuffled, RepeatedData, NonFinite, OptimizerLost, ScheduleReset, DecayBlowup,
    UnusedRows, EntropyCollapse, LogitDrift, LossSpike, ReplicaMismatch, Desync, Straggler,
    SlowData, MemoryLeak, UnequalSteps, ModeMixup, Overfit, Plateau,
)  # fmt: skip


class Healthy(Case):
    """A run with hyper-parameters drawn at random, and with what healthy runs do."""

    def __init__(self, setting: Setting, number: int) -> None:
        draw = np.random.default_rng((setting.seed, number, 11))
        sgd = bool(draw.random() < 0.2)
        super().__init__(
            setting,
            seed=int(draw.integers(1 << 30)),
            optimizer="sgd" if sgd else "adamw",
            rate=float((0.03 if sgd else 3e-3) * draw.choice([1 / 3, 0.6, 1.0, 2.0])),
            warm_up=int(draw.choice([1, 5, 10, 30])),
            schedule=str(draw.choice(["cosine", "linear", "constant"])),
            weight_decay=float(draw.choice([0.0, 0.01, 0.1, 0.5])),
            clip=draw.choice([None, 0.1, 1.0, 1.0]),
            activation=draw.choice([nn.ReLU, nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU]),
            dropout=float(draw.choice([0.0, 0.1, 0.3])),
            batch=int(draw.choice([8, 16, 32])),
            layers=int(draw.choice([2, 3, 4])),
            horizon=int(STEPS * draw.choice([1, 1, 2, 4])),
        )
        self.habit = str(draw.choice(["none", "blip", "resume", "ranks", "frozen", "memory"]))

    def built(self, model: nn.Module) -> None:
        if self.habit == "frozen":
            matrices(model)[0].requires_grad = False

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.habit == "blip" and step == 80:
            return x, (y + 1) % self.source.classes
        return x, y

    def stepped(self, step: int) -> None:
        if self.habit == "resume" and step == 60:
            self.probe.close("stopped")
            self.watch(step)

    def told(self, event: Event) -> list[Event]:
        if self.habit not in {"ranks", "memory"}:
            return [event]
        found = four_ranks(event, self.random)
        if self.habit == "memory" and isinstance(event, RankMeasured):
            grown = 1e9 + 2e8 * (1 - math.exp(-event.step / 8))
            noise = self.random.standard_normal(4) * 5e6
            return [
                replace(one, rss_bytes=int(grown + noise[rank])) for rank, one in enumerate(found)
            ]
        return found
