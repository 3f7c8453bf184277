"""What is written in each form is what transformers and our reader compute with."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file, save_file

from cnai.compress.channels import quantize_channels
from cnai.compress.decoder import Guard, quantize
from cnai.compress.folder import Checkpoint, FolderWish, Form, select, stream, unfinished
from cnai.compress.folder.rounding import packed
from cnai.core.errors import DataError
from cnai.models.huggingface import HuggingFaceWeights, load_decoder
from cnai.models.packed import unpack
from models_folder import save_folder
from models_shapes import MIXTRAL, QWEN2, QWEN3, QWEN3_MOE, TINY, tokens

UNTIED = dataclasses.replace(TINY, tied_head=False)
ODD = dataclasses.replace(TINY, ffn_width=23)
WIDE = dataclasses.replace(TINY, width=64, ffn_width=96)
SHAPES = {
    "tied": TINY, "untied": UNTIED, "odd": ODD, "qwen2": QWEN2, "qwen3": QWEN3, "wide": WIDE,
    "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE,
}  # fmt: skip
UP = "layers.1.ffn.up_proj.weight"


def write(source: Path, folder: Path, form: Form = Form.W8A16) -> None:
    checkpoint = Checkpoint(source)
    with unfinished(folder) as growing:
        stream(checkpoint, growing, select(checkpoint, FolderWish(form=form)))
        growing.publish()


@given(st.data(), st.sampled_from([4, 8]))
@settings(deadline=None)
def test_packed_values_come_back(data, bits):
    most = (1 << (bits - 1)) - 1
    shape = st.tuples(st.integers(1, 4), st.integers(1, 13))
    values = data.draw(arrays.arrays("int8", shape, elements=st.integers(-most, most)))
    words = packed(values, bits)
    assert words.shape == (len(values), -(-values.shape[1] * bits // 32))
    back = unpack(torch.from_numpy(words), values.shape[1], bits=bits)
    assert torch.equal(back, torch.from_numpy(values))


@pytest.mark.slow
@given(st.data(), st.sampled_from([4, 8]))
@settings(deadline=None)
def test_packing_is_that_of_compressed_tensors_bit_for_bit(data, bits):
    from compressed_tensors.compressors.pack_quantized import pack_to_int32

    most = (1 << (bits - 1)) - 1
    shape = st.tuples(st.integers(1, 4), st.integers(1, 13))
    values = data.draw(arrays.arrays("int8", shape, elements=st.integers(-most - 1, most)))
    theirs = pack_to_int32(torch.from_numpy(values), bits)
    assert torch.equal(torch.from_numpy(packed(values, bits)), theirs)


@pytest.mark.parametrize("shape", [TINY, UNTIED, ODD], ids=["tied", "untied", "odd"])
def test_the_reader_gives_what_the_channels_were_rounded_to(tmp_path: Path, shape):
    saved = save_folder(tmp_path / "a", shape).state_dict()
    write(tmp_path / "a", tmp_path / "b")
    loaded = load_decoder(tmp_path / "b").state_dict()
    for name, weight in saved.items():
        expected = weight.bfloat16().float() if weight.ndim == 2 else weight
        if "_proj" in name:
            expected = torch.from_numpy(quantize_channels(weight.numpy(), (0,)).restored())
        assert torch.equal(loaded[name], expected), name


@pytest.mark.parametrize("shape", [MIXTRAL, QWEN3_MOE], ids=["mixtral", "qwen3_moe"])
def test_each_expert_is_rounded_by_itself_and_the_router_is_not(tmp_path: Path, shape):
    saved = save_folder(tmp_path / "a", shape, stir=True).state_dict()
    write(tmp_path / "a", tmp_path / "b")
    loaded = load_decoder(tmp_path / "b").state_dict()
    name = "layers.1.ffn.experts.down_proj"
    for expert, weight in enumerate(saved[name]):
        rounded = quantize_channels(weight.numpy(), (0,)).restored()
        assert torch.equal(loaded[name][expert], torch.from_numpy(rounded))
    router = "layers.1.ffn.router.weight"
    assert torch.equal(loaded[router], saved[router].bfloat16().float())


@pytest.mark.parametrize("precision", ["auto", "int4", "fp8"])
@pytest.mark.parametrize("shape", [MIXTRAL, QWEN3_MOE], ids=["mixtral", "qwen3_moe"])
def test_the_guard_knows_experts(tmp_path: Path, shape, precision):
    save_folder(tmp_path / "a", shape, stir=True)
    guard = Guard(precision=precision, allowed_loss=0.5)
    artifact = quantize(tmp_path / "a", tmp_path / "b", tokens(shape, rows=4).numpy(), guard=guard)
    report = json.loads((tmp_path / "b/report.json").read_text())
    assert artifact.quality.passed
    experts = {one["form"] for one in report["tensors"] if ".experts." in one["name"]}
    assert experts <= {"w8a16", "fp8", "bf16"}


def test_packed_weights_of_another_size_are_refused(tmp_path: Path):
    save_folder(tmp_path / "a")
    write(tmp_path / "a", tmp_path / "b")
    file = tmp_path / "b/model.safetensors"
    whole = load_file(file)
    whole["model.layers.1.mlp.up_proj.weight_shape"] = torch.tensor([24, 99])
    save_file(whole, file)
    with pytest.raises(DataError, match="99"):
        HuggingFaceWeights(tmp_path / "b").tensor(UP)


def test_scales_of_another_size_are_refused(tmp_path: Path):
    save_folder(tmp_path / "a")
    write(tmp_path / "a", tmp_path / "b")
    file = tmp_path / "b/model.safetensors"
    whole = load_file(file)
    whole["model.layers.1.mlp.up_proj.weight_scale"] = torch.ones(3, 1)
    save_file(whole, file)
    with pytest.raises(DataError, match="scales of"):
        HuggingFaceWeights(tmp_path / "b").tensor(UP)


def test_a_scheme_that_is_not_read_is_refused(tmp_path: Path):
    save_folder(tmp_path / "a")
    write(tmp_path / "a", tmp_path / "b")
    config = json.loads((tmp_path / "b/config.json").read_text())
    config["quantization_config"]["config_groups"]["group_0"]["weights"]["symmetric"] = False
    (tmp_path / "b/config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="not read"):
        load_decoder(tmp_path / "b")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (kind, form)
        for kind, shape in SHAPES.items()
        for form in (Form.W8A16, Form.W8A8, Form.W4A16, Form.FP8, Form.BF16)
        # The guard gives experts no activations in INT8, and transformers loads none.
        if not (shape.experts and form is Form.W8A8)
    ],
)
def test_transformers_loads_every_form_with_the_same_logits(tmp_path: Path, kind, form):
    shape = SHAPES[kind]
    save_folder(tmp_path / "a", shape, stir=shape in (QWEN2, QWEN3, MIXTRAL, QWEN3_MOE))
    write(tmp_path / "a", tmp_path / "b", form)
    assert_same_logits(tmp_path / "b", shape, rounds_inputs=form is Form.W8A8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["auto", "int4"])
def test_transformers_loads_mixed_forms_with_the_same_logits(tmp_path: Path, precision):
    save_folder(tmp_path / "a", WIDE, stir=True)
    rows = tokens(WIDE, rows=6).numpy()
    guard = Guard(precision=precision, allowed_loss=0.01 if precision == "auto" else 0.1)
    quantize(tmp_path / "a", tmp_path / "b", rows, guard=guard)
    assert_same_logits(tmp_path / "b", WIDE, rounds_inputs=precision == "auto")


def test_activations_are_rounded_where_the_config_says_so(tmp_path: Path):
    save_folder(tmp_path / "a")
    write(tmp_path / "a", tmp_path / "b", Form.W8A8)
    write(tmp_path / "a", tmp_path / "c", Form.W8A16)
    both, weights = load_decoder(tmp_path / "b"), load_decoder(tmp_path / "c")
    for name, value in weights.state_dict().items():
        assert torch.equal(both.state_dict()[name], value)
    with torch.no_grad():
        assert not torch.equal(both(tokens(TINY)), weights(tokens(TINY)))


def assert_same_logits(folder: Path, shape, *, rounds_inputs: bool) -> None:
    """Compare; an activation halfway between two whole numbers may be rounded either way."""
    from transformers import AutoModelForCausalLM

    ours, x = load_decoder(folder), tokens(shape)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        change = (theirs(x).logits - ours(x)).abs()
    assert change.mean() < (2e-3 if rounds_inputs else 1e-5)
    assert change.max() < (0.05 if rounds_inputs else 1e-4)
