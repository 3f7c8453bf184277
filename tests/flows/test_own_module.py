"""A module and data of the user's own through the command line: what is wrong is told with a hint."""

import sys

import pytest

from chain_case import curve, run_in, write_spec

TRAIN = ("train", "run.yaml", "-y", "--json")
CODE = """
import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rows = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        x = self.first(x)
        for row in self.rows:
            x = row(x)
        return self.last(x)


TABLE = {"inlet": "first", "layers": "rows", "outlet": "last", "split": {"rows.*": "column"}}


class Twisted(Net):
    def forward(self, x):
        return -super().forward(x)


def build():
    return Net(), TABLE


def twisted():
    return Twisted(), TABLE


def looks():
    module = Net()
    float(module.first.weight.sum())
    return module


def fails():
    raise OSError("no weights here")


def wrong_table():
    return Net(), {"layers": "row"}


def data():
    print("reading")
    made = np.random.default_rng(0)
    rows = made.normal(size=(40, 4)).astype("float32")
    return [(row, row.sum(keepdims=True)) for row in rows]


def empty():
    return []


def half(outputs, target):
    return (outputs - target).square().mean(dim=1) / 2


def scalar(outputs, target):
    return (outputs - target).square().mean()
"""


@pytest.fixture
def own(place, monkeypatch):
    """Code of the user's in the current folder, and a function that writes a spec which names it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    (place / "own_code.py").write_text(CODE)

    def write(**changes):
        named = {"module": "own_code:build", "loss": "squared_error"}
        off = {"enabled": False}
        spec = {
            "model": named,
            "data": {"source": "own_code:data", "validation_fraction": 0.2},
            "compress": off,
            "serve": off,
        }
        return write_spec(place, spec | {key.replace("__", "."): v for key, v in changes.items()})

    from cnai.flows.module import facts

    facts.cache_clear()
    write()
    return write


def refused(ai_cli, *sets, code=2):
    ran = ai_cli(*TRAIN, *(word for one in sets for word in ("--set", one)))
    assert ran.code == code, ran.err
    assert ran.json["hint"]
    return ran.json


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.module=own_code:absent", "cannot load `own_code:absent`"),
        ("model.module=nowhere:build", "cannot load `nowhere:build`"),
        ("model.module=own_code:CODE", "cannot load `own_code:CODE`"),
        ("model.module=own_code:TABLE", "is no function"),
        ("model.module=own_code:fails", "failed: OSError: no weights here"),
        ("model.module=own_code:data", "returned list, no torch module"),
        ("model.module=own_code:wrong_table", "names `row`, which the module does not have"),
        ("model.loss=mse", "`model.loss` is `mse`, which is no loss"),
    ],
)
def test_a_wrong_name_is_told_before_anything_starts(ai_cli, own, place, setting, message):
    assert message in refused(ai_cli, setting)["error"]
    assert not (place / "runs").exists()


def test_a_width_that_does_not_divide_is_told(ai_cli, own):
    sizes = ("parallel.data_parallel.size=1", "parallel.model_parallel.size=3", "resources.ranks=3")
    found = refused(ai_cli, *sizes)
    assert "does not divide `rows.0` 8" in found["error"]
    assert "set it to 2 or 4" in found["hint"]


def test_layers_that_nobody_named_are_not_compiled(ai_cli, own):
    found = refused(ai_cli, "model.module=own_code:looks", "train.compile=true")
    assert "names none" in found["error"]


def test_a_dataset_without_items_is_told(ai_cli, own):
    assert "has 0 items" in refused(ai_cli, "data.source=own_code:empty", code=4)["error"]


def test_a_plan_shows_the_parameters_of_each_stage(ai_cli, own):
    ran = ai_cli("plan", "run.yaml", "--json", "--set", "parallel.pipeline_parallel.stages=2",
                 "--set", "resources.ranks=4")  # fmt: skip
    assert ran.code == 0, ran.err
    assert [stage["parameters"] for stage in ran.json["stages"]] == [40 + 72, 72 + 9]
    assert ran.json["estimate"] is None


@pytest.mark.slow
@pytest.mark.dist
class TestRuns:
    def test_code_that_looks_at_numbers_while_it_builds_is_counted_too(self, ai_cli, own):
        ran = ai_cli(*TRAIN, "--set", "model.module=own_code:looks")
        assert ran.code == 0, ran.err

    def test_a_whole_run_prints_one_object_and_measures_without_classes(self, ai_cli, own, place):
        ran = ai_cli("run", "run.yaml", "-y", "--json")
        assert ran.code == 0, ran.err
        found = ran.json["evaluation"]
        assert found["loss"] < found["loss_before"]
        assert (found["accuracy"], found["perplexity"], found["sequences"]) == (None, None, 8)
        assert len(curve(run_in(place))) == 8

    def test_a_loss_of_the_users_own_is_taken(self, ai_cli, own, place):
        whole = ai_cli(*TRAIN, "--set", "train.warmup_steps=1").json
        ran = ai_cli(*TRAIN, "--set", "train.warmup_steps=1", "--set", "name=half",
                     "--set", "model.loss=own_code:half")  # fmt: skip
        assert ran.code == 0, ran.err
        assert ran.json["first_loss"] == pytest.approx(whole["first_loss"] / 2, rel=1e-5)

    def test_a_loss_that_is_not_one_number_a_row_is_told_by_the_rank(self, ai_cli, own):
        found = refused(ai_cli, "model.loss=own_code:scalar")
        assert "the loss has shape ()" in found["error"]

    def test_outputs_that_do_not_fit_the_target_are_told(self, ai_cli, own):
        found = refused(ai_cli, "model.loss=cross_entropy")
        assert found["where"] == "model.loss"
        assert "wants the number of a class" in found["error"]

    def test_a_module_that_does_more_than_its_table_says_is_not_cut(self, ai_cli, own):
        sets = ("model.module=own_code:twisted", "parallel.data_parallel.size=1",
                "parallel.pipeline_parallel.stages=2")  # fmt: skip
        assert "computes something else" in refused(ai_cli, *sets)["error"]

    def test_data_that_changed_in_the_middle_of_a_run_is_refused(self, ai_cli, own, place):
        assert ai_cli(*TRAIN, "--set", "checkpoint.every_steps=4").code == 0
        code = (place / "own_code.py").read_text().replace("default_rng(0)", "default_rng(1)")
        (place / "own_code.py").write_text(code)
        (place / "runs" / "tiny" / "results" / "train.json").unlink()
        for step in (8,):
            checkpoint = place / "runs" / "tiny" / "checkpoints" / f"step-{step}"
            checkpoint.rename(checkpoint.with_name("gone"))
        found = refused(ai_cli, code=4)
        assert "another dataset than the one that the run began with" in found["error"]
