from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

import servekit
from cnai.serve.assembler import Detokenizer, StopFinder

TOKENIZER = servekit.tokenizer()
TOKENIZER.encode_special_tokens = True
texts = st.text(st.characters(exclude_categories=["Cs"]))
tokens = st.lists(st.integers(0, 319))


def whole_characters(text):
    marks = len(text) - len(text.rstrip("\ufffd"))
    return text[: len(text) - min(marks, 3)]


def run(decode, ids, context=()):
    detokenizer = Detokenizer(decode, context)
    return [detokenizer.push(token) for token in ids]


@given(texts)
def test_the_tokens_of_a_text_give_the_text_back(text):
    assert "".join(run(TOKENIZER.decode, TOKENIZER.encode(text).ids)) == whole_characters(text)


@given(texts.map(lambda text: text.replace("\ufffd", "")))
def test_a_valid_text_never_shows_a_broken_character(text):
    assert "\ufffd" not in "".join(run(TOKENIZER.decode, TOKENIZER.encode(text).ids))


@given(tokens)
def test_any_tokens_give_what_decoding_them_at_once_gives(ids):
    assert "".join(run(TOKENIZER.decode, ids)) == whole_characters(TOKENIZER.decode(ids))


@given(texts.filter(lambda text: not text.endswith("\ufffd")), tokens)
def test_the_context_is_not_said_again(before, ids):
    context = TOKENIZER.encode(before).ids[-8:]
    joined = "".join(run(TOKENIZER.decode, ids, context))
    whole = TOKENIZER.decode(context + ids)
    assert joined == whole_characters(whole)[len(TOKENIZER.decode(context)) :]


def test_each_byte_of_a_character_is_held_until_the_last():
    ids = [
        TOKENIZER.token_to_id(letter) for letter in "\u00f0\u0141\u013a\u0122"
    ]  # the bytes f0 9f 98 80
    assert run(TOKENIZER.decode, ids) == ["", "", "", "\U0001f600"]


def test_a_tokenizer_with_leading_spaces_keeps_them_inside_the_text():
    vocabulary = {"\u2581a": 0, "\u2581b": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="\u2581a"))
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    assert run(made.decode, [0, 1, 2, 3, 4, 1]) == ["a", " b", "", "", "\u20ac", " b"]
    assert run(made.decode, [1, 0], context=[0]) == [" b", " a"]


def pieces_of(text):
    return st.lists(st.integers(0, len(text)), max_size=6).map(
        lambda cuts: [text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)])]
    )


def cut_at_first(text, stops):
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return text[: min(ends)[1]] if ends else text


def stopped(pieces, stops):
    finder = StopFinder(stops)
    return "".join(finder.push(piece) for piece in pieces) + finder.finish(), finder.found


few = st.text("ab", max_size=14)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(few.flatmap(lambda text: st.tuples(st.just(text), pieces_of(text))), stop_lists)
def test_the_cut_does_not_depend_on_how_the_text_comes(text_and_pieces, stops):
    text, pieces = text_and_pieces
    assert stopped(pieces, stops) == (cut_at_first(text, stops), any(s in text for s in stops))


@given(few, stop_lists)
def test_nothing_of_a_stop_string_is_ever_passed_on(text, stops):
    finder = StopFinder(stops)
    shown = ""
    for letter in text:
        shown += finder.push(letter)
        assert cut_at_first(text, stops).startswith(shown)


@given(few)
def test_without_stops_nothing_is_held(text):
    assert "".join(map(StopFinder(()).push, text)) == text


@pytest.mark.parametrize("pieces", [["say ", "EN", "D now"], ["say END now"], list("say END now")])
def test_a_stop_string_over_token_borders_ends_the_text_before_it(pieces):
    assert stopped(pieces, ["END"]) == ("say ", True)


def test_what_looked_like_a_stop_string_is_given_back():
    finder = StopFinder(["END"])
    assert [finder.push(piece) for piece in ("EN", "T", " E")] == ["", "ENT", " "]
    assert finder.finish() == "E"
