"""Predict the same rows with llm-analysis, for the scorer; run it in an environment of its own.

    python -m venv peer && peer/bin/pip install llm-analysis
    peer/bin/python benchmarks/plan_peer.py --rows FILE --predictions PEER.jsonl [--efficiency 0.5]

It knows no efficiencies of its own: a share of the peak must be given, and one of half is what its
examples use. Rows that it cannot read (other devices, context, missing columns) are skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import (
    ModelConfig,
    ParallelismConfig,
    get_dtype_config_by_name,
    get_gpu_config_by_name,
)

DEVICES = (
    ("h100", "h100-sxm-80gb"), ("a100-40", "a100-sxm-40gb"), ("a100", "a100-sxm-80gb"),
    ("v100-16", "v100-sxm-16gb"), ("v100", "v100-sxm-32gb"),
)  # fmt: skip
NEEDED = ("layers", "hidden", "heads", "vocab", "seq_len", "tp", "pp", "dp", "micro_batch")
RECOMPUTE = {"full": ActivationRecomputation.FULL, "selective": ActivationRecomputation.SELECTIVE}
ZERO = (("fsdp", DSZeRO.STAGE_3), ("zero-3", DSZeRO.STAGE_3), ("zero-1", DSZeRO.STAGE_1))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--efficiency", type=float, default=0.5)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with asked.rows.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file))
    with asked.predictions.open("w", encoding="utf-8") as out:
        for index, row in enumerate(rows):
            out.write(json.dumps({"row": index, **line_of(row, asked.efficiency)}) + "\n")


def line_of(row: Mapping[str, str], efficiency: float) -> dict[str, object]:
    """Return the fields of a row's line."""
    line: dict[str, object] = {
        "step_time_s": None, "tflops_per_gpu": None, "tokens_per_s_per_gpu": None,
        "memory_gb": None, "fits": None, "skipped": None,
    }  # fmt: skip
    blank = next((name for name in NEEDED if not row.get(name)), None)
    kind = next((kind for word, kind in DEVICES if word in row["hardware"].lower()), None)
    if blank or kind is None or row.get("cp", "1") not in {"", "1"} or not row["global_batch_seqs"]:
        return {**line, "skipped": f"`{blank or 'hardware or cp'}` is blank or not read"}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            seconds = step_seconds(row, kind, efficiency)
    except Exception as error:  # noqa: BLE001 - whatever it cannot read is a skipped row
        return {**line, "skipped": f"not read: {error!r}"[:120]}
    tokens = float(row["global_batch_seqs"]) * float(row["seq_len"])
    return {
        **line,
        "step_time_s": seconds,
        "tokens_per_s_per_gpu": tokens / seconds / float(row["n_gpus"]),
    }


def step_seconds(row: Mapping[str, str], kind: str, efficiency: float) -> float:
    """Return its time of a step."""
    number = {name: int(float(row[name])) for name in NEEDED}
    inner = int(float(row["ffn_hidden"] or 4 * number["hidden"]))
    model = ModelConfig(
        name="row", num_layers=number["layers"], n_head=number["heads"],
        hidden_dim=number["hidden"], vocab_size=number["vocab"], max_seq_len=number["seq_len"],
        num_key_value_heads=int(float(row["kv_heads"] or number["heads"])), ffn_embed_dim=inner,
    )  # fmt: skip
    analysis = LLMAnalysis(
        model, get_gpu_config_by_name(kind), get_dtype_config_by_name("w16a16e16"),
        ParallelismConfig(tp_size=number["tp"], pp_size=number["pp"], dp_size=number["dp"]),
        flops_efficiency=efficiency, hbm_memory_efficiency=0.9,
    )  # fmt: skip
    batch = int(float(row["global_batch_seqs"]))
    summary = analysis.training(
        batch_size_per_gpu=number["micro_batch"],
        gradient_accumulation_steps=max(1, batch // number["dp"] // number["micro_batch"]),
        global_batch_size=batch,
        seq_len=number["seq_len"],
        activation_recomputation=RECOMPUTE.get(row["recompute"], ActivationRecomputation.NONE),
        ds_zero=next(
            (stage for word, stage in ZERO if word in row["zero_or_fsdp"].lower()), DSZeRO.NONE
        ),
        flash_attn="foundry" in row["source"].lower(),
    )
    return float(summary["latency_per_iter"])


if __name__ == "__main__":
    main()
