"""Find the parallel layout of a model on a fleet.

In goes a request (shape, batch, the sizes that the user fixed) and the machines; out comes a
ParallelPlan with stages, memory and expected time, or an error with the nearest plan that works.
It never touches a device, a process or torch.
"""

from cnai.plan.balance import Cuts
from cnai.plan.cost import layer_costs
from cnai.plan.devices import (
    DEVICES,
    Device,
    device_memory_bytes,
    device_named,
    hardware_folder,
)
from cnai.plan.nearest import nearest_plan
from cnai.plan.planner import Candidate, alternatives, make_plan, with_cuts
from cnai.plan.recut import LayerBalancer
from cnai.plan.request import PlanRequest
from cnai.plan.search import Found, search
from cnai.plan.sensitivity import Change, sensitivity
from cnai.plan.shares import ShareBalancer, ShareRule, share_rule
from cnai.plan.space import Objective, Space
from cnai.plan.timeline import picture, timeline

__all__ = [
    "DEVICES",
    "Candidate",
    "Change",
    "Cuts",
    "Device",
    "Found",
    "LayerBalancer",
    "Objective",
    "PlanRequest",
    "ShareBalancer",
    "ShareRule",
    "Space",
    "alternatives",
    "device_memory_bytes",
    "device_named",
    "hardware_folder",
    "layer_costs",
    "make_plan",
    "nearest_plan",
    "picture",
    "search",
    "sensitivity",
    "share_rule",
    "timeline",
    "with_cuts",
]
