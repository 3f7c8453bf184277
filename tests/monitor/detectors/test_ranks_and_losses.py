"""What detectors find in the events of steps and ranks, and what they leave alone."""

from dataclasses import replace

import numpy as np
import pytest

from cnai.monitor import DETECTORS
from layers_case import measured
from monitor_case import ended, evaluated, started, step

MB = 1 << 20


def run(name, events):
    detector = DETECTORS[name]()
    return [found for event in events if (found := detector.update(event)) is not None]


def steps(values, **changes):
    return [step(at, loss=value, **changes) for at, value in enumerate(values, start=1)]


def noise(count, seed=0, scale=0.02):
    return scale * np.random.default_rng(seed).standard_normal(count)


# exploding


def test_a_norm_far_above_its_past_is_found():
    events = [step(at, grad_norm=1.0 if at < 50 else 200.0) for at in range(1, 60)]
    assert run("exploding", events)[0].step == 51


def test_a_norm_that_is_huge_from_the_start_is_found():
    assert run("exploding", [step(at, grad_norm=5e3) for at in range(1, 9)])[0].step == 2


def test_one_large_norm_is_healthy():
    events = [step(at, grad_norm=500.0 if at == 50 else 1.0) for at in range(1, 99)]
    assert run("exploding", events) == []


# wrong_sign


def test_a_loss_that_rises_all_the_time_is_found():
    assert run("wrong_sign", steps(3 + 0.05 * np.arange(60) + noise(60)))


def test_a_loss_that_jumped_and_falls_again_is_healthy():
    jumped = [*(3 + noise(30)), *(6 - 0.05 * np.arange(60))]
    assert run("wrong_sign", steps(jumped)) == []


# labels_shuffled


def with_chance(values, chance):
    return [measured(0, chance_loss=chance), *steps(values)]


def test_a_loss_at_chance_is_found():
    (found,) = run("labels_shuffled", with_chance(2.31 + noise(90), 2.30))
    assert found.step < 70


def test_a_loss_that_still_falls_is_healthy():
    assert run("labels_shuffled", with_chance(2.6 - 0.003 * np.arange(90), 2.30)) == []


def test_a_loss_below_chance_is_healthy():
    assert run("labels_shuffled", with_chance(2.2 + noise(200), 2.30)) == []


def test_without_classes_there_is_no_chance():
    assert run("labels_shuffled", steps(2.31 + noise(90))) == []


# repeated_data


def batches(names):
    return [measured(at + 5, batches=tuple(names[at : at + 5])) for at in range(0, len(names), 5)]


def test_batches_that_come_again_are_found():
    assert run("repeated_data", batches([str(at % 4) for at in range(40)]))


def test_the_next_epoch_is_healthy():
    assert run("repeated_data", batches([str(at % 15) for at in range(90)])) == []


# optimizer_lost


def counted(*pairs, attempt=0):
    return [measured(at, optimizer_steps=count, attempt=attempt) for at, count in pairs]


@pytest.mark.parametrize("count", [None, 0, 1])
def test_a_resume_without_the_optimizer_is_found(count):
    again = [started(1, resumed=20), *counted((20, count), attempt=1)]
    (found,) = run("optimizer_lost", [started(), *counted((0, None), (10, 10), (20, 20)), *again])
    assert found.rank == 0


def test_a_resume_with_the_optimizer_is_healthy():
    again = [started(1, resumed=20), *counted((20, 20), (30, 30), attempt=1)]
    assert run("optimizer_lost", [started(), *counted((0, 0), (20, 20)), *again]) == []


def test_a_rule_that_counts_nothing_is_healthy():
    again = [started(1, resumed=20), *counted((20, None), attempt=1)]
    assert run("optimizer_lost", [started(), *counted((0, None), (20, None)), *again]) == []


def test_the_first_command_of_a_run_that_was_tuned_before_is_healthy():
    assert run("optimizer_lost", [started(), *counted((0, None), (1, 1), (10, 10))]) == []


# schedule_reset


def rates(values):
    return [step(at, learning_rate=value) for at, value in enumerate(values, start=1)]


def test_a_rate_that_jumps_back_is_found():
    fall = [1e-3 * (1 - at / 100) for at in range(80)]
    assert run("schedule_reset", rates([*fall, 1e-3, 1e-3]))[0].step == 81


@pytest.mark.parametrize(
    "values",
    [
        [1e-3 * min(1, (at + 1) / 10) for at in range(60)],
        [1e-3 * (1 - at / 100) for at in range(90)],
        [1e-5, 1e-3, 1e-3, 9e-4],
    ],
)
def test_schedules_as_they_are_meant_are_healthy(values):
    assert run("schedule_reset", rates(values)) == []


# copies


def hashes(at, *values, attempt=0):
    return [
        measured(at, rank=rank, weights_hash=value, copy="pipeline 0", attempt=attempt)
        for rank, value in enumerate(values)
    ]


