"""Holds the formulas against the reference decoder, where its parameters and saved tensors lie."""

from dataclasses import replace

import pytest

from cnai.core.layout import Layout, Sharding
from cnai.plan.activations import layer_activation_bytes
from cnai.plan.devices import DEVICES
from cnai.plan.memory import stage_parameters
from cnai.plan.request import Trial
from plan_cases import SMALL

pytestmark = pytest.mark.slow
EXPERTS = {"experts": 8, "experts_per_token": 2, "expert_width": 48, "sparse_step": 2}


@pytest.mark.parametrize("options", [{}, {"attention_bias": True}, {"qk_norm": True}, EXPERTS])
@pytest.mark.parametrize("tied", [False, True])
def test_stage_parameters_are_those_of_the_decoder(tied, options):
    import torch

    from cnai.models.decoder import Decoder

    shape = replace(SMALL, tied_head=tied, **options)
    cuts = ((0, 3), (3, 4), (4, 8))
    trial = Trial(
        layout=Layout(pipeline=3), cuts=cuts, microbatches=3, rows=1, schedule="1F1B",
        sharding=Sharding.NONE,
    )  # fmt: skip
    for stage, (first, end) in enumerate(cuts):
        with torch.device("meta"):
            part = Decoder(shape, first_layer=first, end_layer=end)
        held = sum(weight.numel() for weight in part.parameters())
        assert stage_parameters(shape, trial, stage) == held


def saved_bytes(base, layers, precision):
    """Bytes of the tensors, other than weights, that autograd keeps for backward."""
    import torch

    from cnai.models.decoder import Decoder

    half = precision == "bfloat16"
    model = Decoder(replace(base, layers=layers))
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        out = model(torch.zeros(4, 32, dtype=torch.int64))
    assert out.requires_grad
    return sum(size for pointer, (size, _) in kept.items() if pointer not in weights)


@pytest.mark.parametrize("options", [{}, {"attention_bias": True}, {"qk_norm": True}])
@pytest.mark.parametrize(("precision", "element"), [("float32", 4), ("bfloat16", 2)])
def test_a_layer_keeps_what_the_formula_says(precision, element, options):
    shape = replace(SMALL, head_size=12, **options)
    layer = (saved_bytes(shape, 3, precision) - saved_bytes(shape, 1, precision)) / 2
    matrices = shape.attention_parameters + shape.ffn_parameters
    casts = 2 * matrices if precision == "bfloat16" else 0
    expected = 4 * 32 * layer_activation_bytes(shape, 1, element, DEVICES["cpu"])
    assert layer - casts == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("precision", "element"), [("float32", 4), ("bfloat16", 2)])
def test_a_layer_with_experts_keeps_what_the_formula_says(precision, element):
    shape = replace(SMALL, **(EXPERTS | {"sparse_step": 1, "width": 96}))
    layer = (saved_bytes(shape, 3, precision) - saved_bytes(shape, 1, precision)) / 2
    matrices = shape.sparse_layer_parameters - shape.norm_parameters
    casts = 2 * matrices if precision == "bfloat16" else 0
    said = layer_activation_bytes(shape, 1, element, DEVICES["cpu"], sparse=True)
    assert layer - casts == pytest.approx(4 * 32 * said, rel=0.05)
