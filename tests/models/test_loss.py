import math

import pytest
import torch

from cnai.models.loss import token_loss, token_losses, training_loss


def test_equal_logits_cost_the_logarithm_of_the_vocabulary():
    loss = token_loss(torch.zeros(2, 3, 5), torch.tensor([[0, 1, 2], [3, 4, 0]]))
    assert loss.item() == pytest.approx(math.log(5))


def test_a_certain_right_answer_costs_nothing():
    logits = torch.zeros(1, 1, 4)
    logits[0, 0, 2] = 1e4
    assert token_loss(logits, torch.tensor([[2]])).item() == 0


def test_the_loss_is_the_mean_of_the_losses():
    logits = torch.randn(2, 3, 5)
    targets = torch.tensor([[0, 1, 2], [3, 4, 0]])
    losses = token_losses(logits, targets)
    assert losses.shape == (2, 3)
    assert torch.allclose(token_loss(logits, targets), losses.mean())


def test_losses_stay_with_their_token():
    logits = torch.zeros(1, 2, 3)
    logits[0, 1, 0] = 50
    losses = token_losses(logits, torch.tensor([[1, 0]]))
    assert losses[0, 0].item() == pytest.approx(math.log(3))
    assert losses[0, 1].item() == 0


def test_half_precision_logits_are_summed_in_float32():
    loss = token_loss(torch.zeros(1, 1, 5000, dtype=torch.bfloat16), torch.tensor([[1]]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(5000), rel=1e-6)


def test_without_a_weight_the_training_loss_is_the_cross_entropy():
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[0, 1, 2], [3, 4, 0]])
    minimised, reported = training_loss(logits, targets, 0.0)
    assert minimised is reported
    assert torch.equal(reported, token_loss(logits, targets))


def test_z_loss_adds_the_squared_logarithm_of_the_partition():
    logits = torch.full((1, 2, 4), 3.0)
    minimised, reported = training_loss(logits, torch.tensor([[0, 1]]), 0.1)
    assert reported.item() == pytest.approx(math.log(4))
    assert (minimised - reported).item() == pytest.approx(0.1 * (3 + math.log(4)) ** 2)


def test_z_loss_is_taken_in_float32():
    logits, targets = torch.randn(1, 2, 5).bfloat16(), torch.tensor([[0, 1]])
    assert [one.dtype for one in training_loss(logits, targets, 0.1)] == [torch.float32] * 2
