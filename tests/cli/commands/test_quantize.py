from pathlib import Path

import numpy as np
import pytest

from guard_case import classifier, labelled, written

FLAGS = ("quantize", "--input_model", "m.onnx", "--output_model", "q.onnx")


@pytest.fixture
def model(tmp_path):
    path = written(classifier(), tmp_path)
    labelled(path, 60, tmp_path / "d.npz")
    return path


def test_a_loss_with_its_interval_is_printed(ai_cli, model):
    done = ai_cli(*FLAGS, "--eval", "d.npz", "--max_loss", "50%", "--budget", "0")
    assert done.code == 0
    assert "loss: accuracy" in done.out
    assert "95 % interval" in done.out


def test_the_command_of_the_report_says_what_was_asked(ai_cli, model):
    ai_cli(*FLAGS, "--eval", "d.npz", "--max-loss", "0.5", "--budget", "0s", "--seed", "3")
    page = Path("q.onnx.report.md").read_text()
    assert "--eval d.npz --max-loss 0.5 --budget 0.0 --seed 3" in page


def test_a_missed_goal_ends_with_six_and_names_the_model_beside(ai_cli, model):
    words = ("--eval", "d.npz", "--max-loss", "0.1%", "--strict", "--budget", "0")
    done = ai_cli(*FLAGS, *words, "--json")
    assert (done.code, done.json["exit_code"]) == (6, 6)
    assert "q.missed.onnx" in done.json["error"]
    assert Path("q.missed.onnx").exists()


def test_a_dry_run_writes_nothing(ai_cli, model):
    done = ai_cli(*FLAGS, "--eval", "d.npz", "--dry-run", "--json")
    assert (done.code, done.json["evaluation"]) == (0, 45)
    assert not Path("q.onnx").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--mode", "static"), 2),
        (("--eval", "none.npz"), 4),
        (("--eval", "bad.npz"), 4),
        (("--eval", "d.npz", "--metric", "acuracy"), 2),
        (("--max-loss", "200%"), 2),
        (("--max-loss", "nan"), 2),
        (("--budget", "soon"), 2),
        (("--eval", "d.npz", "--engine", "tf"), 2),
        (("--eval", "d.npz", "--outputs", "z"), 2),
    ],
)
def test_mistakes_have_their_codes_and_leave_nothing(ai_cli, model, words, code):
    np.savez("bad.npz", x=np.ones((3, 5)))
    assert ai_cli(*FLAGS, *words).code == code
    assert not [one for one in Path().iterdir() if one.name.startswith(("q", ".q"))]


def test_options_of_files_are_refused_for_folders(ai_cli, tmp_path):
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    done = ai_cli("quantize", "--input_model", folder, "--output_model", "q", "--strict")
    assert done.code == 2


@pytest.mark.parametrize(
    "words", [("--metric", "f1"), ("--engine", "ort"), ("--seed", "1"), ("--eval", "d.npz")]
)
def test_an_option_of_files_is_not_passed_over_for_a_folder(ai_cli, tmp_path, words):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    done = ai_cli("quantize", "--input_model", "model", "--output_model", "small", *words)
    assert (done.code, f"`{words[0]}` is for model files" in done.err) == (2, True)


@pytest.mark.parametrize("words", [("--data", "texts"), ("--embeddings",), ("--unmeasured",)])
def test_an_option_of_folders_is_not_passed_over_for_a_file(ai_cli, model, words):
    done = ai_cli(*FLAGS, *words)
    assert (done.code, f"`{words[0]}` is for folders" in done.err) == (2, True)
    assert not Path("q.onnx").exists()
