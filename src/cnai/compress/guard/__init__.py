"""Tries ways to make a model small and fast, and keeps the best that is still as good.

A model file, samples and a limit go in; the best model that was found comes out, with every trial,
its loss with an interval, its speed and its size. It never calibrates on made-up inputs, never
chooses what it did not measure, and never ends without a result.
"""

from cnai.compress.guard.judge import Goal, Judge
from cnai.compress.guard.order import Order, Prepared, bench_of, check_order, read_order
from cnai.compress.guard.search import Found, Guard
from cnai.compress.guard.trials import GroupError, Mode, Score, Speed, Trial
from cnai.compress.guard.workshop import Candidate, Made, Workshop
from cnai.compress.runners import Engine

__all__ = [
    "Candidate",
    "Engine",
    "Found",
    "Goal",
    "GroupError",
    "Guard",
    "Judge",
    "Made",
    "Mode",
    "Order",
    "Prepared",
    "Score",
    "Speed",
    "Trial",
    "Workshop",
    "bench_of",
    "check_order",
    "read_order",
]
