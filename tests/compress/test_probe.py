import numpy as np
import pytest

from cnai.compress.probe import SAMPLES, SIZES, made_up, run_made_up
from cnai.compress.runners import InputSpec
from cnai.core.errors import RunError
from guard_case import FakeRunner

FREE = InputSpec(name="x", shape=(None, None), dtype="float32")


def needing(columns: int) -> FakeRunner:
    def run(x: np.ndarray) -> np.ndarray:
        if x.shape[1] < columns:
            raise RunError("too small", hint="more")
        return x

    return FakeRunner(run, inputs=(FREE,))


@pytest.mark.parametrize("size", SIZES)
def test_the_smallest_size_that_runs_is_taken(size):
    feeds, outputs = run_made_up(needing(size))
    assert feeds["x"].shape == (SAMPLES, size)
    assert outputs[0] is feeds["x"]


def test_a_model_that_runs_with_none_says_why():
    with pytest.raises(RunError, match="too small"):
        run_made_up(needing(SIZES[-1] + 1))


def test_texts_and_whole_numbers_are_made_up_too():
    specs = [
        InputSpec(name="t", shape=(None,), dtype="str"),
        InputSpec(name="n", shape=(2,), dtype="int64"),
    ]
    found = made_up(specs, size=16)
    assert found["t"].shape == (SAMPLES,)
    assert found["n"].dtype == np.int64
