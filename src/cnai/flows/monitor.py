"""`ai-cli watch`: how a run stands."""

from __future__ import annotations

from cnai.core.clock import Clock, SystemClock
from cnai.core.runfolder import RunFolder
from cnai.flows.listener import Listener
from cnai.flows.stopping import stop_wishes
from cnai.monitor import RunFollower, RunProgress

_POLL_SECONDS = 0.5


def progress_of(run: RunFolder) -> RunProgress:
    """Return how a run stands now."""
    return RunFollower(run).progress()


def follow_run(run: RunFolder, listener: Listener, clock: Clock | None = None) -> RunProgress:
    """Show a run until it ends, or until nobody works on it any more, or Ctrl-C."""
    time = clock or SystemClock()
    follower = RunFollower(run)
    with stop_wishes() as wish:
        while True:
            progress = follower.progress()
            listener.training(progress)
            if wish.times or progress.state.is_final or run.owner() is None:
                return progress
            time.sleep(_POLL_SECONDS)
