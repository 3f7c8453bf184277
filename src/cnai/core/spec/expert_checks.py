"""Contradictions that a spec with experts can show, one small rule each."""

from __future__ import annotations

from collections.abc import Iterator

from cnai.core.errors import DataError
from cnai.core.llama_config import family_of
from cnai.core.spec.asked import Asked, Mistake, Rule

_OF_EXPERTS = ("experts_per_token", "expert_width", "sparse_step", "dense_layers", "normed_choice")


def experts_are_there(asked: Asked) -> Iterator[Mistake]:
    """What tells of experts is given only where there are some."""
    model = asked.spec.model
    if model.experts or model.huggingface or model.module:
        return
    for name in _OF_EXPERTS:
        default = type(model).model_fields[name].default
        if f"model.{name}" in asked.given and getattr(model, name) != default:
            yield Mistake(
                (f"model.{name}",),
                f"`model.{name}` is given, but `model.experts` is 0",
                f"set `model.experts`, or remove `model.{name}`",
            )
    size = asked.spec.parallel.expert_parallel.size
    if size > 1 and "model.experts" in asked.given:
        yield Mistake(
            ("parallel.expert_parallel.size",),
            f"`parallel.expert_parallel.size` is {size}, but `model.experts` is 0",
            "remove it, or set `model.experts`",
        )


def choices_are_among_the_experts(asked: Asked) -> Iterator[Mistake]:
    """A token goes through no more experts than there are, in layers that there are."""
    shape = asked.shape
    if shape is None or not shape.experts:
        return
    if shape.experts_per_token > shape.experts:
        yield Mistake(
            ("model.experts_per_token", "model.experts"),
            f"`model.experts_per_token` is {shape.experts_per_token}, but there are only "
            f"{shape.experts} experts",
            f"set it to {shape.experts} or less",
        )
    outside = [layer for layer in shape.dense_layers if not 0 <= layer < shape.layers]
    if outside:
        yield Mistake(
            ("model.dense_layers",),
            f"`model.dense_layers` names {outside}, but the layers are 0 to {shape.layers - 1}",
            "name layers of the model",
        )
    if not shape.sparse_layers:
        yield Mistake(
            ("model.sparse_step", "model.dense_layers"),
            f"none of the {shape.layers} layers has experts",
            f"set `model.sparse_step` to {shape.layers} or less, or `model.experts: 0`",
        )


def others_can_load_the_mixture(asked: Asked) -> Iterator[Mistake]:
    """A mixture is one that transformers has an architecture for."""
    shape = asked.shape
    if shape is None or not shape.experts or (shape.attention_bias and shape.qk_norm):
        return
    try:
        family_of(shape)
    except DataError as error:
        yield Mistake(("model.experts",), error.message, error.hint)


def adapters_leave_experts_alone(asked: Asked) -> Iterator[Mistake]:
    """Adapters stand beside matrices of attention where a layer has experts."""
    shape, lora = asked.shape, asked.spec.train.lora
    if shape is None or not shape.experts or not lora.rank:
        return
    of_ffn = [name for name in lora.targets if name in {"gate_proj", "up_proj", "down_proj"}]
    if of_ffn:
        yield Mistake(
            ("train.lora.targets",),
            f"`train.lora.targets` names {', '.join(of_ffn)}, but experts get no adapters yet",
            "name matrices of attention, for instance [q_proj, v_proj]",
        )


EXPERT_RULES: tuple[Rule, ...] = (
    experts_are_there,
    choices_are_among_the_experts,
    others_can_load_the_mixture,
    adapters_leave_experts_alone,
)
