from pathlib import Path

import pytest

import cnai
from command_line import runner


@pytest.fixture
def ai_cli(capsys):
    """Run `ai-cli WORDS...` in this process."""
    return runner(capsys)


@pytest.fixture(autouse=True)
def _own_place(tmp_path, monkeypatch):
    """Keep the tests, and the processes they start, out of the user's folders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(cnai.__file__).parents[1]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("CNAI_DEBUG", raising=False)
