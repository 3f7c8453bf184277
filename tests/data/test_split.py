import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import DataError
from cnai.data.sources import Document
from cnai.data.split import split_documents

TEXTS = st.lists(st.text(min_size=1), min_size=2, max_size=30, unique=True)
FRACTIONS = st.floats(0.001, 0.999)


def documents(texts):
    return [Document(name=str(number), text=text) for number, text in enumerate(texts)]


def held_texts(texts, fraction):
    return {document.text for document in split_documents(documents(texts), fraction).validation}


@given(texts=TEXTS, fraction=FRACTIONS)
def test_every_document_is_in_one_part_and_no_part_is_empty(texts, fraction):
    split = split_documents(documents(texts), fraction)
    assert split.train
    assert split.validation
    both = [*split.train, *split.validation]
    assert sorted(document.text for document in both) == sorted(texts)


@given(texts=TEXTS, fraction=FRACTIONS, data=st.data())
def test_the_order_of_the_source_does_not_matter(texts, fraction, data):
    shuffled = data.draw(st.permutations(texts))
    assert held_texts(texts, fraction) == held_texts(shuffled, fraction)


def test_a_document_keeps_its_part_when_the_source_grows():
    small, large = [f"text {n}" for n in range(100)], [f"text {n}" for n in range(200)]
    assert held_texts(small, 0.3) == held_texts(large, 0.3) & set(small)


def test_copies_of_a_text_are_on_one_side():
    texts = [f"text {number % 10}" for number in range(100)]
    split = split_documents(documents(texts), 0.3)
    assert not {d.text for d in split.train} & {d.text for d in split.validation}


def test_the_fraction_is_about_kept():
    assert 60 <= len(held_texts([f"text {n}" for n in range(1000)], 0.08)) <= 100


def test_one_document_cannot_be_split():
    with pytest.raises(DataError, match="1 document") as caught:
        split_documents(documents(["alone"]), 0.5)
    assert caught.value.hint


def test_copies_of_one_text_cannot_be_split():
    with pytest.raises(DataError, match="all 3 documents are the same"):
        split_documents(documents(["same"] * 3), 0.5)
