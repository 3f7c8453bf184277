"""What the rules of a spec look at, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cnai.core.shape import DecoderShape
from cnai.core.spec.layers import Setting
from cnai.core.spec.sections import RunSpec

SHAPE_KEYS = (
    "layers", "width", "heads", "kv_heads", "ffn_width", "vocab", "rope_theta", "norm_eps",
    "tied_head", "head_width", "attention_bias", "qk_norm",
    "experts", "experts_per_token", "expert_width", "sparse_step", "dense_layers", "normed_choice",
)  # fmt: skip
"""Keys of `model` that make the shape of a decoder."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What a rule found; its place is the first of the keys that somebody wrote."""

    keys: tuple[str, ...]
    message: str
    hint: str


Given = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rule looks at: the spec, and the settings that somebody wrote, not defaults."""

    spec: RunSpec
    given: Given

    @property
    def shape(self) -> DecoderShape | None:
        """The decoder's shape, None when a folder or a module fixes it or nobody wrote one."""
        model = self.spec.model
        written = any(f"model.{name}" in self.given for name in SHAPE_KEYS)
        return model.shape() if written and not (model.huggingface or model.module) else None

    @property
    def split_sizes(self) -> tuple[tuple[str, int | None], ...]:
        """The sizes that cut the model or its sequences, by key."""
        parallel = self.spec.parallel
        return (
            ("parallel.model_parallel.size", parallel.model_parallel.size),
            ("parallel.pipeline_parallel.stages", parallel.pipeline_parallel.stages),
            ("parallel.context_parallel.size", parallel.context_parallel.size),
        )


Rule = Callable[[Asked], Iterator[Mistake]]
