"""Who gets the next token: requests wait in a bounded queue, the active ones take turns.

Each active request has its own generator (and in it its own key-value cache). A round gives every
active request one token, so a short request ends early beside a long one and does not wait behind
it. This is continuous batching in its simplest form: requests join and leave at any token, but
each forward pass holds one sequence. Source of the idea: Yu et al. 2022 (Orca, OSDI 22),
iteration-level scheduling.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from cnai.core.clock import Clock
from cnai.core.errors import CnaiError, RunError
from cnai.core.serving import ServeSnapshot
from cnai.serve.generation import Piece
from cnai.serve.stats import Outcome, Recorder

logger = logging.getLogger(__name__)


class UnavailableError(RunError):
    """The service takes no request now, but a later one may do."""

    retry_after_seconds = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last thing that a request delivers.

    Attributes:
        error: Why, when it ended without a whole answer and the client is to know.
    """

    outcome: Outcome
    error: CnaiError | None = None


Delivery = Piece | Ended


class Job:
    """One request on its way through the queue and the engine.

    Args:
        pieces: Its generator; only the working thread touches it.
        deliver: Called with each piece and at last with one `Ended`, from the working thread; must
            be quick.
    """

    def __init__(
        self,
        pieces: Generator[Piece, None, None],
        *,
        prompt_tokens: int,
        deliver: Callable[[Delivery], None],
    ) -> None:
        self.pieces = pieces
        self.prompt_tokens = prompt_tokens
        self.deliver = deliver
        self.arrived_seconds = 0.0
        self.tokens = 0
        self.cancelled = False

    def cancel(self) -> None:
        """Give the request up; it ends at the next token. Any thread, any number of times."""
        self.cancelled = True


class Rounds:
    """The queue and the active requests. `submit` from any thread, `turn` from one.

    Args:
        active_limit: Requests that generate at once.
        queue_limit: Requests that may wait beyond those.
    """

    def __init__(
        self, *, active_limit: int, queue_limit: int, recorder: Recorder, clock: Clock
    ) -> None:
        self._active_limit = active_limit
        self._queue_limit = queue_limit
        self._recorder = recorder
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._active: list[Job] = []
        self._last_seconds: float | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Queue a request.

        Raises:
            UnavailableError: The queue is full, or the service is ending.
        """
        with self._changed:
            if self._closed or self._last_seconds is not None:
                self._reject("the server is shutting down", "send the request to another server")
            free = self._active_limit - len(self._active)
            if len(self._waiting) >= self._queue_limit + max(free, 0):
                self._reject(
                    f"the queue is full: {len(self._active)} requests are answered and "
                    f"{len(self._waiting)} wait",
                    "try again later, or add a replica",
                )
            job.arrived_seconds = self._clock.monotonic()
            self._waiting.append(job)
            self._changed.notify_all()

    def _reject(self, message: str, hint: str) -> None:
        self._recorder.ended(Outcome.REJECTED)
        error = UnavailableError(message, hint=hint)
        mean = self._recorder.mean_latency_seconds() or 0.0
        # A place in the queue is free when one of the active requests has ended.
        error.retry_after_seconds = min(60, max(1, round(mean / self._active_limit)))
        raise error

    def wait(self) -> bool:
        """Block until there is work; False when the service was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or self._active)
            return not self._closed

    def turn(self) -> None:
        """Admit what waits, then give every active request one token."""
        self._admit()
        for job in list(self._active):
            self._advance(job)

    def _admit(self) -> None:
        with self._changed:
            gone = [job for job in self._waiting if job.cancelled]
            self._waiting = deque(job for job in self._waiting if not job.cancelled)
            free = self._active_limit - len(self._active)
            fresh = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
            self._active += fresh
        for job in gone:
            self._end(job, Outcome.CANCELLED)
        now = self._clock.monotonic()
        for job in fresh:
            self._recorder.started(
                queue_seconds=now - job.arrived_seconds, prompt_tokens=job.prompt_tokens
            )

    def _advance(self, job: Job) -> None:
        late = self._last_seconds is not None and self._clock.monotonic() >= self._last_seconds
        if job.cancelled or late:
            stopped = UnavailableError("the server shut down", hint="send the request again")
            self._end(job, Outcome.CANCELLED, stopped if late else None)
            return
        try:
            piece = next(job.pieces)
        except CnaiError as error:
            self._end(job, Outcome.FAILED, error)
        except Exception:
            logger.exception("the engine failed")
            bug = RunError("the engine failed", hint="see the server's log")
            self._end(job, Outcome.FAILED, bug)
        else:
            self._pass_on(job, piece)

    def _pass_on(self, job: Job, piece: Piece) -> None:
        job.tokens += 1
        first = self._clock.monotonic() - job.arrived_seconds if job.tokens == 1 else None
        self._recorder.token(first_after_seconds=first)
        job.deliver(piece)
        if piece.finish_reason is not None:
            self._end(job, Outcome(piece.finish_reason))

    def _end(self, job: Job, outcome: Outcome, error: CnaiError | None = None) -> None:
        with self._changed:
            if job in self._active:
                self._active.remove(job)
        job.pieces.close()
        whole = outcome in {Outcome.STOP, Outcome.LENGTH}
        latency = self._clock.monotonic() - job.arrived_seconds
        self._recorder.ended(outcome, latency_seconds=latency if whole else None)
        job.deliver(Ended(outcome=outcome, error=error))

    @property
    def draining(self) -> bool:
        """Whether the service takes no more requests."""
        return self._closed or self._last_seconds is not None

    def drain(self, grace_seconds: float) -> None:
        """Take no more requests; those that run or wait are cut off after the grace period."""
        with self._changed:
            self._last_seconds = self._clock.monotonic() + grace_seconds

    def close(self) -> None:
        """Let `wait` return False."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """End what is left, in the working thread, after `close`."""
        with self._changed:
            left = [*self._active, *self._waiting]
            self._waiting.clear()
        for job in left:
            stopped = UnavailableError("the server shut down", hint="send the request again")
            self._end(job, Outcome.CANCELLED, stopped)

    def snapshot(self) -> ServeSnapshot:
        """Return the counts at this moment."""
        with self._changed:
            queue_depth, active = len(self._waiting), len(self._active)
        return self._recorder.snapshot(queue_depth=queue_depth, active=active)
