"""When work moves and when a move is taken back, without a clock: each step is a number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.plan.caution import COOL_DOWN, JUDGED, SAMPLES, SETTLING, Caution, Speeds

EVEN, MOVED, OTHER = (4, 4), (6, 2), (5, 3)


def settled(threshold=0.1):
    caution = Caution(EVEN, threshold)
    assert hear(caution, 1.0, SETTLING + SAMPLES) is None
    return caution


def hear(caution, seconds, steps):
    """Tell of equal steps; return the last move."""
    return [caution.hear(seconds) for _ in range(steps)][-1]


def propose(caution, after=MOVED, gain=1.5):
    return caution.propose(after, gain=gain, reason="because")


@pytest.mark.parametrize("steps", range(SETTLING + SAMPLES))
def test_nothing_moves_before_there_are_samples(steps):
    caution = Caution(EVEN, 0.1)
    for _ in range(steps):
        caution.hear(1.0)
    assert propose(caution) is None


def test_a_gain_above_the_threshold_moves():
    move = propose(settled())
    assert (move.before, move.after, move.gain, move.reason) == (EVEN, MOVED, 1.5, "because")
    assert not move.is_rollback


@pytest.mark.parametrize("gain", [0.5, 1.0, 1.09])
def test_a_gain_below_the_threshold_does_not(gain):
    assert propose(settled(), gain=gain) is None


def test_what_is_so_already_is_no_move():
    assert propose(settled(), after=EVEN) is None


def test_a_move_that_brings_what_it_promised_is_kept():
    caution = settled()
    propose(caution)
    assert hear(caution, 1 / 1.5, SETTLING + JUDGED) is None
    assert caution.now == MOVED
    assert caution.is_ready


def test_no_second_move_before_the_first_was_judged():
    caution = settled()
    propose(caution)
    hear(caution, 0.7, SETTLING + JUDGED - 1)
    assert propose(caution, OTHER) is None


def test_a_move_without_a_gain_is_taken_back_with_the_numbers():
    caution = settled()
    propose(caution)
    back = hear(caution, 0.98, SETTLING + JUDGED)
    assert back.is_rollback
    assert (back.before, back.after) == (MOVED, EVEN)
    assert back.gain == pytest.approx(1 / 0.98)
    assert "1.02 x" in back.reason
    assert "1.50 x" in back.reason
    assert caution.now == EVEN


def test_a_move_that_brings_less_than_it_promised_is_better_than_none():
    caution = settled()
    propose(caution, gain=1.5)
    assert hear(caution, 1 / 1.2, SETTLING + JUDGED) is None
    assert caution.now == MOVED


def disappointed():
    caution = settled()
    propose(caution)
    hear(caution, 1.0, SETTLING + JUDGED)
    return caution


def test_after_a_rollback_there_is_a_rest():
    caution = disappointed()
    hear(caution, 1.0, SETTLING + COOL_DOWN - 1)
    assert propose(caution, OTHER) is None
    caution.hear(1.0)
    assert propose(caution, OTHER) is not None


def test_a_second_rest_is_twice_as_long():
    caution = disappointed()
    hear(caution, 1.0, SETTLING + COOL_DOWN)
    propose(caution, OTHER)
    assert hear(caution, 1.0, SETTLING + JUDGED).is_rollback
    hear(caution, 1.0, SETTLING + 2 * COOL_DOWN - 1)
    assert not caution.is_ready
    caution.hear(1.0)
    assert caution.is_ready


def test_the_same_move_is_never_made_twice_in_a_row():
    caution = disappointed()
    hear(caution, 1.0, 50)
    assert propose(caution, MOVED) is None
    propose(caution, OTHER)
    hear(caution, 0.5, SETTLING + JUDGED)
    assert propose(caution, MOVED) is not None


def test_going_back_is_left_when_it_does_not_pay():
    caution = settled()
    propose(caution)
    assert [caution.hear(1.0, return_gain=1.2) for _ in range(SETTLING + JUDGED)][-1] is None
    assert caution.now == MOVED
    assert not caution.is_ready


def test_going_back_pays_when_the_move_made_it_much_worse():
    caution = settled()
    propose(caution)
    back = [caution.hear(2.0, return_gain=1.2) for _ in range(SETTLING + JUDGED)][-1]
    assert back.is_rollback


def test_a_new_start_begins_to_judge_anew():
    caution = settled()
    propose(caution)
    hear(caution, 9.0, JUDGED)
    caution.settle()
    assert hear(caution, 0.6, SETTLING + JUDGED) is None
    assert caution.now == MOVED


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=80), st.integers(0, 3))
def test_moves_and_their_rollbacks_follow_each_other(seconds, wish):
    """Whatever the times, work is where the last move put it, and a rollback undoes the last."""
    caution, moves = Caution(EVEN, 0.1), []
    for one in seconds:
        back = caution.hear(one)
        made = back or caution.propose((wish, 8 - wish), gain=1.3, reason="")
        if made is None:
            continue
        assert made.before == (moves[-1].after if moves else EVEN)
        if made.is_rollback:
            assert made.after == moves[-1].before
            assert not moves[-1].is_rollback
        elif moves and moves[-1].is_rollback:
            assert made.after != moves[-1].before
        moves.append(made)
    assert caution.now == (moves[-1].after if moves else EVEN)


def test_one_long_pause_is_no_part_of_a_speed():
    speeds = Speeds()
    for seconds in (1.0, 1.0, 1.0, 60.0, 1.0, 1.0):
        speeds.add([seconds])
    assert speeds.seconds == pytest.approx((1.0,))


def test_a_lasting_change_is_seen_within_a_few_steps():
    speeds = Speeds()
    for seconds in (1.0, 1.0, 1.0, *[3.0] * 6):
        speeds.add([seconds])
    assert speeds.seconds[0] > 2.5
