"""The probe of our own loop: what it measures rides in the one message that a step sends anyway."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cnai.core.events import RankMeasured
from cnai.core.vectors import LayersMeasured
from cnai.train.probe_activations import Activations
from cnai.train.probe_columns import Places, gathered
from cnai.train.probe_origin import origin_of
from cnai.train.probe_record import Record, Sink
from cnai.train.probe_vitals import (
    Targets,
    device_bytes,
    hash_of_rows,
    hash_of_weights,
    optimizer_steps,
    resident_bytes,
    training_share,
)
from cnai.train.ranks import Ranks
from cnai.train.shards import Shard

if TYPE_CHECKING:
    from cnai.core.batches import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """How often what is measured; 0 = never.

    Attributes:
        layers_every: Steps between records of gradients, updates and weights.
        activations_every: Steps between measurements of activations.
        ranks_every: Steps between measurements that each rank makes of itself.
        logits: Name of the module that returns logits; None = found by its name.
        declared_frozen: Whether parameters that ask for no gradient are so on purpose.
    """

    layers_every: int = 1
    activations_every: int = 10
    ranks_every: int = 10
    logits: str | None = None
    declared_frozen: bool = True

    @property
    def measures(self) -> bool:
        """Whether anything is measured at all."""
        return any((self.layers_every, self.activations_every, self.ranks_every))


class TrainerProbe:
    """One rank's probe. All ranks call its methods at the same places of the same steps.

    Args:
        sink: Takes this rank's own measurements and, on rank 0, the records of the layers.
        compiled: Whether layers are compiled, inside of which no hook may stand.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        shards: Sequence[Shard],
        parts: Sequence[nn.Module],
        ranks: Ranks,
        attempt: int,
        sink: Sink,
        *,
        compiled: bool = False,
    ) -> None:
        self._settings = settings
        self._shards = shards
        self._parts = parts
        self._ranks = ranks
        self._attempt = attempt
        self._sink = sink
        self._activations: Activations | None = None
        if settings.activations_every and not compiled:
            self._activations = Activations(parts, attention=ranks.layout.context == 1)
        means = self._activations.names if self._activations else {}
        places = Places(
            [(one.name, one.copies) for one in shards],
            means,
            {one.name: one.parameter.numel() for one in shards if one.is_matrix},
        )
        self._record = Record(places, attempt, sink if ranks.place.rank == 0 else None)
        self._update: tuple[Tensor, Tensor] | None = None
        self._batches: list[str] = []
        self._targets = Targets()
        self._begun = False
        self._begun_steps = 0
        self._has_copy = any(shard.copies > 1 for shard in shards)
        self._copy = _copy_of(ranks, is_sharded=any(shard.is_sharded for shard in shards))

    def begin(self, step: int, rows: Rows) -> None:
        """Get ready for the forward pass of a zero-based step."""
        if self._activations is not None:
            # Before a pipeline's first step torch runs its later stages on memory that nobody has
            # filled, to learn what their outputs look like.
            is_rehearsed = self._ranks.layout.pipeline > 1 and not self._begun_steps
            due = step % self._settings.activations_every == 0
            self._activations.active = due and not is_rehearsed
        self._begun_steps += 1
        if self._settings.ranks_every:
            self._batches.append(hash_of_rows(rows))
            if step % self._settings.ranks_every == 0:
                self._targets.add(rows)

    def words(self, step: int, squares: Sequence[float]) -> list[float]:
        """Return this rank's part of the message of a step.

        Args:
            squares: Squared norm of this rank's part of each gradient, in the order of the shards.
        """
        groups: dict[str, Sequence[float]] = {}
        every = self._settings.layers_every
        if every and step % every == 0:
            groups["gradient"] = squares
        if self._update is not None:
            groups["update"], groups["weight"] = (one.tolist() for one in self._update)
            self._update = None
        if self._activations is not None and self._activations.active:
            groups |= {name: self._activations.taken(name) for name in self._activations.names}
            self._activations.active = False
        return self._record.words(groups)

    def heard(self, step: int, sums: Sequence[float]) -> LayersMeasured:
        """Take the sum of all ranks' parts."""
        return self._record.heard(step + 1, sums)

    def measures_update(self, step: int) -> bool:
        """Tell whether the record of a step takes the update, where it is measured at all."""
        every = self._settings.layers_every
        return every > 0 and step % every == 0

    def updated(self, changes: Tensor, weights: Tensor) -> None:
        """Take the squared norms of a step's update and of the weights, by shard."""
        self._update = (changes, weights)

    def origin(self, record: LayersMeasured, forward: Callable[[], object]) -> str:
        """Say where in the model, and on which rank, the first number arose that is not finite.

        Args:
            record: Of the broken step.
            forward: Runs its rows again.
        """
        self._record.flush()
        finite = {
            name: math.isfinite(value)
            for name, value in zip(record.names("gradient"), record.group("gradient"), strict=True)
        }
        # All ranks know of all gradients; one of them says it.
        mine = origin_of(self._parts, forward, finite if self._ranks.place.rank == 0 else {})
        said = gathered({"": [mine] if mine else []})
        places = [(rank, one[""][0]) for rank, one in enumerate(said) if one[""]]
        outright = [one for one in places if not one[1].startswith("the gradient")]
        rank, what = min(outright or places or [(0, "none of the modules")])
        return f"{what} on rank {rank}" if self._ranks.layout.ranks > 1 else what

    def measure_rank(self, done: int, rules: Sequence[torch.optim.Optimizer]) -> None:
        """Let this rank measure itself, before its first step and then when it is time to."""
        every = self._settings.ranks_every
        if not every or (self._begun and done % every):
            return
        self._begun = True
        weights = [shard.local for shard in self._shards] if self._has_copy else []
        self._sink(
            RankMeasured(
                time_unix=time.time(),
                rank=self._ranks.place.rank,
                attempt=self._attempt,
                step=done,
                rss_bytes=resident_bytes(),
                device_bytes=device_bytes(self._ranks.device),
                copy=self._copy,
                weights_hash=hash_of_weights(weights) if weights else None,
                batches=tuple(self._batches),
                optimizer_steps=optimizer_steps(rules),
                training=training_share(self._parts),
                chance_loss=self._targets.entropy(),
            )
        )
        self._batches.clear()

    def close(self) -> None:
        """Share the last update, and take the hooks away; all ranks call this at the same time."""
        if self._update is not None:
            changes, weights = (one.tolist() for one in self._update)
            words = self._record.words({"update": changes, "weight": weights})
            self._record.heard(0, self._ranks.total(words))
        self._record.flush()
        if self._activations is not None:
            self._activations.remove()


def _copy_of(ranks: Ranks, *, is_sharded: bool) -> str:
    """Name what a rank holds, so that ranks with the same name hold the same numbers."""
    place, layout = ranks.place, ranks.layout
    axes = {"pipeline": place.pipeline, "model": place.model}
    if is_sharded or layout.expert > 1:
        axes |= {"data": place.data, "context": place.context}
    return " ".join(f"{axis} {index}" for axis, index in axes.items())
