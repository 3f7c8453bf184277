import json
import shutil
import subprocess
import sys

import pytest

from cnai.cli.app import main
from cnai.core.spec import load_spec
from cnai.flows.plan import plan_run
from command_line import runner
from house import ROOT
from pages import blocks

EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir())


def printed(example):
    """Return what an example's README says that its command prints."""
    return blocks("text", pages=[ROOT / "examples" / example / "README.md"])[-1].text


def test_the_examples_are_numbered():
    assert [path.name[:3] for path in EXAMPLES] == [f"{n:02}-" for n in range(1, len(EXAMPLES) + 1)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_a_short_readme_with_its_command_and_output(path):
    readme = path / "README.md"
    intro = readme.read_text().partition("```")[0].strip().splitlines()
    assert len(intro) <= 9
    assert len(blocks("bash", pages=[readme])) == 1
    assert len(blocks("text", pages=[readme])) == 1


def test_the_plan_on_paper_prints_what_it_says(capsys):
    ran = runner(capsys)("plan", ROOT / "examples" / "01-plan-on-paper" / "run.yaml")
    assert ran.code == 0
    assert ran.out == printed("01-plan-on-paper")


def test_the_quickstart_lies_over_eight_ranks():
    spec = load_spec(ROOT / "examples" / "02-quickstart" / "run.yaml").spec
    assert str(plan_run(spec).layout) in printed("02-quickstart")


def test_the_makefile_runs_the_quickstart():
    assert "ai-cli run examples/02-quickstart/run.yaml -y" in (ROOT / "Makefile").read_text()


def test_the_quickstart_can_be_planned_without_running_it(capsys):
    spec = ROOT / "examples" / "02-quickstart" / "run.yaml"
    assert main(["run", str(spec), "--dry-run"]) == 0
    assert "dp2 x tp2 x pp2 = 8 ranks" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.dist
def test_the_python_example_trains_and_prints_what_it_says(tmp_path):
    script = ROOT / "examples" / "03-python-api" / "train_tiny.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    layout, loss, perplexity = done.stdout.splitlines()
    expected = printed("03-python-api").splitlines()
    assert layout == expected[0]
    assert loss.split(" -> ")[0] == expected[1].split(" -> ")[0]
    assert float(perplexity.rpartition(" ")[2]) < 2


def vit(folder, *sets):
    """Run the example of a module of one's own in a copy of its folder."""
    shutil.copytree(ROOT / "examples" / "04-your-own-model", folder, dirs_exist_ok=True)
    words = [word for one in sets for word in ("--set", one)]
    done = subprocess.run(
        [sys.executable, "-m", "cnai", "run", "run.yaml", "-y", "--json", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "OMP_WAIT_POLICY": "PASSIVE",
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.dist
def test_a_model_of_ones_own_learns_to_read_digits(tmp_path):
    found = vit(tmp_path)
    said = printed("04-your-own-model").splitlines()
    assert found["layout"] == said[0].split(maxsplit=1)[1]
    assert found["train"]["first_loss"] == pytest.approx(float(said[1].split()[1]), abs=1e-2)
    assert found["evaluation"]["sequences"] == 359
    assert found["evaluation"]["accuracy"] > 0.95
    assert found["evaluation"]["accuracy_before"] < 0.3


@pytest.mark.slow
@pytest.mark.dist
def test_a_model_of_ones_own_has_the_same_losses_over_eight_processes(tmp_path):
    short = ("train.steps=21", "checkpoint.every_steps=100", "train.evaluate_every=10")
    layout = ("data_parallel.size=2", "model_parallel.size=2", "pipeline_parallel.stages=2")
    one = vit(tmp_path, *short)
    eight = vit(tmp_path, *short, "name=eight", *(f"parallel.{size}" for size in layout))
    assert eight["layout"] == "dp2 x tp2 x pp2"
    assert eight["train"]["loss"] == pytest.approx(one["train"]["loss"], abs=1e-5)
    assert eight["evaluation"]["loss"] == pytest.approx(one["evaluation"]["loss"], abs=1e-4)


def test_the_model_of_ones_own_is_short():
    lines = (ROOT / "examples" / "04-your-own-model" / "vit.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 100


def test_the_python_example_fits_on_a_page():
    script = ROOT / "examples" / "03-python-api" / "train_tiny.py"
    assert len(script.read_text().splitlines()) <= 40
