import json
from pathlib import Path

import numpy as np
import pytest

from cnai.compress.guard.reading import read_samples
from cnai.compress.runners import InputSpec
from cnai.core.errors import DataError, SpecError

IMAGES = (InputSpec(name="x", shape=(None, 3), dtype="float32"),)
TWO = (*IMAGES, InputSpec(name="rate", shape=(), dtype="int64"))
STATEFUL = (*IMAGES, InputSpec(name="state", shape=(2, None, 4), dtype="float32"))


def read(where, inputs=IMAGES):
    return read_samples(str(where), inputs, flag="--eval")


def npz(path: Path, **arrays) -> Path:
    np.savez(path, **arrays)
    return path


def test_rows_of_an_npz_are_samples_with_their_labels(tmp_path):
    found = read(npz(tmp_path / "d.npz", x=np.eye(3), labels=[5, 6, 7]))
    assert [one.label for one in found] == [5, 6, 7]
    assert found[1].feeds["x"].tolist() == [[0, 1, 0]]
    assert found[1].feeds["x"].dtype == np.float32


def test_the_only_array_needs_no_name(tmp_path):
    np.save(tmp_path / "d.npy", np.eye(3))
    assert len(read(tmp_path / "d.npy")) == 3
    assert len(read(npz(tmp_path / "d.npz", whatever=np.eye(3)))) == 3


def test_one_value_serves_all_samples(tmp_path):
    found = read(npz(tmp_path / "d.npz", x=np.eye(3), rate=16000), TWO)
    assert [one.feeds["rate"].tolist() for one in found] == [16000] * 3


def test_states_whose_first_axis_counts_no_samples_get_an_axis_of_their_own(tmp_path):
    found = read(npz(tmp_path / "d.npz", x=np.eye(3), state=np.zeros((3, 2, 1, 4))), STATEFUL)
    assert found[2].feeds["state"].shape == (2, 1, 4)


def test_files_of_a_folder_come_in_the_order_of_their_names(tmp_path):
    for name in ("b", "a"):
        npz(tmp_path / f"{name}.npz", x=np.ones((1, 3)), y=[name])
    assert [str(one.label) for one in read(tmp_path)] == ["a", "b"]


def test_lines_of_json_are_samples(tmp_path):
    lines = [{"input": [1, 2, 3], "label": 1}, {"x": [4, 5, 6], "label": 0}]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read(tmp_path / "d.jsonl")
    assert found[0].feeds["x"].shape == (1, 3)
    assert [one.label for one in found] == [1, 0]


def test_a_function_in_a_file_yields_samples(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef pairs():\n    yield {'x': np.ones((1, 3))}, 4\n"
        "    yield {'x': np.ones((2, 3))}, [5, 6]\n"
    )
    assert [one.label for one in read(f"{tmp_path}/mine.py:pairs")] == [4, 5, 6]


def test_a_function_of_a_module_here_yields_inputs_alone(tmp_path, monkeypatch):
    (tmp_path / "own_samples.py").write_text(
        "import numpy as np\ndef rows():\n    return iter(np.ones((4, 1, 3)))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert len(read("own_samples:rows")) == 4


@pytest.mark.parametrize("where", ["no.npz", "no:", "json:nothing", "json:decoder"])
def test_what_is_not_there_is_refused(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((DataError, SpecError)) as error:
        read(where)
    assert error.value.hint


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.eye(3), "labels": [1, 2]}, "2 labels for 3 samples"),
        ({"x": np.full((2, 3), np.nan)}, "infinite or none"),
        ({"x": np.eye(3), "labels": [0, np.nan, 1]}, "label is infinite"),
        ({"x": np.ones((2, 4))}, "has the shape 2 x 4, the model takes any x 3"),
        ({"x": np.ones((0, 3))}, "shape 0 x 3"),
        ({"x": np.array([["a", "b", "c"]])}, "holds <U1"),
        ({"a": np.eye(3), "b": np.eye(3)}, "no array for the input `x`; it has `a`, `b`"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_the_reason(tmp_path, arrays, words):
    with pytest.raises(DataError, match=words):
        read(npz(tmp_path / "d.npz", **arrays))


def test_inputs_with_different_numbers_of_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="different numbers of samples"):
        read(npz(tmp_path / "d.npz", x=np.eye(3), state=np.zeros((2, 2, 1, 4))), STATEFUL)


def test_fractions_for_whole_numbers_are_refused(tmp_path):
    tokens = (InputSpec(name="x", shape=(None, 3), dtype="int64"),)
    with pytest.raises(DataError, match="holds fractions"):
        read(npz(tmp_path / "d.npz", x=np.full((1, 3), 0.5)), tokens)


def test_labels_of_some_samples_only_are_refused(tmp_path):
    npz(tmp_path / "a.npz", x=np.eye(3), labels=[1, 2, 3])
    npz(tmp_path / "b.npz", x=np.eye(3))
    with pytest.raises(DataError, match="3 of 6 samples"):
        read(tmp_path)


def test_damaged_and_pickled_files_are_refused(tmp_path):
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 no more")
    np.save(tmp_path / "d.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("d.npz", "d.npy"):
        with pytest.raises(DataError, match="cannot read"):
            read(tmp_path / name)


def test_another_kind_of_file_is_refused_with_the_kinds(tmp_path):
    (tmp_path / "d.csv").write_text("1,2")
    with pytest.raises(SpecError, match=r"d\.csv.* is no known form"):
        read(tmp_path / "d.csv")
