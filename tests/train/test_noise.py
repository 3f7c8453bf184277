"""The noise scale, on gradients whose noise is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.train.noise import NoiseScale


def test_gradients_without_noise_have_no_scale():
    assert NoiseScale(2, 8).add(9.0, 9.0) is None


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_expected_squares_give_the_scale_at_once(signal, noise):
    found = NoiseScale(4, 16).add(signal + noise / 4, signal + noise / 16)
    assert found == pytest.approx(noise / signal, rel=1e-6)


def test_it_is_found_in_noisy_gradients():
    draw = np.random.default_rng(0)
    truth, deviation, small, ranks = np.full(64, 0.5), 3.0, 4, 4
    scale = NoiseScale(small, small * ranks)
    for _ in range(400):
        own = truth + deviation / np.sqrt(small) * draw.standard_normal((ranks, 64))
        found = scale.add(float((own**2).sum(1).mean()), float((own.mean(0) ** 2).sum()))
    assert found == pytest.approx(deviation**2 * 64 / (truth**2).sum(), rel=0.3)
