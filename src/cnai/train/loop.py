"""The loop that every rank runs: step, record, measure, save, until it is done or asked to stop.

What all ranks must know rides in the one message of the step, so that all save and stop after the
same one.
"""

from __future__ import annotations

from cnai.core.batches import BatchReader
from cnai.train.checkpoint import Checkpoints, Record
from cnai.train.trainer import Trainer, TrainJob
from cnai.train.wishes import Asked, Wishes


def train(
    job: TrainJob,
    trainer: Trainer,
    reader: BatchReader,
    checkpoints: Checkpoints,
    record: Record,
) -> int:
    """Train from `resume_step` to `steps`, or until somebody is asked to stop.

    Args:
        record: Takes the events of this rank.

    Returns:
        Steps done.
    """
    asked = Asked()
    if job.resume_step:
        checkpoints.load(job.resume_step, trainer.state())
    done = job.resume_step
    wishes = Wishes()
    trainer.measure_rank(done)
    with checkpoints:
        while done < job.steps and not wishes.stop:
            event, wishes = trainer.step(done, reader, asked.wishes())
            done += 1
            record(event)
            trainer.measure_rank(done)
            moved = trainer.moved(done)
            if moved is not None and event.rank == 0:
                record(moved)
            checkpoints.check()
            last = wishes.stop or done == job.steps
            if trainer.evaluates_after(done):
                measured = trainer.evaluate(done, reader)
                if event.rank == 0:
                    record(measured)
            if last or wishes.save or done % job.checkpoint_every == 0:
                trainer.share_buffers()
                checkpoints.save(done, trainer.state(), record, last=last)
        if trainer.probe:
            trainer.probe.close()
    return done
