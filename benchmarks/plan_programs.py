"""What the programs of published measurements do, source by source.

Facts, not fits: whether attention was fused, what overlapped, how TFLOP/s were counted. From the
papers and repositories that each source names.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        if "no sequence parallel" in notes.lower():
            return False
        return self.sequence == "always" or (self.sequence == "selective" and recompute != "full")


MEGATRON_2021 = Software(
    name="Megatron-LM 2020 to 2022", stores_scores=True, kernels=24, stream_passes=13.0,
    inner_passes=3.0, gradient_bytes=4, selective="attention", sums_again=2, pads_vocab=128,
    counts_twice=True, boundary_bytes=2, scatters_boundary=True,
)  # fmt: skip
VTRAIN = Software(
    name="Megatron of vTrain", stores_scores=True, kernels=24, stream_passes=13.0,
    inner_passes=3.0, gradient_bytes=4, selective="attention", sums_again=2, pads_vocab=128,
    counts_twice=True, boundary_bytes=2, scatters_boundary=True,
)  # fmt: skip
DEEPSPEED = Software(
    name="Megatron-DeepSpeed", stores_scores=True, kernels=24, stream_passes=13.0,
    inner_passes=3.0, gradient_bytes=2, selective="attention", sums_again=2, pads_vocab=128,
    counts_twice=True, boundary_bytes=2, shards_optimizer=True,
)  # fmt: skip
MEGATRON_CORE = Software(
    name="Megatron Core", kernels=16, stream_passes=8.0, inner_passes=4.0, gradient_bytes=4,
    hides_gradients=True, hides_tensor=1.0, selective="attention", sums_again=2, pads_vocab=128,
    boundary_bytes=2, shards_optimizer=True,
)  # fmt: skip
FOUNDRY = Software(
    name="llm-foundry", kernels=20, stream_passes=11.0, inner_passes=4.0, gradient_bytes=2,
    selective="attention", hides_gradients=True, boundary_bytes=2,
)  # fmt: skip
TITAN = Software(
    name="torchtitan", kernels=30, stream_passes=16.0, inner_passes=6.0, gradient_bytes=4,
    selective="half", hides_gradients=True, boundary_bytes=2,
)  # fmt: skip
TITAN_COMPILED = Software(
    name="torchtitan, compiled", kernels=12, stream_passes=9.0, inner_passes=4.0, gradient_bytes=4,
    selective="half", hides_gradients=True, boundary_bytes=2,
)  # fmt: skip
TITAN_ASYNC = Software(
    name="torchtitan, compiled, async TP", kernels=12, stream_passes=9.0, inner_passes=4.0,
    gradient_bytes=4, selective="half", hides_gradients=True, hides_tensor=1.0, boundary_bytes=2,
)  # fmt: skip


def program_of(source: str, notes: str) -> Program:
    """Return the program of a source; an unknown one is taken for today's Megatron Core."""
    low = source.lower()
    if "vtrain" in low:
        return Program(software=VTRAIN, recompute="full")
    if "bigscience" in low or "deepspeed" in low or "mt-nlg" in low:
        return Program(software=DEEPSPEED, recompute="full")
    if "foundry" in low:
        return Program(software=FOUNDRY, shards_weights=True)
    if "torchtitan" in low:
        compiled = "compile" in notes or "asynctp" in low
        is_async = "async tp" in notes or "asynctp" in notes
        software = TITAN_ASYNC if is_async else TITAN_COMPILED if compiled else TITAN
        return Program(
            software=software, gated=True, recompute="full", shards_weights=True, sequence="always"
        )
    if "fms-fsdp" in low or "litgpt" in low or "colossal" in low:
        return Program(software=TITAN_COMPILED, gated=True, shards_weights=True)
    if "bridge" in low or "llama" in low or "nanotron" in low or "megascale" in low:
        return Program(software=MEGATRON_CORE, gated=True, sequence="always")
    if any(word in low for word in ("korthikanti", "sc21", "2104.04473", "2021", "2020", "tables.tex")):
        return Program(software=MEGATRON_2021, recompute="full", sequence="selective")
    if "megatron-lm readme" in low:
        return Program(software=MEGATRON_2021, recompute="full", sequence="selective")
    return Program(software=MEGATRON_CORE, gated="gpt" not in low, sequence="always")
