"""Adapters start as nothing, are counted right, and merge into the weights."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.adapters import Adapters
from cnai.models import (
    AdaptedWeights,
    Decoder,
    adapter_sizes,
    add_adapters,
    fill,
    initial_weights,
    merged,
)
from models_shapes import TINY, filled, shapes, tokens

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
BOTH = Adapters(rank=2, alpha=4.0, targets=("q_proj", "down_proj"))


def adapted(adapters=BOTH, shape=TINY):
    decoder = Decoder(shape)
    add_adapters(decoder, adapters)
    fill(decoder, AdaptedWeights(initial_weights(shape, 0), shape, adapters, 1))
    return decoder


def trained_of(decoder):
    return {name: value for name, value in decoder.named_parameters() if value.requires_grad}


def test_adapters_change_nothing_before_training():
    with torch.no_grad():
        assert torch.equal(adapted()(tokens(TINY)), filled(TINY)(tokens(TINY)))


def test_only_adapters_are_trained():
    names = set(trained_of(adapted()))
    assert names == set(adapter_sizes(TINY, BOTH))
    assert {name.split(".", 2)[2] for name in names} == {
        "attention.q_proj.a.weight", "attention.q_proj.b.weight", "ffn.down_proj.a.weight",
        "ffn.down_proj.b.weight",
    }  # fmt: skip


def test_backward_reaches_the_adapters_and_no_frozen_weight():
    decoder = adapted()
    decoder(tokens(TINY)).sum().backward()
    assert all(value.grad is not None for value in trained_of(decoder).values())
    assert decoder.embedding.weight.grad is None


@given(shapes(), st.sets(st.sampled_from(ALL), min_size=1), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_the_count_is_that_of_the_real_module(shape, targets, rank):
    adapters = Adapters(rank=rank, alpha=1.0, targets=tuple(targets))
    real = sum(torch.Size(size).numel() for size in adapter_sizes(shape, adapters).values())
    assert real == shape.layers * adapters.layer_parameters(shape)


def test_a_merged_model_gives_the_logits_of_the_adapted_one():
    decoder = adapted()
    with torch.no_grad():
        for value in trained_of(decoder).values():
            value.add_(torch.randn_like(value), alpha=0.1)
    state = merged(initial_weights(TINY, 0), trained_of(decoder), TINY, BOTH)
    whole = Decoder(TINY)
    fill(whole, state.__getitem__)
    with torch.no_grad():
        assert torch.allclose(whole(tokens(TINY)), decoder(tokens(TINY)), atol=1e-5)
        assert not torch.allclose(whole(tokens(TINY)), filled(TINY)(tokens(TINY)), atol=1e-2)


def test_biases_stay_with_their_matrix():
    shape = dataclasses.replace(TINY, attention_bias=True)
    assert "layers.0.attention.q_proj.base.bias" in dict(adapted(shape=shape).named_parameters())
    state = merged(initial_weights(shape, 0), trained_of(adapted(shape=shape)), shape, BOTH)
    assert torch.equal(state["layers.0.attention.q_proj.bias"], torch.zeros(16))


@pytest.mark.parametrize("name", ["layers.0.attention.q_proj.a.weight", "embedding.weight"])
def test_a_part_of_a_first_value_is_the_slice_of_the_whole(name):
    weights = AdaptedWeights(initial_weights(TINY, 0), TINY, BOTH, 1)
    index = (slice(1, 2), slice(3, 9))
    assert torch.equal(weights.part(name, index), weights(name)[index])
