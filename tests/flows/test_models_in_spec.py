import math
import sys

import pytest

from chain_case import curve, run_in, write_spec

TRAIN = ("train", "run.yaml", "-y", "--json")
MODULE = """
from torch import nn


def build():
    return nn.Sequential(nn.Embedding(300, 32), nn.Tanh(), nn.Linear(32, 300))


def nothing():
    return None
"""
ranks = pytest.mark.dist, pytest.mark.slow


def marked(test):
    for mark in ranks:
        test = mark(test)
    return test


@pytest.fixture
def module(place, monkeypatch):
    """A module of the user's own in the current folder, and a spec that names it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    (place / "my_model.py").write_text(MODULE)
    return write_spec(place, {"model": {"module": "my_model:build", "vocab": 300, "sequence": 32}})


@marked
def test_an_exported_model_is_trained_further(ai_cli, finished, place):
    more = {
        "name": "more",
        "model": {"huggingface": "runs/tiny/artifacts/model", "sequence": 32},
        "train": {"steps": 2, "batch": 4, "learning_rate": 1e-5},
    }
    write_spec(place, more)
    before = ai_cli("eval", finished.root, "--json").json["perplexity"]
    ran = ai_cli("run", "run.yaml", "-y", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["evaluation"]["perplexity_before"] == pytest.approx(before, rel=1e-5)
    assert ran.json["train"]["first_loss"] < math.log(300) - 0.4


@marked
def test_tokens_count_in_the_sequence_of_the_model_folder(ai_cli, finished, place):
    more = {
        "name": "more",
        "model": {"huggingface": "runs/tiny/artifacts/model"},
        "train": {"tokens": 3 * 4 * 32 - 1, "batch": 4},
    }
    write_spec(place, more)
    ran = ai_cli("run", "run.yaml", "-y", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["train"]["steps"], ran.json["evaluation"]["step"]) == (3, 3)


@marked
def test_tokens_may_be_given_instead_of_steps(ai_cli, place):
    write_spec(place, {"train": {"tokens": 2 * 4 * 32 + 1, "batch": 4}})
    ran = ai_cli(*TRAIN)
    assert (ran.code, ran.json["steps"]) == (0, 3), ran.err
    assert ai_cli(*TRAIN).json["steps"] == 3


@marked
def test_a_module_of_the_users_own_is_trained_and_measured_but_not_compressed(ai_cli, module):
    ran = ai_cli("run", "run.yaml", "-y", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["layout"] == "dp2 x tp1 x pp1"
    assert ran.json["train"]["loss"] < ran.json["train"]["first_loss"]
    assert ran.json["evaluation"]["perplexity"] < ran.json["evaluation"]["perplexity_before"]
    assert (ran.json["model"], ran.json["compressed"], ran.json["answer"]) == (None, None, None)
    assert "warning: a module of your own is trained and evaluated, but not compressed" in ran.err
    small = ai_cli("quantize", "--input-model", "runs/tiny", "--output-model", "small")
    assert (small.code, "which is not exported" in small.err) == (4, True)
    served = ai_cli("serve", "runs/tiny")
    assert (served.code, "has no model yet" in served.err) == (4, True)


@pytest.mark.parametrize(
    ("key", "size"), [("model_parallel.size", 2), ("pipeline_parallel.stages", 2)]
)
def test_a_module_without_a_table_is_not_split(ai_cli, module, key, size):
    ran = ai_cli(*TRAIN, "--set", f"parallel.{key}={size}", "--set", "resources.ranks=4")
    assert ran.code == 2
    assert "sharding table" in ran.json["error"]
    assert ran.json["hint"]


@marked
def test_a_module_of_the_users_own_is_sharded(ai_cli, place, module):
    whole = ai_cli(*TRAIN)
    ran = ai_cli(*TRAIN, "--set", "name=more", "--set", "parallel.data_parallel.sharding=full")
    assert (whole.code, ran.code) == (0, 0), ran.err
    assert curve(run_in(place, "more")) == pytest.approx(curve(run_in(place)), abs=1e-5)


@pytest.mark.parametrize("function", ["missing", "nothing"])
def test_a_function_that_gives_no_module_is_told_before_anything_starts(
    ai_cli, place, module, function
):
    ran = ai_cli(*TRAIN, "--set", f"model.module=my_model:{function}")
    assert (ran.code, ran.json["where"]) == (2, "model.module")
    assert f"my_model:{function}" in ran.json["error"]
    assert not (place / "runs").exists()


@marked
@pytest.mark.parametrize(
    "changes",
    [
        {"parallel": {"model_parallel": {"size": 2, "split_layer": 1}}},
        {"parallel": {"data_parallel": {"size": 2, "sharding": "full"}}},
    ],
    ids=["split_layer 1", "sharding full"],
)
def test_the_layout_does_not_show_in_the_losses(ai_cli, place, finished, changes):
    write_spec(place, {"name": "other", **changes})
    ran = ai_cli(*TRAIN)
    assert ran.code == 0, ran.err
    assert curve(run_in(place, "other")) == pytest.approx(curve(finished), abs=1e-5)


@marked
def test_a_head_of_its_own_is_trained_exported_and_compressed(ai_cli, place):
    sizes = {"model_parallel": {"size": 2}, "pipeline_parallel": {"stages": 1}}
    write_spec(place, {"model.tied_head": False, "parallel": sizes})
    ran = ai_cli("run", "run.yaml", "-y", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["layout"] == "dp1 x tp2 x pp1"
    tied = ran.json["model"]["parameters"] - 300 * 32
    assert tied == 36384
    assert ran.json["compressed"]["quality"]["before"] == pytest.approx(
        ran.json["evaluation"]["perplexity"], rel=1e-5
    )
