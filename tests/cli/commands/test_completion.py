import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(ai_cli, shell):
    ran = ai_cli("completion", shell)
    assert ran.code == 0
    assert "_AI_CLI_COMPLETE" in ran.out
    assert f"next: ai-cli completion {shell} > " in ran.err


def test_json_holds_the_script(ai_cli):
    assert ai_cli("completion", "fish", "--json").json["shell"] == "fish"


def test_another_shell_is_refused(ai_cli):
    ran = ai_cli("completion", "csh")
    assert (ran.code, ran.out) == (2, "")
    assert "bash" in ran.err


def test_the_bash_script_is_bash(ai_cli):
    script = ai_cli("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_command_answers_the_script():
    environment = {
        **os.environ, "_AI_CLI_COMPLETE": "bash_complete", "COMP_WORDS": "ai-cli expl",
        "COMP_CWORD": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "cnai"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,explain\n"
