import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from cnai.core.errors import DataError
from cnai.core.llama_config import config_of, shape_from_config, shape_of
from models_shapes import MISTRAL, QWEN2, QWEN3, TINY, shapes


@given(shapes())
@settings(deadline=None)
def test_a_shape_comes_back_from_its_config(shape):
    assert shape_of(json.loads(json.dumps(config_of(shape))), where="x") == shape


def test_a_config_of_transformers_5_gives_its_rope_theta():
    plain = config_of(TINY)
    del plain["rope_theta"]
    plain["rope_parameters"] = {"rope_theta": 500000.0, "rope_type": "default"}
    assert shape_of(plain, where="x").rope_theta == 500000.0


def test_missing_optional_keys_take_the_defaults_of_transformers():
    plain = config_of(TINY)
    for key in ("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta"):
        del plain[key]
    shape = shape_of(plain, where="x")
    assert (shape.kv_heads, shape.norm_eps, shape.rope_theta) == (4, 1e-6, 10000.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"model_type": None}, "None"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "part"),
        ({"head_dim": 5}, "5"),
        ({"head_dim": None, "num_attention_heads": 5}, "5"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"hidden_size": None}, "hidden_size"),
    ],
)
def test_what_the_decoder_cannot_do_is_refused_by_name(change, named):
    with pytest.raises(DataError, match=named) as caught:
        shape_of(config_of(TINY) | change, where="there/config.json")
    assert caught.value.where == "there/config.json"


def test_the_mistral_of_transformers_has_a_window_when_its_config_is_silent():
    plain = config_of(TINY) | {"model_type": "mistral", "max_position_embeddings": 8192}
    with pytest.raises(DataError, match=r"`sliding_window` is 4096.*8192"):
        shape_of(plain, where="x")


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 12},
        {"model_type": "qwen2", "sliding_window": 4},
        {"model_type": "qwen2", "sliding_window": 4, "use_sliding_window": False},
        {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 12},
        {
            "model_type": "qwen3", "use_sliding_window": True, "sliding_window": 4,
            "layer_types": ["full_attention"] * 3,
        },
    ],
)  # fmt: skip
def test_a_window_that_is_off_or_never_outgrown_is_read(change):
    assert shape_of(config_of(TINY) | change, where="x").sequence == TINY.sequence


def test_a_window_allows_the_sequences_that_it_holds():
    plain = config_of(TINY) | {"model_type": "mistral", "sliding_window": 8}
    assert shape_of(plain, where="x", sequence=8).sequence == 8
    with pytest.raises(DataError, match="at most 8"):
        shape_of(plain, where="x", sequence=9)


def test_a_window_of_a_qwen_that_uses_it_is_refused():
    plain = config_of(TINY) | {
        "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4
    }  # fmt: skip
    with pytest.raises(DataError, match="`sliding_window` is 4"):
        shape_of(plain, where="x")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [(TINY, "llama"), (MISTRAL, "llama"), (QWEN2, "qwen2"), (QWEN3, "qwen3")],
)
def test_a_shape_is_written_as_the_family_that_has_its_options(shape, kind):
    config = config_of(shape)
    assert (config["model_type"], config["head_dim"]) == (kind, shape.head_width)


def test_a_mix_that_no_family_has_is_not_written():
    with pytest.raises(DataError, match="biases and normed"):
        config_of(replace(TINY, attention_bias=True, qk_norm=True))


def test_a_qwen3_without_a_head_size_has_the_one_of_transformers():
    plain = config_of(QWEN3)
    del plain["head_dim"]
    assert shape_of(plain, where="x").head_width == 128


def test_a_missing_config_says_what_a_folder_needs(tmp_path: Path):
    with pytest.raises(DataError, match=r"config\.json") as caught:
        shape_from_config(tmp_path)
    assert "safetensors" in caught.value.hint


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(DataError, match="not a valid"):
        shape_from_config(tmp_path)


def test_reading_a_shape_does_not_load_torch():
    program = "import sys, cnai.core.llama_config; sys.exit('torch' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"num_experts_per_tok": 200}, "num_experts_per_tok"), ({"decoder_sparse_step": 0}, "step")],
)
def test_a_mixture_that_makes_no_sense_is_refused(changes, word):
    plain = {
        "model_type": "qwen3_moe", "hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 40,
        "num_attention_heads": 4, "intermediate_size": 24,
    }  # fmt: skip
    assert shape_of(plain, where="x").experts == 128
    with pytest.raises(DataError, match=word):
        shape_of(plain | changes, where="x")


def test_the_number_of_experts_has_two_names():
    plain = {
        "model_type": "qwen3_moe", "hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 40,
        "num_attention_heads": 4, "intermediate_size": 24,
    }  # fmt: skip
    for name in ("num_experts", "num_local_experts"):
        assert shape_of(plain | {name: 16}, where="x").experts == 16
