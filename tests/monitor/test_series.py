import numpy as np
import pytest

from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder
from cnai.core.vectors import Columns, LayersMeasured, VectorWriter
from cnai.monitor.series import RunTable, csv_of, table_of, table_of_csv, write_run
from cnai.monitor.tensorboard import table_of_tensorboard, tensorboard_of
from monitor_case import evaluated, started, step


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    with run.writer("rank-0") as writer:
        for event in (started(), step(1, loss=3.0), step(2, loss=2.0), evaluated(2, 2.5)):
            writer.write(event)
        writer.write(step(2, attempt=1, loss=1.5))
    columns = Columns((("gradient", ("w",)),))
    writer = VectorWriter(run.layers_file)
    for at, value in ((1, 0.5), (2, 0.25)):
        writer.write(
            LayersMeasured(
                time_unix=0.0, attempt=0, step=at, columns=columns,
                values=np.array([value], dtype=np.float32),
            )
        )  # fmt: skip
    writer.close()
    return run


def test_a_step_that_was_repeated_counts_as_done_last(run):
    assert table_of(run).columns["loss"].tolist() == [3.0, 1.5]


def test_layers_are_columns_too(run):
    assert table_of(run).columns["gradient/w"].tolist() == [0.5, 0.25]
    assert "gradient/w" not in table_of(run, layers=False).columns


def test_a_number_that_was_measured_now_and_then_has_gaps(run):
    first, second = table_of(run).columns["validation_loss"].tolist()
    assert np.isnan(first)
    assert second == 2.5


def test_a_table_survives_csv(run):
    table = table_of(run)
    again = table_of_csv(csv_of(table), where="x")
    assert again.steps.tolist() == table.steps.tolist()
    for name, values in table.columns.items():
        np.testing.assert_array_equal(again.columns[name], values)


@pytest.mark.parametrize("text", ["", "loss\n1\n", "step,loss\n1,x\n", "step,loss\n1\n"])
def test_a_csv_that_is_none_is_refused(text):
    with pytest.raises(DataError) as caught:
        table_of_csv(text, where="x.csv")
    assert caught.value.hint


def test_a_table_survives_tensorboard(run):
    table = table_of(run)
    again = table_of_tensorboard(tensorboard_of(table, lambda _: 0, time_unix=1.0), where="x")
    assert set(again.columns) == set(table.columns)
    for name, values in table.columns.items():
        np.testing.assert_allclose(again.columns[name], values, rtol=1e-6)


def test_a_torn_end_of_an_event_file_is_left_out(run):
    content = tensorboard_of(table_of(run), lambda _: 0, time_unix=1.0)
    assert table_of_tensorboard(content[:-5], where="x").steps.tolist() == [1]


@pytest.mark.parametrize("content", [b"", b"no events at all, but text", b"\x05" + bytes(200)])
def test_a_file_that_is_no_event_file_is_refused(content):
    with pytest.raises(DataError):
        table_of_tensorboard(content, where="x")


def test_a_run_made_of_a_table_is_that_table(tmp_path, run):
    table = table_of(run)
    again = table_of(write_run(table, tmp_path / "again"))
    assert set(again.columns) == set(table.columns)
    for name, values in table.columns.items():
        np.testing.assert_allclose(again.columns[name], values, rtol=1e-6)


def test_an_empty_table_makes_an_empty_run(tmp_path):
    table = RunTable(np.array([], dtype=np.int64), {})
    assert len(table_of(write_run(table, tmp_path / "x")).steps) == 0
