"""Records that hypothesis draws, as they may occur."""

from hypothesis import strategies as st

from cnai.core.events import Decided, Repair

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COUNT = st.integers(-(2**53), 2**53)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = TEXT | COUNT | FINITE | st.booleans()

# JSON carries no lone surrogates, and whole numbers in records are counts. Where a record takes
# text and numbers alike, a number is finite: NaN could not be told from the text `nan`.
st.register_type_strategy(int, COUNT)
st.register_type_strategy(str, TEXT)
for kind_with_patch in (Repair, Decided):
    st.register_type_strategy(
        kind_with_patch,
        st.builds(kind_with_patch, spec_patch=st.none() | st.dictionaries(TEXT, PLAIN, max_size=2)),
    )


def drawn(kind):
    """Return a strategy for a kind of record."""
    return st.from_type(kind)
