import shutil

import pytest

import chain_case
from cnai import api
from command_line import runner


@pytest.fixture
def ai_cli(capsys):
    """Run `ai-cli WORDS...` in this process."""
    return runner(capsys)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of the test's own with text and a spec, in which it runs."""
    chain_case.settle(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def start(place):
    """Start `ai-cli WORDS...` as a process; whatever still runs at the end is killed."""
    started = []

    def start(*words):
        command = chain_case.Command(*words, folder=place)
        started.append(command)
        return command

    yield start
    for command in started:
        command.end()


@pytest.fixture(scope="session")
def finished_folder(tmp_path_factory):
    """A folder with text, a spec and its whole run; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        chain_case.settle(folder, patch)
        api.run("run.yaml")
    return folder


@pytest.fixture
def finished(place, finished_folder):
    """A copy of a finished run."""
    shutil.copytree(finished_folder, place, dirs_exist_ok=True)
    return chain_case.run_in(place)
