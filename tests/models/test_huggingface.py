import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import load_file, save_file

from cnai.core.errors import DataError, RunError
from cnai.models.huggingface import (
    HuggingFaceWeights,
    huggingface_name,
    load_decoder,
    parameter_name,
    save_model,
    stored_names,
    write_tensors,
)
from cnai.models.initialise import parameter_sizes
from models_folder import TOKENIZER, save_folder, stir_parameters
from models_shapes import (
    MISTRAL,
    MIXTRAL,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    QWEN3_MOE_DENSE_LAYER,
    TINY,
    filled,
    shapes,
    tokens,
)

UNTIED = dataclasses.replace(TINY, tied_head=False)
FAMILIES = {
    "llama": TINY, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3, "mixtral": MIXTRAL,
    "qwen3_moe": QWEN3_MOE, "qwen3_moe with a dense layer": QWEN3_MOE_DENSE_LAYER,
}  # fmt: skip
UP = "layers.1.ffn.up_proj.weight"


@given(shapes())
@settings(deadline=None)
def test_every_name_has_its_way_back(shape):
    for name in parameter_sizes(shape):
        assert parameter_name(huggingface_name(name)) == name


@pytest.mark.parametrize("shape", [MIXTRAL, QWEN3_MOE], ids=["mixtral", "qwen3_moe"])
def test_every_expert_of_a_stack_has_a_name_that_leads_back(shape):
    for name in parameter_sizes(shape):
        stored = stored_names(name, shape)
        assert len(stored) == (shape.experts if "experts" in name else 1)
        assert {parameter_name(one) for one in stored} == {name}


def test_a_slice_of_a_stack_reads_the_experts_in_it(tmp_path: Path):
    saved = save_folder(tmp_path, QWEN3_MOE, stir=True)
    index = (slice(1, 3), slice(4, 10), slice(None))
    name = "layers.3.ffn.experts.gate_proj"
    part = HuggingFaceWeights(tmp_path).part(name, index)
    assert torch.equal(part, saved.state_dict()[name][index])
    empty = HuggingFaceWeights(tmp_path).part(name, (slice(5, 5), *index[1:]))
    assert empty.shape == (0, 6, 16)


def test_a_foreign_tensor_has_no_name_here():
    assert parameter_name("model.layers.0.self_attn.rotary_emb.inv_freq") is not None
    assert parameter_name("model.layers.0.router.weight") is None
    assert parameter_name("transformer.h.0.attn.weight") is None


@pytest.mark.parametrize("shape", [TINY, UNTIED], ids=["tied", "untied"])
def test_a_saved_decoder_comes_back_bit_for_bit(tmp_path: Path, shape):
    saved = save_folder(tmp_path, shape)
    loaded = load_decoder(tmp_path)
    assert loaded.shape == shape
    assert not loaded.training
    assert (loaded.head.weight is loaded.embedding.weight) == shape.tied_head
    x = tokens(shape)
    with torch.no_grad():
        assert torch.equal(loaded(x), saved(x))


def test_a_tied_head_is_stored_once(tmp_path: Path):
    save_folder(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_are_read_as_float32(tmp_path: Path, dtype):
    saved = save_folder(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({name: value.to(dtype) for name, value in load_file(file).items()}, file)
    tensor = HuggingFaceWeights(tmp_path).tensor(UP)
    assert tensor.dtype == torch.float32
    assert torch.equal(tensor, saved.state_dict()[UP].to(dtype).float())


def shard(folder: Path) -> None:
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(whole)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: whole[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in halves.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_found_through_the_index(tmp_path: Path):
    saved = save_folder(tmp_path)
    shard(tmp_path)
    loaded = load_decoder(tmp_path).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in saved.state_dict().items())


def test_a_missing_shard_is_named(tmp_path: Path):
    save_folder(tmp_path)
    shard(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(DataError, match=r"b\.safetensors"):
        HuggingFaceWeights(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path):
    save_folder(tmp_path / "a")
    other = dataclasses.replace(TINY, ffn_width=32)
    save_folder(tmp_path / "b", other)
    (tmp_path / "a/config.json").write_bytes((tmp_path / "b/config.json").read_bytes())
    with pytest.raises(DataError, match="proj") as caught:
        load_decoder(tmp_path / "a")
    assert "24" in caught.value.message
    assert "32" in caught.value.message


def test_a_missing_tensor_is_named(tmp_path: Path):
    save_folder(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = load_file(file)
    del whole["model.norm.weight"]
    save_file(whole, file)
    with pytest.raises(DataError, match=r"model\.norm\.weight"):
        load_decoder(tmp_path)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-40], lambda raw: b"\x09" + raw[1:]])
def test_a_damaged_file_is_named(tmp_path: Path, damage):
    save_folder(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=r"model\.safetensors"):
        load_decoder(tmp_path)


def test_a_folder_without_safetensors_says_how_to_get_them(tmp_path: Path):
    save_folder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"no \*\.safetensors") as caught:
        HuggingFaceWeights(tmp_path)
    assert "save_pretrained" in caught.value.hint


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "compressed-tensors"])
def test_another_quantization_is_refused_by_name(tmp_path: Path, method):
    save_folder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=method):
        HuggingFaceWeights(tmp_path)


