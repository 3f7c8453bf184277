import yaml
from hypothesis import given
from hypothesis import strategies as st

from cnai.monitor.stack.yamltext import as_yaml

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
SCALARS = st.one_of(PRINTABLE, st.integers(), st.booleans(), st.none())
TREES = st.recursive(
    SCALARS,
    lambda one: st.one_of(st.lists(one, max_size=3), st.dictionaries(PRINTABLE, one, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(PRINTABLE, TREES, min_size=1, max_size=4))
def test_yaml_reads_back_what_was_written(plain):
    assert yaml.safe_load(as_yaml(plain)) == plain


@given(st.lists(st.sampled_from(["a: b", "  deep", "", "- x", "#", "z"]), min_size=2, max_size=6))
def test_a_text_of_several_lines_stays_one(lines):
    text = "x\n" + "\n".join(lines) + "z\n"
    assert yaml.safe_load(as_yaml({"data": {"file": text}})) == {"data": {"file": text}}


def test_it_looks_as_people_write_it():
    plain = {"groups": [{"name": "cnai", "rules": ["a", {"for": "5m"}]}], "on": "no"}
    assert as_yaml(plain) == (
        'groups:\n  - name: cnai\n    rules:\n      - a\n      - for: "5m"\n"on": "no"\n'
    )
