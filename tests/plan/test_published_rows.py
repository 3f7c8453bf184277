"""The benchmark of published rows, run as its user runs it on made-up rows."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COLUMNS = [
    "source",
    "hardware",
    "gpu_mem_gb",
    "n_gpus",
    "gpus_per_node",
    "interconnect",
    "params_b",
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "vocab",
    "seq_len",
    "precision",
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "zero_or_fsdp",
    "virtual_pp",
    "micro_batch",
    "global_batch_seqs",
    "recompute",
    "measured_tflops_per_gpu",
    "tokens_per_s_per_gpu",
    "mfu_pct",
    "step_time_s",
    "memory_gb",
    "oom",
    "notes",
]
GPT = {
    "source": "vTrain made up", "hardware": "A100", "n_gpus": "8", "gpus_per_node": "8",
    "layers": "24", "hidden": "2048", "ffn_hidden": "8192", "heads": "16", "kv_heads": "16",
    "vocab": "50257", "seq_len": "1024", "dp": "2", "tp": "2", "pp": "2", "cp": "1",
    "virtual_pp": "1", "micro_batch": "2", "global_batch_seqs": "32", "recompute": "full",
}  # fmt: skip


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *map(str, arguments)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip


def predict(folder, rows, *arguments):
    path = write(folder / "rows.csv", rows)
    done = run("plan.py", "--rows", path, "--predictions", folder / "out.jsonl", *arguments)
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return lines, done.stderr


def test_a_row_with_blank_measurements_is_predicted(tmp_path):
    (line,), _ = predict(tmp_path, [GPT])
    assert line["skipped"] is None
    assert line["row"] == 0
    assert line["tokens_per_s_per_gpu"] * line["step_time_s"] * 8 == pytest.approx(32 * 1024)
    assert 10 < line["tflops_per_gpu"] < 312
    assert line["fits"] is True
    assert line["memory_gb"] < 80


def test_a_row_without_a_needed_column_is_skipped_with_the_reason(tmp_path):
    lines, _ = predict(tmp_path, [GPT | {"hidden": ""}, GPT])
    assert lines[0]["skipped"] == "`hidden` is blank"
    assert lines[0]["step_time_s"] is None
    assert lines[1]["skipped"] is None


def test_what_was_filled_in_is_said(tmp_path):
    (line,), _ = predict(tmp_path, [GPT | {"vocab": ""}])
    assert "vocab" in line["assumed"]


def test_calibrating_without_measurements_says_what_it_falls_back_on(tmp_path):
    (line,), said = predict(tmp_path, [GPT], "--mode", "calibrated")
    assert "using the constants calibrated before" in said
    assert line["step_time_s"] > 0


def test_calibration_meets_the_machine_that_was_measured(tmp_path):
    sizes = [(2, 2, 2), (4, 2, 1), (8, 1, 1), (2, 4, 1), (1, 2, 4), (1, 8, 1), (4, 1, 2)]
    rows = [
        GPT | {"dp": dp, "tp": tp, "pp": pp, "micro_batch": rows}
        for dp, tp, pp in sizes for rows in (1, 2)
    ]  # fmt: skip
    plain, _ = predict(tmp_path, rows)
    slow = [
        row | {"step_time_s": 1.5 * line["step_time_s"]}
        for row, line in zip(rows, plain, strict=True)
    ]
    found, _ = predict(tmp_path, slow, "--mode", "calibrated")
    for row, line in zip(slow, found, strict=True):
        assert line["step_time_s"] == pytest.approx(row["step_time_s"], rel=0.25)


def test_the_scorer_counts_errors_misses_and_blanks(tmp_path):
    rows = [GPT, GPT | {"hidden": ""}]
    lines, _ = predict(tmp_path, rows)
    measured = [GPT | {"step_time_s": lines[0]["step_time_s"] / 1.1, "oom": "false"}, rows[1]]
    write(tmp_path / "rows.csv", measured)
    run("plan_score.py", "--rows", tmp_path / "rows.csv", "--predictions", tmp_path / "out.jsonl",
        "--json", tmp_path / "score.json")  # fmt: skip
    score = json.loads((tmp_path / "score.json").read_text())
    assert score["speed_mape"]["vTrain made up"] == pytest.approx(10, rel=0.01)
    assert score["missed"] == 0
    assert score["oom"]["false_alarms"] == 0


@pytest.fixture(scope="module")
def read_row():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import plan_measures
        import plan_memory
        import plan_rows
    finally:
        sys.path.remove(str(BENCHMARKS))

    def read(cells):
        row = plan_rows.read_row(0, cells)
        if isinstance(row, plan_rows.Skipped):
            return row.reason
        return plan_measures.seconds_of(row), plan_memory.memory_of(row).gib

    return read


CELLS = st.sampled_from(
    ["", "0", "-1", "1", "2", "7", "64", "1e3", "abc", "~8", "nan", "2,048", "H100", "fp8", "full"]
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(COLUMNS[1:]), CELLS, max_size=4))
def test_odd_cells_are_read_or_skipped_but_never_a_crash(read_row, cells):
    found = read_row(dict.fromkeys(COLUMNS, "") | GPT | cells)
    assert found if isinstance(found, str) else min(found) > 0


def test_a_mixture_an_unknown_source_and_a_new_device_are_predicted(read_row):
    seconds, gib = read_row(
        GPT
        | {"source": "somebody", "hardware": "NVIDIA B200 180GB", "precision": "nvfp4", "ep": "2"}
    )
    assert 0 < seconds < 10
    assert gib > 0
