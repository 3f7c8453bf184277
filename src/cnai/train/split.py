"""Split a part of the decoder over the model axis, from outside.

Matrices are split as Megatron does: queries, keys, values, gate and up by output, so that a rank
holds whole heads and whole hidden units; the output and down projections by input, with one sum
over the group. Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3.

With `split_sequence` the ranks also share out the positions of the residual stream between these
sums, so that norms and additions are done once in the group and not by everybody: the sum becomes
a reduce-scatter, and an all-gather comes before the next matrices, which moves as many bytes.
Source: Korthikanti et al. 2022, arXiv 2205.05198, section 4.2. At the ends of a stage the stream is
whole, so that stages, and layers before `split_layer`, need not know. Experts are split in
`cnai.train.experts`.
"""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from cnai.core.layout import Layout
from cnai.models import Decoder
from cnai.models.experts import SparseFeedForward
from cnai.models.lora import LoraLinear

Styles = dict[str, ParallelStyle]
_BY_OUTPUT = (
    "attention.q_proj", "attention.k_proj", "attention.v_proj", "ffn.gate_proj", "ffn.up_proj",
)  # fmt: skip
_BY_INPUT = ("attention.o_proj", "ffn.down_proj")
_POSITIONS = Shard(1)
_WHOLE = Replicate()


def split_over_model_axis(part: Decoder, layout: Layout, mesh: DeviceMesh) -> None:
    """Split what of a part lies from `split_layer` on.

    Args:
        mesh: The model axis.
    """
    if layout.model == 1:
        return
    split = [layer for index, layer in part.layers.items() if layout.is_split(int(index))]
    for layer in split:
        parallelize_module(layer, mesh, _layer(layer, sequence=layout.split_sequence))
    parallelize_module(part, mesh, _ends(part, layout))
    if layout.split_sequence and split:
        _enter_and_leave(part, split, layout, mesh)


def _layer(layer: nn.Module, *, sequence: bool) -> Styles:
    """Return the styles of one layer; with `sequence` its norms work on this rank's positions.

    Of a pair of adapters the one at the split side is split with its matrix, the other is whole on
    every rank: its input or its output is the sum over the group, so its gradient is too.
    """
    after = _POSITIONS if sequence else _WHOLE
    styles: Styles = {}
    sparse = isinstance(layer.get_submodule("ffn"), SparseFeedForward)
    for path in _BY_OUTPUT + _BY_INPUT:
        if sparse and path.startswith("ffn."):
            continue
        by_output = path in _BY_OUTPUT
        style = ColwiseParallel() if by_output else RowwiseParallel(output_layouts=after)
        if isinstance(layer.get_submodule(path), LoraLinear):
            styles[f"{path}.base"] = style
            side = "b" if by_output else "a"
            styles[f"{path}.{side}"] = ColwiseParallel() if by_output else RowwiseParallel()
        else:
            styles[path] = style
    if sequence:
        styles |= {
            "attention_norm": SequenceParallel(use_local_output=True),
            "attention": _gathered(4),
            "ffn_norm": SequenceParallel(use_local_output=True),
            "ffn": _gathered(1, use_local_output=sparse),
        }
    return styles


def _gathered(arguments: int, *, use_local_output: bool = False) -> ParallelStyle:
    """Gather the positions of the first argument once for all projections that read it."""
    rest = (None,) * (arguments - 1)
    return PrepareModuleInput(
        input_layouts=(_POSITIONS, *rest),
        desired_input_layouts=(_WHOLE, *rest),
        use_local_output=use_local_output,
    )


def _ends(part: Decoder, layout: Layout) -> Styles:
    """Return the styles of embedding, final norm and head.

    The embedding is split with layer 0, an untied head with the last layer, a tied one with the
    embedding.
    """
    shape, ends = part.shape, Styles()
    sequence = layout.split_sequence and layout.is_split(shape.layers - 1)
    if part.is_first and layout.is_split(0):
        after = _POSITIONS if sequence else _WHOLE
        ends["embedding"] = RowwiseParallel(input_layouts=_WHOLE, output_layouts=after)
    elif hasattr(part, "embedding") and layout.is_split(0):
        ends["embedding"] = RowwiseParallel(input_layouts=_WHOLE)
    if not part.is_last:
        return ends
    if sequence:
        ends["norm"] = SequenceParallel(use_local_output=True)
    before = _POSITIONS if sequence else _WHOLE
    if layout.is_split(0 if shape.tied_head else shape.layers - 1):
        ends["head"] = ColwiseParallel(input_layouts=before, output_layouts=_WHOLE)
    elif sequence:
        ends["head"] = PrepareModuleInput(
            input_layouts=before, desired_input_layouts=_WHOLE, use_local_output=True
        )
    return ends


def _enter_and_leave(
    part: Decoder, split: list[nn.Module], layout: Layout, mesh: DeviceMesh
) -> None:
    """Take this rank's positions before the first split layer, gather after the last."""
    if not (part.is_first and layout.is_split(0)):
        enter = PrepareModuleInput(
            input_layouts=(_WHOLE, None, None, None),
            desired_input_layouts=(_POSITIONS, None, None, None),
            use_local_output=True,
        )
        parallelize_module(split[0], mesh, enter)
    if not part.is_last:
        leave = PrepareModuleOutput(output_layouts=_POSITIONS, desired_output_layouts=_WHOLE)
        parallelize_module(split[-1], mesh, leave)
        # torch's pipeline detaches what a stage returns in place, which a gathered view forbids.
        split[-1].register_forward_hook(lambda _layer, _inputs, out: out.clone())
