"""`ai-cli train --dry-run --world N` builds a layout without its machines."""

import pytest

pytestmark = pytest.mark.slow
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
    (place / "mine.py").write_text("def build():\n    raise RuntimeError\n")
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
