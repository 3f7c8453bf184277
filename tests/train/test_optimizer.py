import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.spec.sections import Train
from cnai.train.optimizer import Optimizer, learning_rate
from cnai.train.shards import Shard


def shard(name: str, value: torch.Tensor) -> Shard:
    parameter = torch.nn.Parameter(value)
    return Shard(name, parameter, torch.nn.Parameter(parameter.detach()), 1)


def test_the_rate_rises_linearly_through_the_warm_up() -> None:
    settings = Train(learning_rate=1.0, warmup_steps=4)
    assert [learning_rate(settings, step, 100) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_the_rate_ends_at_its_final_share(schedule: str) -> None:
    settings = Train(learning_rate=1.0, warmup_steps=4, schedule=schedule, final_rate=0.1)
    assert learning_rate(settings, 99, 100) == pytest.approx(0.1)


def test_wsd_stays_until_its_last_part_and_then_falls() -> None:
    settings = Train(learning_rate=1.0, warmup_steps=2, schedule="wsd", decay=0.2, final_rate=0.0)
    rates = [learning_rate(settings, step, 20) for step in range(20)]
    assert rates[2:16] == [1.0] * 14
    assert rates[16:] == pytest.approx([0.5, 1 - 0.5**0.5, 1 - 0.75**0.5, 0.0])


def test_wsd_that_decays_all_the_way_falls_from_the_start() -> None:
    settings = Train(learning_rate=1.0, warmup_steps=0, schedule="wsd", decay=1.0)
    rates = [learning_rate(settings, step, 10) for step in range(10)]
    assert rates == sorted(rates, reverse=True)


def test_a_constant_rate_stays() -> None:
    settings = Train(learning_rate=0.5, warmup_steps=0, schedule="constant")
    assert {learning_rate(settings, step, 9) for step in range(9)} == {0.5}


@given(
    st.integers(0, 300),
    st.integers(1, 300),
    st.sampled_from(["cosine", "linear", "constant", "wsd"]),
)
def test_the_rate_never_leaves_its_range(warmup: int, steps: int, schedule: str) -> None:
    settings = Train(learning_rate=1.0, warmup_steps=warmup, schedule=schedule)
    assert all(0 < learning_rate(settings, step, steps) <= 1 for step in range(steps))


def test_an_update_equals_torchs_own_with_decay_on_matrices_only() -> None:
    matrix, norm = torch.randn(4, 3), torch.randn(4)
    shards = [shard("a", matrix.clone()), shard("b", norm.clone())]
    settings = Train(weight_decay=0.3)
    optimizer = Optimizer(shards, settings)
    plain = [torch.nn.Parameter(matrix.clone()), torch.nn.Parameter(norm.clone())]
    rule = torch.optim.AdamW(
        [{"params": plain[:1], "weight_decay": 0.3}, {"params": plain[1:], "weight_decay": 0.0}],
        lr=0.01,
        betas=settings.betas,
    )
    for _ in range(3):
        for one, other in zip(shards, plain, strict=True):
            one.parameter.grad = torch.randn_like(other)
            other.grad = one.parameter.grad.clone()
        optimizer.step(0.01)
        rule.step()
        optimizer.zero()
    for one, other in zip(shards, plain, strict=True):
        assert torch.allclose(one.parameter, other, atol=1e-7)


def test_a_parameter_without_a_gradient_counts_as_zero() -> None:
    one = shard("a", torch.ones(2, 2))
    assert one.local_gradient().equal(torch.zeros(2, 2))


def test_the_state_shares_storage_with_the_optimizer() -> None:
    one = shard("a", torch.ones(2, 2))
    optimizer = Optimizer([one], Train())
    state = optimizer.state()
    one.parameter.grad = torch.ones(2, 2)
    optimizer.step(0.1)
    assert state["a.exp_avg"].abs().sum() > 0
    assert state["a.step"] == 1
