"""What the programs of published measurements do, source by source.

Facts, not fits: whether attention was fused, what overlapped, how TFLOP/s were counted. From the
papers and repositories that each source names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cnai.plan.software import Software


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A source's program, and what its rows leave out.

    Attributes:
        gated: Its models have a gate in the feed-forward part.
        recompute: What it recomputes where a row does not say.
        shards_weights: Blank layouts mean full sharding.
        sequence: Tensor groups share out the residual stream: `always`, `selective` (with selective
            recomputing) or `never`.
    """

    software: Software
    gated: bool = False
    recompute: str = "none"
    shards_weights: bool = False
    sequence: str = "never"

    def sequence_parallel(self, notes: str, recompute: str) -> bool:
        """Tell whether a row shares out the residual stream."""
        if "no sequence parallel" in notes.lower() or "tp only" in notes.lower():
            return False
        return self.sequence == "always" or (self.sequence == "selective" and recompute != "full")


_HALF = Software(
    name="in half precision", stream_bytes=2, boundary_bytes=2, shares_reads=True,
    splits_logits=True, receives_ahead=False,
)  # fmt: skip

# Korthikanti et al. 2022 describe it: stored scores, dropout, both sums repeated by recomputing.
MEGATRON_2021 = replace(
    _HALF, name="Megatron-LM 2020 to 2022", stores_scores=True, kernels=24, stream_passes=11.0,
    inner_passes=2.0, selective="attention", sums_again=2, keeps_masks=True, overhead_gib=1.5,
    scatters_boundary=True, counts_twice=True,
)  # fmt: skip
DEEPSPEED = replace(
    MEGATRON_2021, name="Megatron-DeepSpeed", gradient_bytes=2, shards_optimizer=True,
    scatters_boundary=False,
)  # fmt: skip
# Its optimizer for bfloat16 keeps sums of gradients in float32 beside them, say BigScience's notes.
DEEPSPEED_BF16 = replace(DEEPSPEED, name="Megatron-DeepSpeed, bf16", kept_gradient_bytes=6)
MEGATRON_CORE = replace(
    _HALF, name="Megatron Core", kernels=16, stream_passes=8.0, hides_gradients=True,
    hides_tensor=1.0, shards_optimizer=True, selective="attention", sums_again=2, widens_kv=False,
    logit_bytes=10, overhead_gib=1.5,
)  # fmt: skip
# Its attention is of the first generation of FlashAttention, half as fast as the third.
FOUNDRY = replace(
    _HALF, name="llm-foundry", attention=0.5, kernels=20, stream_passes=14.0, inner_passes=6.0,
    gradient_bytes=2, hides_gradients=True, selective="attention", logit_bytes=4,
)  # fmt: skip
TITAN = replace(
    _HALF, name="torchtitan", attention=0.5, kernels=30, stream_passes=16.0, inner_passes=6.0,
    hides_gradients=True, selective="half", widens_kv=False, logit_bytes=12,
)  # fmt: skip
TITAN_COMPILED = replace(
    TITAN, name="torchtitan, compiled", kernels=12, stream_passes=9.0, inner_passes=4.0,
    logit_bytes=10,
)  # fmt: skip
TITAN_ASYNC = replace(TITAN_COMPILED, name="torchtitan, async TP", hides_tensor=1.0)

_TODAY = Program(software=MEGATRON_CORE, gated=True, sequence="always")
_GPT_3 = Program(software=MEGATRON_2021, recompute="full", sequence="selective")
_OF_SHARDS = Program(software=TITAN_COMPILED, gated=True, shards_weights=True)
KNOWN = (
    (("vtrain",), Program(software=MEGATRON_2021, recompute="full")),
    (("bigscience", "deepspeed", "mt-nlg"), Program(software=DEEPSPEED, recompute="full")),
    (("foundry",), Program(software=FOUNDRY, shards_weights=True)),
    (("torchtitan",), replace(_OF_SHARDS, recompute="full", sequence="always")),
    (("fms-fsdp", "litgpt", "colossal"), _OF_SHARDS),
    (("bridge", "llama", "nanotron", "megascale"), _TODAY),
    (("korthikanti", "sc21", "2104.04473", "2021", "2020", "tables.tex"), _GPT_3),
    (("megatron-lm readme",), _GPT_3),
)
"""Words in the name of a source, and its program; the first that fits."""


def program_of(source: str, notes: str, precision: str, hardware: str) -> Program:
    """Return the program of a source; an unknown one is taken for today's Megatron Core.

    Args:
        source: Its name.
        notes: What a row says about itself.
        precision: What it says about number formats.
        hardware: Its devices.
    """
    low, notes = source.lower(), notes.lower()
    found = next((program for words, program in KNOWN if any(w in low for w in words)), _TODAY)
    newer = any(word in hardware.lower() for word in ("h100", "h200", "h800", "b200", "b300"))
    if found is _GPT_3 and newer:
        found = replace(_TODAY, gated=False)
    software = found.software
    if software is DEEPSPEED and ("bf16" in precision or "rebalancing" in notes):
        software = DEEPSPEED_BF16
    if "torchtitan" in low:
        compiled = "compile" in notes or "asynctp" in low
        is_async = "async tp" in notes or "asynctp" in notes
        software = TITAN_ASYNC if is_async else TITAN_COMPILED if compiled else TITAN
    return replace(found, software=software)
