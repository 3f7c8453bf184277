import json

import pytest

from house import ROOT, SOURCE, TORCH_FREE, copy_of_the_source, run_python

LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True))
"""
LOADED = """
import importlib, json, pkgutil, sys
room = importlib.import_module("cnai.ROOM")
for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""
HELP = """
import json, sys
from cnai.cli.app import main
code = main(["--help"])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""
PLANTS = {
    "a room imports a room": ("plan/spy.py", "import cnai.schedule", "Layers"),
    "core imports a room": ("core/spy.py", "import cnai.plan", "Layers"),
    "a room imports a flow": ("serve/spy.py", "import cnai.flows", "Layers"),
    "a stray file at the top": ("stray.py", "VALUE = 1", "Layers"),
    "torch in the planner": ("plan/spy.py", "import torch", "torch stays out"),
    "the models in a torch-free room": ("monitor/spy.py", "import cnai.models", "torch models"),
    "rich in a flow": ("flows/spy.py", "import rich", "click and rich only in cli"),
    "pydantic in a room": ("plan/spy.py", "import pydantic", "pydantic only in core.spec"),
    "yaml in a flow": ("flows/spy.py", "import yaml", "yaml only in core.spec"),
    "pyarrow in train": ("train/spy.py", "import pyarrow", "only in data"),
    "prometheus in serve": ("serve/spy.py", "import prometheus_client", "only in monitor"),
}


def test_every_import_contract_is_kept():
    done = run_python(LINT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copy_of_the_source(tmp_path_factory.mktemp("house"))


@pytest.mark.slow
@pytest.mark.parametrize(("place", "line", "contract"), PLANTS.values(), ids=PLANTS)
def test_a_contract_finds_what_it_forbids(copy, place, line, contract):
    planted = copy / "src" / "cnai" / place
    planted.write_text(f'"""Planted."""\n\n{line}\n')
    try:
        done = run_python(LINT, cwd=copy)
    finally:
        planted.unlink()
    assert done.returncode == 1
    broken = [text for text in done.stdout.splitlines() if text.endswith("BROKEN")]
    assert any(contract in text for text in broken), done.stdout


@pytest.mark.slow
def test_a_circle_inside_a_room_is_found(copy):
    for name, other in (("spy_one", "spy_two"), ("spy_two", "spy_one")):
        (copy / f"src/cnai/plan/{name}.py").write_text(f"from cnai.plan import {other}\n")
    try:
        done = run_python(LINT, cwd=copy)
    finally:
        for name in ("spy_one", "spy_two"):
            (copy / f"src/cnai/plan/{name}.py").unlink()
    assert done.returncode == 1
    assert "cycles" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("room", TORCH_FREE)
def test_a_torch_free_room_does_not_load_torch(room):
    done = run_python(LOADED.replace("ROOM", room))
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert f"cnai.{room}" in loaded
    assert "torch" not in loaded


def test_help_loads_nothing_heavy():
    done = run_python(HELP)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    heavy = {"torch", "rich", "pydantic", "yaml", "numpy", "psutil", "msgspec", "starlette"}
    assert told["code"] == 0
    assert heavy & set(told["modules"]) == set()


def test_every_room_of_the_picture_has_a_test_folder():
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"__pycache__"}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert rooms - tested == set()
