"""Decide where and when a run gets machines.

In goes a run's phase with its number of ranks and the fleet; out comes an Allocation for the whole
gang, or an error with what is missing. It is pure: it never starts a process, waits or asks a
cluster.
"""

from cnai.schedule.allocate import allocate

__all__ = ["allocate"]
