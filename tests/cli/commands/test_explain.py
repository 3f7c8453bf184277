import pytest
from inline_snapshot import snapshot


def test_a_key_is_explained(ai_cli):
    ran = ai_cli("explain", "parallel.model_parallel.split_layer")
    assert (ran.code, ran.err, ran.out) == snapshot(
        (
            0,
            "",
            """\
key:     parallel.model_parallel.split_layer
type:    a whole number
range:   0 or more
default: 0
meaning: Index of the first transformer layer whose weights are split over the group; layers before it are replicated inside the group. 0 = all layers are split.
""",
        )
    )


def test_a_section_is_a_table_of_its_keys(ai_cli):
    assert ai_cli("explain", "checkpoint").out == snapshot("""\
checkpoint: Saved states from which a run goes on.
key                       default  meaning
checkpoint.every_steps    50       Steps between checkpoints; the last step is always saved.
checkpoint.keep           2        Newest checkpoints kept.
checkpoint.grace_seconds  120.0    Longest time from a request to stop (Ctrl-C, SIGTERM, a preemption notice) until the ranks are ended, whether or not the last checkpoint is written.
checkpoint.mode           async    `async`: training goes on while a copy of the state is written, which takes as much memory again as the state; `sync`: training waits. The last checkpoint is always waited for.
""")


def test_without_a_key_the_sections_are_listed(ai_cli):
    out = ai_cli("explain").out
    assert "\ntrain " in out
    assert "\nserve " in out


def test_json_is_the_explanation(ai_cli):
    assert ai_cli("explain", "train.steps", "--json").json == snapshot(
        {
            "key": "train.steps",
            "type": "a whole number",
            "range": "1 or more",
            "default": 200,
            "doc": "Optimizer steps.",
            "children": [],
        }
    )


def test_an_unknown_key_ends_with_2(ai_cli):
    ran = ai_cli("explain", "train.stpes")
    assert (ran.code, ran.out, ran.err) == snapshot(
        (
            2,
            "",
            """\
error: unknown key `train.stpes`
where: train.stpes
hint: did you mean `train.steps`?
""",
        )
    )


@pytest.mark.parametrize("key", ["", "train", "model_parallel", "train.steps"])
def test_nothing_goes_to_stderr(ai_cli, key):
    assert ai_cli("explain", key).err == ""
