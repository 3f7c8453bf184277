import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file, save_file

from cnai.compress.decoder.int8 import quantize_int8
from cnai.compress.decoder.packed import is_quantized, pack, packed_bytes, write_packed
from cnai.core.errors import DataError
from cnai.models.huggingface import HuggingFaceWeights, load_decoder
from cnai.models.initialise import parameter_sizes
from cnai.models.packed import unpack
from models_folder import save_folder
from models_shapes import MIXTRAL, QWEN2, QWEN3, QWEN3_MOE, TINY, shapes, tokens

UNTIED = dataclasses.replace(TINY, tied_head=False)
ODD = dataclasses.replace(TINY, ffn_width=23)
UP = "layers.1.ffn.up_proj.weight"

values = arrays.arrays(
    "int8", st.tuples(st.integers(1, 4), st.integers(1, 13)), elements=st.integers(-127, 127)
).map(torch.from_numpy)


def write(source: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    write_packed(folder, HuggingFaceWeights(source), quantize_int8, lambda *_: None)


@given(values)
@settings(deadline=None)
def test_packed_values_come_back(given_values):
    packed = pack(given_values)
    scale = torch.ones(len(given_values), 1)
    assert packed.shape == (given_values.shape[0], -(-given_values.shape[1] // 4))
    assert torch.equal(unpack(packed, scale, given_values.shape[1]), given_values.float())


@pytest.mark.slow
@given(values)
@settings(deadline=None)
def test_packing_is_that_of_compressed_tensors_bit_for_bit(given_values):
    from compressed_tensors.compressors.pack_quantized import pack_to_int32

    assert torch.equal(pack(given_values), pack_to_int32(given_values, 8))


def test_the_matrices_of_the_layers_and_nothing_else_become_int8():
    quantized = {name for name in parameter_sizes(UNTIED) if is_quantized(name)}
    assert len(quantized) == 7 * TINY.layers
    assert all(name.startswith("layers.") for name in quantized)


@pytest.mark.parametrize("shape", [MIXTRAL, QWEN3_MOE], ids=["mixtral", "qwen3_moe"])
def test_each_expert_is_rounded_by_itself_and_the_router_is_not(tmp_path: Path, shape):
    saved = save_folder(tmp_path / "a", shape, stir=True).state_dict()
    write(tmp_path / "a", tmp_path / "b")
    loaded = load_decoder(tmp_path / "b").state_dict()
    name = "layers.1.ffn.experts.down_proj"
    for expert, weight in enumerate(saved[name]):
        matrix = quantize_int8(name, weight)
        assert torch.equal(loaded[name][expert], matrix.values * matrix.scale)
    router = "layers.1.ffn.router.weight"
    assert torch.equal(loaded[router], saved[router].bfloat16().float())


@pytest.mark.parametrize("shape", [TINY, UNTIED, ODD], ids=["tied", "untied", "odd"])
def test_the_reader_gives_what_the_writer_rounded(tmp_path: Path, shape):
    saved = save_folder(tmp_path / "a", shape).state_dict()
    write(tmp_path / "a", tmp_path / "b")
    loaded = load_decoder(tmp_path / "b").state_dict()
    for name, weight in saved.items():
        expected = weight.bfloat16().float() if weight.ndim == 2 else weight
        if is_quantized(name):
            matrix = quantize_int8(name, weight)
            expected = matrix.values * matrix.scale
        assert torch.equal(loaded[name], expected), name


def test_the_config_keeps_its_keys_and_gains_the_scheme(tmp_path: Path):
    save_folder(tmp_path / "a")
    config = json.loads((tmp_path / "a/config.json").read_text()) | {"own": 1}
    (tmp_path / "a/config.json").write_text(json.dumps(config))
    write(tmp_path / "a", tmp_path / "b")
    written = json.loads((tmp_path / "b/config.json").read_text())
    assert written.pop("quantization_config")["format"] == "pack-quantized"
    assert written == config


def test_tokenizer_files_come_along_and_other_weights_do_not(tmp_path: Path):
    save_folder(tmp_path / "a")
    (tmp_path / "a/chat_template.jinja").write_text("{{ x }}")
    (tmp_path / "a/optimizer.bin").write_bytes(b"x" * 100)
    (tmp_path / "a/manifest.json").write_text("{}")
    write(tmp_path / "a", tmp_path / "b")
    assert {file.name for file in (tmp_path / "b").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "generation_config.json", "chat_template.jinja",
    }  # fmt: skip


@given(shapes())
@settings(deadline=None)
def test_the_size_on_the_disk_is_known_before(shape):
    matrices = sum(
        rows * columns for rows, columns in
        (size for name, size in parameter_sizes(shape).items() if is_quantized(name))
    )  # fmt: skip
    assert packed_bytes(shape) == matrices + 2 * (shape.parameters - matrices)


def test_a_broken_embedding_is_refused_by_name(tmp_path: Path):
    save_folder(tmp_path / "a")
    file = tmp_path / "a/model.safetensors"
    whole = load_file(file)
    whole["model.embed_tokens.weight"][0, 0] = torch.nan
    save_file(whole, file)
    with pytest.raises(DataError, match="embedding"):
        write(tmp_path / "a", tmp_path / "b")


def test_packed_weights_of_another_size_are_refused(tmp_path: Path):
    save_folder(tmp_path / "a")
    write(tmp_path / "a", tmp_path / "b")
    file = tmp_path / "b/model.safetensors"
    whole = load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"
    whole[name + "_shape"] = torch.tensor([24, 99])
    save_file(whole, file)
    with pytest.raises(DataError, match="99"):
        HuggingFaceWeights(tmp_path / "b").tensor(UP)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "shape",
    [TINY, UNTIED, ODD, QWEN2, QWEN3, MIXTRAL, QWEN3_MOE],
    ids=["tied", "untied", "odd", "qwen2", "qwen3", "mixtral", "qwen3_moe"],
)
def test_transformers_loads_the_packed_model_with_the_same_logits(tmp_path: Path, shape):
    from transformers import AutoModelForCausalLM

    save_folder(tmp_path / "a", shape, stir=shape not in (TINY, UNTIED, ODD))
    write(tmp_path / "a", tmp_path / "b")
    ours, x = load_decoder(tmp_path / "b"), tokens(shape)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    with torch.no_grad():
        assert torch.allclose(theirs(x).logits, ours(x), atol=1e-4)
