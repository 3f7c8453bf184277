"""A rule that a layout breaks, and the words in which rules say what would not."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.errors import SpecError

DATA = "parallel.data_parallel.size"
SHARDING = "parallel.data_parallel.sharding"
GROUP = "parallel.data_parallel.shard_group"
MODEL = "parallel.model_parallel.size"
CONTEXT = "parallel.context_parallel.size"
EXPERT = "parallel.expert_parallel.size"
SPLIT = "parallel.model_parallel.split_layer"
STAGES = "parallel.pipeline_parallel.stages"
VIRTUAL = "parallel.pipeline_parallel.virtual"
MICROBATCHES = "parallel.pipeline_parallel.microbatches"
RANKS = "resources.ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a layout breaks."""

    where: str
    message: str
    hint: str

    def error(self) -> SpecError:
        """Return it as the error that the user sees."""
        return SpecError(self.message, where=self.where, hint=self.hint)


def divisors(number: int) -> list[int]:
    """Return the divisors, smallest first."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def nearest(value: int, legal: list[int]) -> str:
    """Name the legal values next below and above a value, `4 or 8`."""
    below = [other for other in legal if other < value]
    above = [other for other in legal if other > value]
    return " or ".join(str(other) for other in (below[-1:] + above[:1]) or legal[:1])
