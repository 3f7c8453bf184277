"""The course of a run, out of its events."""

from typing import Any

from cnai.core.course import Course, course_of, standing
from cnai.core.events import Reacted


def reacted(number: int, action: str = "lower_rate", **more: Any) -> Reacted:
    fields: dict[str, Any] = {"detector": "d", "step": 9, "from_step": 5, "reason": "", **more}
    return Reacted(time_unix=0.0, number=number, action=action, **fields)


def test_a_run_without_reactions_is_as_it_is() -> None:
    course = course_of([])
    assert [course.data_step(step) for step in range(3)] == [0, 1, 2]
    assert course.rate_factor(7) == 1.0


def test_factors_of_the_rate_add_up_from_their_steps_on() -> None:
    course = Course(rates=((5, 0.5), (8, 0.5)))
    assert [course.rate_factor(step) for step in (4, 5, 7, 8)] == [1.0, 0.5, 0.5, 0.25]


def test_data_is_passed_over_once_and_never_repeated() -> None:
    course = Course(skips=((5, 3), (8, 2)))
    read = [course.data_step(step) for step in range(10)]
    assert read == [0, 1, 2, 3, 4, 8, 9, 10, 13, 14]


def test_a_reaction_that_was_taken_back_does_not_count() -> None:
    events = [
        reacted(1, rate_factor=0.5),
        reacted(2, "roll_back", data_steps=4),
        reacted(3, "undo", undoes=2),
    ]
    assert course_of(events) == Course(rates=((5, 0.5),))
    assert [e.number for e in standing(events)] == [1]
