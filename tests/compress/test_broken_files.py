"""Files that were damaged somewhere: a clear refusal or a sound result, and nothing half done."""

import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cnai.compress import quantize_file
from cnai.compress.formats import Format, open_model, recognise
from cnai.compress.formats.graphdef import GraphDefFile
from cnai.compress.weight_only import Scheme, Wishes, shrink
from cnai.core.errors import CnaiError
from graphs_for_tests import constant, numbers, onnx_perceptron, perceptron, saved
from saved_model_for_tests import new_style

LARGEST_BYTES = 64 * 2**20


def gguf_bytes(folder: Path) -> bytes:
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_file_type(0)
    writer.add_tensor("output.weight", numbers(16, 64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (folder / "m.gguf").read_bytes()


class Sources(dict[str, bytes]):
    """Whole files by their format; hypothesis prints this when it fails."""

    def __repr__(self) -> str:
        return "sources"


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Sources:
    folder = tmp_path_factory.mktemp("sources")
    saved_model = new_style(folder / "s", numbers(64, 32))
    return Sources(
        graphdef=perceptron().SerializeToString(),
        onnx=onnx_perceptron().SerializeToString(),
        gguf=gguf_bytes(folder),
        saved_model=(saved_model / "saved_model.pb").read_bytes(),
        index=(saved_model / "variables" / "variables.index").read_bytes(),
    )


@st.composite
def damage(draw):
    """Draw what happens to a file: bytes flipped, cut out, repeated, or the end lost."""
    kind = draw(st.sampled_from(["flip", "cut", "repeat", "end", "huge"]))
    place = draw(st.floats(0, 1, exclude_max=True))
    # Most of a file is numbers; what can break a reader stands at the beginning.
    if draw(st.booleans()):
        place *= 0.05
    return kind, place, draw(st.integers(1, 255)), draw(st.integers(1, 40))


def damaged(content: bytes, what) -> bytes:
    kind, share, byte, length = what
    place = int(share * len(content))
    match kind:
        case "flip":
            return content[:place] + bytes([content[place] ^ byte]) + content[place + 1 :]
        case "cut":
            return content[:place] + content[place + length :]
        case "repeat":
            return content[:place] + content[place : place + length] * 2 + content[place:]
        case "huge":
            return content[:place] + b"\xff" * min(length, 9) + content[place + min(length, 9) :]
    return content[:place]


def worked_on(source: Path) -> None:
    """Do all that needs no runtime; anything but our own errors is a bug."""
    tracemalloc.start()
    try:
        model = open_model(source)
        shrink(model, Wishes())
        model.save(source.parent / "out")
    except CnaiError as error:
        assert error.hint
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < LARGEST_BYTES


@pytest.mark.parametrize("kind", ["graphdef", "onnx", "gguf"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(what=damage())
def test_a_damaged_file_is_refused_or_read(tmp_path_factory, sources, kind, what):
    folder = tmp_path_factory.getbasetemp()
    file = folder / f"broken.{kind}"
    file.write_bytes(damaged(sources[kind], what))
    worked_on(file)


@pytest.mark.parametrize("kind", ["saved_model", "index"])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(what=damage())
@example(what=("flip", 0.654296875, 1, 1))  # a call of a function without a name
def test_a_damaged_saved_model_is_refused_or_read(tmp_path_factory, sources, kind, what):
    folder = tmp_path_factory.mktemp("broken")
    new_style(folder / "m", numbers(64, 32))
    name = {"saved_model": "saved_model.pb", "index": "variables/variables.index"}[kind]
    (folder / "m" / name).write_bytes(damaged(sources[kind], what))
    worked_on(folder / "m")


@pytest.mark.parametrize("kind", ["graphdef", "gguf"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_nothing_is_left_of_a_file_that_was_cut_off(tmp_path: Path, sources, kind, share):
    content = sources[kind]
    (tmp_path / "m").write_bytes(content[: int(share * len(content))])
    with pytest.raises(CnaiError):
        quantize_file(tmp_path / "m", tmp_path / "q")
    assert [one.name for one in tmp_path.iterdir()] == ["m"]


def test_a_size_that_is_only_declared_takes_no_memory(tmp_path: Path):
    graph = perceptron()
    graph.node[1].attr["value"].tensor.tensor_shape.dim[0].size = 2**50
    worked_on(saved(graph, tmp_path / "m.pb"))


def test_a_constant_without_numbers_is_kept(tmp_path: Path):
    graph = perceptron()
    constant(graph, "empty", np.zeros((0, 8), np.float32))
    report = quantize_file(saved(graph, tmp_path / "m.pb"), tmp_path / "q.pb")
    assert report.count(Scheme.INT8) == 1


def test_a_graph_of_unknown_operations_is_quantized_where_it_is_known(tmp_path: Path):
    graph = perceptron()
    graph.node.add(name="odd", op="NobodyKnowsThis", input=["y"])
    report = quantize_file(saved(graph, tmp_path / "m.pb"), tmp_path / "q.pb")
    assert report.count(Scheme.INT8) == 1


def test_recognising_never_fails_otherwise(tmp_path: Path, sources):
    for kind, content in sources.items():
        (tmp_path / "x").write_bytes(content)
        if kind != "index":
            assert recognise(tmp_path / "x") is Format(kind)


def test_a_graph_that_needs_itself_ends(tmp_path: Path):
    graph = perceptron()
    graph.node[3].input[:] = ["read"]
    assert [one.use for one in GraphDefFile(saved(graph, tmp_path / "m.pb")).weights()] == ["", ""]
