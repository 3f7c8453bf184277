"""Find the parallel layout of a model on a fleet.

In goes a request (shape, batch, the sizes that the user fixed) and the machines; out comes a
ParallelPlan with stages, memory and expected time, or an error with the nearest plan that works.
It never touches a device, a process or torch.
"""

from cnai.plan.balance import Cuts
from cnai.plan.cost import layer_costs
from cnai.plan.devices import DEVICES, Device, device_memory_bytes, device_named
from cnai.plan.nearest import nearest_plan
from cnai.plan.planner import Candidate, alternatives, make_plan, with_cuts
from cnai.plan.recut import LayerBalancer
from cnai.plan.request import PlanRequest
from cnai.plan.shares import ShareBalancer, ShareRule, share_rule

__all__ = [
    "DEVICES",
    "Candidate",
    "Cuts",
    "Device",
    "LayerBalancer",
    "PlanRequest",
    "ShareBalancer",
    "ShareRule",
    "alternatives",
    "device_memory_bytes",
    "device_named",
    "layer_costs",
    "make_plan",
    "nearest_plan",
    "share_rule",
    "with_cuts",
]
