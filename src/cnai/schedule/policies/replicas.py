"""Our replicas: the load of the time when a replica ordered now is ready, times a learnt margin.

The level is the highest mean of some minutes within a few cold starts: a replica that was needed a
moment ago is kept for as long as it would be dear to have stopped it. Where the moves of earlier
days have foretold today's better than no move at all, they are added. The margin is not a guess
about bursts: it is moved by what happened, up with every late request and down with every tick
without, so that just as many are late as may be.

Sources: Gibbs and Candes 2021, "Adaptive Conformal Inference Under Distribution Shift" (NeurIPS),
for the margin; Karlin et al. 1988, "Competitive Snoopy Caching", for keeping what may be needed
again in proportion to the price of getting it back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil, inf, log

from cnai.schedule.actions import Action, Reason, SetReplicas
from cnai.schedule.nodes import Trial
from cnai.schedule.services import TICK_SECONDS, ServiceView
from cnai.schedule.view import ClusterView

_DAY = int(86400 / TICK_SECONDS)
_FORGET = 0.9995
_MONTH = 0.5 ** (1 / (30 * _DAY))


@dataclass(slots=True)
class _Memory:
    """What was computed from the loads seen so far; it can always be computed again from them.

    Attributes:
        sums: Running sums of the loads.
        peaks: Ticks and levels that may still be the highest, falling.
        errors: Decayed errors of the forecast without and with the move of earlier days.
    """

    margin: float
    late: float = 0.0
    came: float = 0.0
    sums: list[float] = field(default_factory=lambda: [0.0])
    levels: list[float] = field(default_factory=list)
    moves: list[float] = field(default_factory=list)
    peaks: deque[tuple[int, float]] = field(default_factory=deque)
    errors: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def mean(self, end: int, width: int) -> float:
        """Return the mean of the ticks before `end`."""
        start = max(0, end - width)
        return (self.sums[end] - self.sums[start]) / max(end - start, 1)


@dataclass
class Replicas:
    """Replicas by forecast.

    Attributes:
        window_seconds: Length of a level.
        held_starts: Cold starts for which the highest level counts.
        first_margin: Replicas over forecast load before anything was learnt.
        pace: How far one tick moves the margin.
        caution: Part of the allowed late requests that is aimed at.
        debt_gain: What is added to the margin when twice as many were late as aimed at.
    """

    window_seconds: float = 450.0
    held_starts: float = 6.0
    first_margin: float = 1.8
    pace: float = 0.002
    caution: float = 0.8
    debt_gain: float = 0.6
    name: str = "cnai"

    def __post_init__(self) -> None:
        self._memories: dict[str, _Memory] = {}

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Return a new size for each service whose size is wrong."""
        actions: list[Action] = []
        for service in view.services:
            if not service.loads:
                continue
            memory = self._learn(service)
            forecast = memory.peaks[0][1] * max(1.0, self._believed(memory))
            margin = max(1.0, memory.margin + self._debt(service, memory))
            replicas = ceil(forecast * margin)
            replicas = min(max(replicas, service.least), service.most)
            if replicas != service.replicas:
                reason = Reason("forecast", {"load": forecast, "margin": margin})
                actions.append(SetReplicas(job=service.name, replicas=replicas, reason=reason))
        return actions

    def wake(self, view: ClusterView, now: float) -> float:
        """Return never: services are asked about at every tick anyway."""
        return inf

    def _learn(self, service: ServiceView) -> _Memory:
        memory = self._memories.setdefault(service.name, _Memory(margin=self.first_margin))
        width = max(1, int(self.window_seconds / TICK_SECONDS))
        ahead = max(1, int(service.cold_start_seconds / TICK_SECONDS))
        held = max(1, int(self.held_starts * ahead))
        allowed = (1 - service.slo) * self.caution
        for tick in range(len(memory.levels), len(service.loads)):
            memory.sums.append(memory.sums[-1] + service.loads[tick])
            level = memory.mean(tick + 1, width)
            memory.levels.append(level)
            memory.moves.append(self._move(memory, tick + 1, ahead, width))
            self._judge(memory, tick, ahead)
            while memory.peaks and memory.peaks[-1][1] <= level:
                memory.peaks.pop()
            memory.peaks.append((tick, level))
            if memory.peaks[0][0] <= tick - held:
                memory.peaks.popleft()
            memory.late = memory.late * _MONTH + service.late[tick] * service.loads[tick]
            memory.came = memory.came * _MONTH + service.loads[tick]
            memory.margin = max(1.0, memory.margin + self.pace * (service.late[tick] - allowed))
        return memory

    def _debt(self, service: ServiceView, memory: _Memory) -> float:
        """Return what is added to the margin because of late requests of the whole past.

        The first day counts as if it had gone just as planned, so that one early burst does not
        drive the margin.
        """
        if service.slo >= 1:
            return 0.0
        planned = (1 - service.slo) * self.caution
        start = _DAY * memory.came / max(len(memory.levels), 1)
        share = (memory.late + planned * start) / max(memory.came + start, 1e-9)
        over = share / planned - 1
        return self.debt_gain * min(max(over, -1.0), 2.0)

    @staticmethod
    def _move(memory: _Memory, now: int, ahead: int, width: int) -> float:
        """Return by what the load changed over a cold start at this time on earlier days."""
        changes = []
        for day in (1, 2, 7):
            then = now - day * _DAY
            if then >= width:
                before = memory.mean(then, width)
                after = memory.mean(min(then + ahead + width // 2, now), width)
                changes.append(after / before if before > 0 else 1.0)
        return sum(changes) / len(changes) if changes else 1.0

    @staticmethod
    def _judge(memory: _Memory, tick: int, ahead: int) -> None:
        """Compare what was forecast a cold start ago with what came."""
        then = tick - ahead
        if then < 0 or memory.levels[then] <= 0 or memory.levels[tick] <= 0:
            return
        came = log(memory.levels[tick] / memory.levels[then])
        foretold = log(max(memory.moves[then], 1e-9))
        memory.errors[0] = memory.errors[0] * _FORGET + came**2
        memory.errors[1] = memory.errors[1] * _FORGET + (came - foretold) ** 2

    @staticmethod
    def _believed(memory: _Memory) -> float:
        return memory.moves[-1] if memory.errors[1] < memory.errors[0] else 1.0
