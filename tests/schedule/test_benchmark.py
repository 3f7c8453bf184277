"""The benchmark runs, at a size for tests, and prints one object with a value a policy."""

import json
import subprocess
import sys

import pytest

from house import ROOT

pytestmark = pytest.mark.slow

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{n},64000,262144,8,G\n" for n in range(6)
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(
    f"p{n},4000,1000,1,{(250, 500, 810, 1000)[n % 4]}\n" for n in range(80)
)
JOBS = "timestamp,duration,num_gpus,cluster\n" + "".join(
    f"2017-10-09 {n // 60:02}:{n % 60:02}:00,{60 * (n % 50) ** 2},{2 ** (n % 4)},a\n"
    for n in range(200)
)
ELASTIC = "job_id,submit_time,model_name,batch_size,num_gpu,iteration\n" + "".join(
    f"{n},{n * 100},net,64,{1 + n % 4},{500 * (n % 9 + 1)}\n" for n in range(60)
)
CURVE = "global_batch_size,1,2,4,8\n64,1.0,1.9,3.4,5.0\n"
LOAD = "t_s,req_per_s\n" + "".join(f"{n * 600},{100 + n % 7}\n" for n in range(60))


@pytest.fixture
def at(tmp_path):
    (tmp_path / "curves").mkdir()
    texts = {"nodes": NODES, "pods": PODS, "jobs": JOBS, "elastic": ELASTIC, "load": LOAD}
    for name, text in {**texts, "curves/net": CURVE}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def ran(at, *words):
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "schedule.py"), *words],
        capture_output=True, text=True, check=False, cwd=at,
        env={"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "policies"),
    [
        ("openb --nodes nodes.csv --pods pods.csv --seeds 1-2", {"random", "best-fit", "cnai"}),
        ("jct --jobs jobs.csv --gpus 16 --end 2017-10-09", {"fifo", "backfill", "las", "cnai"}),
        (
            "phases --jobs jobs.csv --gpus 16 --shares 0.2",
            {"backfill-hold-0.2", "cnai-release-0.2"},
        ),
        ("elastic --jobs elastic.csv --curves curves --gpus 8 --speedup 1", {"backfill", "cnai"}),
        ("serving --load load.csv --cold-start 180", {"hpa-0.5", "cnai"}),
        ("lending --load load.csv --jobs elastic.csv --curves curves --gpus 8", {"own", "cnai"}),
    ],
)
def test_each_benchmark_prints_one_object(at, words, policies):
    done = ran(at, *words.split(), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert policies <= set(found["value"])
    assert all(number > 0 for number in found["value"].values())


def test_a_wrong_table_is_told_without_a_traceback(at):
    done = ran(at, "jct", "--jobs", "load.csv", "--json")
    assert done.returncode == 4
    assert "no value in column `timestamp`" in done.stderr
    assert "Traceback" not in done.stderr
