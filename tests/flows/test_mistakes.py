"""Mistakes of users, planted one by one: the right code, one clear error with a hint, no loss.

Ctrl-C in the middle, the twelfth of them, is in test_recovery.
"""

import os
import shutil
import socket
import subprocess

import pytest

import chain_case
from chain_case import left_of, run_in, write_spec
from cnai.core.events import StepDone
from cnai.core.runfolder import read_events

TRAIN = ("train", "run.yaml", "-y")


@pytest.fixture
def refused(ai_cli):
    """Run a command twice, plain and with `--json`; both must tell one error in the right form."""

    def run(code, *words):
        plain = ai_cli(*words)
        assert (plain.code, plain.out) == (code, ""), plain.err
        told_once(plain.err)
        as_json = ai_cli(*words, "--json")
        found = as_json.json
        assert (as_json.code, found["exit_code"]) == (code, code)
        assert found["error"]
        assert found["hint"]
        assert "error:" not in as_json.err
        return plain.err

    return run


def told_once(err):
    assert err.count("error: ") == 1
    assert "hint: " in err
    assert "Traceback" not in err
    assert "bug in cnai" not in err


@pytest.fixture
def disk(place):
    """Mount a small disk at `runs` of a size that can change; None takes it away."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    folder = place / "runs"
    folder.mkdir()

    def mount(options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)

    yield mount
    subprocess.run(["umount", folder], check=True)


def test_an_unknown_key_is_named_with_the_one_that_was_meant(refused, place):
    write_spec(place, {"train.stepz": 5})
    err = refused(2, *TRAIN)
    assert "unknown key `train.stepz`" in err
    assert "did you mean `train.steps`?" in err
    assert not (place / "runs").exists()


def test_a_group_that_does_not_divide_the_heads_is_refused(refused, place):
    write_spec(place, {"parallel.model_parallel": {"size": 3}, "resources": None})
    err = refused(2, *TRAIN)
    assert "does not divide `model.heads` 2" in err
    assert not (place / "runs").exists()


def test_sizes_that_do_not_make_the_ranks_are_refused(refused, place):
    write_spec(
        place, {"parallel.model_parallel": {"size": 2}, "parallel.pipeline_parallel": {"stages": 2}}
    )
    assert "2 x 2 x 2 = 8" in refused(2, *TRAIN)


def test_a_missing_spec_is_told(refused):
    assert "nowhere.yaml" in refused(2, "run", "nowhere.yaml", "-y")


def test_a_spec_of_a_newer_version_is_told(refused, place):
    write_spec(place, {"version": 99})
    assert "version 99" in refused(2, *TRAIN)


def test_a_missing_source_is_told(refused, place):
    write_spec(place, {"data.source": "text"})
    err = refused(4, *TRAIN)
    assert "no source `text`" in err
    assert "did you mean `texts`?" in err


def test_an_empty_source_is_told(refused, place):
    shutil.rmtree(place / "texts")
    (place / "texts").mkdir()
    (place / "texts" / "a.txt").write_text(" \n")
    assert "no text in `texts`" in refused(4, *TRAIN)


def test_a_file_that_is_not_text_is_named(refused, place):
    (place / "texts" / "photo.txt").write_bytes(b"\x89PNG\r\n\xff")
    assert "`photo.txt` is not UTF-8 text" in refused(4, *TRAIN)


def test_too_little_text_is_told(refused, place):
    shutil.rmtree(place / "texts")
    (place / "texts").mkdir()
    for name in ("a", "b"):
        (place / "texts" / f"{name}.txt").write_text(f"only {name}")
    assert "one row needs 33" in refused(4, *TRAIN)


@pytest.mark.slow
@pytest.mark.dist
def test_the_mended_source_is_taken_by_the_same_command(ai_cli, place):
    photo = place / "texts" / "photo.txt"
    photo.write_bytes(b"\xff")
    assert ai_cli(*TRAIN).code == 4
    photo.unlink()
    assert ai_cli(*TRAIN).code == 0


def test_a_run_that_does_not_exist_cannot_be_measured(refused):
    for verb in ("eval", "watch", "logs", "stop", "diagnose", "monitor"):
        assert "no run at `runs/nothing`" in refused(4, verb, "runs/nothing")


def test_a_model_that_does_not_exist_cannot_be_served(refused):
    for verb in ("serve", "inspect"):
        assert "no model at `runs/nothing`" in refused(4, verb, "runs/nothing")


def test_a_torn_tensorflow_graph_is_refused(refused, place):
    (place / "model.pb").write_bytes(b"\x0a\x10x")
    words = ("quantize", "--input_model", "model.pb", "--output_model", "model_quant.pb")
    assert "no whole file" in refused(4, *words, "--precision", "INT8")
    assert not (place / "model_quant.pb").exists()


def test_a_format_that_is_not_read_is_refused_by_name(refused, place):
    (place / "model.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(30))
    words = ("quantize", "--input-model", "model.tflite", "--output-model", "small")
    assert "TensorFlow Lite" in refused(2, *words)


def test_a_target_with_other_files_is_refused_before_any_text_is_packed(place, refused):
    for name in ("model", "mine"):
        (place / name).mkdir()
    (place / "model" / "config.json").write_text("{}")
    (place / "mine" / "letter.txt").write_text("dear")
    words = ("quantize", "--input-model", "model", "--output-model", "mine", "--data", "texts")
    assert "holds files" in refused(2, *words)


def test_a_model_that_is_not_there_cannot_be_quantized(refused):
    words = ("quantize", "--input-model", "nothing", "--output-model", "small")
    assert "no model at `nothing`" in refused(4, *words)


def test_kubernetes_is_refused_before_anything_starts(refused, place):
    err = refused(2, *TRAIN, "--on", "kubernetes")
    assert "`kubernetes` are not built yet" in err
    assert "--on local" in err


def test_a_folder_that_is_read_only_is_told(refused, disk):
    disk("ro,size=1m")
    err = refused(5, *TRAIN)
    assert "Read-only file system" in err
    assert "--set output=FOLDER" in err


@pytest.mark.slow
@pytest.mark.dist
def test_a_port_that_is_in_use_is_told_with_one_that_is_free(refused, finished):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused(5, "serve", finished.root, "--port", port)
        assert f"port {port} " in refused(5, "monitor", finished.root, "--port", port)


@pytest.mark.slow
@pytest.mark.dist
def test_a_metrics_port_that_is_in_use_stops_before_the_ranks_start(refused, place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} " in refused(5, *TRAIN, "--set", f"monitor.prometheus_port={port}")
    assert read_events(run_in(place)) == []


@pytest.mark.slow
@pytest.mark.dist
def test_a_full_disk_keeps_the_checkpoints_and_the_same_command_goes_on(ai_cli, start, disk, place):
    disk("size=1600k")
    write_spec(place, {"checkpoint.every_steps": 2})
    run = run_in(place)
    ran = ai_cli(*TRAIN)
    assert (ran.code, ran.out) == (5, ""), ran.err
    told_once(ran.err)
    assert "no space left" in ran.err, ran.err + chain_case.logs(run)
    kept = run.checkpoint_steps()
    assert kept
    assert kept[-1] < 8
    disk("remount,size=16m")
    command = start(*TRAIN)
    assert command.wait() == 0, command.err
    assert f"resuming from the checkpoint of step {kept[-1]}" in command.err
    assert {e.step for e in read_events(run) if isinstance(e, StepDone)} == set(range(1, 9))
    assert left_of(command) == []


@pytest.mark.slow
@pytest.mark.dist
def test_a_damaged_checkpoint_is_not_measured(refused, finished):
    damage(finished.checkpoint(8))
    assert "is damaged" in refused(4, "eval", finished.root, "--step", "8")


@pytest.mark.slow
@pytest.mark.dist
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(ai_cli, finished):
    damage(finished.checkpoint(8))
    ran = ai_cli(*TRAIN, "--json")
    assert ran.code == 0, ran.err
    assert "warning: checkpoint file" in ran.err
    assert "resuming from the checkpoint of step 4" in ran.err
    assert ran.json["loss"] == pytest.approx(losses(finished)[8], abs=1e-5)


@pytest.mark.slow
@pytest.mark.dist
def test_a_run_whose_checkpoints_are_all_damaged_is_not_begun_again(refused, finished):
    for step in finished.checkpoint_steps():
        damage(finished.checkpoint(step))
    err = refused(4, *TRAIN)
    assert "no checkpoint of run `tiny` is whole" in err
    assert "--fresh" in err
    assert finished.checkpoint_steps() == [4, 8]


@pytest.mark.slow
@pytest.mark.dist
def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(refused, finished):
    assert "it has: 4, 8" in refused(4, "eval", finished.root, "--step", "5")


@pytest.mark.slow
@pytest.mark.dist
def test_two_commands_do_not_work_on_one_run(refused, finished):
    spec = finished.spec_file.read_bytes()
    with finished.locked():
        for verb in ("run", "train"):
            err = refused(5, verb, "run.yaml", "-y", "--set", "checkpoint.keep=9")
            assert f"in use by process {os.getpid()}" in err
        assert "in use" in refused(5, "run", "run.yaml", "-y", "--fresh")
    assert finished.spec_file.read_bytes() == spec


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("content", [b"{", b"", b"\xff\x00", b'{"key": 1}'])
def test_a_damaged_result_is_made_again_with_a_warning(ai_cli, finished, content):
    result = finished.results / "compress.json"
    result.write_bytes(content)
    ran = ai_cli("run", "run.yaml", "-y")
    assert ran.code == 0, ran.err
    assert "doing stage `compress` again" in ran.err
    assert b"quality" in result.read_bytes()


@pytest.mark.slow
@pytest.mark.dist
def test_a_result_of_another_version_is_made_again_with_a_warning(ai_cli, finished):
    result = finished.results / "evaluate.json"
    result.write_text(result.read_text().replace('"loss"', '"lost"'))
    ran = ai_cli("run", "run.yaml", "-y")
    assert ran.code == 0, ran.err
    assert "doing stage `evaluate` again" in ran.err


@pytest.mark.slow
@pytest.mark.dist
def test_a_run_without_its_data_result_says_how_to_get_it(refused, finished):
    (finished.results / "data.json").unlink()
    assert "stage `data` is not done" in refused(4, "eval", finished.root)


def damage(checkpoint):
    file = max(checkpoint.glob("*.distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def losses(run):
    return {e.step: e.loss for e in read_events(run) if isinstance(e, StepDone)}
