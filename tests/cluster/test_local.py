"""No end of any process leaves another behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cnai.cluster.local import LocalGang, local_fleet
from cnai.cluster.ranks import Order
from cnai.core.errors import ClusterError

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]


def gang_of() -> LocalGang:
    return LocalGang(server="cnai.train.forkserver", preload=["ranks_for_tests"])


def order(function: str, logs: Path, ranks: int = 2, attempt: int = 0) -> Order:
    return Order(
        target=f"ranks_for_tests:{function}",
        ranks=ranks,
        payload={"word": "hello"},
        logs=logs,
        environment={
            "PYTHONPATH": os.pathsep.join((str(TESTS.parent / "src"), str(TESTS))),
            "GREETING": "good day",
        },
        attempt=attempt,
    )


def codes(gang: LocalGang) -> dict[int, int]:
    ended: dict[int, int] = {}
    while gang.living:
        ended |= {end.rank: end.code for end in gang.poll(0.2)}
    return ended


def wait_until(true: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def text_of(log: Path) -> str:
    """What a rank has printed so far; its log is made when it begins to run."""
    return log.read_text() if log.exists() else ""


def gone(pids: list[int]) -> bool:
    return not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_rank_gets_its_number_its_payload_and_its_environment(tmp_path: Path) -> None:
    with gang_of() as gang:
        gang.start(order("say", tmp_path))
        assert codes(gang) == {0: 0, 1: 0}
    mark, words = (tmp_path / "rank-1.log").read_text().splitlines()
    assert mark.startswith("=== attempt 0, process ")
    assert words == "rank 1 of 2: hello, good day"


def test_exit_codes_signals_and_tracebacks_are_told_apart(tmp_path: Path) -> None:
    with gang_of() as gang:
        gang.start(order("end_in_their_own_way", tmp_path, ranks=4))
        assert codes(gang) == {0: 0, 1: 7, 2: -signal.SIGSEGV, 3: 1}
    assert "ValueError: rank 3 gives up" in (tmp_path / "rank-3.log").read_text()


def test_one_server_starts_several_attempts(tmp_path: Path) -> None:
    with gang_of() as gang:
        for attempt in range(3):
            gang.start(order("say", tmp_path, attempt=attempt))
            assert set(codes(gang).values()) == {0}


def test_leaving_the_gang_ends_its_ranks(tmp_path: Path) -> None:
    with gang_of() as gang:
        gang.start(order("wait", tmp_path))
        pids = list(gang.pids)
        assert not gone(pids)
    assert wait_until(lambda: gone(pids))


def test_kill_ends_ranks_that_ignore_every_polite_request(tmp_path: Path) -> None:
    with gang_of() as gang:
        gang.start(order("wait", tmp_path))
        gang.kill()
        assert gone(list(gang.pids))
        assert not gang.living


@pytest.mark.parametrize("victim", ["parent", "server"])
def test_kill_9_of_the_parent_or_the_server_leaves_no_process(tmp_path: Path, victim: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", "import ranks_for_tests as r; r.be_a_parent()", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS.parent / "src"), str(TESTS)))},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    family = psutil.Process(parent.pid).children(recursive=True)
    (server,) = psutil.Process(parent.pid).children()
    assert len(family) == 4  # the server, its store and two ranks
    os.kill(parent.pid if victim == "parent" else server.pid, signal.SIGKILL)
    assert wait_until(lambda: gone([process.pid for process in family]))
    parent.kill()
    parent.communicate()


def test_a_killed_server_counts_as_the_end_of_all_ranks(tmp_path: Path) -> None:
    with gang_of() as gang:
        gang.start(order("wait", tmp_path))
        (server,) = [
            child
            for child in psutil.Process().children()
            if "forkserver" in " ".join(child.cmdline())
        ]
        server.kill()
        assert codes(gang) == {0: -signal.SIGKILL, 1: -signal.SIGKILL}
        gang.start(order("say", tmp_path, attempt=1))
        assert codes(gang) == {0: 0, 1: 0}


def test_a_notice_to_the_server_reaches_the_ranks_and_the_parent(tmp_path: Path) -> None:
    with gang_of() as gang:
        gang.start(order("wait_politely", tmp_path))
        (server,) = [
            child
            for child in psutil.Process().children()
            if "forkserver" in " ".join(child.cmdline())
        ]
        assert wait_until(lambda: "ready" in text_of(tmp_path / "rank-1.log"))
        assert wait_until(lambda: "ready" in text_of(tmp_path / "rank-0.log"))
        assert not gang.noticed
        server.terminate()
        assert codes(gang) == {0: 0, 1: 0}
        assert gang.noticed
        gang.start(order("say", tmp_path, attempt=1))
        assert not gang.noticed
        assert codes(gang) == {0: 0, 1: 0}


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    gang = LocalGang(server="cnai.train.forkserver", preload=["no_such_module"])
    with gang, pytest.raises(ClusterError, match="No module named 'no_such_module'"):
        gang.start(order("say", tmp_path))


def test_this_machine_has_cores_and_memory() -> None:
    (node,) = local_fleet().nodes
    assert node.device_kind == "cpu"
    assert node.devices == node.cpus >= 1
    assert 0 < node.device_memory_bytes < node.memory_bytes
