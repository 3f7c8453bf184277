from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from cnai.compress import quantize_file
from cnai.compress.formats.gguf_file import GgufFile, to_q8_0
from cnai.core.errors import DataError, SpecError
from graphs_for_tests import numbers


def model(path: Path, **tensors: np.ndarray) -> Path:
    """Write a file as llama.cpp's converter does."""
    writer = GGUFWriter(path, "llama")
    writer.add_name("a model")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add_array("numbers", [1.5, 2.5])
    writer.add_file_type(0)
    chosen = tensors or {
        "token_embd.weight": numbers(8, 64),
        "blk.0.attn_q.weight": numbers(64, 64, seed=1).astype(np.float16),
        "blk.0.attn_norm.weight": numbers(64, seed=2),
        "output.weight": numbers(40, 64, seed=3),
    }
    for name, values in chosen.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {one.name: one for one in GGUFReader(path).tensors}


def test_matrices_become_q8_0_and_the_rest_stays(tmp_path: Path):
    source = model(tmp_path / "m.gguf")
    report = quantize_file(source, tmp_path / "q.gguf")
    kinds = {name: one.tensor_type.name for name, one in tensors(tmp_path / "q.gguf").items()}
    assert kinds == {
        "token_embd.weight": "Q8_0",
        "blk.0.attn_q.weight": "Q8_0",
        "blk.0.attn_norm.weight": "F32",
        "output.weight": "Q8_0",
    }
    assert report.format == "gguf"


def test_the_values_are_those_of_the_format_s_own_quantizer(tmp_path: Path):
    source = model(tmp_path / "m.gguf")
    quantize_file(source, tmp_path / "q.gguf")
    before, after = tensors(source), tensors(tmp_path / "q.gguf")
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "output.weight"):
        expected = gguf.quants.quantize(
            before[name].data.astype(np.float32), GGMLQuantizationType.Q8_0
        )
        assert np.array_equal(after[name].data, expected)
    assert np.array_equal(
        after["blk.0.attn_norm.weight"].data, before["blk.0.attn_norm.weight"].data
    )


def test_metadata_is_kept_and_names_the_new_type(tmp_path: Path):
    source = model(tmp_path / "m.gguf")
    quantize_file(source, tmp_path / "q.gguf")
    before, after = GGUFReader(source).fields, GGUFReader(tmp_path / "q.gguf").fields
    assert list(before) == list(after)
    assert after["tokenizer.ggml.tokens"].contents() == ["a", "b", "c"]
    assert after["general.file_type"].contents() == 7


def test_zeros_and_halves_round_as_the_format_says():
    blocks = np.zeros((2, 32), np.float32)
    blocks[1, :3] = [127, 0.5, -2.5]
    found = to_q8_0(blocks)
    assert not found[0].any()
    assert found[1, 2:5].view(np.int8).tolist() == [127, 1, -3]


def test_a_quantized_file_is_refused(tmp_path: Path):
    quantize_file(model(tmp_path / "m.gguf"), tmp_path / "q.gguf")
    with pytest.raises(SpecError, match="quantized already"):
        quantize_file(tmp_path / "q.gguf", tmp_path / "r.gguf")


def test_a_tensor_that_is_quantized_already_is_copied(tmp_path: Path):
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    coarse = gguf.quants.quantize(numbers(64, 64), GGMLQuantizationType.Q4_0)
    writer.add_tensor("blk.0.ffn_up.weight", coarse, raw_dtype=GGMLQuantizationType.Q4_0)
    writer.add_tensor("output.weight", numbers(64, 64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quantize_file(path, tmp_path / "q.gguf")
    found = tensors(tmp_path / "q.gguf")
    assert np.array_equal(found["blk.0.ffn_up.weight"].data, coarse)
    assert found["output.weight"].tensor_type is GGMLQuantizationType.Q8_0


def test_rows_that_fill_no_blocks_stay(tmp_path: Path):
    source = model(
        tmp_path / "m.gguf", **{"a.weight": numbers(64, 48), "b.weight": numbers(64, 64)}
    )
    quantize_file(source, tmp_path / "q.gguf")
    kinds = {name: one.tensor_type.name for name, one in tensors(tmp_path / "q.gguf").items()}
    assert kinds == {"a.weight": "F32", "b.weight": "Q8_0"}


@pytest.mark.parametrize("cut", [4, 30, 200, -100])
def test_a_file_that_was_cut_off_is_damaged(tmp_path: Path, cut):
    content = model(tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[:cut])
    with pytest.raises(DataError, match="no whole GGUF file"):
        GgufFile(tmp_path / "cut.gguf")


def test_a_count_that_the_file_cannot_hold_is_refused_at_once(tmp_path: Path):
    content = bytearray(model(tmp_path / "m.gguf").read_bytes())
    content[8:16] = (2**60).to_bytes(8, "little")
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(DataError, match="cannot hold"):
        GgufFile(tmp_path / "x.gguf")


def test_another_version_is_refused_by_its_number(tmp_path: Path):
    content = bytearray(model(tmp_path / "m.gguf").read_bytes())
    content[4] = 9
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(SpecError, match=r"the 9\. version"):
        GgufFile(tmp_path / "x.gguf")
