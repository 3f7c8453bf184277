import math

import numpy as np
import pytest
import torch
from torch import nn

from cnai.core.errors import DataError
from cnai.models.loss import token_loss
from cnai.models.perplexity import bits_per_byte, perplexity, sequence_losses
from models_shapes import TINY, filled, tokens


def rows(count: int) -> np.ndarray:
    return tokens(TINY, rows=count, length=9).numpy()


def test_each_row_gets_its_own_mean_loss():
    model, given = filled(TINY), rows(3)
    x = torch.from_numpy(given[1:2])
    expected = token_loss(model(x[:, :-1]), x[:, 1:]).item()
    assert sequence_losses(model, given)[1] == pytest.approx(expected, rel=1e-6)


def test_the_batch_size_changes_nothing():
    model, given = filled(TINY), rows(5)
    whole = sequence_losses(model, given, batch=8)
    assert whole.shape == (5,)
    assert whole.dtype == np.float64
    assert np.allclose(whole, sequence_losses(model, given, batch=2), rtol=1e-6)


def test_the_model_runs_in_evaluation_mode_and_is_left_as_it_was():
    model = nn.Sequential(nn.Embedding(40, 4), nn.Dropout(0.9), nn.Linear(4, 40))
    given = rows(2)
    assert np.array_equal(sequence_losses(model, given), sequence_losses(model, given))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_unsigned_tokens_are_taken_too():
    model, given = filled(TINY), rows(2)
    small = given.astype(np.uint16)
    assert np.array_equal(sequence_losses(model, small), sequence_losses(model, given))


@pytest.mark.parametrize("shape", [(0, 9), (3, 1), (9,)])
def test_rows_without_anything_to_predict_are_refused(shape):
    with pytest.raises(DataError, match=r"no tokens .*\("):
        sequence_losses(filled(TINY), np.zeros(shape, np.int64))


def test_perplexity_of_equal_guesses_is_their_number():
    assert perplexity(np.full(4, math.log(7))) == pytest.approx(7)


def test_a_huge_loss_gives_an_infinite_perplexity_and_a_lost_one_none():
    assert perplexity(np.array([1e4])) == math.inf
    assert math.isnan(perplexity(np.array([math.nan, 1.0])))


def test_bits_per_byte_counts_the_bytes_and_not_the_tokens():
    losses = np.array([math.log(2), 3 * math.log(2)])
    assert bits_per_byte(losses, 8, np.array([20, 12])) == pytest.approx(1.0)
