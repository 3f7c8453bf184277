import json
import math
import os
import shutil
import subprocess
import sys
import time

import pytest

import chain_case
from chain_case import run_in, write_spec

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STAGES = ["data", "train", "evaluate", "export", "compress", "serve"]
CUBE = {
    "parallel": {
        "data_parallel": {"size": 2},
        "model_parallel": {"size": 2},
        "pipeline_parallel": {"stages": 2},
    },
    "resources": None,
}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The whole chain on eight ranks, done once: its folder, command and seconds."""
    folder = tmp_path_factory.mktemp("cube")
    chain_case.write_texts(folder / "texts")
    write_spec(folder, CUBE)
    begin = time.monotonic()
    command = chain_case.Command("run", "run.yaml", "-y", "--json", folder=folder)
    assert command.wait() == 0, command.err
    return folder, command, time.monotonic() - begin


@pytest.fixture
def cube(first, place):
    """A copy of that folder to work in."""
    shutil.copytree(first[0], place, dirs_exist_ok=True)
    return run_in(place)


def stages_of(err):
    """Return what each stage did, by its name."""
    lines = (line.partition(": ") for line in err.splitlines())
    return {name: word for name, _, word in lines if name in STAGES}


def test_the_chain_prints_one_object_with_what_it_found(first):
    folder, command, _ = first
    found = command.json
    assert found["layout"] == "dp2 x tp2 x pp2"
    assert found["train"]["steps"] == 8
    assert found["train"]["first_loss"] == pytest.approx(math.log(300), abs=0.5)
    assert found["train"]["loss"] < found["train"]["first_loss"]
    assert found["train"]["tokens_per_second"] > 0
    assert run_in(folder).checkpoint_steps() == [4, 8]


def test_the_chain_measures_the_model_before_and_after_training(first):
    found = first[1].json["evaluation"]
    assert found["perplexity"] < found["perplexity_before"]
    assert math.log(found["perplexity"]) == pytest.approx(found["loss"], rel=1e-6)
    assert 0 < found["trigram_bits_per_byte"] < found["bits_per_byte"] < 8
    assert found["sequences"] == 24


def test_the_chain_compresses_within_the_gate_and_says_how_sure_it_is(first):
    found = first[1].json
    quality, evaluation = found["compressed"]["quality"], found["evaluation"]
    assert quality["low"] <= quality["relative_loss"] <= quality["high"]
    assert quality["relative_loss"] <= quality["allowed_loss"] == 0.01
    assert quality["before"] == pytest.approx(evaluation["perplexity"], rel=1e-5)
    assert found["sizes_bytes"]["int8"] < found["sizes_bytes"]["fp32"] / 2


def test_the_chain_gets_an_answer_from_the_compressed_model(first):
    answer = first[1].json["answer"]
    assert (answer["model"], answer["prompt"]) == ("model-int8", "the cat")
    assert 0 < answer["completion_tokens"] <= 6
    assert answer["text"]


def test_the_chain_tells_the_time_of_each_stage(first):
    assert list(first[1].json["stage_seconds"]) == STAGES


def test_every_place_that_the_chain_names_is_there(first):
    folder, command, _ = first
    found = command.json
    places = [found["run"], found["train"]["checkpoint"]]
    places += [found[name]["path"] for name in ("model", "compressed")]
    assert all((folder / path).is_dir() for path in places)


def test_a_second_run_does_no_stage_again_and_finds_the_same(first, start, cube):
    begin = time.monotonic()
    again = start("run", "run.yaml", "-y", "--json")
    assert again.wait() == 0, again.err
    assert stages_of(again.err) == dict.fromkeys(STAGES, "done before")
    assert time.monotonic() - begin < first[2]
    now, before = again.json, first[1].json
    assert all(now[name] == before[name] for name in ("train", "evaluation", "stage_seconds"))
    assert now["compressed"]["quality"] == before["compressed"]["quality"]


def test_only_what_is_missing_is_done_again(ai_cli, cube):
    for name in STAGES[2:]:
        (cube.results / f"{name}.json").unlink()
    shutil.rmtree(cube.artifacts)
    ran = ai_cli("run", "run.yaml", "-y")
    assert ran.code == 0, ran.err
    assert stages_of(ran.err) == {
        **dict.fromkeys(STAGES[:2], "done before"),
        **dict.fromkeys(STAGES[2:], "started"),
    }


def test_a_model_that_was_removed_is_made_again(ai_cli, cube):
    shutil.rmtree(cube.artifacts / "model-int8")
    ran = ai_cli("run", "run.yaml", "-y")
    assert (ran.code, stages_of(ran.err)["compress"]) == (0, "started")
    assert "making it again" in ran.err


def test_a_run_folder_that_was_moved_still_names_its_places(ai_cli, place, cube):
    (place / "runs").rename(place / "elsewhere")
    ran = ai_cli("run", "run.yaml", "-y", "--json", "--set", "output=elsewhere")
    assert ran.code == 0, ran.err
    assert ran.json["compressed"]["path"].startswith("elsewhere/tiny/")


def test_another_layout_trains_nothing_again_and_the_real_one_is_told(ai_cli, cube):
    ran = ai_cli("run", "run.yaml", "-y", "--json", "--set", "parallel.model_parallel.size=1")
    assert ran.code == 0, ran.err
    assert ran.json["layout"] == "dp2 x tp2 x pp2"


def test_another_spec_is_not_mixed_into_a_run(ai_cli, cube):
    spec = cube.spec_file.read_bytes()
    ran = ai_cli(
        "run", "run.yaml", "-y", "--set", "train.learning_rate=0.1", "--set", "train.seed=3"
    )
    assert ran.code == 2
    assert "differ: train.learning_rate, train.seed" in ran.err
    assert "--fresh" in ran.err
    assert cube.spec_file.read_bytes() == spec


def test_a_fresh_start_keeps_the_old_run_under_another_name(ai_cli, place, finished):
    words = ("train", "run.yaml", "-y", "--json", "--fresh", "--set", "train.steps=1")
    ran = ai_cli(*words, "--set", "train.warmup_steps=0")
    assert (ran.code, ran.json["steps"]) == (0, 1), ran.err
    (old,) = (path for path in (place / "runs").iterdir() if path.name != "tiny")
    assert json.loads((old / "results" / "train.json").read_text())["result"]["steps"] == 8


def test_a_dry_run_writes_nothing(ai_cli, place):
    before = sorted(place.rglob("*"))
    ran = ai_cli("run", "run.yaml", "--dry-run")
    assert (ran.code, sorted(place.rglob("*"))) == (0, before)
    assert ran.out.startswith("layout    dp2 x tp1 x pp1")


def test_a_dry_run_of_another_spec_leaves_a_run_alone(ai_cli, finished):
    before = finished.spec_file.read_bytes()
    assert ai_cli("train", "--dry-run", "--set", "train.seed=9").code == 0
    assert finished.spec_file.read_bytes() == before


def test_without_a_terminal_the_flag_is_asked_for(ai_cli, place):
    ran = ai_cli("run", "run.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "Train `tiny` for 8 steps on 2 ranks?" in ran.err
    assert "hint: add `-y`" in ran.err
    assert not (place / "runs").exists()


def test_on_a_terminal_the_plan_is_shown_and_a_no_starts_nothing(place):
    main, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cnai", "run", "run.yaml"],
        stdin=terminal, stdout=terminal, stderr=terminal,
    ) as process:  # fmt: skip
        os.close(terminal)
        shown = _read_until(main, "[y/N]")
        os.write(main, b"n\n")
        shown += _read_until(main, "hint:")
        assert process.wait(20) == 130
    os.close(main)
    assert "layout    dp2 x tp1 x pp1 = 2 ranks" in shown
    assert "Train `tiny` for 8 steps on 2 ranks?" in shown
    assert not (place / "runs").exists()


def _read_until(terminal, text):
    shown = ""
    while text not in shown:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown
