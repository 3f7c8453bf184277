"""Muon's arithmetic, against the singular values and against torch's own."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.spec.sections import Train
from cnai.train.muon import orthogonalised, scaled
from cnai.train.optimizer import Optimizer
from cnai.train.shards import Shard


def shard(name: str, value: torch.Tensor) -> Shard:
    parameter = torch.nn.Parameter(value)
    return Shard(name, parameter, torch.nn.Parameter(parameter.detach()), 1)


def drawn(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@given(st.integers(2, 24), st.integers(2, 24), st.floats(1e-6, 1e6), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_directions_stay_and_their_lengths_become_alike(rows, columns, size, seed):
    matrix = drawn(rows, columns, seed)
    u, lengths, vh = torch.linalg.svd(matrix, full_matrices=False)
    after = torch.diag(u.T @ orthogonalised(matrix * size) @ vh.T)
    strong = lengths > 0.1 * lengths[0]
    assert ((after[strong] > 0.5) & (after[strong] < 1.3)).all()


def test_a_zero_gradient_moves_nothing():
    assert orthogonalised(torch.zeros(3, 5)).equal(torch.zeros(3, 5))


@pytest.mark.parametrize("size", [(64, 64), (128, 32), (32, 128)])
def test_an_update_is_about_as_large_as_one_of_adamw(size):
    update = scaled(drawn(*size))
    assert float(update.square().mean().sqrt()) == pytest.approx(0.2, rel=0.25)


def test_the_update_is_that_of_torchs_muon():
    start = drawn(24, 16)
    one = shard("layers.0.ffn.up_proj.weight", start.clone())
    settings = Train(optimizer="muon", weight_decay=0.1, momentum=0.95)
    optimizer = Optimizer([one], settings)
    other = torch.nn.Parameter(start.clone())
    rule = torch.optim.Muon(
        [other], lr=0.02, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(3):
        gradient = drawn(24, 16, step + 1)
        one.parameter.grad, other.grad = gradient.clone(), gradient.clone()
        optimizer.step(0.02)
        rule.step()
    # torch iterates in bfloat16.
    with torch.no_grad():
        apart, moved = (one.parameter - other).norm(), (other - start).norm()
    assert apart < 0.03 * moved


def test_only_matrices_of_layers_are_muons():
    shards = [
        shard("layers.0.ffn.up_proj.weight", drawn(4, 4)),
        shard("embedding.weight", drawn(4, 4)),
        shard("layers.0.ffn_norm.weight", torch.ones(4)),
    ]
    kinds = set(Optimizer(shards, Train(optimizer="muon")).state())
    assert kinds == {
        "layers.0.ffn.up_proj.weight.momentum",
        *(f"{s.name}.{key}" for s in shards[1:] for key in ("step", "exp_avg", "exp_avg_sq")),
    }


def test_a_part_without_hidden_matrices_has_adamw_alone():
    optimizer = Optimizer([shard("embedding.weight", drawn(4, 4))], Train(optimizer="muon"))
    assert math.prod(optimizer.state()["embedding.weight.exp_avg"].shape) == 16
