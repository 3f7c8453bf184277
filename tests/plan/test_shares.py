"""Rows go to fast data ranks, exactly, and only where a layout can run it."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.balance import Measures
from cnai.core.layout import Layout, Sharding
from cnai.plan.shares import (
    ShareBalancer,
    ShareRule,
    best_shares,
    compute_seconds,
    expected_gain,
    share_rule,
)
from training_case import plan_of

RULES = st.builds(
    lambda ranks, unit, least, more, idle: ShareRule(
        ranks=ranks, even=unit * (least + more), unit=unit, least=unit * least, idle=idle * unit
    ),
    st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.floats(0, 3),
)  # fmt: skip


def rule_of(layout, **more):
    return share_rule(plan_of(layout, **more))


@given(RULES, st.data())
def test_no_other_shares_end_earlier(rule, data):
    seconds = data.draw(st.lists(st.floats(0.01, 10), min_size=rule.ranks, max_size=rule.ranks))
    found = best_shares(seconds, rule)
    assert sum(found) == rule.total
    assert all(rule.least <= n <= rule.most and n % rule.unit == 0 for n in found)
    sizes = range(rule.least, rule.most + 1, rule.unit)
    best = min(
        compute_seconds(shares, seconds, rule)
        for shares in product(sizes, repeat=rule.ranks)
        if sum(shares) == rule.total
    )
    assert compute_seconds(found, seconds, rule) == pytest.approx(best)


@given(st.integers(1, 64), st.integers(2, 20), st.floats(0.001, 10))
def test_equal_ranks_get_equal_shares(ranks, even, seconds):
    rule = ShareRule(ranks=ranks, even=even, unit=1, least=1, idle=0)
    assert best_shares([seconds] * ranks, rule) == (even,) * ranks


def test_a_rank_three_times_slower_gets_a_third():
    rule = ShareRule(ranks=2, even=8, unit=1, least=1, idle=0)
    assert best_shares([1.0, 3.0], rule) == (12, 4)


def test_no_rank_gets_more_than_twice_its_even_share():
    rule = ShareRule(ranks=2, even=8, unit=1, least=1, idle=0)
    assert best_shares([1.0, 1000.0], rule) == (15, 1)
    three = replace(rule, ranks=3)
    assert best_shares([1.0, 1000.0, 1000.0], three) == (16, 4, 4)


def test_time_beside_computing_stays():
    assert expected_gain(2.0, now=1.0, then=0.5) == pytest.approx(2.0 / 1.5)


def test_two_data_ranks_move_single_rows_of_few_micro_batches():
    assert rule_of(Layout(data=2)) == ShareRule(ranks=2, even=4, unit=1, least=1, idle=0.0)


def test_many_micro_batches_move_whole():
    plan = replace(plan_of(Layout(data=2)), microbatches=8, microbatch_rows=3)
    assert share_rule(plan) == ShareRule(ranks=2, even=24, unit=3, least=3, idle=0.0)


def test_compiled_layers_keep_the_shape_of_a_micro_batch():
    plan = plan_of(Layout(data=2))
    assert share_rule(plan, whole_pieces=True) == ShareRule(
        ranks=2, even=4, unit=2, least=2, idle=0.0
    )


def test_a_pipeline_keeps_enough_micro_batches_to_be_filled():
    plan = plan_of(Layout(data=2, pipeline=2), microbatches=4)
    rule = share_rule(plan)
    assert (rule.unit, rule.least, rule.even) == (1, 2, 4)
    assert rule.idle == pytest.approx(1.0)


def test_a_schedule_of_rounds_moves_whole_rounds():
    plan = plan_of(Layout(data=2, pipeline=2), microbatches=4, schedule="Interleaved1F1B")
    assert (share_rule(plan).unit, share_rule(plan).least) == (2, 2)


def test_ranks_that_share_positions_out_move_rows_together():
    assert rule_of(Layout(data=2, context=2)) == rule_of(Layout(data=2))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (plan_of(Layout(pipeline=2)), "one data rank"),
        (plan_of(Layout(data=2), sharding=Sharding.FULL), "gather their weights"),
        (plan_of(Layout(data=4), sharding=Sharding.HYBRID, shard_group=2), "gather their weights"),
        (plan_of(Layout(data=2, pipeline=2), schedule="GPipe", microbatches=4), "at once"),
        (plan_of(Layout(data=4, expert=2)), "exchange tokens"),
        (plan_of(Layout(data=8)), "too small"),
        (plan_of(Layout(data=2, pipeline=2), microbatches=2), "too small"),
    ],
)
def test_where_rows_cannot_move_it_says_why(plan, words):
    assert words in share_rule(plan)


def balancer(plan, threshold=0.1):
    return ShareBalancer(plan, share_rule(plan), threshold)


def steps(one, row_seconds, count, *, beside=0.0):
    """Let ranks of a speed run steps with the rows that they are given; return the moves."""
    moves, rows = [], getattr(one, "rows", None)
    for step in range(count):
        shares = rows or (one._rule.even,) * one._rule.ranks
        seconds = beside + max(n * t for n, t in zip(shares, row_seconds, strict=True))
        move = one.decide(
            Measures(step=step + 1, step_seconds=seconds, row_seconds=(tuple(row_seconds),))
        )
        if move:
            moves.append((step + 1, move))
            rows = one.rows = move.after
    return moves


def test_a_slow_rank_gives_rows_away_after_four_steps():
    one = balancer(plan_of(Layout(data=2)))
    ((step, move),) = steps(one, (1.0, 3.0), 40)
    assert step == 4
    assert (move.before, move.after) == ((4, 4), (6, 2))
    assert move.gain == pytest.approx(2.0)
    assert "data rank 1 is 3.00 x as slow" in move.reason


def test_nothing_moves_between_equal_ranks():
    assert steps(balancer(plan_of(Layout(data=2))), (1.0, 1.0), 100) == []


@given(st.lists(st.floats(0.97, 1.03), min_size=60, max_size=60))
def test_nothing_moves_for_noise_below_the_threshold(noise):
    one = balancer(replace(plan_of(Layout(data=2)), microbatches=3, microbatch_rows=16))
    for step, (a, b) in enumerate(zip(noise[::2], noise[1::2], strict=True)):
        measures = Measures(step=step + 1, step_seconds=48 * max(a, b), row_seconds=((a, b),))
        assert one.decide(measures) is None


def test_nothing_moves_for_slowness_that_comes_and_goes():
    one = balancer(plan_of(Layout(data=2)))
    for step in range(60):
        times = (1.0, 3.0) if step % 3 else (1.0, 1.0)
        measures = Measures(step=step + 1, step_seconds=4 * max(times), row_seconds=(times,))
        assert one.decide(measures) is None


def test_nothing_moves_where_computing_is_a_small_part_of_the_step():
    assert steps(balancer(plan_of(Layout(data=2))), (1.0, 3.0), 40, beside=100.0) == []


def test_rows_come_back_when_the_slow_rank_recovers():
    one = balancer(plan_of(Layout(data=2)))
    steps(one, (1.0, 3.0), 12)
    moves = steps(one, (1.0, 1.0), 30)
    assert one.rows == (4, 4)
    assert not moves[-1][1].is_rollback


def test_a_move_that_does_not_pay_is_taken_back():
    one = balancer(plan_of(Layout(data=2)))
    moves = []
    for step in range(60):
        move = one.decide(Measures(step=step + 1, step_seconds=12.0, row_seconds=((1.0, 3.0),)))
        moves += [move] if move else []
    assert [move.is_rollback for move in moves] == [False, True]
    assert moves[1].after == (4, 4)


def test_ranks_without_a_time_yet_move_nothing():
    assert steps(balancer(plan_of(Layout(data=2))), (0.0, 0.0), 20) == []


def test_a_pipeline_is_as_slow_as_its_slowest_rank():
    plan = plan_of(Layout(data=2, pipeline=2), microbatches=4)
    one, moves = balancer(plan), []
    for step in range(6):
        table = ((1.0, 1.0), (1.0, 3.0))
        move = one.decide(Measures(step=step + 1, step_seconds=15.0, row_seconds=table))
        moves += [move] if move else []
    assert moves[0].after == (5, 3) or moves[0].after == (6, 2)
