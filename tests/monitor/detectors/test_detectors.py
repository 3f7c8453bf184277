import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.events import RankFailed
from cnai.monitor import DETECTORS, Tick, Watch
from monitor_case import ended, lost, saved, started, step


def run(name, events):
    detector = DETECTORS[name]()
    return [found for event in events if (found := detector.update(event)) is not None]


def tick(at):
    return Tick(time_unix=at)


def losses(values, start=1):
    return [step(start + index, loss=value) for index, value in enumerate(values)]


# nonfinite


@pytest.mark.parametrize("changes", [{"loss": math.nan}, {"grad_norm": math.inf}])
def test_a_loss_or_norm_that_is_not_finite_is_found(changes):
    (found,) = run("nonfinite", [step(1), step(2, **changes)])
    assert (found.step, found.severity) == (2, "critical")
    assert found.repairs


def test_it_is_told_once_an_attempt():
    bad = [step(number, loss=math.nan) for number in range(1, 9)]
    again = [step(3, attempt=1, loss=math.nan)]
    assert len(run("nonfinite", [*bad, started(1), *again])) == 2


def test_a_loop_that_refused_such_a_step_is_heard():
    failed = RankFailed(
        time_unix=1, rank=3, attempt=0, code="run",
        message="loss nan with gradient norm nan at step 8", hint="h",
    )  # fmt: skip
    (found,) = run("nonfinite", [failed])
    assert found.rank == 3


# loss_spike


def noisy(count, seed=0, level=3.0, noise=0.02):
    return list(level + noise * np.random.default_rng(seed).standard_normal(count))


def test_a_spike_of_two_steps_is_found_at_the_second():
    (found,) = run("loss_spike", losses([*noisy(40), 5.0, 5.2]))
    assert found.step == 42


def test_a_blip_of_one_step_is_healthy():
    assert run("loss_spike", losses([*noisy(40), 5.0, *noisy(40, seed=1)])) == []


def test_one_spike_is_told_once_however_long_it_lasts():
    assert len(run("loss_spike", losses([*noisy(40), *[6.0] * 30]))) == 1


def test_a_rise_that_is_small_in_nats_is_no_spike():
    assert run("loss_spike", losses([*[3.0] * 40, 3.2, 3.2, 3.2])) == []


def test_every_rank_reports_a_step_but_it_counts_once():
    events = []
    for event in losses([*noisy(40), 5.0, *noisy(5, seed=1)]):
        events += [event, step(event.step, rank=1, loss=event.loss)]
    assert run("loss_spike", events) == []


def test_steps_repeated_after_a_resume_are_looked_at_again():
    events = [*losses(noisy(40)), started(1, resumed=30), *losses(noisy(20, seed=2), start=31)]
    assert run("loss_spike", events) == []


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.005, 0.1),
    st.sampled_from(["decay", "plateau", "warm_up", "cosine"]),
)
def test_healthy_curves_have_no_findings(seed, noise, kind):
    steps = np.arange(1, 301)
    curve = {
        "decay": 2.0 + 6.0 * np.exp(-steps / 60),
        "plateau": np.full(300, 2.5),
        "warm_up": 9.0 - 4.0 * np.minimum(1, steps / 100),
        "cosine": 3.0 + 2.0 * (1 + np.cos(np.pi * steps / 300)) / 2,
    }[kind]
    curve = curve + noise * np.random.default_rng(seed).standard_normal(300)
    watch = Watch.of(list(DETECTORS.values()))
    found = []
    for index, loss in enumerate(curve, start=1):
        for rank in (0, 1):
            seconds = 0.5 + 0.02 * rank
            event = step(index, rank=rank, loss=float(loss), step_seconds=seconds)
            found += watch.update(event)
        found += watch.update(tick(index + 0.5))
    assert found == []


# stalled


def test_no_step_for_a_minute_is_a_stall():
    events = [*(step(number) for number in range(1, 6)), tick(60.0), tick(66.0), tick(200.0)]
    (found,) = run("stalled", events)
    assert "no step for 61 s after step 5" in found.message


def test_long_steps_may_take_ten_times_as_long():
    events = [step(n, time_unix=60.0 * n, step_seconds=60.0) for n in range(1, 6)]
    assert run("stalled", [*events, tick(800.0)]) == []
    assert len(run("stalled", [*events, tick(901.0)])) == 1


def test_the_one_rank_that_is_behind_is_named():
    events = [step(n, rank=r) for n in range(1, 6) for r in (0, 1, 2)]
    events += [step(6, rank=0), step(6, rank=2), tick(100.0)]
    (found,) = run("stalled", events)
    assert found.rank == 1
    assert "rank 1 is behind, at step 5" in found.message


