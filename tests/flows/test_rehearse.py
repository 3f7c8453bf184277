"""`ai-cli train --dry-run --world N` builds a layout without its machines."""

import pytest

pytestmark = pytest.mark.slow
MIXTURE = """
name: mixture
model:
  {layers: 94, width: 4096, heads: 64, kv_heads: 4, head_width: 128, ffn_width: 12288,
  vocab: 151936, sequence: 4096, qk_norm: true, tied_head: false, experts: 128,
  experts_per_token: 8, expert_width: 1536}
train: {steps: 10, batch: 512, precision: bfloat16, recompute: full}
resources: {device: H100-80GB, nodes: 64, devices_per_node: 8}
model_parallel: {size: 2}
pipeline_parallel: {stages: 4}
context_parallel: {size: 2}
expert_parallel: {size: 32}
"""
SIZES = ("--set", "parallel.data_parallel.size=4", "--set", "parallel.model_parallel.size=2")


def test_a_layout_for_machines_that_are_not_here_is_built(ai_cli, place):
    ran = ai_cli("train", "run.yaml", "--dry-run", "--world", "8", *SIZES, "--json")
    assert ran.code == 0
    (rank,) = ran.json["ranks"]
    assert 0 < rank["parameters"] < rank["whole_parameters"]
    assert not (place / "runs").exists()


def test_a_world_that_the_sizes_do_not_make_is_refused(ai_cli):
    ran = ai_cli("train", "run.yaml", "--dry-run", "--world", "16", *SIZES)
    assert ran.code == 3
    assert "16 ranks cannot be laid out" in ran.err


def test_a_world_without_dry_run_is_refused(ai_cli):
    ran = ai_cli("train", "run.yaml", "--world", "2")
    assert (ran.code, ran.out) == (2, "")
    assert "add `--dry-run`" in ran.err


def test_a_module_of_the_users_own_cannot_be_rehearsed(ai_cli, place):
    (place / "mine.py").write_text(
        "import torch\n\ndef build():\n    return torch.nn.Embedding(512, 512)\n"
    )
    spec = (place / "run.yaml").read_text().replace("model:\n", "model:\n  module: mine:build\n", 1)
    kept = [
        line
        for line in spec.splitlines()
        if line.split(":")[0].strip() not in {"layers", "width", "heads"}
    ]
    (place / "run.yaml").write_text("\n".join(kept))
    ran = ai_cli("train", "run.yaml", "--dry-run", "--world", "2")
    assert ran.code == 2
    assert "cannot be rehearsed" in ran.err


def test_a_mixture_of_235_billion_parameters_is_built_for_512_ranks(ai_cli, place):
    (place / "mixture.yaml").write_text(MIXTURE)
    ran = ai_cli("train", "mixture.yaml", "--dry-run", "--world", "512", "--json")
    assert ran.code == 0, ran.err
    ranks = ran.json["ranks"]
    assert 234e9 < sum(rank["whole_parameters"] for rank in ranks) < 236e9
    assert all(rank["parameters"] < rank["whole_parameters"] / 20 for rank in ranks)
