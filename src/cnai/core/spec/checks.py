"""Contradictions that the spec itself shows, one small rule each.

Only what is written counts: nobody contradicts a default shape, and what needs machines, data or a
model folder is left to the planner. A rule looks at a sound spec (every key by itself is right)
and yields its mistakes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from cnai.core.errors import SpecError
from cnai.core.schedules import SCHEDULES
from cnai.core.spec.asked import SHAPE_KEYS, Asked, Given, Mistake, Rule
from cnai.core.spec.expert_checks import EXPERT_RULES
from cnai.core.spec.model_section import LOSSES
from cnai.core.spec.section import FUNCTION
from cnai.core.spec.sections import RunSpec
from cnai.core.units import parse_bytes


def contradictions(spec: RunSpec, given: Given) -> list[SpecError]:
    """Return what contradicts itself.

    Args:
        spec: A spec in which every key by itself is right.
        given: The settings that somebody wrote, which tell them from defaults.
    """
    return [
        SpecError(one.message, where=_place(one.keys, given), hint=one.hint)
        for rule in RULES
        for one in rule(Asked(spec, given))
    ]


def _place(keys: tuple[str, ...], given: Given) -> str:
    return next((given[key].place for key in keys if key in given), f"{keys[0]} (default)")


def no_control_characters(asked: Asked) -> Iterator[Mistake]:
    """A path or address holds no unprintable character."""
    for key, one in asked.given.items():
        if isinstance(one.value, str) and "\0" in one.value:
            yield Mistake((key,), f"`{key}` holds a zero byte", "remove it")


def one_source_of_the_model(asked: Asked) -> Iterator[Mistake]:
    """A model folder or a module function fixes the shape by itself."""
    model = asked.spec.model
    if model.huggingface and model.module:
        yield Mistake(
            ("model.module",),
            f"both `model.huggingface` (`{model.huggingface}`) and `model.module` "
            f"(`{model.module}`) say where the model comes from",
            "remove one of the two",
        )
        return
    source = "huggingface" if model.huggingface else "module" if model.module else None
    kept = {"vocab"} if source == "module" else set()
    for name in SHAPE_KEYS:
        if source and f"model.{name}" in asked.given and name not in kept:
            yield Mistake(
                (f"model.{name}",),
                f"`model.{name}` is given, but `model.{source}` fixes the shape",
                f"remove `model.{name}`",
            )


def module_is_a_function(asked: Asked) -> Iterator[Mistake]:
    """A module is named `package.module:function`; its loss and its data go with it alone."""
    module, source = asked.spec.model.module, asked.spec.data.function
    if module is not None and not re.fullmatch(FUNCTION, module):
        yield Mistake(
            ("model.module",),
            f"`{module}` does not name a function",
            "write `package.module:function`",
        )
    loss = asked.spec.model.loss
    if loss not in LOSSES and not re.fullmatch(FUNCTION, loss):
        yield Mistake(
            ("model.loss",),
            f"`model.loss` is `{loss}`, which is no loss",
            f"use {', '.join(LOSSES)} or `package.module:function`",
        )
    if module is not None and asked.spec.train.z_loss:
        yield Mistake(
            ("train.z_loss", "model.module"),
            f"`train.z_loss` is {asked.spec.train.z_loss:g}, which is for the logits of a decoder",
            "remove it, or add it to a loss of your own (`model.loss`)",
        )
    if module is not None and asked.spec.train.documents == "apart":
        yield Mistake(
            ("train.documents", "model.module"),
            "`train.documents` is `apart`, which is for a decoder",
            "remove it, or keep documents apart inside your own module",
        )
    for key, value, asked_for in (
        ("model.loss", loss, loss != "cross_entropy"),
        ("data.source", source, source is not None),
    ):
        if module is None and asked_for:
            yield Mistake(
                (key,),
                f"`{key}` is `{value}`, which goes with a module of your own, and there is no "
                "`model.module`",
                f"name the function that builds it as `model.module`, or remove `{key}`",
            )


def heads_share_the_width(asked: Asked) -> Iterator[Mistake]:
    """Width, heads and key-value heads divide as attention needs."""
    shape = asked.shape
    if shape is None:
        return
    if shape.head_size is not None:
        if shape.head_size % 2:
            yield Mistake(
                ("model.head_width",),
                f"`model.head_width` is {shape.head_size}, but rotary positions need an even size",
                f"set it to {_near(shape.head_size, 2)}",
            )
    elif shape.width % shape.heads:
        yield Mistake(
            ("model.width", "model.heads"),
            f"`model.width` {shape.width} does not divide by `model.heads` {shape.heads}",
            f"set `model.width` to {_near(shape.width, 2 * shape.heads)}, or change the heads",
        )
    elif shape.head_width % 2:
        yield Mistake(
            ("model.width", "model.heads"),
            f"`model.width` {shape.width} over `model.heads` {shape.heads} makes heads of "
            f"{shape.head_width}, but rotary positions need an even size",
            f"set `model.width` to {_near(shape.width, 2 * shape.heads)}",
        )
    if shape.heads % shape.kv_heads:
        yield Mistake(
            ("model.kv_heads", "model.heads"),
            f"`model.heads` {shape.heads} does not divide by `model.kv_heads` {shape.kv_heads}",
            f"set `model.kv_heads` to one of {_divisors(shape.heads)}",
        )


def a_known_mix_of_options(asked: Asked) -> Iterator[Mistake]:
    """No architecture that others load has both biases and normed queries and keys."""
    shape = asked.shape
    if shape is not None and shape.attention_bias and shape.qk_norm:
        yield Mistake(
            ("model.attention_bias", "model.qk_norm"),
            "both `model.attention_bias` (Qwen2) and `model.qk_norm` (Qwen3) are true, which no "
            "architecture of transformers has",
            "set one of them to false",
        )


def group_splits_the_weights(asked: Asked) -> Iterator[Mistake]:
    """The model-parallel size divides everything that is split."""
    shape, size = asked.shape, asked.spec.parallel.model_parallel.size
    if shape is None or size is None:
        return
    names = ("heads", "kv_heads", "ffn_width", "vocab")
    parts: dict[str, int] = {name: getattr(shape, name) for name in names}
    uneven = [f"`model.{name}` {whole}" for name, whole in parts.items() if whole % size]
    if uneven:
        yield Mistake(
            ("parallel.model_parallel.size",),
            f"`parallel.model_parallel.size` {size} does not divide {', '.join(uneven)}",
            f"sizes that divide the model are {_divisors(math.gcd(*parts.values()))}",
        )


def schedule_has_its_stages(asked: Asked) -> Iterator[Mistake]:
    """A schedule gets as many stages a rank as it can order."""
    pipeline = asked.spec.parallel.pipeline_parallel
    schedule, virtual = SCHEDULES[pipeline.schedule], pipeline.virtual
    if virtual is None:
        return
    if pipeline.stages == 1 and virtual > 1:
        yield Mistake(
            ("parallel.pipeline_parallel.virtual",),
            f"`parallel.pipeline_parallel.virtual` is {virtual}, but there is no pipeline",
            "remove it, or set `parallel.pipeline_parallel.stages` to 2 or more",
        )
    elif not schedule.takes_virtual(virtual):
        yield Mistake(
            ("parallel.pipeline_parallel.virtual", "parallel.pipeline_parallel.schedule"),
            f"`parallel.pipeline_parallel.virtual` is {virtual}, but the schedule {schedule.name} "
            f"wants {schedule.virtual} stages a rank",
            f"remove it, or use the schedule {_ordering(virtual)}",
        )


def split_backward_is_left_alone(asked: Asked) -> Iterator[Mistake]:
    """A schedule that splits the backward pass walks through a layer once for each weight."""
    pipeline, train = asked.spec.parallel.pipeline_parallel, asked.spec.train
    if not SCHEDULES[pipeline.schedule].splits_backward or pipeline.stages == 1:
        return
    for key, value, asked_for in (
        ("train.recompute", train.recompute, train.recompute != "none"),
        ("train.compile", "true", train.compile),
    ):
        if asked_for:
            yield Mistake(
                (key, "parallel.pipeline_parallel.schedule"),
                f"`{key}` is {value}, but the schedule {pipeline.schedule} takes the backward pass "
                "of a layer apart",
                f"use the schedule Interleaved1F1B, or remove `{key}`",
            )


def float8_rests_on_bfloat16(asked: Asked) -> Iterator[Mistake]:
    """Products in 8-bit floats give bfloat16, and train the matrices of a decoder."""
    spec = asked.spec
    if not spec.train.float8:
        return
    if spec.train.precision != "bfloat16":
        yield Mistake(
            ("train.float8", "train.precision"),
            f"`train.float8` goes with bfloat16, and `train.precision` is {spec.train.precision}",
            "set `train.precision: bfloat16`",
        )
    for key, asked_for in (
        ("model.module", spec.model.module is not None),
        ("train.lora.rank", spec.train.lora.rank > 0),
    ):
        if asked_for:
            yield Mistake(
                ("train.float8", key),
                f"`train.float8` is for the weights of a decoder, and `{key}` is given",
                "remove one of the two",
            )


def _ordering(virtual: int) -> str:
    return " or ".join(name for name, one in SCHEDULES.items() if one.takes_virtual(virtual))


def stages_have_layers(asked: Asked) -> Iterator[Mistake]:
    """There is a layer for each stage, and the split begins inside the model."""
    shape = asked.shape
    if shape is None:
        return
    pipeline = asked.spec.parallel.pipeline_parallel
    stages, virtual = pipeline.stages, pipeline.virtual or SCHEDULES[pipeline.schedule].virtual
    if stages is not None and stages > 1 and stages * virtual > shape.layers:
        each = f" with {virtual} stages a rank" if virtual > 1 else ""
        yield Mistake(
            ("parallel.pipeline_parallel.stages",),
            f"`parallel.pipeline_parallel.stages` is {stages}{each}, but the model has only "
            f"{shape.layers} layers",
            f"use at most {max(1, shape.layers // virtual)} stages",
        )
    split_layer = asked.spec.parallel.model_parallel.split_layer
    if split_layer > shape.layers:
        yield Mistake(
            ("parallel.model_parallel.split_layer",),
            f"`parallel.model_parallel.split_layer` is {split_layer}, but the model has only "
            f"{shape.layers} layers",
            f"use 0 (all layers are split) to {shape.layers} (none is)",
        )


def sizes_make_the_ranks(asked: Asked) -> Iterator[Mistake]:
    """Data x model x pipeline x context is the number of ranks, as far as they are given."""
    ranks = asked.spec.resources.ranks
    sizes = [asked.spec.parallel.data_parallel.size, *(size for _, size in asked.split_sizes)]
    names = "data x model x pipeline x context"
    if sizes[-1] == 1:
        sizes, names = sizes[:-1], names.removesuffix(" x context")
    product = math.prod(size or 1 for size in sizes)
    if ranks is None or (product == ranks if all(sizes) else ranks % product == 0):
        return
    words = " x ".join(str(size) if size else "?" for size in sizes)
    yield Mistake(
        ("resources.ranks",),
        f"`resources.ranks` is {ranks}, but the parallel sizes ({names}) are "
        f"{words}" + (f" = {product}" if all(sizes) else ""),
        "remove `resources.ranks`, or one of the sizes and let the planner choose it",
    )


def batch_divides(asked: Asked) -> Iterator[Mistake]:
    """Every copy of the model gets the same whole share of the batch, in whole pieces."""
    batch, copies = asked.spec.train.batch, asked.spec.parallel.data_parallel.size or 1
    pieces = asked.spec.parallel.pipeline_parallel.microbatches or 1
    if batch % copies:
        yield Mistake(
            ("train.batch", "parallel.data_parallel.size"),
            f"`train.batch` {batch} does not divide by `parallel.data_parallel.size` {copies}",
            f"set `train.batch` to {_near(batch, copies)}",
        )
    elif batch // copies % pieces:
        yield Mistake(
            ("parallel.pipeline_parallel.microbatches",),
            f"a rank's share of the batch ({batch // copies} sequences) does not divide into "
            f"`parallel.pipeline_parallel.microbatches` {pieces}",
            f"set `train.batch` to {_near(batch, copies * pieces)}",
        )


def one_length_of_training(asked: Asked) -> Iterator[Mistake]:
    """Steps or tokens say how long; a warm-up that somebody wrote ends before the training."""
    train, given = asked.spec.train, asked.given
    if train.tokens is not None and "train.steps" in given:
        yield Mistake(
            ("train.tokens",),
            f"both `train.steps` ({train.steps}) and `train.tokens` ({train.tokens}) say "
            "how long to train",
            "remove one of the two",
        )
    if "train.warmup_steps" in given and train.warmup_steps >= asked.spec.steps:
        yield Mistake(
            ("train.warmup_steps",),
            f"`train.warmup_steps` is {train.warmup_steps}, but the training has only "
            f"{asked.spec.steps} steps",
            f"set `train.warmup_steps` below {asked.spec.steps}, or train longer",
        )


def adapters_have_targets(asked: Asked) -> Iterator[Mistake]:
    """Adapters stand beside known matrices of a decoder, each once."""
    lora = asked.spec.train.lora
    if not lora.rank:
        return
    if asked.spec.model.module is not None:
        yield Mistake(
            ("train.lora.rank",),
            f"`train.lora.rank` is {lora.rank}, but a model from `model.module` has no matrices "
            "that are known by name",
            "remove `train.lora`, or describe the model by its shape",
        )
    if not lora.targets or len(set(lora.targets)) != len(lora.targets):
        yield Mistake(
            ("train.lora.targets",),
            f"`train.lora.targets` is {list(lora.targets)}",
            "name at least one matrix, each once, for instance [q_proj, v_proj]",
        )


def memory_is_a_size(asked: Asked) -> Iterator[Mistake]:
    """`resources.device_memory` reads as bytes."""
    text = asked.spec.resources.device_memory
    if text is None:
        return
    try:
        size_bytes = parse_bytes(text)
    except ValueError:
        size_bytes = 0
    if size_bytes <= 0:
        yield Mistake(
            ("resources.device_memory",),
            f"`{text}` is no size of memory",
            "write for instance `80 GB`",
        )


RULES: tuple[Rule, ...] = (
    *EXPERT_RULES,
    no_control_characters,
    one_source_of_the_model,
    module_is_a_function,
    heads_share_the_width,
    a_known_mix_of_options,
    group_splits_the_weights,
    schedule_has_its_stages,
    split_backward_is_left_alone,
    float8_rests_on_bfloat16,
    stages_have_layers,
    sizes_make_the_ranks,
    batch_divides,
    one_length_of_training,
    adapters_have_targets,
    memory_is_a_size,
)


def _near(value: int, divisor: int) -> str:
    """Name the multiples below and above."""
    low = value // divisor * divisor
    return f"{low} or {low + divisor}" if low else str(divisor)


def _divisors(number: int) -> str:
    found = [str(one) for one in range(1, min(number, 1024) + 1) if number % one == 0]
    return ", ".join(found)
