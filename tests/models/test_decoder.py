import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cnai.models.decoder import Decoder, KeyValueCache
from cnai.models.loss import token_loss
from models_shapes import TINY, filled, shapes, tokens


def logits(decoder: Decoder, x: torch.Tensor, cache: KeyValueCache | None = None) -> torch.Tensor:
    with torch.no_grad():
        return decoder(x, cache)


@given(shapes())
@settings(max_examples=40, deadline=None)
def test_the_shape_counts_the_parameters_of_the_real_model(shape):
    assert sum(weight.numel() for weight in Decoder(shape).parameters()) == shape.parameters


@given(shapes(), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_the_shape_counts_the_flops_of_a_forward_of_the_real_model(shape, rows):
    # The math kernel is asked for because the counter does not know the CPU's fused one.
    x = tokens(shape, rows)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits(filled(shape), x)
    per_token = shape.layers * shape.layer_flops(shape.sequence) + shape.head_flops()
    assert counter.get_total_flops() == x.numel() * per_token


def test_forward_and_backward_cost_what_the_shape_says():
    decoder, x = filled(TINY), tokens(TINY)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        token_loss(decoder(x), x).backward()
    assert counter.get_total_flops() == x.numel() * TINY.train_flops_per_token()


@given(shapes(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_later_token_never_changes_earlier_logits(shape, data):
    decoder, x = filled(shape), tokens(shape)
    place = data.draw(st.integers(1, shape.sequence - 1))
    changed = x.clone()
    changed[:, place] = (changed[:, place] + 1) % shape.vocab
    assert torch.equal(logits(decoder, x)[:, :place], logits(decoder, changed)[:, :place])


def test_an_earlier_token_does_change_later_logits():
    decoder, x = filled(TINY), tokens(TINY)
    changed = x.clone()
    changed[:, 0] = (changed[:, 0] + 1) % TINY.vocab
    assert not torch.allclose(logits(decoder, x)[:, -1], logits(decoder, changed)[:, -1])


@given(shapes(), st.data())
@settings(max_examples=25, deadline=None)
def test_reading_in_pieces_with_a_cache_equals_reading_at_once(shape, data):
    decoder, x = filled(shape), tokens(shape)
    cut = data.draw(st.integers(1, shape.sequence - 1))
    cache = KeyValueCache()
    pieces = [x[:, :cut], *x[:, cut:].split(data.draw(st.integers(1, 4)), dim=1)]
    read = torch.cat([logits(decoder, piece, cache) for piece in pieces], dim=1)
    assert cache.length == shape.sequence
    assert torch.allclose(read, logits(decoder, x), atol=1e-5)


@given(shapes(), st.data())
@settings(max_examples=25, deadline=None)
def test_two_parts_equal_the_whole(shape, data):
    shape = dataclasses.replace(shape, layers=shape.layers + 1)
    cut = data.draw(st.integers(1, shape.layers - 1))
    whole = filled(shape)
    first, last = Decoder(shape, end_layer=cut), Decoder(shape, first_layer=cut)
    for part in (first, last):
        part.load_state_dict({name: whole.state_dict()[name] for name in part.state_dict()})
    x = tokens(shape)
    assert torch.equal(logits(last, logits(first, x)), logits(whole, x))


def test_a_middle_part_owns_neither_embedding_nor_head():
    names = {name.split(".")[0] for name in Decoder(TINY, first_layer=1, end_layer=2).state_dict()}
    assert names == {"layers"}


def test_the_parts_name_their_weights_as_the_whole_does():
    parts = Decoder(TINY, end_layer=1), Decoder(TINY, first_layer=1)
    assert {*parts[0].state_dict(), *parts[1].state_dict()} == {*Decoder(TINY).state_dict()}


def test_a_tied_head_is_lost_off_the_meta_device_and_tied_again():
    with torch.device("meta"):
        decoder = Decoder(TINY)
    decoder.to_empty(device="cpu")
    decoder.tie_head()
    assert decoder.head.weight is decoder.embedding.weight


def test_half_precision_stays_half_precision():
    assert logits(filled(TINY).bfloat16(), tokens(TINY)).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_logits_are_those_of_transformers(tied, kv_heads):
    from transformers import LlamaConfig, LlamaForCausalLM

    from cnai.core.llama_config import config_of
    from cnai.models.huggingface import huggingface_name

    shape = dataclasses.replace(TINY, kv_heads=kv_heads, tied_head=tied, rope_theta=500.0)
    decoder, x = filled(shape), tokens(shape)
    theirs = LlamaForCausalLM(LlamaConfig(**config_of(shape))).eval()
    state = {huggingface_name(name): value for name, value in decoder.state_dict().items()}
    theirs.load_state_dict(state)
    with torch.no_grad():
        assert torch.allclose(theirs(x).logits, decoder(x), atol=1e-5)
