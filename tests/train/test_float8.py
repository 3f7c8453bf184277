"""Matrix products in 8-bit floats, played on a CPU."""

import pytest
import torch
from torch import nn

from cnai.core.errors import PlanError
from cnai.core.layout import Layout, Sharding
from cnai.core.shape import DecoderShape
from cnai.models import Decoder
from cnai.train.float8 import multiply_in_float8
from training_case import curve, plan_of, same

CPU = torch.device("cpu")


def converted(layout=Layout(), **shape):  # noqa: B008 - frozen
    with torch.device("meta"):
        part = Decoder(DecoderShape(**{**SHAPE_FIELDS, **shape}))
    names = [name for name, _ in part.named_parameters()]
    multiply_in_float8([part], layout, CPU)
    assert [name for name, _ in part.named_parameters()] == names
    return {
        name: type(one).__name__ for name, one in part.named_modules() if isinstance(one, nn.Linear)
    }


SHAPE_FIELDS = {
    "layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "ffn_width": 64, "vocab": 64,
    "sequence": 16, "tied_head": False,
}  # fmt: skip


def test_the_matrices_of_layers_are_converted_and_the_head_is_not():
    kinds = converted()
    assert kinds.pop("head") == "Linear"
    assert set(kinds.values()) == {"Float8Linear"}


def test_layers_that_are_split_are_left_alone():
    kinds = converted(Layout(model=2, split_layer=1))
    assert kinds["layers.0.ffn.up_proj"] == "Float8Linear"
    assert kinds["layers.1.ffn.up_proj"] == "Linear"


def test_a_matrix_that_the_hardware_cannot_take_is_left_alone():
    assert converted(ffn_width=40)["layers.0.ffn.up_proj"] == "Linear"


def test_a_router_is_left_alone():
    kinds = converted(experts=16, experts_per_token=2, expert_width=32)
    assert kinds["layers.0.ffn.router"] == "Linear"


def test_a_gpu_without_such_products_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an A100")
    with pytest.raises(PlanError, match="an A100 has no matrix products"):
        multiply_in_float8([], Layout(), torch.device("cuda", 0))


FLOAT8 = {"precision": "bfloat16", "float8": True}


@pytest.fixture(scope="module")
def one_rank(gang, tmp_path_factory):
    return curve(gang, tmp_path_factory.mktemp("one"), plan_of(Layout()), **FLOAT8)


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(Layout(data=2), sharding=Sharding.FULL),
        plan_of(Layout(pipeline=2)),
        plan_of(Layout(model=2, split_layer=2)),
    ],
    ids=["dp2 sharded", "pp2", "tp2 from layer 2"],
)
def test_a_layout_follows_the_curve_of_one_process(gang, one_rank, plan, tmp_path):
    found = curve(gang, tmp_path, plan, **FLOAT8)
    assert found[0] == pytest.approx(one_rank[0], abs=2e-2)


@pytest.mark.dist
@pytest.mark.slow
def test_it_rounds_more_than_bfloat16_and_still_learns(gang, one_rank, tmp_path):
    wider = curve(gang, tmp_path, plan_of(Layout()), precision="bfloat16")
    assert one_rank[0] != wider[0]
    same((one_rank[0], {}), (wider[0], {}), 0.1)
