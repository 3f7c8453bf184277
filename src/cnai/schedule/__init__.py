"""Decide which job gets which machines, when, and how many.

In goes a view of the cluster (machines, jobs, queues, services) with a moment and a policy; out
come actions, each with a reason, and the simulator plays the same decisions on traces. It is pure:
it never starts a process, looks at a clock, asks a cluster, or loads torch.
"""

from cnai.schedule.actions import Action, Reason
from cnai.schedule.allocate import allocate
from cnai.schedule.decide import Policy, decide
from cnai.schedule.explain import Explanation, explain
from cnai.schedule.policies import POLICIES, make_policy
from cnai.schedule.simulation.engine import Simulation
from cnai.schedule.simulation.outcome import Outcome
from cnai.schedule.view import ClusterView

__all__ = [
    "POLICIES",
    "Action",
    "ClusterView",
    "Explanation",
    "Outcome",
    "Policy",
    "Reason",
    "Simulation",
    "allocate",
    "decide",
    "explain",
    "make_policy",
]
