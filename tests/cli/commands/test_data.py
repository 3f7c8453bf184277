from pathlib import Path

import pytest

TEXTS = 40


@pytest.fixture
def texts():
    folder = Path("texts")
    folder.mkdir()
    for number in range(TEXTS):
        words = " ".join(str(number * one) for one in range(200))
        (folder / f"{number}.txt").write_text(words)
    return folder


def held_out(ai_cli, texts, *more):
    """The rows kept out of a dataset of these texts."""
    words = ("data", "import", texts, "--vocab", 300, "--sequence", 16, "--json")
    return len(ai_cli(*words, *more).json["validation_row_bytes"])


def test_an_empty_store_says_so(ai_cli):
    ran = ai_cli("data", "list", "--store", "nowhere")
    assert (ran.code, ran.out) == (0, "")
    assert "no dataset in `nowhere`" in ran.err


def test_the_share_that_is_kept_out_can_be_chosen(ai_cli, texts):
    few = held_out(ai_cli, texts)
    many = held_out(ai_cli, texts, "--validation-fraction", 0.5)
    assert many > few


def test_a_missing_field_is_repaired_with_a_flag_that_the_verb_has(ai_cli):
    Path("a.jsonl").write_text('{"txt": "a"}\n')
    ran = ai_cli("data", "import", "a.jsonl")
    assert ran.code == 4
    assert "`--text-field txt`" in ran.err
