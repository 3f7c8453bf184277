"""The keys of a spec by their dotted names, and the nearest one to a name that is none."""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from cnai.core.spec.section import Section
from cnai.core.spec.sections import RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

BARE_SECTIONS = (
    "data_parallel", "model_parallel", "context_parallel", "expert_parallel", "pipeline_parallel",
)  # fmt: skip
"""Sections of `parallel` that may also stand at the top of a spec."""

FOREIGN = MappingProxyType({
    "batch_size": "train.batch",
    "context_length": "model.sequence",
    "cp": "parallel.context_parallel.size",
    "dp": "parallel.data_parallel.size",
    "ep": "parallel.expert_parallel.size",
    "global_batch_size": "train.batch",
    "gpus": "resources.ranks",
    "grad_clip": "train.clip_norm",
    "hidden_size": "model.width",
    "intermediate_size": "model.ffn_width",
    "lr": "train.learning_rate",
    "max_steps": "train.steps",
    "micro_batches": "parallel.pipeline_parallel.microbatches",
    "num_attention_heads": "model.heads",
    "num_experts": "model.experts",
    "num_experts_per_tok": "model.experts_per_token",
    "num_hidden_layers": "model.layers",
    "moe_intermediate_size": "model.expert_width",
    "num_key_value_heads": "model.kv_heads",
    "num_layers": "model.layers",
    "pp": "parallel.pipeline_parallel.stages",
    "seq_len": "model.sequence",
    "seq_length": "model.sequence",
    "sequence_length": "model.sequence",
    "tensor_parallel": "parallel.model_parallel",
    "tp": "parallel.model_parallel.size",
    "vocab_size": "model.vocab",
    "warmup": "train.warmup_steps",
    "world_size": "resources.ranks",
})  # fmt: skip
"""What other tools call some of the keys."""


def _walk(section: type[Section], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        key = prefix + name
        yield key, field
        below = _section(field)
        if below:
            yield from _walk(below, key + ".")


def _section(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


_ALL = dict(_walk(RunSpec, ""))
FIELDS: MappingProxyType[str, FieldInfo] = MappingProxyType(
    {key: field for key, field in _ALL.items() if _section(field) is None}
)
"""Every key that holds a value."""
SECTIONS: MappingProxyType[str, type[Section]] = MappingProxyType(
    {key: kind for key, field in _ALL.items() if (kind := _section(field))}
)
"""Every key that holds further keys."""


def children(section: str) -> tuple[str, ...]:
    """Return the dotted names directly under a section; the empty name is the whole spec."""
    kind = SECTIONS[section] if section else RunSpec
    prefix = f"{section}." if section else ""
    return tuple(prefix + name for name in kind.model_fields)


def canonical(key: str) -> str:
    """Put a bare `data_parallel...` under `parallel`; other keys stay."""
    return f"parallel.{key}" if key.partition(".")[0] in BARE_SECTIONS else key


def nearest(key: str) -> str | None:
    """Return the known key that was probably meant, None when nothing is near.

    Looks first among the neighbours, then for the same name in another section, then for names of
    other tools, then for anything that looks alike.
    """
    section, _, name = canonical(key).rpartition(".")
    neighbours = {_last(one): one for one in children(section)} if section in SECTIONS else {}
    if not section:
        neighbours = {one: one for one in children("")}
    elsewhere = {_last(one): one for one in reversed(_ALL)}
    folded = name.replace("-", "_").lower()
    return (
        _close(folded, neighbours)
        or elsewhere.get(folded)
        or FOREIGN.get(folded)
        or _close(folded, elsewhere)
        or _close(key, {one: one for one in _ALL})
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _close(name: str, among: dict[str, str]) -> str | None:
    if name in among:
        return among[name]
    longer = [one for one in among if one.startswith(f"{name}_")]
    match = longer if len(longer) == 1 else get_close_matches(name, among, n=1, cutoff=0.75)
    return among[match[0]] if match else None
