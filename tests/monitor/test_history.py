import itertools

from hypothesis import given
from hypothesis import strategies as st

from cnai.monitor.history import LossHistory


@given(st.integers(1, 400), st.integers(2, 32))
def test_points_are_few_and_evenly_spaced(steps, most):
    history = LossHistory(most)
    for step in range(1, steps + 1):
        history.add(step, float(step))
    points = [step for step, _ in history.points()]
    assert len(points) <= most
    gaps = {after - before for before, after in itertools.pairwise(points)}
    assert len(gaps) <= 1


def test_steps_that_are_repeated_replace_the_old_ones():
    history = LossHistory()
    for step in range(1, 6):
        history.add(step, 1.0)
    history.forget_after(3)
    history.add(4, 2.0)
    assert history.points()[-2:] == ((3, 1.0), (4, 2.0))
