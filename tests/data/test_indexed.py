"""Rows of a user's own dataset."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.batches import row_count
from cnai.core.errors import DataError
from cnai.data import IndexedReader, describe


class Items(list):
    """A list is a dataset: it has a length and items."""


def pairs(count=20):
    return Items((np.full(3, n, dtype=np.float32), n % 4) for n in range(count))


def reader(items, *, batch=4, seed=0, fraction=0.2):
    return IndexedReader(items, source="a:b", validation_fraction=fraction, batch=batch, seed=seed)


def described(items, fraction=0.2):
    return describe(items, source="a:b", validation_fraction=fraction)


def refused(items, fraction=0.2):
    with pytest.raises(DataError) as caught:
        described(items, fraction)
    assert caught.value.where == "data.source"
    return caught.value


def test_a_dataset_is_described():
    found = described(pairs())
    assert (found.source, found.train_rows, found.validation_rows) == ("a:b", 16, 4)
    assert found.columns == ("0: float32 (3,)", "1: int64 ()")


def test_equal_datasets_have_equal_digests_and_others_do_not():
    changed = pairs()
    changed[0] = (np.full(3, 99, dtype=np.float32), 0)
    digests = {described(pairs()).digest, described(pairs(21)).digest, described(changed).digest}
    assert len(digests) == 3
    assert described(pairs()).digest in digests


def test_rows_are_columns():
    pictures, classes = reader(pairs()).rows(0, 0, 4)
    assert (pictures.shape, pictures.dtype) == ((4, 3), np.float32)
    assert (classes % 4).tolist() == (pictures[:, 0] % 4).tolist()


def test_items_may_be_dicts_and_tensors():
    items = Items({"x": torch.full((2,), float(n)), "target": n} for n in range(10))
    rows = reader(items).rows(0, 0, 4)
    assert sorted(rows) == ["target", "x"]
    assert rows["x"][:, 0].tolist() == rows["target"].tolist()


def test_items_may_be_bare_arrays():
    (column,) = reader(Items(np.arange(3) + n for n in range(10))).rows(0, 0, 4)
    assert column.shape == (4, 3)


@settings(max_examples=30, deadline=None)
@given(st.integers(4, 40), st.integers(1, 8), st.integers(0, 5))
def test_an_epoch_has_each_training_row_once_and_no_validation_row(count, batch, seed):
    one = reader(pairs(count), batch=batch, seed=seed)
    kept = one.validation()[0][:, 0].tolist()
    rows = count - len(kept)
    steps = [one.rows(step, 0, batch)[0][:, 0] for step in range(-(-rows // batch))]
    seen = np.concatenate(steps)[:rows].tolist()
    assert sorted(seen + kept) == [float(n) for n in range(count)]


def test_shares_of_ranks_together_are_the_batch():
    one = reader(pairs())
    whole = one.rows(3, 0, 4)[0]
    parts = np.concatenate([one.rows(3, 0, 2)[0], one.rows(3, 2, 2)[0]])
    assert np.array_equal(whole, parts)


def test_what_was_read_ahead_is_what_would_be_read():
    one = reader(pairs())
    plain = one.rows(5, 0, 4)
    one.prefetch(5, 0, 4)
    one.prefetch(5, 0, 4)
    ahead = one.rows(5, 0, 4)
    assert all(np.array_equal(a, b) for a, b in zip(plain, ahead, strict=True))


def test_an_error_that_was_met_ahead_is_raised_when_the_rows_are_asked_for():
    items = pairs()
    one = reader(items)
    items[:] = [None] * 20
    one.prefetch(0, 0, 4)
    with pytest.raises(DataError, match="no array of numbers"):
        one.rows(0, 0, 4)


def test_validation_rows_do_not_depend_on_the_seed():
    assert np.array_equal(
        reader(pairs(), seed=1).validation()[0], reader(pairs(), seed=2).validation()[0]
    )
    assert row_count(reader(pairs()).validation(2)) == 2


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (3, "has no length"),
        (Items([]), "has 0 items"),
        (pairs(2), "has 2 items, of which 0"),
        (Items(np.zeros(n + 1) for n in range(10)), "has shapes"),
        (Items(["text"] * 10), "no array of numbers but str"),
        (Items([(1, 2)] * 9 + [(1,)]), "do not all hold the same arrays"),
        (Items([{"a": 1}] * 9 + [{"b": 1}]), "do not all hold the same arrays"),
    ],
)
def test_what_is_no_dataset_is_told(items, message):
    assert message in refused(items).message


def test_an_error_in_the_users_code_is_told_with_its_words():
    class Broken(Items):
        def __getitem__(self, index):
            raise KeyError("lost.png")

    error = refused(Broken(range(10)))
    assert "cannot give item 0: KeyError: 'lost.png'" in error.message
