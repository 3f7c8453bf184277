from pathlib import Path

import numpy as np
import pytest

from cnai.compress.folder import Checkpoint, FolderWish, Form, select
from cnai.core.errors import SpecError
from folders_for_tests import drawn, layers, save_shards


def chosen(folder: Path, tensors: dict, wish: FolderWish | None = None, **config) -> dict:
    save_shards(folder, [tensors], **config)
    return select(Checkpoint(folder), wish or FolderWish())


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.weight",
        "encoder.layer.3.attention.output.dense.weight",
        "model.layers.1.mlp.experts.7.w1.weight",
        "model.layers.1.mlp.shared_expert.gate_proj.weight",
        "transformer.h.0.mlp.fc_in.weight",
    ],
)
def test_matrices_of_layers_are_rounded(tmp_path: Path, name):
    assert chosen(tmp_path, {name: drawn((8, 8))})[name].form is Form.W8A16


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("model.embed_tokens.weight", (8, 8), "is an embedding"),
        ("shared.weight", (8, 8), "is an embedding"),
        ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", (8, 8),
         "is an embedding"),
        ("lm_head.weight", (8, 8), "is the head"),
        ("classifier.weight", (8, 8), "is the head"),
        ("model.layers.0.mlp.gate.weight", (8, 8), "chooses the experts"),
        ("model.layers.0.mlp.shared_expert_gate.weight", (1, 8), "chooses the experts"),
        ("model.norm.weight", (8,), "is no matrix of a layer"),
        ("conv.weight", (4, 4, 3, 3), "is no matrix of a layer"),
        ("tiny.weight", (2, 8), "is too small to gain anything"),
        ("layer.bias", (8, 8), "is no matrix of a layer"),
        ("empty.weight", (0, 8), "is no matrix of a layer"),
    ],
)  # fmt: skip
def test_what_is_no_weight_of_a_layer_stays_a_float_and_says_why(tmp_path, name, shape, reason):
    found = chosen(tmp_path, {"a.weight": drawn((8, 8)), name: drawn(shape)})[name]
    assert found.form in {Form.KEPT, Form.BF16}
    assert found.reason == reason


def test_matrices_stored_transposed_are_left_alone(tmp_path: Path):
    tensors = {"h.0.attn.c_attn.weight": drawn((8, 24)), "wte.weight": drawn((8, 8))}
    found = chosen(tmp_path, tensors, model_type="gpt2")["h.0.attn.c_attn.weight"]
    assert found.form is not Form.W8A16
    assert "transposed" in found.reason


def test_embedding_and_head_are_rounded_by_wish(tmp_path: Path):
    tensors = {"embed_tokens.weight": drawn((8, 8)), "lm_head.weight": drawn((8, 8))}
    found = chosen(tmp_path, tensors, FolderWish(embeddings=True))
    assert {one.form for one in found.values()} == {Form.W8A16}


def test_what_is_ignored_is_kept(tmp_path: Path):
    found = chosen(tmp_path, layers(0, 2), FolderWish(ignore=r"blocks\.1\."))
    assert all((one.form is Form.KEPT) or "blocks.0" in name for name, one in found.items())


def test_four_bits_need_inputs_that_a_group_divides(tmp_path: Path):
    tensors = {"a.weight": drawn((8, 64)), "b.weight": drawn((8, 48))}
    found = chosen(tmp_path, tensors, FolderWish(form=Form.W4A16))
    assert (found["a.weight"].form, found["a.weight"].group) == (Form.W4A16, 64)
    assert found["b.weight"].form is Form.W8A16


def test_a_cast_takes_all_floats_and_no_whole_numbers(tmp_path: Path):
    tensors = {"a.weight": drawn((8, 8)), "ids": np.arange(4), "norm": np.ones(4, np.float32)}
    found = chosen(tmp_path, tensors, FolderWish(form=Form.BF16))
    assert [found[name].form for name in ("a.weight", "norm", "ids")] == ["bf16", "bf16", "kept"]


def test_a_folder_with_nothing_to_round_is_refused(tmp_path: Path):
    with pytest.raises(SpecError, match="nothing in"):
        chosen(tmp_path, {"norm.weight": np.ones(8, np.float32)})
