import json
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
PAPER = str(ROOT / "examples" / "01-plan-on-paper" / "run.yaml")
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "max_position_embeddings": 163840,
}  # fmt: skip


def test_a_plan_says_what_the_run_costs(ai_cli):
    done = ai_cli("plan", PAPER, "--json")
    found = json.loads(done.out)
    seconds = found["estimate"]["step_seconds"] * 100_000
    assert abs(found["bill"]["device_hours"] / (seconds / 3600 * 128) - 1) < 1e-6
    assert found["bill"]["dollars"] > 0


def test_a_search_is_never_slower_and_lists_the_runners_up(ai_cli):
    plain = json.loads(ai_cli("plan", PAPER, "--json").out)
    found = json.loads(ai_cli("plan", PAPER, "--search", "--json").out)
    assert found["estimate"]["step_seconds"] <= plain["estimate"]["step_seconds"]
    assert len(found["alternatives"]) > 1


def test_a_plan_that_was_written_is_the_one_that_is_planned_then(ai_cli):
    found = json.loads(ai_cli("plan", PAPER, "--search", "--write", "best.yaml", "--json").out)
    again = json.loads(ai_cli("plan", "best.yaml", "--json").out)
    assert again["digest"] == found["digest"]
    assert yaml.safe_load(Path("best.yaml").read_text())["name"] == "plan-on-paper"


def test_what_other_machines_bring_and_a_step_are_shown(ai_cli):
    done = ai_cli("plan", PAPER, "--what-if", "--timeline")
    assert "25% faster network" in done.out
    assert "  3 " in done.out
    assert "$" in done.out


def test_an_objective_without_a_search_is_refused(ai_cli):
    done = ai_cli("plan", PAPER, "--objective", "cost")
    assert done.code == 2
    assert "add --search" in done.err


def test_a_model_that_is_not_trained_here_is_planned_from_its_config(ai_cli):
    folder = Path("deepseek")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DEEPSEEK))
    spec = {
        "version": 1, "name": "ds", "model": {"huggingface": "deepseek", "sequence": 4096},
        "train": {"batch": 2048, "precision": "bfloat16"},
        "resources": {"device": "GB200", "nodes": 16, "devices_per_node": 72, "ranks": 1024},
    }  # fmt: skip
    Path("ds.yaml").write_text(yaml.safe_dump(spec))
    found = json.loads(ai_cli("plan", "ds.yaml", "--search", "--json").out)
    assert found["ranks"] == 1024
    assert 670e9 < sum(stage["parameters"] for stage in found["stages"]) < 672e9
