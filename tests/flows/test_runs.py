import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cnai.core.errors import DataError, RunError, SpecError
from cnai.core.runfolder import RunFolder
from cnai.flows.runs import (
    compare_runs,
    export_run,
    format_of,
    import_run,
    remove_run,
    show_run,
)
from monitor_case import started, step


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    with run.writer("rank-0") as writer:
        for event in (started(), step(1, loss=3.0), step(2, loss=2.0)):
            writer.write(event)
    return run


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out"])
def test_what_is_exported_can_be_imported(tmp_path, run, name):
    export_run(run.root, tmp_path / name, format_of(tmp_path / name, None))
    import_run(tmp_path / name, tmp_path / "again")
    found, expected = (show_run(one).series for one in (tmp_path / "again", run.root))
    assert {one.name: one.last for one in found} == pytest.approx(
        {one.name: one.last for one in expected}
    )


def test_a_parquet_file_has_a_column_a_number(tmp_path, run):
    export_run(run.root, tmp_path / "x.parquet", "parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table["loss"].to_pylist() == [3.0, 2.0]


def test_runs_are_compared_by_their_last_values(tmp_path, run):
    import_run(_csv(tmp_path, "step,loss\n1,9\n"), tmp_path / "other")
    last = compare_runs([run.root, tmp_path / "other"])["loss"]
    assert list(last.values()) == [2.0, 9.0]


def test_an_import_never_overwrites(tmp_path, run):
    with pytest.raises(RunError, match="there already"):
        import_run(_csv(tmp_path, "step,loss\n1,9\n"), run.root)


@pytest.mark.parametrize("name", ["none.csv", "empty"])
def test_what_cannot_be_read_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        import_run(tmp_path / name, tmp_path / "x")


def test_a_parquet_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(DataError, match="Parquet"):
        import_run(tmp_path / "x.parquet", tmp_path / "x")


def test_a_parquet_file_without_steps_is_refused(tmp_path):
    parquet.write_table(pa.table({"loss": np.ones(2)}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no column `step`"):
        import_run(tmp_path / "x.parquet", tmp_path / "x")


def test_a_format_that_is_not_known_is_asked_for():
    from pathlib import Path

    with pytest.raises(SpecError) as caught:
        format_of(Path("x.xlsx"), None)
    assert "--to" in caught.value.hint


def test_a_run_in_use_is_not_removed(run):
    with run.locked(), pytest.raises(RunError, match="in use"):
        remove_run(run.root)
    assert run.events.is_dir()


def test_a_removed_run_is_gone(run):
    remove_run(run.root)
    assert not run.root.exists()


def test_what_is_no_run_is_not_removed(tmp_path):
    (tmp_path / "notes").mkdir()
    with pytest.raises(DataError):
        remove_run(tmp_path / "notes")
    assert (tmp_path / "notes").is_dir()


def _csv(tmp_path, text):
    path = tmp_path / "in.csv"
    path.write_text(text)
    return path
