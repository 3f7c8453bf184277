import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.data import trigram
from cnai.data.trigram import END, ByteTrigram

A, B = ord("a"), ord("b")


def test_a_tiny_case_agrees_with_hand_computation():
    # Training text "aab": the symbols are E E a a b E, so after each history came
    #   unigrams a:2 b:1 E:1      -> 4 counted, 3 kinds
    #   a -> a:1 b:1              -> 2 counted, 2 kinds
    #   a a -> b:1                -> 1 counted, 1 kind
    unigram_b = (1 + 3 / 257) / (4 + 3)
    bigram_b = (1 + 2 * unigram_b) / (2 + 2)
    trigram_b = (1 + 1 * bigram_b) / (1 + 1)
    assert ByteTrigram([b"aab"]).probabilities(A, A)[B] == pytest.approx(trigram_b, rel=1e-12)


def test_a_history_never_seen_falls_back_to_the_shorter_one():
    model = ByteTrigram([b"aab"])
    unigram_b = (1 + 3 / 257) / (4 + 3)
    assert model.probabilities(B, A)[B] == pytest.approx((1 + 2 * unigram_b) / 4, rel=1e-12)


def test_a_model_of_nothing_is_uniform():
    assert ByteTrigram([]).bits(b"xyz") == pytest.approx(4 * math.log2(257))


@settings(max_examples=20, deadline=None)
@given(
    documents=st.lists(st.binary(max_size=40), max_size=4),
    history=st.tuples(st.integers(0, END), st.integers(0, END)),
)
def test_probabilities_sum_to_one_after_any_history(documents, history):
    probabilities = ByteTrigram(documents).probabilities(*history)
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)
    assert (probabilities > 0).all()


def test_probabilities_sum_to_one_after_seen_histories():
    model = ByteTrigram([b"abracadabra", b"abc"])
    for history in ((END, END), (END, A), (A, B), (B, ord("r"))):
        assert model.probabilities(*history).sum() == pytest.approx(1, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(document=st.binary(max_size=30))
def test_the_bits_of_a_document_are_those_of_its_symbols(document):
    model = ByteTrigram([b"abracadabra", document])
    symbols = [END, END, *document, END]
    expected = -sum(
        math.log2(model.probabilities(symbols[place], symbols[place + 1])[symbols[place + 2]])
        for place in range(len(document) + 1)
    )
    assert model.bits(document) == pytest.approx(expected, rel=1e-9)


def test_counting_in_chunks_changes_nothing(monkeypatch):
    documents = [b"one text", b"another text", b"", b"the third"]
    whole = ByteTrigram(documents).bits(b"text")
    monkeypatch.setattr(trigram, "_CHUNK_BYTES", 1)
    assert ByteTrigram(documents).bits(b"text") == whole


def test_bits_per_byte_weigh_every_byte_the_same():
    model = ByteTrigram([b"aab"])
    texts = [b"a", b"aabbb"]
    assert model.bits_per_byte(texts) == pytest.approx(sum(map(model.bits, texts)) / 6)


def test_noise_costs_about_eight_bits_and_repetition_next_to_none():
    noise = np.random.default_rng(0).bytes(20_000)
    assert ByteTrigram([noise]).bits_per_byte([np.random.default_rng(1).bytes(5000)]) > 7.9
    assert ByteTrigram([b"ab" * 20_000]).bits_per_byte([b"ab" * 1000]) < 0.02
