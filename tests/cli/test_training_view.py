"""What is shown of a training."""

from cnai.cli.screen import training_line, training_picture
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
