"""A decision while it is made: what was given back and handed out so far, all on trial."""

from __future__ import annotations

from cnai.schedule.actions import Action, Preempt, Reason, Resize, Start
from cnai.schedule.demand import Slot
from cnai.schedule.jobs import State
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.gang import place_gang
from cnai.schedule.placement.scores import Scorer
from cnai.schedule.view import ClusterView


class Draft:
    """Collects actions, and keeps the machines of the trial in step with them.

    Attributes:
        held: Slots that each row holds after the actions so far.
    """

    def __init__(self, view: ClusterView, trial: Trial, scorer: Scorer) -> None:
        self.view = view
        self.trial = trial
        self.scorer = scorer
        self.held: dict[int, tuple[Slot, ...]] = {}
        self._starts: dict[int, Action] = {}
        self._stops: dict[int, Action] = {}
        self._no_room: set[tuple[object, int]] = set()

    @property
    def actions(self) -> list[Action]:
        """What to do, what gives back first."""
        return [*self._stops.values(), *self._starts.values()]

    def slots(self, place: int) -> tuple[Slot, ...]:
        """Return what a row holds as the draft stands."""
        return self.held.get(place, self.view.jobs.slots[place])

    def find(self, place: int, workers: int) -> tuple[Slot, ...] | None:
        """Look for slots; remembers what did not fit until something is given back."""
        demand = self.view.jobs.rows[place].demand
        key = (demand, workers)
        if key in self._no_room:
            return None
        found = place_gang(self.view.nodes, demand, workers, self.scorer)
        if found is None:
            self._no_room.add(key)
        return found

    def start(self, place: int, workers: int, reason: Reason) -> bool:
        """Start a row that waits; False when it does not fit whole."""
        found = self.find(place, workers)
        if found is None:
            return False
        self._take(place, found)
        self._starts[place] = Start(job=self.view.jobs.rows[place].name, slots=found, reason=reason)
        return True

    def release(self, place: int) -> None:
        """Give back what a row holds, without deciding yet what becomes of it."""
        self.trial.give(self.view.jobs.rows[place].demand, self.slots(place))
        self.held[place] = ()
        self._no_room.clear()

    def keep(self, place: int) -> bool:
        """Give a released row its own slots back; False when others have them now."""
        own = self.view.jobs.slots[place]
        demand = self.view.jobs.rows[place].demand
        if not all(self.view.nodes.can_take(demand, slot) for slot in own):
            return False
        self.trial.take(demand, own)
        self.held.pop(place)
        return True

    def preempt(self, place: int, reason: Reason) -> None:
        """Say that a released row has to wait."""
        self._stops[place] = Preempt(job=self.view.jobs.rows[place].name, reason=reason)

    def resize(self, place: int, workers: int, reason: Reason) -> bool:
        """Give a row another size; False, with everything as before, when it does not fit."""
        before = self.slots(place)
        demand = self.view.jobs.rows[place].demand
        self.release(place)
        found = place_gang(self.view.nodes, demand, workers, self.scorer)
        if found is None:
            self._take(place, before)
            return False
        self._take(place, found)
        name = self.view.jobs.rows[place].name
        if self.view.jobs.state[place] == State.WAITING:
            self._starts[place] = Start(job=name, slots=found, reason=reason)
        else:
            shrinks = workers < self.view.jobs.workers[place]
            (self._stops if shrinks else self._starts)[place] = Resize(
                job=name, slots=found, reason=reason
            )
        return True

    def _take(self, place: int, slots: tuple[Slot, ...]) -> None:
        self.trial.take(self.view.jobs.rows[place].demand, slots)
        self.held[place] = slots
