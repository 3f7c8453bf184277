import numpy as np
import pytest

from cnai.compress.formats import Format
from cnai.compress.runners import Engine, InputSpec, open_runner
from cnai.compress.runners.chosen import ChosenRunner
from cnai.core.errors import SpecError
from graphs_for_tests import numbers, onnx_perceptron
from guard_case import ROWS, FakeRunner, written

TWO = (ROWS, InputSpec(name="rate:0", shape=(), dtype="int64"))


class Three(FakeRunner):
    def run(self, feeds):
        return [feeds["x"] * factor for factor in (1, 2, 3)]


def chosen(inputs=(), outputs=()):
    runner = Three(outputs=("a:0", "b:0", "c:0"), inputs=TWO)
    return ChosenRunner(runner, inputs=inputs, outputs=outputs)


def test_outputs_come_in_the_order_of_the_wish():
    found = chosen(outputs=("c", "a:0"))
    assert found.outputs == ("c:0", "a:0")
    assert [one[0] for one in found.run({"x": np.ones(1)})] == [3, 1]


def test_only_the_inputs_that_are_given_are_asked_for():
    assert [one.name for one in chosen(inputs=("x",)).inputs] == ["x"]


def test_without_wishes_all_is_there():
    found = chosen()
    assert len(found.run({"x": np.ones(1)})) == len(found.outputs) == 3


@pytest.mark.parametrize("flag", ["inputs", "outputs"])
def test_an_unknown_name_is_refused_with_those_that_are_known(flag):
    with pytest.raises(SpecError, match="no `z`; it has"):
        chosen(**{flag: ("z",)})


def test_an_engine_that_does_not_read_the_format_is_refused(tmp_path):
    path = written(onnx_perceptron(), tmp_path)
    with pytest.raises(SpecError, match="`tf` does not run onnx"):
        open_runner(Format.ONNX, path, engine=Engine.TF)


def test_an_engine_can_be_asked_for(tmp_path):
    runner = open_runner(Format.ONNX, written(onnx_perceptron(), tmp_path), engine=Engine.ORT)
    assert runner.runtime.startswith("onnxruntime")
    assert runner.run({"x": numbers(2, 64)})[0].shape == (2, 32)


def test_an_engine_that_is_not_installed_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SpecError, match="not installed") as error:
        open_runner(Format.ONNX, written(onnx_perceptron(), tmp_path), engine=Engine.OPENVINO)
    assert "pip install openvino" in error.value.hint
