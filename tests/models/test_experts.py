from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import silu

from cnai.models.experts import Experts, SparseFeedForward, WithLoss, balance_loss
from models_shapes import MIXTRAL, QWEN3_MOE, filled, tokens


def mixture(shape=MIXTRAL):
    return filled(shape).layers[str(shape.layers - 1)].ffn


def one_by_one(ffn, x):
    """Send each token through its experts by itself."""
    out = []
    for token in x.flatten(0, 1):
        share = ffn.router(token).softmax(0)
        weight, chosen = share.topk(ffn.choices)
        weight = weight / weight.sum() if ffn.normed_choice else weight
        parts = []
        for w, e in zip(weight, chosen, strict=True):
            gate, up, down = (
                getattr(ffn.experts, f"{name}_proj")[e] for name in ("gate", "up", "down")
            )
            parts.append(w * (down @ (silu(gate @ token) * (up @ token))))
        out.append(sum(parts))
    return torch.stack(out).view_as(x)


@pytest.mark.parametrize("shape", [MIXTRAL, QWEN3_MOE])
def test_sorted_rows_make_what_each_token_makes_by_itself(shape):
    ffn = mixture(shape)
    x = torch.randn(2, 7, shape.width, requires_grad=True)
    together, apart = ffn(x), one_by_one(ffn, x)
    assert torch.allclose(together, apart, atol=1e-6)
    wanted = torch.autograd.grad(apart.square().sum(), [x, *ffn.parameters()])
    found = torch.autograd.grad(together.square().sum(), [x, *ffn.parameters()])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


@given(st.lists(st.integers(0, 5), min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
def test_an_expert_without_rows_makes_none_and_has_no_gradient(rows):
    experts = Experts(MIXTRAL)
    torch.nn.init.normal_(experts.gate_proj)
    torch.nn.init.normal_(experts.up_proj)
    torch.nn.init.normal_(experts.down_proj)
    out = experts.product(torch.ones(sum(rows), MIXTRAL.width), torch.tensor(rows))
    assert out.shape == (sum(rows), MIXTRAL.width)
    out.sum().backward()
    used = experts.down_proj.grad.abs().sum((1, 2)) > 0
    assert used.tolist() == [count > 0 for count in rows]


def test_even_use_has_the_smallest_balance_loss():
    even = torch.full((2, 4, 4), 0.25)
    chosen = torch.arange(4).view(1, 4, 1).expand(2, 4, 1)
    assert balance_loss(even, chosen).item() == pytest.approx(1)
    crowd = torch.tensor([0.7, 0.1, 0.1, 0.1]).expand(2, 4, 4)
    assert balance_loss(crowd, torch.zeros(2, 4, 1, dtype=torch.int64)).item() == pytest.approx(2.8)


def test_the_balance_loss_of_a_batch_is_the_mean_of_its_sequences():
    share = torch.randn(3, 5, 4).softmax(-1)
    chosen = share.topk(2).indices
    each = [balance_loss(share[row : row + 1], chosen[row : row + 1]) for row in range(3)]
    assert balance_loss(share, chosen).item() == pytest.approx(sum(each).item() / 3)


def test_backward_begins_at_a_joined_loss_too():
    x, weight = torch.ones(3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    joined = WithLoss.apply(x, 5 * weight)
    assert joined.equal(x)
    joined.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]
    assert weight.grad.item() == 5


def test_the_balance_loss_moves_the_router_and_not_the_output():
    ffn, x = mixture(), torch.randn(2, 6, MIXTRAL.width)
    plain = ffn(x)
    ffn.balance_weight = 0.1
    assert ffn(x).equal(plain)
    (without,) = torch.autograd.grad(plain.sum(), ffn.router.weight)
    (with_it,) = torch.autograd.grad(ffn(x).sum(), ffn.router.weight)
    share = ffn.router(x).softmax(-1)
    (alone,) = torch.autograd.grad(
        0.1 * balance_loss(share, share.topk(2).indices), ffn.router.weight
    )
    assert torch.allclose(with_it - without, alone, atol=1e-6)


@pytest.mark.parametrize("shape", [MIXTRAL, QWEN3_MOE])
def test_the_shape_counts_the_parameters(shape):
    decoder = filled(shape)
    assert shape.parameters == sum(one.numel() for one in decoder.parameters())
    sparse = [isinstance(layer.ffn, SparseFeedForward) for layer in decoder.layers.values()]
    assert sum(sparse) == shape.sparse_layers


def test_a_token_goes_through_the_active_parameters_only():
    dense = replace(MIXTRAL, experts=2, experts_per_token=2)
    router = MIXTRAL.layers * 2 * MIXTRAL.width
    assert MIXTRAL.active_parameters == dense.parameters + router
    assert MIXTRAL.layer_flops(8) == dense.layer_flops(8) + 4 * MIXTRAL.width


def test_a_cache_changes_nothing():
    from cnai.models.decoder import KeyValueCache

    decoder, x = filled(QWEN3_MOE).eval(), tokens(QWEN3_MOE)
    cache = KeyValueCache()
    with torch.no_grad():
        pieces = [decoder(piece, cache) for piece in x.split(4, dim=1)]
        assert torch.allclose(torch.cat(pieces, dim=1), decoder(x), atol=1e-5)
