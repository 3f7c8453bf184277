"""An engine with its queue and its working thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Self

from cnai.core.clock import Clock, SystemClock
from cnai.core.serving import ServeSnapshot
from cnai.serve.generation import Engine, Sampling
from cnai.serve.rounds import Delivery, Job, Rounds
from cnai.serve.stats import Outcome, Recorder


class TextService:
    """Answers requests with one engine, in one thread of its own.

    Args:
        engine: The model.
        active_limit: Requests that generate at once, token by token in turn.
        queue_limit: Requests that may wait beyond those; more are refused.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        active_limit: int = 8,
        queue_limit: int = 64,
        clock: Clock | None = None,
    ) -> None:
        self._engine = engine
        self._recorder = Recorder(
            model=engine.name, queue_limit=queue_limit, active_limit=active_limit
        )
        self._rounds = Rounds(
            active_limit=active_limit,
            queue_limit=queue_limit,
            recorder=self._recorder,
            clock=clock or SystemClock(),
        )
        # A daemon, so that a forced exit does not wait for it; `close` is the regular end.
        self._thread = threading.Thread(target=self._work, name="cnai-engine", daemon=True)

    @property
    def model(self) -> str:
        """Name under which clients ask for the model."""
        return self._engine.name

    @property
    def context_tokens(self) -> int:
        """Longest prompt and answer together."""
        return self._engine.context_tokens

    @property
    def alive(self) -> bool:
        """Whether the working thread runs."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether a request would be taken."""
        return self.alive and not self._rounds.draining

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt."""
        return self._engine.encode(text)

    def submit(
        self,
        prompt_tokens: Sequence[int],
        sampling: Sampling,
        deliver: Callable[[Delivery], None],
    ) -> Job:
        """Queue a request; what it brings goes to `deliver`, called from the working thread.

        Raises:
            SpecError: The prompt is empty, too long or has unknown tokens.
            UnavailableError: The queue is full, or the service is ending.
        """
        pieces = self._engine.generate(prompt_tokens, sampling)
        job = Job(pieces, prompt_tokens=len(prompt_tokens), deliver=deliver)
        self._rounds.submit(job)
        return job

    def count_invalid(self) -> None:
        """Count a request that was refused before it came here."""
        self._recorder.ended(Outcome.INVALID)

    def snapshot(self) -> ServeSnapshot:
        """Return the counts at this moment."""
        return self._rounds.snapshot()

    def start(self) -> None:
        """Start the working thread."""
        self._thread.start()

    def drain(self, grace_seconds: float) -> None:
        """Take no more requests; those that run or wait are cut off after the grace period."""
        self._rounds.drain(grace_seconds)

    def close(self) -> None:
        """Cut off what still runs and end the thread."""
        self._rounds.close()
        if self.alive:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        try:
            while self._rounds.wait():
                self._rounds.turn()
        finally:
            # Also when a bug ends the thread: nobody is left waiting, and /healthz tells.
            self._rounds.close()
            self._rounds.abandon()
