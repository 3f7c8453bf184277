import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from cnai.core.errors import SpecError
from cnai.core.spec import load_spec
from cnai.core.spec.reading import parse
from mistakes import mistakes


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return the mistakes of a file with the given bytes."""
    monkeypatch.chdir(tmp_path)

    def tell(content, name="spec.yaml"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return mistakes(name)

    return tell


def test_standard_input_is_named_as_a_file():
    assert "/dev/stdin" in mistakes("-")[0]


def test_a_missing_file_names_the_command_that_writes_one(told):
    assert mistakes("spec.yaml") == snapshot(
        ["spec.yaml | no spec at `spec.yaml` | write one with `ai-cli init spec.yaml`"]
    )


def test_a_missing_file_names_one_that_is_spelled_alike(told):
    told("", "quick.yaml")
    assert mistakes("quik.yaml")[0].endswith("did you mean `quick.yaml`?")


def test_a_folder_is_no_spec(told):
    assert mistakes(".") == snapshot(
        [
            ". | cannot read the spec `.`: Is a directory | name a YAML or JSON file that you may read"
        ]
    )


def test_a_name_with_a_zero_byte_is_no_spec():
    assert "cannot read the spec" in mistakes("a\0b")[0]


def test_a_file_that_cannot_be_read_is_told():
    assert "cannot read the spec `/proc/self/mem`: Input/output" in mistakes("/proc/self/mem")[0]


def test_bytes_that_are_no_utf8_are_told_with_their_place(told):
    assert told(b"name: caf\xe9\n") == snapshot(
        [
            "spec.yaml | `spec.yaml` is not UTF-8 text: byte 9 is 0xe9 | name the YAML file of the run, and save it as UTF-8"
        ]
    )


def test_a_binary_file_is_no_spec(told):
    assert told(bytes(range(128)) * 10) == snapshot(
        [
            "spec.yaml | not text: unacceptable character #x0000: special characters are not allowed | name the YAML file of the run, and save it as UTF-8"
        ]
    )


def test_a_model_file_is_too_large_for_a_spec(told):
    assert told(b"a" * (2 << 20)) == snapshot(
        [
            "spec.yaml | `spec.yaml` is larger than 1 MiB, which no spec is | name the YAML file of the run, not a model or a data file"
        ]
    )


def test_an_endless_file_is_not_read_to_its_end():
    assert "larger than 1 MiB" in mistakes("/dev/zero")[0]


def test_a_byte_order_mark_is_passed_over(told):
    assert told(b"\xef\xbb\xbfname: x\n") == []


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(told, tmp_path, ending):
    assert told(f"name: x{ending}train:{ending}  steps: 5{ending}") == []
    assert load_spec("spec.yaml").origins["train.steps"] == "spec.yaml:3"


def test_a_tab_is_named(told):
    assert told("train:\n\tsteps: 5\n") == snapshot(
        [
            "spec.yaml:2:1 | not valid YAML: a tab in the indentation, at `steps: 5` | indent with spaces; YAML allows no tabs"
        ]
    )


def test_a_syntax_error_is_told_with_line_and_column(told):
    assert told("train:\n  steps: 5\n batch: 3\n") == snapshot(
        [
            "spec.yaml:3:2 | not valid YAML: the indentation does not fit the lines above, at `batch: 3` | give keys of a section one column"
        ]
    )


def test_an_open_quote_is_told(told):
    assert told('name: "run\ntrain: {steps: 5}\n') == snapshot(
        [
            'spec.yaml:1:7 | not valid YAML: a quote is never closed, at `name: "run` | close it, or write the text without quotes'
        ]
    )


def test_two_documents_are_no_spec(told):
    assert told("name: a\n---\nname: b\n") == snapshot(
        [
            "spec.yaml:2:1 | not valid YAML: holds two documents, at `---` | remove what follows the second `---`"
        ]
    )


def test_a_list_is_no_spec(told):
    assert told("- a\n- b\n") == snapshot(
        [
            "spec.yaml:1 | `spec.yaml` holds a list, but a spec is a mapping of keys to values | write keys, for instance `train:` and below it `  steps: 200`"
        ]
    )


def test_one_word_is_no_spec(told):
    assert told("hello\n") == snapshot(
        [
            "spec.yaml:1 | `spec.yaml` holds one value, but a spec is a mapping of keys to values | write keys, for instance `train:` and below it `  steps: 200`"
        ]
    )


def test_a_key_given_twice_is_told_with_both_lines(told):
    assert told("train:\n  steps: 1\n  batch: 2\n  steps: 3\n") == snapshot(
        [
            "spec.yaml:4 train.steps | key `train.steps` is given twice | keep one of the two; the first is at spec.yaml:2"
        ]
    )


def test_a_section_given_twice_is_told_even_when_its_keys_differ(told):
    assert told("train: {steps: 1}\ntrain: {batch: 2}\n") == snapshot(
        [
            "spec.yaml:2 train | key `train` is given twice | keep one of the two; the first is at spec.yaml:1"
        ]
    )


def test_a_key_with_a_dot_is_told_how_to_nest(told):
    assert told("train.steps: 5\n") == snapshot(
        [
            "spec.yaml:1 | key `train.steps` has a dot | nest it: `train:` and indented below it `steps:`"
        ]
    )


def test_a_list_as_a_key_is_refused(told):
    assert told("? [a, b]\n: 1\n") == snapshot(
        ["spec.yaml:1 | a list or mapping is no key | a key is a name such as `steps`"]
    )


def test_a_tag_makes_no_object(told):
    assert told("name: !!python/object/apply:os.system [ls]\n") == snapshot(
        [
            "spec.yaml:1 name | `name` has the tag `tag:yaml.org,2002:python/object/apply:os.system`, which does not fit or is not known | write the plain value without a tag"
        ]
    )


def test_a_tag_of_the_wrong_type_is_refused(told):
    assert told("train: {steps: !!int lots}\n") == snapshot(
        [
            "spec.yaml:1 train.steps | `train.steps` has the tag `tag:yaml.org,2002:int`, which does not fit or is not known | write the plain value without a tag"
        ]
    )


def test_an_alias_is_followed(told):
    assert told("train: {steps: &n 30}\ncheckpoint: {every_steps: *n}\n") == []
    assert load_spec("spec.yaml").spec.checkpoint.every_steps == 30


def test_a_bomb_of_aliases_is_defused(told):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert told("\n".join(lines)) == snapshot(
        [
            "spec.yaml | holds more than 10000 values once its aliases are written out | remove the anchors (`&`) and aliases (`*`); a spec needs none"
        ]
    )


def test_an_alias_that_holds_itself_is_refused(told):
    assert "once its aliases are written out" in told("a: &a [*a]\n")[0]


@pytest.mark.parametrize("name", ["spec.yaml", "spec.json"])
def test_endless_nesting_is_refused(told, name):
    assert "nested too deeply" in told("[" * 100_000, name)[0]


def test_json_with_a_trailing_comma_is_told_with_line_and_column(told):
    assert told('{\n  "name": "x",\n}\n', "spec.json") == snapshot(
        [
            "spec.json:3:1 | not valid JSON: Expecting property name enclosed in double quotes | mind quotes and commas; a comma after the last value is not allowed"
        ]
    )


def test_json_may_be_indented_with_tabs(told):
    assert told('{\n\t"train": {\n\t\t"steps": 5\n\t}\n}\n', "spec.json") == []
    assert load_spec("spec.json").origins["train.steps"] == "spec.json:3"


def test_json_escapes_beyond_the_first_plane_are_one_character(told):
    assert told(json.dumps({"serve": {"prompt": "\U0001f600"}}), "spec.json") == []
    assert load_spec("spec.json").spec.serve.prompt == "\U0001f600"


@given(st.text())
def test_any_text_is_nodes_or_a_spec_error(text):
    try:
        parse(text, "x")
    except SpecError as error:
        assert error.hint


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=50),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=50), inner),
    )
)
def test_any_json_is_read_by_the_yaml_reader(tmp_path_factory, plain):
    path = tmp_path_factory.mktemp("json") / "spec.json"
    path.write_text(json.dumps({"data": plain}, indent="\t"))
    assert not any("not valid" in one for one in mistakes(path))
