"""What the training flow hands to a worker; apart from the worker, which imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from cnai.core.course import Course
from cnai.flows.data import DatasetPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """What the flow hands to each rank; all else is read from the run folder."""

    run: str
    resume_step: int
    dataset: DatasetPlace
    course: Course = field(default_factory=Course)
