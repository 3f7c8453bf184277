from hypothesis import given
from hypothesis import strategies as st

from cnai.diagnose.calibration import calibrated
from cnai.diagnose.logs import diagnose_streams

UNIT = st.floats(0, 1)


@given(UNIT, UNIT)
def test_who_stands_out_more_is_believed_more(a, b):
    low, high = sorted((a, b))
    assert calibrated(low) <= calibrated(high)


@given(UNIT)
def test_nothing_is_certain_and_nothing_is_worse_than_a_guess(raw):
    assert 0.4 <= calibrated(raw) <= 0.98


@given(st.lists(st.text(max_size=60), max_size=20))
def test_the_confidences_of_a_diagnosis_are_at_most_one_together_and_fall(texts):
    texts = [*texts, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]
    confidence = diagnose_streams({"0": texts}).confidence
    assert sum(confidence) <= 1.01
    assert list(confidence) == sorted(confidence, reverse=True)
