import math

from cnai.core.event_lines import event_line, parse_event
from cnai.core.events import StepDone


def test_a_loss_that_is_no_number_survives_the_file():
    step = StepDone(
        time_unix=1.0, rank=0, attempt=0, step=1, loss=math.nan, grad_norm=math.inf,
        update_ratio=None, learning_rate=0.1, tokens=8, step_seconds=1.0, data_wait_seconds=0.0,
    )  # fmt: skip
    read = parse_event(event_line(step), where="rank-0.jsonl")
    assert isinstance(read, StepDone)
    assert math.isnan(read.loss)
    assert not math.isfinite(read.grad_norm)
    assert read.update_ratio is None
