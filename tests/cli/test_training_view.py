"""What is shown of a training."""

from cnai.cli.screen import training_line, training_picture
from cnai.core.events import Rebalanced
from cnai.monitor import fold
from monitor_case import evaluated, started, step


def after(*events):
    return fold([started(), *events], run="demo", now_unix=10.0)


def drawn(progress):
    from rich.console import Console

    console = Console(width=120)
    with console.capture() as caught:
        console.print(training_picture(progress))
    return caught.get()


def test_the_line_tells_the_validation_loss():
    assert "validation 4.250  " in training_line(after(step(1), evaluated(1, 4.25)))


def test_the_line_is_silent_about_an_evaluation_that_was_not_done():
    assert "validation" not in training_line(after(step(1)))


def test_the_picture_tells_validation_and_noise():
    picture = drawn(after(step(1, noise_scale=48.2), evaluated(1, 4.25)))
    assert "validation 4.2500 at step 1" in picture
    assert "noise scale 48 sequences" in picture


def test_the_picture_has_no_row_for_what_is_not_measured():
    assert "noise" not in drawn(after(step(1)))


def moved(**changes):
    fields = {
        "time_unix": 1.0, "attempt": 0, "step": 5, "moved": "rows", "before": (4, 4),
        "after": (6, 2), "gain": 1.53, "reason": "",
    }  # fmt: skip
    return Rebalanced(**(fields | changes))


def test_the_picture_tells_of_the_last_move_of_work():
    picture = drawn(after(step(1), moved(step=1), moved()))
    assert "rows moved after step 5: 4 4 -> 6 2, 1.53 x expected" in picture
    assert "after step 1" not in picture


def test_a_move_back_tells_what_was_measured():
    picture = drawn(after(step(1), moved(is_rollback=True, gain=0.9)))
    assert "rows moved back after step 5: 4 4 -> 6 2, 0.90 x was" in picture


def test_the_picture_tells_computing_from_waiting():
    picture = drawn(after(step(1, rows=4, stage_seconds=(0.3,), wait_seconds=0.1)))
    assert "computes" in picture
    assert "waits" in picture
    assert max(len(line.rstrip()) for line in picture.splitlines()) <= 80
