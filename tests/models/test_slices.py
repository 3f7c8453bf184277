"""A part of a tensor is read without the rest."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.errors import DataError
from cnai.models.huggingface import HuggingFaceWeights
from cnai.models.initialise import SlicedWeights, initial_weights, parameter_sizes
from models_folder import save_folder
from models_shapes import QWEN2, TINY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("qwen")
    save_folder(place, QWEN2, stir=True)
    return place


@given(st.sampled_from(sorted(parameter_sizes(QWEN2))), st.data())
@settings(max_examples=60, deadline=None)
def test_a_part_equals_the_slice_of_the_whole(folder, name, data):
    weights = HuggingFaceWeights(folder)
    index = []
    for n in parameter_sizes(QWEN2)[name]:
        first = data.draw(st.integers(0, n))
        index.append(slice(first, data.draw(st.integers(first, n))))
    assert torch.equal(weights.part(name, tuple(index)), weights.tensor(name)[tuple(index)])


def test_folders_and_initial_weights_can_be_sliced_and_a_function_cannot(folder):
    assert isinstance(HuggingFaceWeights(folder), SlicedWeights)
    assert isinstance(initial_weights(TINY, 0), SlicedWeights)
    assert not isinstance(dict.fromkeys, SlicedWeights)


def test_a_tied_head_is_read_from_the_embedding(folder):
    weights = HuggingFaceWeights(folder)
    rows = (slice(3, 9), slice(None))
    assert torch.equal(weights.part("head.weight", rows), weights.part("embedding.weight", rows))


def test_a_part_of_a_tensor_of_another_size_is_refused(tmp_path: Path):
    save_folder(tmp_path / "a")
    save_folder(tmp_path / "b", QWEN2)
    (tmp_path / "a/config.json").write_bytes((tmp_path / "b/config.json").read_bytes())
    with pytest.raises(DataError, match=r"q_proj\.bias"):
        HuggingFaceWeights(tmp_path / "a").part("layers.0.attention.q_proj.bias", (slice(0, 2),))
