"""Where the first number that is not finite arose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from cnai.train.probe_activations import first_tensor


def origin_of(
    parts: Sequence[nn.Module], forward: Callable[[], object], gradients: dict[str, bool]
) -> str | None:
    """Run the forward pass again and name the first module whose output is not finite.

    The innermost one is named: a module ends before those around it. When all outputs are finite,
    it arose in backward, which runs from the end: then it is the last parameter whose gradient is
    not finite, as all before it follow from it.

    Args:
        forward: Runs the same rows again.
        gradients: Whether the gradient of each parameter is finite, in the order of the model.

    Returns:
        The place and what was wrong there, in words; None when nothing is wrong here.
    """
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_look(name or type(module).__name__, found))
        for part in parts
        for name, module in part.named_modules()
    ]
    try:
        forward()
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return found[0]
    broken = [name for name, finite in gradients.items() if not finite]
    return f"the gradient of `{broken[-1]}`" if broken else None


def _look(name: str, found: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        if not found and not _finite(output):
            found.append(f"the {_what(module, inputs)} of `{name}`")

    return look


def _what(module: nn.Module, inputs: Any) -> str:
    if not all(_finite(one.detach()) for one in module.parameters(recurse=False)):
        return "weights"
    return "output" if _finite(inputs) else "input"


def _finite(value: Any) -> bool:
    tensor = first_tensor(value)
    if tensor is None or not tensor.is_floating_point():
        return True
    return bool(torch.isfinite(tensor).all())