def test_an_incomplete_state_is_not_saved(tmp_path: Path):
    state = filled(TINY).state_dict()
    del state[UP]
    with pytest.raises(DataError, match=UP):
        save_model(tmp_path, TINY, state, TOKENIZER)


def test_a_tokenizer_that_is_no_json_is_not_saved(tmp_path: Path):
    with pytest.raises(DataError, match="not a valid"):
        save_model(tmp_path, TINY, filled(TINY).state_dict(), b"nonsense")
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_without_the_end_token_leaves_it_open(tmp_path: Path):
    save_model(tmp_path, TINY, filled(TINY).state_dict(), b"{}")
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] is None


def test_views_into_one_buffer_are_saved_apart(tmp_path: Path):
    buffer = torch.arange(8.0)
    write_tensors(tmp_path / "x.safetensors", {"a": buffer[:4], "b": buffer[4:]})
    assert torch.equal(load_file(tmp_path / "x.safetensors")["b"], buffer[4:])


def test_a_place_that_is_not_there_is_a_run_error(tmp_path: Path):
    with pytest.raises(RunError, match=r"x\.safetensors"):
        write_tensors(tmp_path / "absent" / "x.safetensors", {"a": torch.ones(1)})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_loads_the_folder_with_the_same_logits(tmp_path: Path, family, tied):
    from transformers import AutoModelForCausalLM

    shape = dataclasses.replace(FAMILIES[family], tied_head=tied)
    saved, x = save_folder(tmp_path, shape, stir=True), tokens(shape)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.allclose(theirs(x).logits, saved(x), atol=1e-4)
    assert theirs.generation_config.eos_token_id == 0
    assert theirs.config.rope_parameters["rope_theta"] == shape.rope_theta


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_the_tokenizer(tmp_path: Path):
    from transformers import AutoTokenizer

    save_folder(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("abba")["input_ids"] == [3, 2, 1]
    assert tokenizer.eos_token_id == 0
    assert tokenizer.decode([3, 2, 1]) == "abba"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"])
def test_a_folder_that_transformers_saved_is_read(tmp_path: Path, kind, tied):
    from transformers import AutoConfig, AutoModelForCausalLM

    from cnai.core.llama_config import config_of

    shape = FAMILIES["mistral" if kind == "mistral" else kind]
    plain = config_of(dataclasses.replace(shape, tied_head=tied))
    plain |= {"model_type": kind, "sliding_window": None}
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**plain)).eval()
    stir_parameters(theirs)
    theirs.save_pretrained(tmp_path, max_shard_size="2KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    ours, x = load_decoder(tmp_path), tokens(shape)
    with torch.no_grad():
        assert torch.allclose(theirs(x).logits, ours(x), atol=1e-5)


def test_a_missing_expert_is_named(tmp_path: Path):
    save_folder(tmp_path, QWEN3_MOE)
    file, lost = tmp_path / "model.safetensors", "model.layers.1.mlp.experts.3.up_proj.weight"
    tensors = load_file(file)
    del tensors[lost]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"experts\.3\.up_proj"):
        load_decoder(tmp_path)


def test_an_expert_of_another_size_is_refused(tmp_path: Path):
    save_folder(tmp_path, MIXTRAL)
    file, wrong = (
        tmp_path / "model.safetensors",
        "model.layers.0.block_sparse_moe.experts.1.w2.weight",
    )
    tensors = load_file(file)
    tensors[wrong] = tensors[wrong][:, 1:].contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"experts\.1\.w2.*\(16, 24\)"):
        load_decoder(tmp_path)
