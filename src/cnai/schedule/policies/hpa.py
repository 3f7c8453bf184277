"""The rule of Kubernetes' horizontal pod autoscaler, as the yardstick for services.

Source: the algorithm in the Kubernetes documentation: desired = ceil(load / target), a tolerance of
10 %, down only to the highest wish of the last 300 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from cnai.schedule.actions import Action, Reason, SetReplicas
from cnai.schedule.nodes import Trial
from cnai.schedule.services import TICK_SECONDS, ServiceView
from cnai.schedule.view import ClusterView

_TOLERANCE = 0.1
_STABLE_SECONDS = 300.0


@dataclass
class Hpa:
    """Replicas by utilisation.

    Attributes:
        target: Share of a replica that should be busy.
    """

    target: float

    def __post_init__(self) -> None:
        self.name = f"hpa-{self.target:g}"
        self._wishes: dict[str, list[int]] = {}

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Return a new size for each service whose size is wrong."""
        actions: list[Action] = []
        for service in view.services:
            replicas = self._desired(service)
            if replicas != service.replicas:
                reason = Reason("utilisation", {"load": service.loads[-1], "target": self.target})
                actions.append(SetReplicas(job=service.name, replicas=replicas, reason=reason))
        return actions

    def _desired(self, service: ServiceView) -> int:
        if not service.loads:
            return service.replicas
        load = service.loads[-1] + service.backlog_seconds * service.ready / TICK_SECONDS
        wish = ceil(load / self.target)
        if abs(load / self.target / max(service.replicas, 1) - 1) <= _TOLERANCE:
            wish = service.replicas
        kept = self._wishes.setdefault(service.name, [])
        kept.append(wish)
        del kept[: -int(_STABLE_SECONDS / TICK_SECONDS)]
        replicas = wish if wish >= service.replicas else min(max(kept), service.replicas)
        return min(max(replicas, service.least), service.most)

    def wake(self, view: ClusterView, now: float) -> float:
        """Return never: services are asked about at every tick anyway."""
        return inf
