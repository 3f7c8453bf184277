"""Plays pods that come and never go, until the cluster is full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from cnai.schedule.actions import Start
from cnai.schedule.decide import Policy, decide
from cnai.schedule.demand import Demand
from cnai.schedule.jobs import JobRow
from cnai.schedule.nodes import NodeRow, Nodes
from cnai.schedule.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a policy placed.

    Attributes:
        allocated: Share of the cluster's GPUs that is handed out at the end.
        refused: Pods that fitted nowhere when they came.
        cpu_seconds: Time of the process for all decisions.
    """

    policy: str
    allocated: float
    placed: int
    refused: int
    cpu_seconds: float

    @property
    def decisions_per_cpu_second(self) -> float:
        """Speed of deciding."""
        return (self.placed + self.refused) / max(self.cpu_seconds, 1e-9)


def fill(nodes: Sequence[NodeRow], pods: Sequence[Demand], policy: Policy) -> Filled:
    """Offer each pod once, in order; what does not fit is refused for good."""
    view = ClusterView(nodes=Nodes(nodes))
    placed = refused = 0
    began = time.process_time()
    for number, pod in enumerate(pods):
        place = view.jobs.add(JobRow(name=str(number), demand=pod), 0.0)
        actions = decide(view, 0.0, policy)
        if not any(isinstance(action, Start) for action in actions):
            view.jobs.remove([place])
            refused += 1
            continue
        for action in actions:
            view.apply(action, place, 0.0)
        placed += 1
    spent = time.process_time() - began
    capacity = max(view.nodes.capacity_milli, 1)
    return Filled(
        policy=policy.name,
        allocated=1 - view.nodes.free_milli / capacity,
        placed=placed,
        refused=refused,
        cpu_seconds=spent,
    )
