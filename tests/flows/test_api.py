import pytest

from chain_case import SPEC, run_in
from cnai import api
from cnai.core.errors import DataError, RunError, SpecError

slow = pytest.mark.slow
dist = pytest.mark.dist


class Heard:
    """A listener that remembers."""

    def __init__(self):
        self.stages, self.warnings = [], []

    def stage(self, name, *, skipped=False):
        self.stages.append((name, skipped))

    def note(self, text):
        pass

    def warn(self, text):
        self.warnings.append(text)

    def fraction(self, what, done):
        assert 0 <= done <= 1

    def training(self, progress):
        assert progress.run == "tiny"


def test_a_dict_is_planned():
    plan = api.plan({"parallel": {"data_parallel": {"size": 4}, "model_parallel": {"size": 2}}})
    assert str(plan.layout) == "dp4 x tp2 x pp1"


def test_the_bare_form_is_planned():
    plan = api.plan(
        {
            "data_parallel": {"size": 2},
            "model_parallel": {"size": 2, "split_layer": 1},
            "pipeline_parallel": {"stages": 2},
        }
    )
    assert (plan.layout.ranks, plan.layout.split_layer) == (8, 1)


def test_a_spec_is_taken_as_it_is():
    spec = api.spec(SPEC)
    assert api.spec(spec) is spec


def test_a_mistake_is_raised_with_its_hint():
    with pytest.raises(SpecError) as caught:
        api.plan({"trian": {"steps": 3}})
    assert "train" in caught.value.hint


def test_a_run_that_is_not_there_is_told():
    with pytest.raises(DataError, match="no run at"):
        api.evaluate("runs/nothing")


@slow
@dist
def test_the_whole_chain_runs_from_a_dict_and_is_told_to_a_listener(finished, capfd):
    heard = Heard()
    summary = api.run(SPEC, listener=heard)
    assert summary.servable == "runs/tiny/artifacts/model-int8"
    assert summary.train.steps == 8
    assert {skipped for _, skipped in heard.stages} == {True}
    assert heard.warnings == []
    assert capfd.readouterr().out == ""


@slow
@dist
def test_training_alone_goes_on_where_it_stands(finished):
    assert api.train(SPEC).loss == api.run(SPEC).train.loss


@slow
@dist
def test_a_run_in_use_is_not_touched(finished):
    with finished.locked(), pytest.raises(RunError, match="in use by process"):
        api.train(SPEC)


@slow
@dist
def test_measuring_quantizing_and_diagnosing_take_a_run(finished, place):
    found = api.evaluate("runs/tiny")
    artifact = api.quantize("runs/tiny", place / "small")
    assert artifact.quality.before == pytest.approx(found.perplexity, rel=1e-5)
    assert api.diagnose(run_in(place).root).verdict == "healthy"
