"""The benchmarks run, at a size for tests, and compare what does the same work."""

import json
import subprocess
import sys

import pytest

from house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.dist]


def ran(script, *words):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *words],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_step_by_hand_has_our_losses_in_every_layout():
    words = ("--repetitions", "1", "--steps", "1", "--width", "32", "--json")
    found = json.loads(ran("train_peers.py", *words).stdout)
    assert len(found["layouts"]) == 6
    for layout, one in found["layouts"].items():
        assert one["loss_difference"] < 1e-5, layout
        assert one["ours_cpu_seconds"] > 0
    assert found["torchtitan"]


def test_faults_are_found_in_two_models_and_healthy_runs_left_alone():
    found = json.loads(ran("detect.py", "--seeds", "1", "--healthy", "6", "--json").stdout)
    assert (found["faults"], found["healthy"]) == (52, 6)
    assert found["recall"] >= 0.9
    assert found["primary"] >= 0.85
    assert found["healthy_flagged"] <= 1


def test_the_gpu_check_runs_tiny_on_the_cpu():
    found = json.loads(ran("gpu_check.py", "--device", "cpu", "--tiny", "--json").stdout)
    assert found["losses"]["ours"] == pytest.approx(found["losses"]["by hand"], abs=1e-2)
    assert set(found["tokens_per_second"]) == {"ours", "by hand"}
    assert found["mfu"] is None


def test_without_a_gpu_the_check_says_so_and_ends_well():
    done = ran("gpu_check.py")
    assert "there is no GPU here" in done.stderr
    assert done.stdout == ""


def test_the_model_of_the_gpu_check_has_about_a_billion_parameters():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from gpu_check import BILLION
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    assert BILLION.parameters == pytest.approx(1e9, rel=0.05)