def test_copies_that_were_equal_and_differ_are_found_with_the_odd_rank():
    events = [started(ranks=3), *hashes(0, "a", "a", "a"), *hashes(10, "b", "x", "b")]
    (found,) = run("replica_mismatch", events)
    assert (found.step, found.rank, found.severity) == (10, 1, "critical")


def test_of_two_copies_nobody_knows_which_is_right():
    events = [started(), *hashes(0, "a", "a"), *hashes(10, "b", "x")]
    (found,) = run("replica_mismatch", events)
    assert found.rank is None


def test_copies_that_differ_from_the_start_are_another_fault():
    events = [started(), *hashes(0, "a", "x"), *hashes(10, "b", "y")]
    assert [one.step for one in run("desync", events)] == [0]
    assert run("replica_mismatch", events) == []


def test_ranks_that_hold_other_parts_are_not_compared():
    events = [
        measured(0, rank=rank, weights_hash=str(rank), copy=f"pipeline {rank}") for rank in (0, 1)
    ]
    assert run("desync", [started(), *events]) == []


def test_ranks_whose_events_are_read_later_are_waited_for():
    first, second = hashes(10, "b", "x")
    events = [started(), *hashes(0, "a", "a"), first, step(11), step(12), step(30), second]
    assert len(run("replica_mismatch", events)) == 1


def test_the_same_step_of_another_attempt_is_not_compared():
    again = [started(1), *hashes(0, "b", "b", attempt=1)]
    events = [started(), *hashes(0, "a", "a")[:1], *again]
    assert run("desync", events) == run("replica_mismatch", events) == []


# slow_data, unequal_steps


def waiting(*waits, count=15):
    return [
        step(at, rank=rank, data_wait_seconds=wait, step_seconds=0.2)
        for at in range(1, count)
        for rank, wait in enumerate(waits)
    ]


def test_data_for_which_all_wait_is_found():
    assert run("slow_data", waiting(0.1, 0.09))


def test_one_rank_that_waits_is_another_fault():
    assert run("slow_data", waiting(0.1, 0.0)) == []


def test_a_wait_of_milliseconds_is_healthy():
    quick = [replace(one, step_seconds=0.01, data_wait_seconds=0.009) for one in waiting(0, 0)]
    assert run("slow_data", quick) == []


def test_a_rank_that_stopped_is_found():
    events = [step(at, rank=rank) for at in range(1, 40) for rank in (0, 1) if at < 8 or rank == 0]
    assert run("unequal_steps", events)[0].rank == 1


def test_a_rank_whose_events_are_read_later_is_not_behind():
    quick = [step(at, time_unix=at / 100) for at in range(1, 20)]
    late = [step(at, rank=1, time_unix=at / 100) for at in range(1, 20)]
    assert run("unequal_steps", [*quick[:3], *late[:3], *quick[3:], *late[3:]]) == []


def test_ranks_that_end_at_different_steps_are_found():
    events = [step(9), step(8, rank=1), ended("done")]
    assert len(run("unequal_steps", events)) == 1


def test_a_rank_that_is_a_step_behind_is_healthy():
    assert run("unequal_steps", [step(9), step(8, rank=1), ended("stopped")]) == []


# memory_leak


def memory(sizes):
    return [measured(10 * at, rss_bytes=int(size)) for at, size in enumerate(sizes)]


def test_memory_that_grows_steadily_is_found():
    assert run("memory_leak", memory([1000 * MB + 40 * MB * at for at in range(10)]))


@pytest.mark.parametrize(
    "sizes",
    [
        [1000 * MB * (1 - 0.5**at) for at in range(12)],
        [1000 * MB + (at % 2) * 100 * MB for at in range(20)],
        [1000 * MB + at * MB for at in range(20)],
    ],
    ids=["warms up", "up and down", "slowly"],
)
def test_memory_that_settles_is_healthy(sizes):
    assert run("memory_leak", memory(sizes)) == []


def test_memory_that_is_not_known_is_nothing():
    assert run("memory_leak", [measured(at) for at in range(20)]) == []


# mode_mixup


def test_a_mode_that_was_left_is_found():
    assert run("mode_mixup", [measured(0, training=1.0), measured(10, training=0.0)])


@pytest.mark.parametrize("share", [1.0, 0.5, None])
def test_norms_that_are_frozen_all_along_are_healthy(share):
    assert run("mode_mixup", [measured(at, training=share) for at in range(0, 50, 10)]) == []


# overfit


def trained(validation, training=1.0):
    for at in range(1, 101):
        yield step(at, loss=training)
        if at % 10 == 0:
            yield evaluated(at, validation[at // 10 - 1])


def test_validation_that_rises_is_found():
    values = [2.0, 1.6, 1.5, 1.5, 1.6, 1.8, 1.9, 2.0, 2.1, 2.2]
    assert run("overfit", trained(values))[0].step == 60


@pytest.mark.parametrize(
    "values",
    [[1.5] * 10, [2 - 0.05 * at for at in range(10)], [1.5, 1.7] * 5],
    ids=["a gap alone", "falls", "up and down"],
)
def test_validation_that_does_not_rise_for_long_is_healthy(values):
    assert run("overfit", trained(values)) == []