def test_ranks_that_stand_together_are_not_blamed():
    events = [step(n, rank=r) for n in range(1, 6) for r in (0, 1)]
    (found,) = run("stalled", [*events, tick(100.0)])
    assert found.rank is None


@pytest.mark.parametrize("event", [lost(at=6.0), ended("done", at=6.0), started(1, at=6.0)])
def test_after_a_loss_an_end_or_a_start_silence_is_no_stall(event):
    events = [*(step(number) for number in range(1, 6)), event, tick(500.0)]
    assert run("stalled", events) == []


def test_a_checkpoint_is_a_sign_of_life():
    events = [*(step(number) for number in range(1, 6)), saved(5, at=50.0), tick(100.0)]
    assert run("stalled", events) == []


def test_before_the_first_steps_silence_is_no_stall():
    assert run("stalled", [started(), step(1), tick(500.0)]) == []


def test_a_second_stall_is_told_again():
    first = [*(step(number) for number in range(1, 6)), tick(100.0)]
    assert len(run("stalled", [*first, step(6, time_unix=101.0), tick(200.0)])) == 2


# lagging_rank


def gang(count, **slow):
    """Steps of four ranks; rank 2 has the changed fields."""
    return [
        step(number, rank=rank, **(slow if rank == 2 else {}))
        for number in range(1, count + 1)
        for rank in range(4)
    ]


def test_unequal_step_times_blame_nobody_because_fast_ranks_wait_inside_them():
    assert run("lagging_rank", gang(40, step_seconds=1.0)) == []


def test_a_rank_that_waits_for_data_is_named_although_all_steps_take_equally_long():
    (found,) = run("lagging_rank", gang(40, data_wait_seconds=0.45))
    assert found.rank == 2
    assert "for data" in found.message


@pytest.mark.parametrize("ranks", [2, 3])
def test_those_who_wait_for_a_rank_without_data_are_not_blamed(ranks):
    events = [
        step(number, rank=rank, data_wait_seconds=0.45 if rank == 1 else 0.0)
        for number in range(1, 30)
        for rank in range(ranks)
    ]
    assert {found.rank for found in run("lagging_rank", events)} == {1}


def test_all_ranks_waiting_for_data_is_nobodys_fault():
    events = [step(n, rank=rank, data_wait_seconds=0.4) for n in range(1, 30) for rank in range(4)]
    assert run("lagging_rank", events) == []


def test_milliseconds_are_no_lag_however_short_the_steps_are():
    assert run("lagging_rank", gang(40, step_seconds=0.006, data_wait_seconds=0.005)) == []


def test_a_single_slow_step_is_healthy():
    events = gang(20)
    events[42] = step(11, rank=2, step_seconds=9.0)
    assert run("lagging_rank", events) == []


def test_a_lone_rank_lags_behind_nobody():
    assert run("lagging_rank", [step(n, step_seconds=float(n)) for n in range(1, 50)]) == []


def test_it_speaks_again_after_a_hundred_steps():
    assert len(run("lagging_rank", gang(250, data_wait_seconds=0.45))) == 3


# the watch


class Broken:
    name = "broken"

    def update(self, event):
        raise KeyError(event.time_unix)


def workers(seconds, rows=(4, 4), count=40):
    """Two ranks whose steps take equally long, of which each computes a part."""
    return [
        step(n, rank=rank, rows=rows[rank], stage_seconds=(seconds[rank],), wait_seconds=0.1)
        for n in range(1, count + 1)
        for rank in (0, 1)
    ]


def test_a_rank_that_computes_slowly_is_blamed_and_not_those_that_wait_for_it():
    (found,) = run("lagging_rank", workers((0.1, 0.35)))
    assert found.rank == 1
    assert "computes 0.0875 s for a row, the others 0.025 s" in found.message


def test_a_slow_rank_whose_rows_were_moved_away_is_still_seen():
    (found,) = run("lagging_rank", workers((0.2, 0.2), rows=(6, 2)))
    assert found.rank == 1


def test_a_little_slower_is_not_slow():
    assert run("lagging_rank", workers((0.2, 0.28))) == []


def test_computing_that_hardly_counts_is_no_reason():
    assert run("lagging_rank", workers((0.001, 0.015))) == []


def test_a_detector_that_throws_reports_itself_once_and_the_others_go_on():
    watch = Watch([Broken(), DETECTORS["nonfinite"]()])
    found = [one for number in range(1, 4) for one in watch.update(step(number, loss=math.nan))]
    assert [one.detector for one in found] == ["broken", "nonfinite"]
    assert "broken is off: KeyError: 1.0" in found[0].message


def test_every_detector_is_registered_under_its_name():
    assert {name: kind().name for name, kind in DETECTORS.items()} == {n: n for n in DETECTORS}
