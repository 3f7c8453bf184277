"""A plain loop of two ranks with the probe in it, sharded by FSDP2 or copied."""

from __future__ import annotations

from typing import Any


def data(rank: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(8, 7, generator=generator), torch.randint(3, (8,), generator=generator)


def model_of() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))


def steps(model: Any, probe: Any, optimizer: Any, batches: list[Any], average: bool) -> None:
    import torch.distributed as dist
    from torch.nn import functional

    for _ in range(3):
        loss = sum(functional.cross_entropy(model(x), y) for x, y in batches) / len(batches)
        loss.backward()
        if average:
            for one in model.parameters():
                dist.all_reduce(one.grad)
                one.grad /= dist.get_world_size()
        optimizer.step()
        probe.done(loss)
        optimizer.zero_grad()
    probe.close()


def be_rank(context: Any) -> int:
    """Be one of two ranks."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    from cnai.train.probe import Probe

    store = dist.TCPStore(*context.store, is_master=False)
    dist.init_process_group("gloo", store=store, rank=context.rank, world_size=context.ranks)
    model = model_of()
    sharded = context.payload["sharded"]
    if sharded:
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = Probe(model, optimizer, into=context.payload["folder"])
    steps(model, probe, optimizer, [data(context.rank)], average=not sharded)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def alone(folder: str) -> None:
    """Do the same in one process."""
    import torch

    from cnai.train.probe import Probe

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps(model, Probe(model, optimizer, into=folder), optimizer, [data(0), data(1)], average=False)
