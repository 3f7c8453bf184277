"""Which layout the next attempt of a run has, and when a living one should change over."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.balance import Move
from cnai.core.errors import ClusterError, CnaiError, PlanError
from cnai.core.events import Event
from cnai.core.files import write_atomically
from cnai.core.fleet import Phase
from cnai.core.layout import ParallelPlan
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec, to_yaml
from cnai.flows.balancing import layers_of, recut
from cnai.flows.capacity import Capacity
from cnai.flows.listener import Listener
from cnai.flows.plan import plan_run, request_of
from cnai.flows.scale import request_of as asked_scale
from cnai.flows.scale import with_sizes
from cnai.plan import nearest_plan
from cnai.schedule import allocate


@dataclass(frozen=True, slots=True)
class Change:
    """Another plan than the one in use, and why.

    Attributes:
        move: The layers that it moves in the same layout; None = it is another layout.
    """

    plan: ParallelPlan
    reason: str
    move: Move | None = None


class Layouts:
    """Knows the plan that is wanted, and finds the nearest that there is room for.

    Attributes:
        plan: The plan in use.
    """

    def __init__(
        self,
        spec: RunSpec,
        run: RunFolder,
        plan: ParallelPlan,
        capacity: Capacity,
        listener: Listener,
    ) -> None:
        self.plan = plan
        self._spec = spec
        self._run = run
        self._wanted = plan
        self._request = ""
        self._capacity = capacity
        self._listener = listener
        self._seen = self._stamp()
        self._nearest: dict[tuple[str, int], ParallelPlan | None] = {}
        self._move: Move | None = None
        self._layers = layers_of(spec, plan, capacity.fleet)

    def hear(self, event: Event) -> None:
        """Hear what the ranks of this plan did, and whether its layers should move."""
        if self._layers is None or self._move is not None or self.plan is not self._wanted:
            return
        try:
            move = self._layers.update(event)
        except Exception as error:  # noqa: BLE001 - balancing is a help; a run never ends by it
            self._layers = None
            told = f"{type(error).__name__}: {error}"
            self._listener.warn(f"layers are no longer balanced: {told}")
            return
        if move is None:
            return
        plan = recut(self._spec, self.plan, self._capacity.fleet(), self._layers.cuts)
        if plan is None:  # it fitted a moment ago: begin anew with the cuts that there are
            self._layers = layers_of(self._spec, self.plan, self._capacity.fleet)
            return
        self._wanted, self._move = plan, move

    def change(self) -> Change | None:
        """Return the change that is due now; None = go on as it is."""
        self._take_request()
        plan, reason = self._wanted, self._request or (self._move.reason if self._move else "")
        if self._spec.train.elastic:
            room = self._capacity.room(plan.layout.ranks)
            reason = reason or room.reason
            if room.ranks < plan.layout.ranks:
                near = self._near(room.ranks)
                plan, reason = near or self.plan, room.reason
        if plan.digest == self.plan.digest:
            self.plan = plan
            return None
        grows = plan.layout.ranks > self.plan.layout.ranks
        if grows and not self._request and not self._capacity.may_grow():
            return None
        return Change(plan, reason, self._move if plan is self._wanted else None)

    def take(self, change: Change) -> None:
        """Use the changed plan from now on."""
        if change.plan.layout.ranks < self.plan.layout.ranks:
            self._capacity.shrunk()
        self.plan = change.plan
        self._request = ""
        self._move = None
        if change.move is None:
            self._layers = layers_of(self._spec, self.plan, self._capacity.fleet)

    def check(self) -> None:
        """Refuse to start where there is no room for any layout.

        Raises:
            PlanError: With the reason.
        """
        if not self._spec.train.elastic:
            return
        room = self._capacity.room(self._wanted.layout.ranks)
        if room.ranks < self.plan.layout.ranks:
            raise PlanError(
                f"no layout is left for the run: {room.reason}",
                where="train.elastic",
                hint="run the same command again when the machines are back",
            )

    def lost(self, rank: int) -> None:
        """Hear that a rank was lost by its own fault."""
        if self._spec.train.elastic and self._capacity.lost(self.plan.digest, rank):
            self._listener.warn(f"rank {rank} was lost too often; its place is given up for now")

    @property
    def spec(self) -> RunSpec:
        """The spec with the sizes that were asked for since."""
        return self._spec

    def may_exclude(self, rank: int | None) -> bool:
        """Tell whether the run has room without the machine of a rank."""
        node = None if rank is None else self._node_of(rank)
        left = sum(one.devices for one in self._capacity.fleet().nodes if one.name != node)
        needed = 1 if self._spec.train.elastic else self.plan.layout.ranks
        return node is not None and left >= needed

    def exclude(self, rank: int) -> str | None:
        """Use the machine of a rank no more; return its name."""
        node = self._node_of(rank)
        if node is not None:
            self._capacity.exclude(node)
            self._nearest.clear()
        return node

    def _node_of(self, rank: int) -> str | None:
        layout = self.plan.layout
        try:
            placed = allocate(
                self._run.name, Phase.TRAIN, layout.ranks, self._capacity.fleet(),
                group=layout.model,
            )  # fmt: skip
        except ClusterError:  # there are fewer machines now than when the ranks were started
            return None
        return next((share.node for share in placed.shares if rank in share.ranks), None)

    def _near(self, ranks: int) -> ParallelPlan | None:
        key = (self._wanted.digest, ranks)
        if key not in self._nearest:
            self._nearest[key] = nearest_plan(
                request_of(self._spec), self._capacity.fleet(), self._wanted.layout, most=ranks
            )
        return self._nearest[key]

    def _take_request(self) -> None:
        """Take what `ai-cli scale` asked for since the last look."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        if stamp is None:
            return
        try:
            spec = with_sizes(self._spec, asked_scale(self._run).after)
            self._wanted = plan_run(spec)
        except CnaiError as error:
            self._listener.warn(f"the run was not scaled: {error.message}")
            return
        self._spec = spec
        self._move = None
        self._request = "asked for with `ai-cli scale`"
        write_atomically(self._run.spec_file, to_yaml(spec))

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._run.scale_file.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns
