import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import data_corpus
from cnai.core.errors import DataError
from cnai.data.tokenizer import END_OF_TEXT, load_tokenizer, read_tokenizer, train_tokenizer

TEXTS = ["the quick brown fox", "jumps over the lazy dog", "der schnelle braune Fuchs"] * 5
TOKENIZER = train_tokenizer(TEXTS, 300)


@given(text=st.text())
def test_any_text_comes_back_from_its_tokens(text):
    assert TOKENIZER.decode(TOKENIZER.encode([text])[0].tolist()) == text


@given(text=st.text())
def test_the_byte_length_of_tokens_is_that_of_their_text(text):
    assert TOKENIZER.byte_length(TOKENIZER.encode([text])[0]) == len(text.encode())


@given(text=st.text(min_size=1))
def test_every_token_is_below_the_vocabulary(text):
    assert TOKENIZER.encode([text])[0].max() < TOKENIZER.vocab


def test_byte_lengths_are_summed_over_the_last_axis():
    tokens = TOKENIZER.encode(["the", "dog"])
    pair = np.array([[tokens[0][0]], [tokens[1][0]]])
    assert TOKENIZER.byte_length(pair).shape == (2,)


def test_the_separator_is_token_zero_and_has_no_bytes():
    assert TOKENIZER.end_token == 0
    assert TOKENIZER.token_bytes[0] == 0


def test_text_that_spells_the_separator_stays_text():
    tokens = TOKENIZER.encode([f"a {END_OF_TEXT} b"])[0]
    assert 0 not in tokens
    assert TOKENIZER.byte_length(tokens) == len(f"a {END_OF_TEXT} b")


def test_a_trained_tokenizer_fills_the_vocabulary_that_was_asked():
    assert TOKENIZER.vocab == 300


def test_a_text_without_pairs_gives_a_smaller_one():
    assert train_tokenizer(["a"], 4096).vocab == 257


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(DataError, match="256 bytes") as caught:
        train_tokenizer(TEXTS, 256)
    assert "257" in caught.value.hint


@pytest.mark.dist
def test_another_process_trains_the_same_tokenizer():
    code = (
        "import sys, json; from cnai.data.tokenizer import train_tokenizer\n"
        "sys.stdout.buffer.write(train_tokenizer(json.load(sys.stdin), 300).to_json())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(TEXTS).encode(), capture_output=True,
        check=True, env=data_corpus.child_environment(),
    )  # fmt: skip
    assert done.stdout == TOKENIZER.to_json()


def test_a_saved_tokenizer_encodes_the_same():
    loaded = load_tokenizer(TOKENIZER.to_json(), where="x")
    assert loaded.encode(TEXTS)[1].tolist() == TOKENIZER.encode(TEXTS)[1].tolist()
    assert loaded.token_bytes.tolist() == TOKENIZER.token_bytes.tolist()


def test_truncation_and_padding_of_a_loaded_tokenizer_are_off():
    tokenizer = Tokenizer.from_buffer(TOKENIZER.to_json())
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    loaded = load_tokenizer(tokenizer.to_str().encode(), where="x")
    assert loaded.byte_length(loaded.encode(["the quick fox"])[0]) == 13


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        load_tokenizer(b"{}", where="x.json")


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.json"):
        read_tokenizer(tmp_path / "absent.json")


def test_a_tokenizer_that_is_not_byte_level_is_refused():
    other = Tokenizer(models.WordLevel({"a": 0, END_OF_TEXT: 1}, unk_token="a"))
    with pytest.raises(DataError, match="not byte-level"):
        load_tokenizer(other.to_str().encode(), where="x")


def test_a_tokenizer_without_an_end_token_is_refused():
    other = Tokenizer(models.BPE({"a": 0}, []))
    other.pre_tokenizer = pre_tokenizers.ByteLevel()
    other.decoder = decoders.ByteLevel()
    with pytest.raises(DataError, match="end of a text"):
        load_tokenizer(other.to_str().encode(), where="x")
