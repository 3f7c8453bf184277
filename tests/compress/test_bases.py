import numpy as np

from cnai.compress.bases import is_fixed_basis


def fourier(size: int) -> np.ndarray:
    angles = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    return np.concatenate([np.cos(angles), np.sin(angles)]) * np.hanning(size)


def mel(filters: int, bins: int) -> np.ndarray:
    middle = np.geomspace(4, bins - 20, filters)[:, None]
    return np.maximum(0, 1 - np.abs(np.arange(bins) - middle) / (2 + middle / 8))


def test_a_windowed_fourier_basis_is_one():
    assert is_fixed_basis(fourier(256))


def test_a_cosine_basis_is_one():
    angles = np.pi * np.outer(np.arange(40), np.arange(80) + 0.5) / 80
    assert is_fixed_basis(np.cos(angles))


def test_triangular_filters_are_one():
    assert is_fixed_basis(mel(80, 201))


def test_random_weights_are_none():
    assert not is_fixed_basis(np.random.default_rng(0).normal(size=(128, 256)))


def test_smooth_weights_are_none():
    steps = np.random.default_rng(0).normal(size=(64, 128))
    assert not is_fixed_basis(np.cumsum(steps, axis=1))


def test_sparse_learned_weights_are_none():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(64, 128)) * (generator.random((64, 128)) < 0.1)
    assert not is_fixed_basis(rows)


def test_few_or_short_rows_are_none():
    assert not is_fixed_basis(fourier(256)[:4])
    assert not is_fixed_basis(np.ones((64, 9)))


def test_zeros_are_none():
    assert not is_fixed_basis(np.zeros((64, 128)))
