import dataclasses
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings

from cnai.models.decoder import Decoder
from cnai.models.initialise import fill, initial_weights, parameter_sizes
from cnai.models.loss import token_loss
from models_shapes import MIXTRAL, TINY, filled, shapes, tokens

NAME = "layers.1.attention.q_proj.weight"


def test_a_name_gives_the_same_values_in_whatever_order_they_are_asked():
    first, second = initial_weights(TINY, 3), initial_weights(TINY, 3)
    second("embedding.weight")
    assert torch.equal(first(NAME), second(NAME))


@pytest.mark.slow
def test_another_process_with_another_hash_seed_makes_the_same_values():
    program = (
        "from models_shapes import TINY; from cnai.models.initialise import initial_weights;"
        f"print(initial_weights(TINY, 3)({NAME!r}).double().sum().item().hex())"
    )
    env = {"PYTHONHASHSEED": "5", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == initial_weights(TINY, 3)(NAME).double().sum().item().hex()


@pytest.mark.parametrize(
    ("seed", "name"), [(4, NAME), (3, "layers.2.attention.q_proj.weight")], ids=["seed", "layer"]
)
def test_another_seed_or_layer_gives_other_values(seed, name):
    assert not torch.equal(initial_weights(TINY, 3)(NAME), initial_weights(TINY, seed)(name))


def test_norms_are_one():
    assert torch.equal(initial_weights(TINY, 0)("norm.weight"), torch.ones(TINY.width))


def test_matrices_have_the_deviation_of_the_scheme_and_residual_outputs_less():
    shape = dataclasses.replace(TINY, width=256, ffn_width=256, layers=8)
    weights = initial_weights(shape, 0)
    expected = math.sqrt(2 / (5 * 256))
    assert weights("layers.0.ffn.up_proj.weight").std().item() == pytest.approx(expected, rel=0.02)
    for name in ("layers.0.attention.o_proj.weight", "layers.7.ffn.down_proj.weight"):
        assert weights(name).std().item() == pytest.approx(expected / 4, rel=0.02)


def test_a_tied_head_is_the_embedding():
    weights = initial_weights(TINY, 0)
    assert torch.equal(weights("head.weight"), weights("embedding.weight"))


def test_an_unknown_name_is_refused():
    with pytest.raises(KeyError, match=r"layers\.3"):
        initial_weights(TINY, 0)("layers.3.attention.q_proj.weight")


@given(shapes())
@settings(max_examples=25, deadline=None)
def test_every_parameter_of_the_model_has_its_size(shape):
    weights = initial_weights(shape, 0)
    for name, parameter in Decoder(shape).named_parameters():
        assert weights(name).shape == parameter.shape == parameter_sizes(shape)[name]


def test_fill_sets_every_parameter():
    decoder = Decoder(TINY)
    fill(decoder, lambda name: initial_weights(TINY, 1)(name) * 0 + 5)
    assert all(bool((parameter == 5).all()) for parameter in decoder.parameters())


def test_a_part_of_the_model_is_filled_as_the_whole():
    whole = filled(TINY).state_dict()
    part = Decoder(TINY, first_layer=2)
    fill(part, initial_weights(TINY, 0))
    assert all(torch.equal(whole[name], value) for name, value in part.state_dict().items())


def test_the_first_loss_is_that_of_a_model_that_knows_nothing():
    x = tokens(TINY, rows=16)
    loss = token_loss(filled(TINY)(x[:, :-1]), x[:, 1:])
    assert loss.item() == pytest.approx(math.log(TINY.vocab), abs=0.5)


def test_experts_differ_and_a_part_of_a_stack_is_that_of_the_whole():
    weights, name = initial_weights(MIXTRAL, 0), "layers.2.ffn.experts.up_proj"
    whole = weights(name)
    assert whole.shape == (4, 24, 16)
    assert not whole[0].equal(whole[1])
    index = (slice(1, 3), slice(4, 8), slice(None))
    assert weights.part(name, index).equal(whole[index])
    assert weights.part(name, (slice(4, 4), *index[1:])).shape == (0, 4, 16)


def test_a_part_of_a_matrix_is_that_of_the_whole():
    weights, index = initial_weights(TINY, 0), (slice(2, 5), slice(None))
    assert weights.part("head.weight", index).equal(weights("embedding.weight")[index])
