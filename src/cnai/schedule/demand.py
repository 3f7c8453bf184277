"""What one worker needs, as a value that caches can be keyed by."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = 1000
"""Thousandths of a GPU that make a whole one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Resources of one worker; a gang is a number of equal workers.

    Attributes:
        cpu_milli: Thousandths of a CPU core.
        memory_mib: Main memory.
        gpus: GPUs of the worker, all on one node; 0 for work of the CPU alone.
        gpu_milli: Thousandths that it takes of each of them; below 1000 it shares the GPU.
        models: GPU models that will do; empty means any.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = WHOLE
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Thousandths of GPUs over all of its GPUs."""
        return self.gpus * self.gpu_milli if self.gpus else 0

    @property
    def shares(self) -> bool:
        """Whether it takes only a part of a GPU."""
        return self.gpus == 1 and self.gpu_milli < WHOLE

    def times(self, workers: int) -> Demand:
        """Return what so many workers need together on one node."""
        return Demand(
            cpu_milli=self.cpu_milli * workers,
            memory_mib=self.memory_mib * workers,
            gpus=self.gpus * workers,
            gpu_milli=self.gpu_milli,
            models=self.models,
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """Workers of one job on one node.

    Attributes:
        node: Row of the node.
        workers: How many are there.
        gpus: The GPUs that they take, as places on the node.
    """

    node: int
    workers: int
    gpus: tuple[int, ...] = ()
