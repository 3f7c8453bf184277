import pytest

from cnai.core.spec import digest, load_spec, same_work
from cnai.core.spec.explain import all_keys
from cnai.core.spec.identity import FREE, value_of


def spec(*sets):
    return load_spec({}, sets=sets).spec


def test_equal_specs_have_equal_digests():
    assert digest(spec("train.steps=200")) == digest(spec())


def test_any_change_changes_the_digest():
    assert digest(spec("serve.port=1")) != digest(spec())


@pytest.mark.parametrize(
    "change",
    ["output=x", "name=y", "serve.port=1", "resources.on=kubernetes", "data_parallel.size=2",
     "monitor.prometheus_port=9000", "train.max_restarts=9", "compress.max_loss=0.02"],
)  # fmt: skip
def test_a_change_of_place_is_the_same_work(change):
    assert same_work(spec(), spec(change)) == []


@pytest.mark.parametrize(
    "change",
    ["train.steps=5", "model.layers=2", "data.source=x", "train.seed=1", "train.batch=8",
     "model.huggingface=x"],
)  # fmt: skip
def test_a_change_of_the_model_is_other_work(change):
    assert same_work(spec(), spec(change)) == [change.partition("=")[0]]


def test_all_keys_that_differ_are_named():
    changed = spec("train.steps=5", "train.seed=1", "output=x")
    assert same_work(spec(), changed) == ["train.steps", "train.seed"]


def test_every_free_key_exists():
    sections = {key.rpartition(".")[0] for key in all_keys()} | set(all_keys()) | {"parallel"}
    assert set(FREE) <= sections


def test_a_value_is_found_by_its_key():
    assert value_of(spec(), "parallel.model_parallel.split_layer") == 0
