import pytest

from cnai.cluster.kernel import KernelNews


@pytest.fixture
def vmstat(tmp_path):
    file = tmp_path / "vmstat"
    file.write_text("pgfault 5\noom_kill 2\n")
    return file


def test_a_counter_that_rose_is_told(vmstat, tmp_path):
    news = KernelNews({str(vmstat): "oom_kill"}, log=tmp_path / "none")
    vmstat.write_text("pgfault 9\noom_kill 3\n")
    (line,) = news.read()
    assert "oom_kill 2 -> 3" in line
    assert "Out of memory" in line


def test_what_was_counted_before_is_not_told(vmstat, tmp_path):
    assert KernelNews({str(vmstat): "oom_kill"}, log=tmp_path / "none").read() == []


def test_a_rise_is_told_once(vmstat, tmp_path):
    news = KernelNews({str(vmstat): "oom_kill"}, log=tmp_path / "none")
    vmstat.write_text("oom_kill 3\n")
    news.read()
    assert news.read() == []


def test_a_counter_that_may_not_be_read_is_passed_over(tmp_path):
    assert KernelNews({str(tmp_path / "none"): "oom_kill"}, log=tmp_path / "none").read() == []


def test_lines_of_the_kernels_log_that_say_nothing_of_memory_are_passed_over(tmp_path):
    log = tmp_path / "kmsg"
    log.touch()
    news = KernelNews({}, log=log)
    with log.open("a") as file:
        file.write("6,1,2,-;eth0: link up\n")
    assert news.read() == []
    news.close()


def test_a_log_is_read_from_its_end(tmp_path):
    log = tmp_path / "kmsg"
    log.write_text("6,1,2,-;Out of memory: Killed process 1 (old)\n")
    news = KernelNews({}, log=log)
    with log.open("a") as file:
        file.write("6,2,3,-;Memory cgroup out of memory: Killed process 7 (python)\n")
    assert news.read() == ["Memory cgroup out of memory: Killed process 7 (python)"]
    news.close()


def test_a_log_that_was_closed_says_nothing(tmp_path):
    log = tmp_path / "kmsg"
    log.touch()
    news = KernelNews({}, log=log)
    news.close()
    news.close()
    assert news.read() == []
