"""Contradictions of a spec with experts; each rule fires, and none does on a sound mixture."""

import pytest

from cnai.core.spec import load_spec
from mistakes import mistakes

SOUND = {
    "name": "x",
    "model": {"layers": 4, "experts": 8, "experts_per_token": 2, "qk_norm": True},
    "expert_parallel": {"size": 4},
}


def told(**flags):
    return mistakes(
        SOUND, sets=[f"{key.replace('__', '.')}={value}" for key, value in flags.items()]
    )


def test_a_sound_mixture_is_taken():
    shape = load_spec(SOUND).spec.model.shape()
    assert (shape.experts, shape.expert_width) == (8, shape.ffn_width)
    assert load_spec(SOUND).spec.parallel.expert_parallel.size == 4


def test_without_experts_the_shape_is_that_of_a_dense_model():
    assert load_spec({"name": "x"}).spec.model.shape().experts_per_token == 0


@pytest.mark.parametrize(
    ("flags", "key", "value", "hint"),
    [
        ({"model__experts": 0}, "expert_parallel.size", "is 4", "model.experts"),
        ({"model__experts": 0, "model__expert_width": 8}, "expert_width", "is 0", "remove"),
        ({"model__experts_per_token": 9}, "experts_per_token", "only 8 experts", "8 or less"),
        ({"model__sparse_step": 5}, "sparse_step", "none of the 4 layers", "4 or less"),
        ({"model__dense_layers": "[4]"}, "dense_layers", "[4]", "layers of the model"),
        (
            {"model__qk_norm": "false", "model__dense_layers": "[0]"},
            "experts",
            "no architecture",
            "qk_norm: true",
        ),
        (
            {"train__lora__rank": 4, "train__lora__targets": "[up_proj]"},
            "train.lora.targets",
            "up_proj",
            "attention",
        ),
    ],
)
def test_a_contradiction_names_key_value_and_what_works(flags, key, value, hint):
    found = told(**flags)
    assert any(key in one and value in one and hint in one for one in found), found


def test_a_mixtral_needs_no_normed_queries():
    assert told(model__qk_norm="false") == []
