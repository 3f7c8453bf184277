import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.diagnose import FAULTS, fault_of
from cnai.diagnose.faults import faults
from cnai.diagnose.signatures import (
    BENIGN_CLASSES,
    PEER_GONE,
    Matcher,
    Role,
    literals_of,
    signatures,
)

ROWS = {f"{row.fault}-{row.name}": row for row in signatures()}
ACTIONS = {
    "restart_same", "restart_exclude_node", "previous_checkpoint", "change_config", "fix_code",
    "hold",
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_row_matches_its_examples(name):
    row = ROWS[name]
    assert [line for line in row.examples if not row.matches(line)] == []


@pytest.mark.parametrize("name", ROWS)
def test_every_wording_of_a_row_has_an_example(name):
    row = ROWS[name]
    unseen = [
        one.source
        for one in row.patterns
        if not any(one.compiled.search(line) for line in row.examples)
    ]
    assert unseen == []


@pytest.mark.parametrize("name", ROWS)
def test_the_quick_search_misses_no_example(name):
    row, matcher = ROWS[name], Matcher()
    assert [line for line in row.examples if row not in matcher.find(line)] == []


@pytest.mark.parametrize("name", ROWS)
def test_every_wording_needs_a_text_so_that_few_lines_are_searched(name):
    assert [one.source for one in ROWS[name].patterns if not one.literals] == []


def test_names_of_rows_are_unique():
    assert len(ROWS) == len(signatures()) == len({row.name for row in signatures()})


def test_every_class_has_a_row_or_comes_from_an_exit_code():
    named = {row.fault for row in signatures()} - BENIGN_CLASSES - {PEER_GONE}
    assert named == FAULTS - {"killed"}


def test_there_are_the_49_classes_of_the_taxonomy_and_killed():
    assert len(FAULTS) == 50


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_class_tells_meaning_action_and_repairs(name):
    fault = fault_of(name)
    assert fault.meaning.endswith(".")
    assert fault.action in ACTIONS
    assert fault.repairs
    assert {*fault.near, *fault.yields} <= FAULTS - {name}


def test_no_two_classes_explain_each_other_away():
    pairs = [(a, b) for a, one in faults().items() for b in one.yields if a in faults()[b].yields]
    assert pairs == []


def test_a_class_that_is_misspelt_gets_a_suggestion():
    with pytest.raises(Exception, match="gpu_omo") as caught:
        fault_of("gpu_omo")
    assert "gpu_oom" in caught.value.hint


def test_capitals_alone_mean_capitals():
    found = Matcher().find("ModuleNotFoundError: No module named 'flash'")
    assert "dns_failure" not in {row.fault for row in found}


def test_a_template_that_was_seen_does_not_hide_other_digits():
    matcher = Matcher()
    xid = "NVRM: Xid (PCI:0000:3b:00): {}, pid=71, name=python"
    matcher.find(xid.format(31))
    assert "gpu_lost" in {row.fault for row in matcher.find(xid.format(79))}


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("no space left", ("no space left",)),
        (r"(CUDA|HIP) out of memory", (" out of memory",)),
        ("(exit ?code|exitcode)-9", ("exit", "exitcode")),
        (r"\d+ (nodes)?x", ()),
        ("a|b", ()),
        ("seg(fault|ment)", ("fault", "ment")),
        (r"file\.bin", ("file.bin",)),
    ],
)
def test_the_text_that_a_pattern_needs(pattern, literals):
    assert literals_of(pattern) == literals


@given(st.text(max_size=300))
def test_any_text_can_be_matched(text):
    assert set(Matcher().find(text)) <= set(signatures())


@given(st.sampled_from([one for row in signatures() for one in row.patterns]), st.data())
def test_what_matches_holds_one_of_the_texts(pattern, data):
    try:
        text = data.draw(st.from_regex(re.compile(pattern.source, re.IGNORECASE)))
    except re.error:
        return
    if text.isascii() and pattern.compiled.search(text):
        assert any(literal in text.lower() for literal in pattern.literals)


def test_only_a_lost_peer_is_told_by_a_row_that_only_followed():
    assert {row.fault for row in signatures() if row.role is Role.CASCADE} == {PEER_GONE}
