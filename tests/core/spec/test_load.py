import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from cnai.core.errors import SpecError
from cnai.core.spec import load_spec, user_config_path
from cnai.core.spec.explain import all_keys
from mistakes import mistakes

BARE = {
    "data_parallel": {"size": 8},
    "model_parallel": {"size": 4, "split_layer": 16},
    "pipeline_parallel": {"stages": 4},
}


@pytest.fixture
def spec_file(tmp_path, monkeypatch):
    """Write `spec.yaml` in the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="spec.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return write


def test_an_empty_dict_gives_the_defaults():
    assert load_spec({}).spec.train.steps == 200


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "---\n", "null\n", "train:\nmodel: {}\n"]
)
def test_a_file_without_values_gives_the_defaults(spec_file, text):
    assert load_spec(spec_file(text)).spec == load_spec({}).spec


def test_the_bare_parallel_form_is_moved_under_parallel():
    parallel = load_spec(BARE).spec.parallel
    assert parallel.data_parallel.size == 8
    assert (parallel.model_parallel.size, parallel.model_parallel.split_layer) == (4, 16)
    assert parallel.pipeline_parallel.stages == 4


def test_the_bare_form_and_the_full_one_mean_the_same():
    assert load_spec(BARE).spec == load_spec({"parallel": BARE}).spec


def test_the_bare_form_in_a_file_is_the_same(spec_file):
    assert load_spec(spec_file(json.dumps(BARE), "spec.json")).spec == load_spec(BARE).spec


def test_the_bare_form_beside_a_parallel_section_is_refused(spec_file):
    path = spec_file("data_parallel: {size: 2}\nparallel:\n  model_parallel: {size: 2}\n")
    assert mistakes(path) == snapshot(
        [
            "spec.yaml:1 data_parallel.size | `data_parallel.size` stands at the top, but there is a `parallel` section too | move it under `parallel`, as `parallel.data_parallel.size`"
        ]
    )


def test_a_flag_may_use_the_bare_form_over_the_full_one():
    loaded = load_spec({"parallel": BARE}, sets=["data_parallel.size=16"])
    assert loaded.spec.parallel.data_parallel.size == 16


def test_a_flag_wins_over_the_spec_which_wins_over_the_user_config(spec_file, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("train: {steps: 1, batch: 2, seed: 3}\n")
    path = spec_file("train:\n  steps: 10\n  batch: 20\n")
    loaded = load_spec(path, sets=["train.steps=100"], user_config=config)
    train = loaded.spec.train
    assert (train.steps, train.batch, train.seed) == (100, 20, 3)
    assert {
        key: loaded.origins[f"train.{key}"] for key in ("steps", "batch", "seed", "tokens")
    } == {
        "steps": "--set",
        "batch": "spec.yaml:3",
        "seed": "user config",
        "tokens": "default",
    }


def test_every_key_has_an_origin():
    assert tuple(load_spec({}).origins) == all_keys()


def test_a_user_config_that_is_absent_says_nothing(tmp_path):
    assert load_spec({}, user_config=tmp_path / "no.yaml").spec == load_spec({}).spec


def test_a_mistake_in_the_user_config_is_told_with_its_place(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("\ntrain: {stepz: 1}\n")
    assert mistakes({}, user_config=config) == [
        f"{config}:2 train.stepz | unknown key `train.stepz` | did you mean `train.steps`?"
    ]


def test_the_user_config_lies_where_xdg_says():
    assert str(user_config_path({"XDG_CONFIG_HOME": "/c"})) == "/c/cnai/config.yaml"


def test_the_user_config_lies_in_the_home_folder_by_default(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert str(user_config_path({})) == "/home/me/.config/cnai/config.yaml"


def test_all_mistakes_of_a_spec_are_told_at_once(spec_file):
    path = spec_file(
        "steps: 5\n"
        "train:\n"
        "  step: 4\n"
        "  batch: lots\n"
        "  schedule: Cosin\n"
        "  steps: 0\n"
        "  betas: [0.9, 1.5]\n"
        "  clip_norm: .inf\n"
        "  warmup_steps:\n"
        "name: 12\n"
        "serve: {enabled: yes}\n"
        "model: 5\n"
        "hidden_size: 3\n"
        "checkpoint: {keep: 2.5}\n"
        "monitor: {prometheus_port: 70000}\n"
        "banana: 1\n"
    )
    assert mistakes(path) == snapshot(
        [
            "spec.yaml:1 steps | unknown key `steps` | did you mean `train.steps`?",
            "spec.yaml:3 train.step | unknown key `train.step` | did you mean `train.steps`?",
            "spec.yaml:4 train.batch | `train.batch` is `lots`, but it wants a whole number, 1 or more | the default is `16`; see `ai-cli explain train.batch`",
            "spec.yaml:5 train.schedule | `train.schedule` is `Cosin`, but it wants one of `cosine`, `linear`, `constant`, `wsd` | did you mean `cosine`?",
            "spec.yaml:6 train.steps | `train.steps` is `0`, but it wants a whole number, 1 or more | the default is `200`; see `ai-cli explain train.steps`",
            "spec.yaml:7 train.betas | `train.betas` is `[0.9, 1.5]`, but it wants a list of 2 numbers, 0 or more, below 1 | the default is `[0.9, 0.95]`; see `ai-cli explain train.betas`",
            "spec.yaml:8 train.clip_norm | `train.clip_norm` is `.inf`, but it wants a number or none, above 0 | the default is `1.0`; see `ai-cli explain train.clip_norm`",
            "spec.yaml:9 train.warmup_steps | `train.warmup_steps` is empty, but it wants a whole number, 0 or more | the default is `10`; see `ai-cli explain train.warmup_steps`",
            'spec.yaml:10 name | `name` is `12`, but it wants text, matching `^[A-Za-z0-9][A-Za-z0-9._-]*$` | put it in quotes: `name: "12"`',
            "spec.yaml:11 serve.enabled | `serve.enabled` is `yes`, but it wants `true` or `false` | write `enabled: true`",
            "spec.yaml:12 model | `model` is `5`, but it is a section with keys of its own | its keys are `layers`, `width`, `heads`, `kv_heads`, `ffn_width`, `vocab`, `sequence`, `rope_theta`, `norm_eps`, `tied_head`, `head_width`, `attention_bias`, `qk_norm`, `experts`, `experts_per_token`, `expert_width`, `sparse_step`, `dense_layers`, `normed_choice`, `huggingface`, `module`, `loss`",
            "spec.yaml:13 hidden_size | unknown key `hidden_size` | did you mean `model.width`?",
            "spec.yaml:14 checkpoint.keep | `checkpoint.keep` is `2.5`, but it wants a whole number, 1 or more | the default is `2`; see `ai-cli explain checkpoint.keep`",
            "spec.yaml:15 monitor.prometheus_port | `monitor.prometheus_port` is `70000`, but it wants a whole number or none, 1 or more, at most 65535 | see `ai-cli explain monitor.prometheus_port`",
            "spec.yaml:16 banana | unknown key `banana` | the sections are `version`, `name`, `output`, `model`, `data`, `parallel`, `train`, `resources`, `checkpoint`, `monitor`, `compress`, `serve`; see `ai-cli explain`",
        ]
    )


def test_the_error_of_several_mistakes_is_one_object():
    with pytest.raises(SpecError) as caught:
        load_spec({"train": {"stepz": 1, "steps": 0}})
    told = caught.value.to_dict()
    assert told["error"] == "unknown key `train.stepz`"
    assert [one["where"] for one in told["others"]] == ["train.steps"]


def test_contradictions_wait_until_each_key_is_sound():
    assert len(mistakes({"train": {"stepz": 1, "tokens": 5, "steps": 5}})) == 1


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("train.step", "train.steps"),
        ("steps", "train.steps"),
        ("lr", "train.learning_rate"),
        ("train.lr", "train.learning_rate"),
        ("model.hidden_size", "model.width"),
        ("train.learning-rate", "train.learning_rate"),
        ("Train.steps", "train.steps"),
        ("split_layer", "parallel.model_parallel.split_layer"),
        ("parallel.data_paralel.size", "parallel.data_parallel.size"),
        ("model_parallel.split", "parallel.model_parallel.split_layer"),
        ("tp", "parallel.model_parallel.size"),
        ("serve.poort", "serve.port"),
    ],
)
def test_an_unknown_key_names_the_one_that_was_meant(key, meant):
    assert f"did you mean `{meant}`?" in mistakes({}, sets=[f"{key}=1"])[0]


def test_a_newer_version_is_told_before_its_unknown_keys(spec_file):
    path = spec_file("version: 2\nfrobnicate: {a: 1}\n")
    assert mistakes(path) == snapshot(
        [
            "spec.yaml:1 version | the spec has version 2, but this cnai knows only up to 1 | upgrade with `pip install --upgrade cnai`"
        ]
    )


@pytest.mark.parametrize("version", ["0", "-1", "one", "1.5", "true"])
def test_a_version_that_is_none_is_refused(version):
    assert "`version` is" in mistakes({}, sets=[f"version={version}"])[0]


@pytest.mark.parametrize("text", ["", "=", "train.steps", "train.steps=", "=5", "  = 5"])
def test_a_flag_that_sets_nothing_is_refused(text):
    assert f"`--set {text}` sets nothing" in mistakes({}, sets=[text])[0]


def test_a_flag_whose_value_is_no_yaml_is_refused():
    assert mistakes({}, sets=["train.betas=[0.9, "]) == snapshot(
        [
            "--set train.betas:1:6 | not valid YAML: expected the node content, but found '<stream end>', at `[0.9,` | mind the indentation and the space after `:`, and quote text with `:` or `#`"
        ]
    )


def test_a_flag_may_set_a_whole_section():
    train = load_spec({"train": {"seed": 7}}, sets=["train={steps: 5, batch: 4}"]).spec.train
    assert (train.steps, train.batch, train.seed) == (5, 4, 7)


def test_a_flag_may_set_none():
    assert load_spec({}, sets=["train.clip_norm=null"]).spec.train.clip_norm is None


def test_the_last_of_two_flags_wins():
    assert load_spec({}, sets=["train.steps=1", "train.steps=2"]).spec.train.steps == 2


def test_a_flag_keeps_what_follows_a_second_equals_sign():
    assert load_spec({}, sets=["serve.prompt=a=b"]).spec.serve.prompt == "a=b"


def test_the_keys_of_a_value_are_refused():
    assert mistakes({"train": {"steps": {"a": 1}}}) == snapshot(
        [
            "train.steps.a | `train.steps` has a key `a`, but it wants a whole number | see `ai-cli explain train.steps`"
        ]
    )


@pytest.mark.parametrize("value", [object(), b"8", {1, 2}, 2**70, float("nan"), "8", True, [8], 1j])
def test_a_dict_with_a_value_of_another_type_is_refused(value):
    assert "`train.steps` is" in mistakes({"train": {"steps": value}})[0]


@pytest.mark.parametrize("key", [1, None, ("a",), "a.b"])
def test_a_dict_with_an_odd_key_is_refused(key):
    with pytest.raises(SpecError):
        load_spec({"train": {key: 1}})


def test_a_dict_is_not_changed():
    source = {"data_parallel": {"size": 2}}
    load_spec(source, sets=["data_parallel.size=4"])
    assert source == {"data_parallel": {"size": 2}}


def test_a_long_value_is_cut_in_the_message():
    assert len(mistakes({"train": {"steps": "x" * 10_000}})[0]) < 300


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([key for path in all_keys() for key in path.split(".")])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=8) | st.sampled_from(["train", "model"]), JUNK))
def test_any_dict_is_a_spec_or_a_spec_error(source):
    try:
        load_spec(source)
    except SpecError as error:
        assert error.hint
