import subprocess
import sys

import pytest

from cnai.cli import machine
from cnai.cli.machine import Check, Outcome


@pytest.fixture
def found(monkeypatch):
    """Let the examination find what the test says."""

    def find(*outcomes):
        checks = [
            Check(name=f"c{i}", outcome=one, found="f", repair="r")
            for i, one in enumerate(outcomes)
        ]
        monkeypatch.setattr(machine, "examine", lambda runs: checks)

    return find


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome.OK], 0),
        ([Outcome.OK, Outcome.WARN], 0),
        ([Outcome.FAIL, Outcome.OK], 5),
    ],
)
def test_only_a_failed_check_ends_with_5(ai_cli, found, outcomes, code):
    found(*outcomes)
    assert ai_cli("doctor").code == code


def test_each_check_is_a_line(ai_cli, found):
    found(Outcome.OK, Outcome.WARN)
    assert [line.split()[:2] for line in ai_cli("doctor").out.splitlines()[1:]] == [
        ["ok", "c0"],
        ["warn", "c1"],
    ]


def test_json_is_one_object_even_when_a_check_failed(ai_cli, found):
    found(Outcome.FAIL)
    ran = ai_cli("doctor", "--json")
    assert ran.code == 5
    assert ran.json["ok"] is False
    assert ran.json["checks"][0]["outcome"] == "fail"


def test_this_machine_is_examined_without_loading_torch():
    script = (
        "import sys; from cnai.cli.app import main; code = main(['doctor', '--json']);"
        "print(code, 'torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.split()[1] == "False"
