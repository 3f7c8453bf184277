import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

import servekit
from cnai.core.errors import RunError
from cnai.serve import Outcome, Piece, Sampling, UnavailableError
from cnai.serve.rounds import Ended, Job, Rounds
from cnai.serve.stats import Recorder


class HandClock:
    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds


class Desk:
    """Rounds that are turned by hand, with what each request delivered."""

    def __init__(self, engine=None, *, active=2, queue=2):
        self.engine = engine or servekit.ScriptedEngine()
        self.clock = HandClock()
        recorder = Recorder(model="m", queue_limit=queue, active_limit=active)
        self.rounds = Rounds(
            active_limit=active, queue_limit=queue, recorder=recorder, clock=self.clock
        )

    def submit(self, mark=1, **options):
        delivered = []
        sampling = Sampling(**options)
        pieces = self.engine.generate([mark], sampling)
        job = Job(pieces, prompt_tokens=1, deliver=delivered.append)
        self.rounds.submit(job)
        return job, delivered

    def turn(self, times=1):
        for _ in range(times):
            self.rounds.turn()


def test_active_requests_take_turns_token_by_token():
    desk = Desk()
    desk.submit(1)
    desk.submit(2)
    desk.turn(3)
    assert desk.engine.steps == [1, 2, 1, 2, 1, 2]


def test_a_short_request_ends_before_a_long_one_that_came_first():
    desk = Desk()
    _, long = desk.submit(1)
    desk.turn()
    _, short = desk.submit(2, max_tokens=1)
    desk.turn()
    assert isinstance(short[-1], Ended)
    assert not isinstance(long[-1], Ended)


def test_a_request_brings_its_pieces_and_then_how_it_ended():
    desk = Desk()
    _, delivered = desk.submit()
    desk.turn(3)
    assert [item.text for item in delivered[:3]] == ["one ", "two ", "three"]
    assert delivered[3:] == [Ended(outcome=Outcome.STOP)]


def test_more_than_the_active_limit_wait_in_order_of_arrival():
    desk = Desk(active=1)
    for mark in (1, 2, 3):
        desk.submit(mark, max_tokens=2)
    desk.turn(6)
    assert desk.engine.steps == [1, 1, 2, 2, 3, 3]


def test_a_full_queue_refuses_and_says_when_to_come_again():
    desk = Desk(active=1, queue=2)
    for _ in range(3):
        desk.submit()
    with pytest.raises(UnavailableError, match="queue is full") as caught:
        desk.submit()
    assert caught.value.retry_after_seconds == 1
    assert desk.rounds.snapshot().requests["rejected"] == 1


def test_the_time_to_come_again_follows_the_mean_latency():
    desk = Desk(active=1, queue=1)
    desk.submit(max_tokens=1)
    desk.clock.seconds += 12
    desk.turn()
    desk.submit()
    desk.submit()
    with pytest.raises(UnavailableError) as caught:
        desk.submit()
    assert caught.value.retry_after_seconds == 12


def test_no_queue_at_all_still_serves_as_many_as_may_be_active():
    desk = Desk(active=2, queue=0)
    desk.submit()
    desk.submit()
    with pytest.raises(UnavailableError):
        desk.submit()


def test_a_cancelled_request_ends_at_the_next_turn_and_frees_its_place():
    desk = Desk(active=1)
    job, delivered = desk.submit(1)
    desk.submit(2)
    desk.turn()
    job.cancel()
    desk.turn(2)
    assert delivered[-1] == Ended(outcome=Outcome.CANCELLED)
    assert desk.engine.closed.is_set()
    assert desk.engine.steps == [1, 2]


def test_a_request_cancelled_while_it_waits_never_starts():
    desk = Desk(active=1)
    desk.submit(1)
    job, delivered = desk.submit(2)
    job.cancel()
    desk.turn(9)
    assert delivered == [Ended(outcome=Outcome.CANCELLED)]
    assert 2 not in desk.engine.steps


def test_an_error_of_the_engine_ends_its_request_only():
    desk = Desk(servekit.ScriptedEngine(["a", RunError("nan", hint="h")]))
    _, first = desk.submit(1)
    _, second = desk.submit(2, max_tokens=1)
    desk.turn(2)
    assert (first[-1].outcome, first[-1].error.message) == (Outcome.FAILED, "nan")
    assert second[-1].outcome is Outcome.LENGTH


def test_a_bug_in_the_engine_is_logged_and_told_without_details(caplog):
    desk = Desk(servekit.ScriptedEngine([ZeroDivisionError("secret")]))
    _, delivered = desk.submit()
    with caplog.at_level(logging.ERROR):
        desk.turn()
    assert "secret" in caplog.text
    assert "secret" not in delivered[-1].error.message


def test_times_are_measured_from_the_arrival():
    desk = Desk(active=1)
    desk.submit(max_tokens=2)
    desk.clock.seconds += 0.3
    desk.turn()
    desk.clock.seconds += 0.4
    desk.turn()
    taken = desk.rounds.snapshot()
    assert taken.queue_seconds.sum == pytest.approx(0.3)
    assert taken.first_token_seconds.sum == pytest.approx(0.3)
    assert taken.latency_seconds.sum == pytest.approx(0.7)


def test_a_snapshot_counts_who_waits_and_who_is_active():
    desk = Desk(active=1)
    desk.submit()
    desk.submit()
    desk.turn()
    taken = desk.rounds.snapshot()
    assert (taken.queue_depth, taken.active, taken.generated_tokens) == (1, 1, 1)


def test_draining_refuses_new_requests_and_finishes_the_running():
    desk = Desk()
    _, delivered = desk.submit()
    desk.turn()
    desk.rounds.drain(10)
    with pytest.raises(UnavailableError, match="shutting down"):
        desk.submit()
    desk.turn(2)
    assert delivered[-1] == Ended(outcome=Outcome.STOP)


def test_the_grace_period_cuts_off_what_runs_and_what_waits():
    desk = Desk(servekit.ScriptedEngine(endless=True), active=1)
    _, runs = desk.submit()
    _, waits = desk.submit()
    desk.turn()
    desk.rounds.drain(10)
    desk.clock.seconds += 10
    desk.turn(2)
    for delivered in (runs, waits):
        assert delivered[-1].outcome is Outcome.CANCELLED
        assert "shut down" in delivered[-1].error.message


def test_closing_ends_waiting_and_abandoning_tells_everybody():
    desk = Desk(active=1)
    _, runs = desk.submit()
    _, waits = desk.submit()
    desk.turn()
    desk.rounds.close()
    assert desk.rounds.wait() is False
    desk.rounds.abandon()
    assert all(delivered[-1].outcome is Outcome.CANCELLED for delivered in (runs, waits))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=12),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_every_accepted_request_ends_exactly_once_and_is_counted_once(wishes, active, queue):
    desk = Desk(active=active, queue=queue)
    accepted = []
    for max_tokens, leaves in wishes:
        try:
            job, delivered = desk.submit(max_tokens=max_tokens)
        except UnavailableError:
            pass
        else:
            accepted.append(delivered)
            if leaves:
                job.cancel()
        desk.turn()
    desk.turn(60)
    for delivered in accepted:
        assert [isinstance(item, Ended) for item in delivered].index(True) == len(delivered) - 1
    counted = desk.rounds.snapshot()
    assert sum(counted.requests.values()) == len(wishes)
    assert (counted.queue_depth, counted.active) == (0, 0)
    pieces = sum(isinstance(item, Piece) for delivered in accepted for item in delivered)
    assert counted.generated_tokens == pieces
