"""Whether a job keeps its GPUs through a phase that does not use them."""

from __future__ import annotations

from cnai.schedule.jobs import JobRow


def keeps_machines(now: JobRow, then: JobRow, phase_seconds: float, restart_seconds: float) -> bool:
    """Tell whether a job goes from one phase to the next where it is.

    It does when both need the same. It also does when the next needs no GPU but is so short that
    the GPUs would idle for less time than their restart would cost.

    Args:
        now: The job in the phase that ends.
        then: The job in the phase that begins.
        phase_seconds: Expected time of the phase that begins; NaN when nobody knows.
        restart_seconds: Time that the GPUs lose when the job is started again.
    """
    if now.demand == then.demand and now.workers == then.workers:
        return True
    idles = bool(now.demand.gpus) and not then.demand.gpus
    return idles and phase_seconds <= restart_seconds
