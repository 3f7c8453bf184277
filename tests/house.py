"""The source tree as the tests of its rules see it."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cnai"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = (
    "plan", "data", "train", "schedule", "cluster", "monitor", "diagnose", "compress",
    "multimodal", "serve",
)  # fmt: skip
LAYERS = ("core", "models", *ROOMS, "flows", "cli")
TORCH_FREE = ("core", "plan", "schedule", "cluster", "monitor", "diagnose", "cli", "data")


def name_of(path):
    """Return a path as people write it, relative to `src/cnai`."""
    return path.relative_to(SOURCE).as_posix()


def tree_of(path):
    return ast.parse(path.read_text(), filename=str(path))


def functions_of(tree):
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def run_python(code, *, cwd=ROOT):
    """Run code in a fresh interpreter that finds this source tree first."""
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": str(Path(cwd) / "src"), "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
    )


def copy_of_the_source(folder):
    """Copy what the import contracts look at."""
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder
