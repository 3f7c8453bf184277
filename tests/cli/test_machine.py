import socket
from collections import namedtuple
from importlib import metadata

import psutil
import pytest

from cnai.cli import machine
from cnai.cli.machine import Outcome


def test_every_check_that_is_not_ok_has_a_repair(tmp_path):
    assert [
        one.name for one in machine.examine(tmp_path) if one.outcome != "ok" and not one.repair
    ] == []


def test_an_old_python_fails(monkeypatch):
    monkeypatch.setattr(machine, "PYTHON", (99, 0))
    check = machine.python_version()
    assert (check.outcome, check.repair) == (Outcome.FAIL, "install Python 99.0 or newer")


def test_a_missing_package_fails_and_is_named(monkeypatch):
    monkeypatch.setattr(
        metadata, "requires", lambda name: ["click>=8", "no-such-thing>=1", "x; extra == 'dev'"]
    )
    (check,) = machine.packages()
    assert (check.outcome, check.found) == (Outcome.FAIL, "1 of 2")
    assert check.repair == "pip install no-such-thing"


def test_a_source_tree_is_no_failure(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", missing)
    (check,) = machine.packages()
    assert check.outcome is Outcome.WARN


def test_without_torch_one_may_still_plan(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check = machine.torch_present()
    assert check.outcome is Outcome.WARN
    assert "cnai[torch]" in check.repair


def test_little_memory_is_a_warning(monkeypatch):
    Memory = namedtuple("Memory", "available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(1024))
    assert machine.memory().outcome is Outcome.WARN


def test_a_folder_that_is_not_there_yet_is_judged_by_its_parent(tmp_path):
    assert str(tmp_path) in machine.disk(tmp_path / "a" / "b").found


@pytest.mark.parametrize("place", ["/dev/null/runs", "/proc/version"])
def test_a_place_that_cannot_hold_runs_fails(place):
    check = machine.disk(machine.Path(place))
    assert check.outcome is Outcome.FAIL
    assert "output=" in check.repair


def test_a_full_temporary_folder_fails(monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    check = machine.temporary_folder()
    assert check.outcome is Outcome.FAIL
    assert "No space left" in check.found


def test_a_port_in_use_is_a_warning():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        check = machine.port(taken.getsockname()[1], "take another")
    assert (check.outcome, check.repair) == (Outcome.WARN, "take another")


def test_a_free_port_is_ok():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    assert machine.port(number, "").outcome is Outcome.OK
