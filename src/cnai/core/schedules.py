"""Pipeline schedules by name: what each wants, and which rank owns which stage.

The names are those of torch.distributed.pipelining, which runs them. With p ranks in a pipeline
and v stages a rank, rank r of a looped schedule owns stages r, r + p, r + 2p and so on; in a V it
owns stage r on the way down and stage 2p - 1 - r on the way back. Sources: GPipe, Huang et al.
2018, arXiv 1811.06965; 1F1B and its interleaving, Narayanan et al. 2021, arXiv 2104.04473; breadth
first, Lamy-Poirier 2022, arXiv 2211.05953; zero bubble and its V, Qi et al. 2023, arXiv 2401.10241;
DualPipeV, a V made of the DualPipe of DeepSeek-AI 2024, arXiv 2412.19437.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from cnai.core.errors import SpecError


class Placement(StrEnum):
    """How the stages of a rank lie in the model."""

    LOOP = "loop"
    V = "v"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule.

    Attributes:
        virtual: Stages a rank when nobody says.
        most: Largest number of stages a rank, None = any.
        share: Microbatches that it needs for each rank of the pipeline, at least.
        rounds: Whether microbatches are taken in rounds of equal length, about one a rank.
        splits_backward: Whether the gradients of the weights are computed apart from those of the
            activations, to fill what would be idle time.
    """

    name: str
    virtual: int = 1
    most: int | None = 1
    placement: Placement = Placement.LOOP
    share: int = 1
    rounds: bool = False
    splits_backward: bool = False

    @property
    def least(self) -> int:
        """Smallest number of stages a rank."""
        return self.virtual if self.virtual == self.most else 1

    def takes_virtual(self, virtual: int) -> bool:
        """Tell whether so many stages a rank are right."""
        return self.least <= virtual and (self.most is None or virtual <= self.most)

    def takes(self, microbatches: int, pipeline: int) -> bool:
        """Tell whether so many microbatches keep a pipeline of so many ranks going."""
        if microbatches < self.fewest(pipeline):
            return False
        return not self.rounds or microbatches % max(1, microbatches // pipeline) == 0

    def fewest(self, pipeline: int) -> int:
        """Return the smallest number of microbatches for a pipeline of so many ranks."""
        return self.share * pipeline if pipeline > 1 else 1

    def owner(self, stage: int, pipeline: int) -> int:
        """Return the rank of the pipeline that owns a stage."""
        loop, place = divmod(stage, pipeline)
        return pipeline - 1 - place if self.placement is Placement.V and loop else place

    def stages_of(self, rank: int, pipeline: int, virtual: int) -> tuple[int, ...]:
        """Return the stages that a rank of the pipeline owns, first to last."""
        is_v = self.placement is Placement.V
        return tuple(
            loop * pipeline + (pipeline - 1 - rank if is_v and loop else rank)
            for loop in range(virtual)
        )


SCHEDULES = MappingProxyType({
    one.name: one
    for one in (
        Schedule(name="1F1B"),
        Schedule(name="GPipe"),
        Schedule(name="Interleaved1F1B", virtual=2, most=None, rounds=True),
        Schedule(name="LoopedBFS", virtual=2, most=None),
        Schedule(
            name="InterleavedZeroBubble", virtual=2, most=None, rounds=True, splits_backward=True
        ),
        Schedule(
            name="ZBVZeroBubble", virtual=2, most=2, placement=Placement.V, splits_backward=True
        ),
        Schedule(
            name="DualPipeV", virtual=2, most=2, placement=Placement.V, share=2,
            splits_backward=True,
        ),
    )
})  # fmt: skip


def schedule_named(name: str) -> Schedule:
    """Return a schedule.

    Raises:
        SpecError: There is none of that name.
    """
    if name not in SCHEDULES:
        raise SpecError(
            f"unknown value `{name}`",
            where="parallel.pipeline_parallel.schedule",
            hint=f"use {' or '.join(SCHEDULES)}",
        )
    return SCHEDULES[name]
