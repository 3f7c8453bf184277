"""How many bytes forward keeps for backward, measured by a rank that tests start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from cnai.core.layout import ParallelPlan
from cnai.core.records import convert


def rank(context: Any) -> int:
    """Build the case, run forward once, and leave the bytes kept in a file."""
    import torch

    from cnai.core.spec.sections import Train
    from cnai.models import initial_weights
    from cnai.train.build import build_decoder
    from cnai.train.ranks import joined
    from training_case import BATCH, SHAPE

    plan = convert(ParallelPlan, context.payload["plan"], where="payload")
    shape = replace(SHAPE, layers=plan.stages[-1].end_layer)
    settings = Train(**context.payload["train"])
    with joined(
        plan, context.rank, store=context.store, attempt=0, timeout_seconds=60, tied=True
    ) as ranks:
        (part,) = build_decoder(shape, plan, ranks, initial_weights(shape, 0), settings)
        kept: dict[int, tuple[int, Any]] = {}
        weights = {local(weight).untyped_storage().data_ptr() for weight in part.parameters()}

        def pack(tensor: Any) -> Any:
            storage = local(tensor).untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        row = torch.zeros(BATCH, shape.sequence + 1, dtype=torch.int64)
        tokens = row[:, : shape.sequence // ranks.layout.context]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = part(tokens)
        total = sum(size for size, _ in kept.values())
        out.sum().backward()
    Path(context.payload["folder"], f"{context.rank}.json").write_text(json.dumps(total))
    return 0


def local(tensor: Any) -> Any:
    """Return the part of a tensor that lies here, also of one that is still on its way."""
    from torch.distributed.tensor import DTensor

    tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return getattr(tensor, "elem", tensor)
