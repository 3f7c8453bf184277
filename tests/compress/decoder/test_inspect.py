import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import save_file

from cnai.compress.decoder import Guard, inspect, quantize
from cnai.core.errors import DataError
from models_folder import save_folder
from models_shapes import TINY, shapes, tokens

UNTIED = dataclasses.replace(TINY, tied_head=False)


def test_a_float_model_is_listed_by_kind(tmp_path: Path):
    save_folder(tmp_path, UNTIED)
    info = inspect(tmp_path)
    assert [group.kind for group in info.groups] == [
        "embedding", "attention", "ffn", "norm", "head",
    ]  # fmt: skip
    assert {group.dtype for group in info.groups} == {"float32"}
    assert info.groups[1].tensors == 4 * TINY.layers
    assert info.groups[1].parameters == TINY.layers * TINY.attention_parameters
    assert info.architecture == "llama"


def test_parameters_and_bytes_add_up(tmp_path: Path):
    save_folder(tmp_path)
    info = inspect(tmp_path)
    assert info.parameters == TINY.parameters
    assert info.size_bytes == 4 * TINY.parameters


def test_a_packed_model_counts_its_weights_and_not_its_words(tmp_path: Path):
    shape = dataclasses.replace(TINY, ffn_width=23)
    save_folder(tmp_path / "a", shape)
    quantize(tmp_path / "a", tmp_path / "b", tokens(shape).numpy(), guard=Guard(allowed_loss=0.1))
    info = inspect(tmp_path / "b")
    kinds = {(group.kind, group.dtype): group for group in info.groups}
    assert info.parameters == shape.parameters
    assert kinds["ffn", "int8"].parameters == shape.layers * shape.ffn_parameters
    assert kinds["ffn", "int8"].tensors == 3 * shape.layers
    assert kinds["embedding", "bfloat16"].size_bytes == 2 * shape.embedding_parameters


def test_a_foreign_architecture_is_listed_too(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    save_file({"wte": torch.zeros(3, 2, dtype=torch.float16)}, tmp_path / "model.safetensors")
    info = inspect(tmp_path)
    assert info.architecture == "gpt2"
    assert (info.groups[0].kind, info.groups[0].dtype) == ("other", "float16")
    assert info.size_bytes == 12


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(DataError):
        inspect(tmp_path)


@given(shapes())
@settings(max_examples=10, deadline=None)
def test_the_count_is_the_shapes_count(tmp_path_factory, shape):
    folder = tmp_path_factory.mktemp("model")
    save_folder(folder, shape)
    assert inspect(folder).parameters == shape.parameters
