"""The section `train.balance`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cnai.core.spec.section import Section


class Balance(Section):
    """Moving work from slow ranks to fast ones while training goes on."""

    rows: bool = True
    """Whether rows of the batch move from slow data ranks to fast ones, at once. Only where every
    rank holds whole weights (`data_parallel.sharding` none), and not with `train.deterministic`."""
    layers: bool = True
    """Whether layers move from slow stages of the pipeline to fast ones, by a checkpoint and a
    start of the ranks, when the steps that are left earn that back twice. Not with
    `train.deterministic`."""
    threshold: Annotated[float, Field(gt=0, le=10)] = 0.1
    """Smallest expected gain of throughput that is worth a move; 0.1 = 10 %."""
