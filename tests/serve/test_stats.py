import threading

from hypothesis import given
from hypothesis import strategies as st

from cnai.core.records import decode, encode
from cnai.core.serving import ServeSnapshot
from cnai.serve import Outcome
from cnai.serve.stats import BOUNDS_SECONDS, Recorder


def recorder():
    return Recorder(model="m", queue_limit=4, active_limit=2)


def snapshot(recorded):
    return recorded.snapshot(queue_depth=0, active=0)


@given(st.lists(st.floats(0, 100)))
def test_cumulative_counts_are_how_many_are_at_most_each_bound(durations):
    recorded = recorder()
    for seconds in durations:
        recorded.started(queue_seconds=seconds, prompt_tokens=1)
    histogram = snapshot(recorded).queue_seconds
    expected = [sum(d <= bound for d in durations) for bound in BOUNDS_SECONDS]
    assert list(histogram.cumulative) == [*expected, len(durations)]
    assert histogram.count == len(durations)


def test_every_outcome_has_a_key_before_it_happened():
    assert snapshot(recorder()).requests == dict.fromkeys(map(str, Outcome), 0)


def test_only_whole_answers_have_a_latency():
    recorded = recorder()
    recorded.ended(Outcome.STOP, latency_seconds=2.0)
    recorded.ended(Outcome.CANCELLED)
    assert snapshot(recorded).latency_seconds.count == 1
    assert recorded.mean_latency_seconds() == 2.0


def test_the_mean_of_nothing_is_none():
    assert recorder().mean_latency_seconds() is None


def test_a_snapshot_does_not_change_afterwards():
    recorded = recorder()
    before = snapshot(recorded)
    recorded.ended(Outcome.STOP, latency_seconds=1.0)
    recorded.token(first_after_seconds=0.1)
    assert before.requests["stop"] == 0
    assert before.first_token_seconds.count == 0


def test_a_snapshot_survives_the_way_through_json():
    recorded = recorder()
    recorded.token(first_after_seconds=0.1)
    taken = snapshot(recorded)
    assert decode(ServeSnapshot, encode(taken), where="test") == taken


def test_counts_from_many_threads_are_all_there():
    recorded = recorder()
    threads = [
        threading.Thread(target=lambda: [recorded.token() for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot(recorded).generated_tokens == 2000
