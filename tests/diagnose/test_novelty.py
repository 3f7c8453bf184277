import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.events import RunEnded
from cnai.core.runfolder import RunFolder
from cnai.diagnose import Verdict, diagnose_run
from cnai.diagnose.diagnosis import LogLine
from cnai.diagnose.novelty import Healthy, template_of
from diagnose_case import Case


def lines(*texts):
    return [LogLine(file="a", number=at, text=text) for at, text in enumerate(texts, start=1)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("step 8 loss 2.31", "step 90 loss 1.0e-3"),
        ("opened /mnt/a/b.bin", "opened /mnt/c/other/d.txt"),
        ("peer 0x7f12 gone", "peer 0xdeadbeef gone"),
        ("key 'labels' is used", "key 'inputs' is used"),
        ("[rank3]: ready", "ready"),
    ],
)
def test_lines_that_differ_in_numbers_and_names_have_one_template(a, b):
    assert template_of(a) == template_of(b)


def test_other_words_are_another_template():
    assert template_of("the store is slow") != template_of("the store is gone")


def test_a_line_that_no_healthy_log_has_is_told():
    healthy = Healthy()
    healthy.learn(["step 1 loss 2.0", "saved"])
    found = healthy.never_printed(lines("step 7 loss 1.9", "the frobnicator jammed at 7"))
    assert [line.number for line in found] == [2]


def test_of_lines_alike_the_first_is_told():
    found = Healthy().never_printed(lines("jam 1", "jam 2"))
    assert [line.number for line in found] == [1]


def test_frames_of_a_traceback_are_not_told():
    text = ("Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()")
    assert Healthy().never_printed(lines(*text)) == []


@given(st.lists(st.text(max_size=80), max_size=20))
def test_what_was_learned_is_never_told(texts):
    healthy = Healthy()
    healthy.learn(texts)
    assert healthy.never_printed(lines(*texts)) == []


def test_a_fault_that_no_rule_knows_points_to_the_line_that_healthy_ranks_never_print(tmp_path):
    case = Case(tmp_path)
    case.log(0, "warm-up 1 done\n")
    case.log(1, "warm-up 2 done\nthe frobnicator jammed at 7\n")
    case.lost(1, 7)
    found = diagnose_run(case.run)
    assert found.verdict is Verdict.UNKNOWN
    assert found.root_line.text == "the frobnicator jammed at 7"
    assert "no healthy log has a line like logs/rank-1.log:2" in found.evidence[-1]


def test_a_run_beside_it_that_ended_well_is_healthy(tmp_path):
    well = RunFolder.create(tmp_path / "well")
    well.rank_log(0).write_text("the frobnicator jammed at 3\n")
    with well.writer("agent") as writer:
        writer.write(RunEnded(time_unix=1.0, outcome="done", step=9, seconds=1.0))
    case = Case(tmp_path)
    case.log(1, "the frobnicator jammed at 7\n")
    case.lost(1, 7)
    assert diagnose_run(case.run).root_line is None


def test_a_run_beside_it_that_failed_teaches_nothing(tmp_path):
    bad = RunFolder.create(tmp_path / "bad")
    bad.rank_log(0).write_text("the frobnicator jammed at 3\n")
    with bad.writer("agent") as writer:
        writer.write(RunEnded(time_unix=1.0, outcome="failed", step=9, seconds=1.0))
    case = Case(tmp_path)
    case.log(1, "the frobnicator jammed at 7\n")
    case.lost(1, 7)
    assert diagnose_run(case.run).root_line is not None
