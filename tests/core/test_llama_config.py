import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from cnai.core.errors import DataError
from cnai.core.llama_config import config_of, shape_from_config, shape_of
from models_shapes import TINY, shapes


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
        ({"head_dim": 32}, "32"),
        ({"num_attention_heads": 5}, "5"),
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
