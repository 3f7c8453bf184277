from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cnai.compress.channels import quantize_channels
from cnai.compress.formats.onnx_file import OnnxFile
from cnai.core.errors import DataError
from graphs_for_tests import numbers, onnx_model, onnx_perceptron, saved

X = numbers(4, 64, seed=1)


def quantized(model: onnx.ModelProto, tmp_path: Path) -> Path:
    """Quantize every matrix of a model and return the file."""
    file = OnnxFile(saved(model, tmp_path / "m.onnx"))
    for weight in list(file.weights()):
        if len(weight.shape) >= 2:
            axes = weight.axes if weight.axes is not None else (0,)
            file.replace(weight, quantize_channels(file.read(weight), axes))
    file.save(tmp_path / "q.onnx")
    return tmp_path / "q.onnx"


def outputs(path: Path | str, **feeds: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path)).run(None, feeds or {"x": X})[0]


def close(one: np.ndarray, other: np.ndarray) -> bool:
    return float(np.abs(one - other).max()) < 0.05 * float(np.abs(one).max())


def names(file: OnnxFile) -> dict[str, object]:
    return {weight.name: (weight.use, weight.axes) for weight in file.weights()}


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21])
def test_a_quantized_model_computes_nearly_the_same_at_any_opset(tmp_path: Path, opset):
    model = onnx_perceptron(opset)
    found = quantized(model, tmp_path)
    assert close(outputs(tmp_path / "m.onnx"), outputs(found))
    assert found.stat().st_size < (tmp_path / "m.onnx").stat().st_size / 2


def test_an_opset_whose_mul_knows_no_channels_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="opset 6"):
        OnnxFile(saved(onnx_perceptron(6), tmp_path / "m.onnx"))


def test_a_weight_may_be_a_constant_node(tmp_path: Path):
    node = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(numbers(64, 32)))
    model = onnx_model([node, helper.make_node("MatMul", ["x", "w"], ["y"])], {})
    found = quantized(model, tmp_path)
    assert close(outputs(tmp_path / "m.onnx"), outputs(found))
    assert found.stat().st_size < 4000


def test_a_weight_may_lie_in_a_branch(tmp_path: Path):
    def branch(seed: int) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w{seed}"], [f"b{seed}"])],
            f"g{seed}",
            [],
            [helper.make_tensor_value_info(f"b{seed}", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(numbers(64, 32, seed=seed), f"w{seed}")],
        )

    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch(1), else_branch=branch(2))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 64]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    found = quantized(onnx_model([choice], {}, inputs=inputs), tmp_path)
    for c in (np.array(True), np.array(False)):
        assert close(outputs(tmp_path / "m.onnx", x=X, c=c), outputs(found, x=X, c=c))
    assert found.stat().st_size < (tmp_path / "m.onnx").stat().st_size / 2


def test_a_weight_outside_a_branch_is_followed_into_it(tmp_path: Path):
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["b"])],
        "g",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    model = onnx_model([choice], {"w": numbers(64, 32), "c": np.array(True)})
    assert names(OnnxFile(saved(model, tmp_path / "m.onnx")))["w"] == ("MatMul", (1,))


def test_a_shared_weight_is_stored_once(tmp_path: Path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    found = quantized(onnx_model(nodes, {"w": numbers(64, 64)}), tmp_path)
    assert close(outputs(tmp_path / "m.onnx"), outputs(found))
    kinds = [one.data_type for one in onnx.load(str(found)).graph.initializer]
    assert kinds.count(TensorProto.INT8) == 1


def test_a_weight_that_is_listed_as_an_input_leaves_that_list(tmp_path: Path):
    model = onnx_perceptron(9)
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims)
        )
    found = quantized(model, tmp_path)
    assert [one.name for one in onnx.load(str(found)).graph.input] == ["x", "bias"]


def test_half_precision_stays_half_precision(tmp_path: Path):
    weight = numbers(64, 32).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["h", "w"], ["p"]),
        helper.make_node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ]
    found = quantized(onnx_model(nodes, {"w": weight}), tmp_path)
    assert close(outputs(tmp_path / "m.onnx"), outputs(found))


def test_a_weight_in_a_function_is_quantized(tmp_path: Path):
    constant = helper.make_node(
        "Constant", [], ["w"], value=numpy_helper.from_array(numbers(64, 32))
    )
    function = helper.make_function(
        "own",
        "f",
        ["a"],
        ["b"],
        [constant, helper.make_node("MatMul", ["a", "w"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    model = onnx_model([helper.make_node("f", ["x"], ["y"], domain="own")], {})
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    found = quantized(model, tmp_path)
    assert close(outputs(tmp_path / "m.onnx"), outputs(found))
    assert found.stat().st_size < 4000


def test_external_data_is_read_and_written_beside_the_model(tmp_path: Path):
    model = onnx_perceptron()
    source = tmp_path / "big.onnx"
    onnx.save_model(
        model, str(source), save_as_external_data=True, location="numbers.bin", size_threshold=16
    )
    file = OnnxFile(source)
    weight = next(one for one in file.weights() if one.name == "weight")
    file.replace(weight, quantize_channels(file.read(weight), weight.axes))
    target = tmp_path / "out" / "small.onnx"
    file.save(target)
    assert close(outputs(source), outputs(target))
    assert sorted(one.name for one in target.parent.iterdir()) == ["small.onnx", "small.onnx.data"]


def test_external_data_that_is_missing_is_told(tmp_path: Path):
    source = tmp_path / "big.onnx"
    onnx.save_model(
        onnx_perceptron(), str(source), save_as_external_data=True, location="n", size_threshold=16
    )
    (tmp_path / "n").unlink()
    with pytest.raises(DataError, match="missing or too short"):
        OnnxFile(source)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path):
    folder = tmp_path / "inner"
    folder.mkdir()
    onnx.save_model(
        onnx_perceptron(), str(folder / "m.onnx"), save_as_external_data=True, location="n",
        size_threshold=16,
    )  # fmt: skip
    model = onnx.load(str(folder / "m.onnx"), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../n"
    (tmp_path / "n").write_bytes((folder / "n").read_bytes())
    with pytest.raises(DataError, match="outside the model's folder"):
        OnnxFile(saved(model, folder / "m.onnx"))


def test_a_constant_that_is_an_output_is_left_alone(tmp_path: Path):
    model = onnx_model([helper.make_node("Identity", ["x"], ["z"])], {"y": numbers(64, 32)})
    assert names(OnnxFile(saved(model, tmp_path / "m.onnx"))) == {}


@pytest.mark.parametrize(
    ("kind", "shape", "axes"),
    [("Conv", (8, 4, 3, 3), (0,)), ("ConvTranspose", (4, 8, 3, 3), (1,))],
)
def test_channels_of_convolutions(tmp_path: Path, kind, shape, axes):
    model = onnx_model([helper.make_node(kind, ["x", "w"], ["y"])], {"w": numbers(*shape)})
    assert names(OnnxFile(saved(model, tmp_path / "m.onnx")))["w"] == (kind, axes)


@pytest.mark.parametrize(("flag", "axes"), [(0, (1,)), (1, (0,))])
def test_channels_of_a_gemm_follow_its_flag(tmp_path: Path, flag, axes):
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=flag)
    model = onnx_model([node], {"w": numbers(64, 64)})
    assert names(OnnxFile(saved(model, tmp_path / "m.onnx")))["w"] == ("Gemm", axes)


def test_garbage_is_no_model(tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(b"\x08\xff")
    with pytest.raises(DataError, match="no whole ONNX model"):
        OnnxFile(tmp_path / "m.onnx")
