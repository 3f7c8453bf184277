import pytest
from inline_snapshot import snapshot

from cnai.core.errors import SpecError
from cnai.core.spec.explain import Explanation, all_keys, explain
from cnai.core.spec.keys import FOREIGN, SECTIONS, nearest


def test_a_key_is_explained_with_type_range_default_and_meaning():
    assert explain("parallel.model_parallel.split_layer") == snapshot(
        Explanation(
            key="parallel.model_parallel.split_layer",
            type="a whole number",
            range="0 or more",
            default=0,
            doc="Index of the first transformer layer whose weights are split over the group; layers before it are replicated inside the group. 0 = all layers are split.",
        )
    )


def test_a_bare_key_is_explained_by_its_full_name():
    assert explain("model_parallel.size").key == "parallel.model_parallel.size"


def test_a_section_lists_its_keys():
    assert explain("checkpoint") == snapshot(
        Explanation(
            key="checkpoint",
            type="section",
            range="",
            default=None,
            doc="Saved states from which a run goes on.",
            children=(
                "checkpoint.every_steps",
                "checkpoint.keep",
                "checkpoint.grace_seconds",
                "checkpoint.mode",
            ),
        )
    )


def test_without_a_name_the_whole_spec_is_explained():
    assert {"train", "model", "name"} <= set(explain().children)


@pytest.mark.parametrize("key", [*all_keys(), *SECTIONS])
def test_every_key_says_what_it_means(key):
    explanation = explain(key)
    assert explanation.doc.endswith(".")
    assert explanation.type


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("train.steps", ("a whole number", "1 or more")),
        ("train.clip_norm", ("a number or none", "above 0")),
        ("train.final_rate", ("a number", "0 or more, at most 1")),
        ("data.validation_fraction", ("a number", "above 0, below 1")),
        ("train.betas", ("a list of 2 numbers", "0 or more, below 1")),
        ("train.schedule", ("one of `cosine`, `linear`, `constant`, `wsd`", "")),
        (
            "train.lora.targets",
            (
                "a list, each one of `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, "
                "`up_proj`, `down_proj`",
                "",
            ),
        ),
        ("monitor.prometheus_port", ("a whole number or none", "1 or more, at most 65535")),
        ("serve.enabled", ("`true` or `false`", "")),
    ],
)
def test_types_and_ranges_are_plain_words(key, words):
    assert (explain(key).type, explain(key).range) == words


@pytest.mark.parametrize(("key", "meant"), [("trian", "train"), ("train.step", "train.steps")])
def test_an_unknown_key_names_the_one_that_was_meant(key, meant):
    with pytest.raises(SpecError) as caught:
        explain(key)
    assert caught.value.hint == f"did you mean `{meant}`?"


def test_a_key_that_is_like_none_points_to_the_list():
    with pytest.raises(SpecError, match="unknown key `zzz`") as caught:
        explain("zzz")
    assert "ai-cli explain" in caught.value.hint


def test_the_names_of_other_tools_lead_to_keys_that_exist():
    known = {*all_keys(), *SECTIONS}
    assert {meant for meant in FOREIGN.values() if meant not in known} == set()


def test_every_key_is_nearest_to_itself():
    assert [key for key in all_keys() if nearest(key) != key] == []


def test_an_explanation_is_a_record():
    assert isinstance(explain("name"), Explanation)
