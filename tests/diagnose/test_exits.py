import signal

import pytest

from cnai.diagnose.exits import read_exit


@pytest.mark.parametrize("code", [-9, 137])
def test_a_signal_is_read_from_both_ways_of_writing_it(code):
    assert read_exit(code).signal is signal.SIGKILL


@pytest.mark.parametrize("code", [0, 1, 5, 127, 128, 255, -250])
def test_other_codes_are_no_signals(code):
    assert read_exit(code).signal is None


def test_an_exit_reads_as_words():
    assert str(read_exit(-11)) == "signal SIGSEGV"
    assert str(read_exit(3)) == "exit code 3"
