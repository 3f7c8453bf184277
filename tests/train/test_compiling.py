import os
import subprocess
import sys
from pathlib import Path

import pytest

from cnai.core.layout import Layout
from cnai.train.compiler import missing_compiler
from training_case import curve, plan_of, same


def test_a_machine_without_a_compiler_is_told_apart(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C++ compiler" in missing_compiler()
    (tmp_path / "clang++").write_text("#!/bin/sh\n")
    (tmp_path / "clang++").chmod(0o755)
    assert missing_compiler() is None


def test_a_compiler_that_was_named_must_be_there(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert "/nowhere/c++" in missing_compiler()


def test_the_question_does_not_load_torch():
    code = "import sys, cnai.train.compiler; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(), Layout(model=2, split_layer=2)], ids=str)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_compiled_layers_follow_the_curve(gang, one_process, layout, recompute, tmp_path):
    found = curve(gang, tmp_path, plan_of(layout), compile=True, recompute=recompute)
    same(found, one_process(), 1e-4)
    assert layout.model > 1 or found != one_process(), "nothing was compiled"
