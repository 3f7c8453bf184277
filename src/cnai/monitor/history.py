"""The loss curve of a run of any length in at most 512 points."""

from __future__ import annotations

MOST_POINTS = 512


class LossHistory:
    """Keeps every n-th step; n doubles when the points would become too many."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._every = 1
        self._points: list[tuple[int, float]] = []

    def add(self, step: int, loss: float) -> None:
        """Take a step's loss, unless the step is one that is thinned out."""
        if step % self._every:
            return
        self._points.append((step, loss))
        while len(self._points) > self._most:
            self._every *= 2
            self._points = [point for point in self._points if point[0] % self._every == 0]

    def forget_after(self, step: int) -> None:
        """Forget the steps after one, which are about to be repeated."""
        self._points = [point for point in self._points if point[0] <= step]

    def points(self) -> tuple[tuple[int, float], ...]:
        """Return step and loss, oldest first."""
        return tuple(self._points)
