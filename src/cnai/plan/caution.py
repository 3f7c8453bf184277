"""When work is moved, and when a move is taken back.

Moving costs something and what was measured is noisy, so: no move before there are a few samples,
none whose gain is below a threshold, and none that was taken back just before. After a move the
throughput is compared with the one before it; where it did not rise, by half of the threshold at
least, the move is taken back, and the next one has to wait twice as long. A move that brought less
than it promised but something is kept: going back would lose that too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from cnai.core.balance import Move

SAMPLES = 3
"""Steps that are measured before work moves."""
JUDGED = 5
"""Steps over which a move is judged."""
SETTLING = 1
"""Steps after a start or a move that are not counted: caches fill, buffers are made."""
KEPT_SHARE = 0.5
"""Share of the threshold by which throughput must rise for a move to be kept."""
COOL_DOWN = 10
"""Steps of rest after a move that did not pay; doubled each time."""
_KEEPING = 0.7
"""Weight of the past in a moving average; a speed is known after about three steps."""

Shares = tuple[int, ...]


class Speeds:
    """Moving averages of times, of which a single outlier is no part.

    Each sample is the median of the last three, so that a pause of one step does not count.

    Attributes:
        seconds: The averages.
        samples: The times of the last steps as they were. A move should have paid in each of them:
            what a busy machine does to its ranks comes and goes.
    """

    def __init__(self, samples: int = SAMPLES) -> None:
        self._last: deque[tuple[float, ...]] = deque(maxlen=3)
        self.samples: deque[tuple[float, ...]] = deque(maxlen=samples)
        self.seconds: tuple[float, ...] = ()

    def add(self, seconds: Sequence[float]) -> None:
        """Take the times of one step."""
        self._last.append(tuple(seconds))
        self.samples.append(tuple(seconds))
        calm = tuple(median(column) for column in zip(*self._last, strict=True))
        if len(self._last) < SAMPLES:
            self.seconds = calm
            return
        old = self.seconds
        self.seconds = tuple(
            _KEEPING * was + (1 - _KEEPING) * now for was, now in zip(old, calm, strict=True)
        )

    def forget(self) -> None:
        """Begin anew."""
        self._last.clear()
        self.samples.clear()
        self.seconds = ()


class Caution:
    """Holds back moves, and takes back those that do not pay.

    Args:
        now: How the work is shared out at the start.
        threshold: Smallest expected gain of throughput that is worth a move, 0.1 = 10 %.
        samples: Steps that are measured before work moves.
    """

    def __init__(self, now: Shares, threshold: float, *, samples: int = SAMPLES) -> None:
        self.now = now
        self._threshold = threshold
        self._samples = samples
        self._recent: deque[float] = deque(maxlen=JUDGED)
        self._unheard = SETTLING
        self._earlier: Shares = now
        self._promised: float | None = None
        self._seconds_before = 0.0
        self._refused: Shares | None = None
        self._rest = 0
        self._disappointments = 0

    @property
    def step_seconds(self) -> float:
        """Time of a step as it is now; 0 before the first."""
        return median(self._recent) if self._recent else 0.0

    @property
    def is_ready(self) -> bool:
        """Whether a move would be heard now."""
        return self._promised is None and self._rest == 0 and len(self._recent) >= self._samples

    def hear(self, step_seconds: float, *, return_gain: float = 0.0) -> Move | None:
        """Take the time of one step; return the move back when the last move did not pay.

        Args:
            return_gain: Throughput over the present one that a move back must bring; without it a
                move that did not pay stays, but no other follows for a while.
        """
        if self._unheard:
            self._unheard -= 1
            return None
        self._recent.append(step_seconds)
        self._rest = max(0, self._rest - 1)
        if self._promised is None or len(self._recent) < JUDGED:
            return None
        promised, self._promised = self._promised, None
        rose = self._seconds_before / self.step_seconds
        if rose >= 1 + KEPT_SHARE * self._threshold:
            self._refused = None
            return None
        self._rest = COOL_DOWN * 2**self._disappointments
        self._disappointments += 1
        return self._take_back(rose, promised) if rose * return_gain < 1 else None

    def settle(self) -> None:
        """Hear that the ranks were started anew: times begin anew, and no move is judged by them.

        A move that was waiting to be judged is judged by the steps that come.
        """
        self._recent.clear()
        self._unheard = SETTLING

    def is_lasting(self, pairs: Iterable[tuple[float, float]]) -> bool:
        """Tell whether a move would have paid in each of some steps.

        Args:
            pairs: What computing took in a step, and what it would have taken after the move.
        """
        return all(then * (1 + KEPT_SHARE * self._threshold) <= now for now, then in pairs)

    def propose(self, after: Shares, *, gain: float, reason: str) -> Move | None:
        """Ask for a move; None when it is held back."""
        if not self.is_ready or gain < 1 + self._threshold:
            return None
        if after in {self.now, self._refused}:
            return None
        self._promised = gain
        self._seconds_before = self.step_seconds
        return self._go(after, gain, reason, is_rollback=False)

    def _take_back(self, rose: float, promised: float) -> Move:
        self._refused = self.now
        reason = (
            f"throughput became {rose:.2f} x what it was, not the {promised:.2f} x that was "
            f"expected: {self._seconds_before:.3f} s a step before, {self.step_seconds:.3f} s after"
        )
        return self._go(self._earlier, rose, reason, is_rollback=True)

    def _go(self, after: Shares, gain: float, reason: str, *, is_rollback: bool) -> Move:
        move = Move(before=self.now, after=after, gain=gain, reason=reason, is_rollback=is_rollback)
        self._earlier, self.now = self.now, after
        self.settle()
        return move
