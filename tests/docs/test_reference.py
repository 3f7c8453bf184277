import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reference():
    """Load the tool that writes the pages."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_says_what_the_code_says(reference, capsys):
    assert reference.main(["--check"]) == 0, capsys.readouterr().out


def test_a_page_that_differs_is_found(reference, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    reference.main([])
    (tmp_path / "spec.md").write_text("old\n")
    assert reference.main(["--check"]) == 1
    assert "-old" in capsys.readouterr().out
