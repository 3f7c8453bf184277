from cnai.cli.output import Output
from cnai.cli.screen import Lines, training_line
from cnai.monitor.fold import fold
from monitor_case import ended, started, step


def progress(*events):
    return fold([started(), *events], run="r", now_unix=100.0)


def lines_after(capsys, *told):
    """What a screen without a terminal shows; no time passes."""
    lines = Lines(Output(), clock=lambda: 0.0)
    for one in told:
        lines.training(one)
    return capsys.readouterr().err


def test_nothing_is_told_before_it_is_time(capsys):
    assert lines_after(capsys, progress(step(1))) == ""


def test_the_end_of_a_training_is_always_told(capsys):
    assert "step 2/100" in lines_after(capsys, progress(step(2), ended("done")))


def test_a_training_without_a_step_has_a_line_too():
    assert training_line(progress()) == "train: starting, no step yet"
