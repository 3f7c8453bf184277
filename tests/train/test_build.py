"""A rank reads the numbers that it holds from a model folder, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from cnai.core.layout import Layout, Sharding
from cnai.core.spec.sections import Train
from cnai.models import HuggingFaceWeights
from cnai.train.build import build_decoder
from cnai.train.ranks import Ranks
from cnai.train.shards import local_of
from models_folder import save_folder
from training_case import SHAPE, plan_of

LAYOUT = Layout(data=2, model=2)


@pytest.fixture(params=range(4))
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """One rank of four, without the other three."""
    dist.init_process_group("fake", rank=request.param, world_size=4, store=FakeStore())
    yield Ranks(
        layout=LAYOUT,
        place=LAYOUT.place(request.param),
        mesh=init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("pipeline", "data", "model")),
        device=torch.device("cpu"),
        data_axes=("data",),
        tie=None,
        writers=dist.distributed_c10d._get_default_group(),
    )
    dist.destroy_process_group()


class Counted(HuggingFaceWeights):
    """Weights that count what is read of them."""

    numbers = 0

    def __call__(self, name: str) -> torch.Tensor:
        tensor = self.tensor(name)
        self.numbers += tensor.numel()
        return tensor

    def part(self, name: str, index: tuple[slice, ...]) -> torch.Tensor:
        tensor = super().part(name, index)
        self.numbers += tensor.numel()
        return tensor


@pytest.mark.parametrize("sharding", [Sharding.NONE, Sharding.FULL])
def test_a_rank_reads_what_it_holds(ranks: Ranks, tmp_path: Path, sharding: Sharding) -> None:
    whole = save_folder(tmp_path, SHAPE, stir=True).state_dict()
    weights = Counted(tmp_path)
    plan = plan_of(LAYOUT, sharding=sharding)
    (part,) = build_decoder(SHAPE, plan, ranks, weights, Train())
    held = {name: local_of(value.detach()) for name, value in part.named_parameters()}
    assert weights.numbers == sum(local.numel() for local in held.values())
    assert weights.numbers < SHAPE.parameters * (0.3 if sharding is Sharding.FULL else 0.55)
    assert all(numbers_of(local) <= numbers_of(whole[name]) for name, local in held.items())


def numbers_of(tensor: torch.Tensor) -> set[float]:
    return set(tensor.flatten().tolist())
