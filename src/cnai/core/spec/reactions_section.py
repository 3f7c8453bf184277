"""What a run does by itself about findings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cnai.core.spec.section import LARGEST_INT, Positive, Section


class Reactions(Section):
    """What is done by itself about a finding, beside reporting it; nothing unless it is named here.

    Each of the first four keys takes names of detectors (docs/rooms/monitor.md has the list). Only
    the cause of findings that come together counts, not what follows from it.
    """

    checkpoint: tuple[str, ...] = ()
    """Detectors whose finding saves a checkpoint at once."""
    lower_rate: tuple[str, ...] = ()
    """Detectors whose finding multiplies the learning rate with `rate_factor` from then on; the
    ranks are started again at a checkpoint of that moment."""
    roll_back: tuple[str, ...] = ()
    """Detectors whose finding lets the run go on from the newest checkpoint that lies
    `roll_back_steps` or more before it, with the data since then passed over."""
    stop: tuple[str, ...] = ()
    """Detectors whose finding stops the run, with a checkpoint."""
    rate_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """What `lower_rate` multiplies the learning rate with."""
    roll_back_steps: Positive = 20
    """Steps before a finding that are not trusted any more."""
    skip_nonfinite: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Most steps in a row that are passed over, without an update, when their loss or gradient is
    not finite; 0 = such a step ends the run."""
    at_most: Positive = 3
    """Most reactions of a run; further findings are only reported."""
