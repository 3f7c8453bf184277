"""The gradient noise scale: how large a batch is worth its cost.

Below it, twice the batch halves the steps; far above it, a larger batch saves no step. It is the
batch at which the noise of the gradient is as large as the gradient, and it grows while the loss
falls. Source: McCandlish et al. 2018, arXiv 1812.06162, section 2.2 and appendix A.1: of the
squared norms |G_small|^2 and |G_big|^2 of gradients of B_small and B_big sequences follow unbiased
estimates of the true gradient's squared norm and of the noise; both are averaged over steps before
they are divided, because single ones scatter too much.
"""

from __future__ import annotations

_DECAY = 0.95


class NoiseScale:
    """The running estimate of one attempt; it starts anew when a run resumes.

    Attributes:
        small: Sequences of one data rank in a step. Where these differ, their harmonic mean: the
            noise of a gradient falls with the inverse of its sequences.

    Args:
        big: Sequences of all in a step, more than `small`.
    """

    def __init__(self, small: float, big: int) -> None:
        self.small, self._big = small, big
        self._signal = self._noise = 0.0

    def add(self, small_square: float, big_square: float) -> float | None:
        """Take one step; return the scale in sequences, None while no signal stands out.

        Args:
            small_square: Mean over the data ranks of the squared norm of each one's gradient.
            big_square: Squared norm of the gradient of all.
        """
        small, big = self.small, self._big
        signal = (big * big_square - small * small_square) / (big - small)
        noise = (small_square - big_square) / (1 / small - 1 / big)
        self._signal += (1 - _DECAY) * (signal - self._signal)
        self._noise += (1 - _DECAY) * (noise - self._noise)
        if self._signal <= 0 or self._noise <= 0:
            return None
        return self._noise / self._signal
