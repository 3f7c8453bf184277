"""What `diagnose_live.py` runs under torchrun: a loop of all-reduces in which one rank breaks."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import fault_case


def main(kind: str, guilty: int, step: int) -> None:
    """Do twenty steps; break in one of them."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    for number in range(20):
        breaks = dist.get_rank() == guilty and number == step
        if breaks and kind != "shape":
            fault_case.BREAKS[kind]()
        dist.all_reduce(torch.ones(5 if breaks else 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
