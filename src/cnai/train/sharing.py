"""Which rows of a batch this rank takes, and how fast the ranks are: the runtime side of balancing.

Every rank writes what it measured into its own place of a vector of zeros. The vector rides in the
one message of the step, so the sum that comes back is the same table on every rank, and all come to
the same decision without another message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cnai.core.balance import Balancer, Measures, Move
from cnai.core.layout import ParallelPlan, Place


class RowShares:
    """The rows of each data rank, from step to step.

    Attributes:
        rows: Rows of each data rank in the next step.
    """

    def __init__(self, plan: ParallelPlan, place: Place, balancer: Balancer | None) -> None:
        self._plan = plan
        self._place = place
        self._balancer = balancer
        self._even = plan.microbatches * plan.microbatch_rows
        self.rows = (self._even,) * plan.layout.data

    @property
    def first(self) -> int:
        """Index of this rank's first row within the batch."""
        return sum(self.rows[: self._place.data])

    @property
    def count(self) -> int:
        """Rows of this rank."""
        return self.rows[self._place.data]

    @property
    def own_scale(self) -> float:
        """What makes the mean gradient of this rank's rows out of the gradient that it has.

        Each row counts as in an even share, so a rank with more rows has the larger gradient.
        """
        return self._even / self.count

    @property
    def typical_rows(self) -> float:
        """Harmonic mean of the data ranks' rows."""
        return len(self.rows) / sum(1 / one for one in self.rows)

    def message(self, step_seconds: float, stage_seconds: Mapping[int, float]) -> list[float]:
        """Return what this rank adds to the message of the step; nothing when nobody listens."""
        if self._balancer is None:
            return []
        layout = self._plan.layout
        table = [0.0] * (len(self._plan.stages) * layout.data)
        for stage, seconds in stage_seconds.items():
            mean = seconds / self.count / (layout.model * layout.context)
            table[stage * layout.data + self._place.data] = mean
        return [step_seconds / layout.ranks, *table]

    def decide(self, step: int, heard: Sequence[float]) -> Move | None:
        """Take the summed message of a step; share the rows out anew when it is time to.

        Args:
            step: Steps done, this one included.
            heard: The sum of all ranks' messages.
        """
        if self._balancer is None:
            return None
        step_seconds, *table = heard
        data = self._plan.layout.data
        lines = (table[begin : begin + data] for begin in range(0, len(table), data))
        move = self._balancer.decide(
            Measures(
                step=step,
                step_seconds=step_seconds,
                row_seconds=tuple(tuple(line) for line in lines),
            )
        )
        if move is not None:
            self.rows = move.after
        return move
