import pytest

from cnai.core.errors import DataError, SpecError
from cnai.core.spec import load_spec, to_yaml
from cnai.diagnose import FAULTS
from cnai.flows.diagnose import diagnose, follow_run, propose
from diagnose_case import Case, traceback

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
NAN = "FloatingPointError: loss is nan at step 7"


@pytest.fixture
def case(place):
    broken = Case(place)
    broken.run.spec_file.write_bytes(to_yaml(load_spec(place / "run.yaml").spec))
    return broken


def broken_by(case, error):
    case.log(0, traceback(error))
    case.lost(0, 1)
    return str(case.run.root)


def test_a_repair_that_leaves_the_work_alone_goes_on_in_the_run(case):
    root = case.run.root
    broken_by(case, OOM)
    proposal = propose(diagnose([root]), [root])
    assert [(one.key, one.after) for one in proposal.changes] == [("train.recompute", "full")]
    assert proposal.goes_on


def test_a_repair_that_trains_something_else_gets_another_name(case):
    root = case.run.root
    broken_by(case, NAN)
    before = load_spec(case.run.spec_file).spec
    proposal = propose(diagnose([root]), [root])
    assert not proposal.goes_on
    assert proposal.spec.name == f"{before.name}-repaired"
    assert proposal.spec.train.learning_rate == before.train.learning_rate / 2


def test_apply_writes_the_spec_beside_the_runs_own(case, ai_cli):
    root = broken_by(case, OOM)
    own = case.run.spec_file.read_bytes()
    told = ai_cli("diagnose", root, "--apply", "-y")
    assert told.code == 10
    assert "train.recompute: none -> full" in told.err
    assert load_spec(case.run.root / "spec-repaired.yaml").spec.train.recompute == "full"
    assert case.run.spec_file.read_bytes() == own


def test_apply_writes_nothing_when_nobody_can_agree(case, ai_cli):
    assert ai_cli("diagnose", broken_by(case, OOM), "--apply").code == 2
    assert not (case.run.root / "spec-repaired.yaml").exists()


def test_apply_refuses_a_fault_that_no_spec_mends(case):
    broken_by(case, "ValueError: of no known kind")
    with pytest.raises(SpecError, match="no repair of `user_code_error`"):
        propose(diagnose([case.run.root]), [case.run.root])


def test_apply_needs_a_run(place):
    (place / "a.log").write_text(f"{OOM}\n")
    paths = [place / "a.log"]
    with pytest.raises(DataError, match="no run at"):
        propose(diagnose(paths), paths)


def test_logs_are_diagnosed_without_a_run(place, ai_cli):
    (place / "a.log").write_text(f"{OOM}\n")
    told = ai_cli("diagnose", "a.log", "--json")
    assert (told.code, told.json["fault"], told.json["action"]) == (10, "gpu_oom", "change_config")


def test_a_healthy_log_ends_in_0(place, ai_cli):
    (place / "a.log").write_text("step 1 loss 2.0\n")
    assert ai_cli("diagnose", "a.log").code == 0


def test_a_run_that_no_rule_explains_ends_in_11(case, ai_cli):
    case.lost(0, 7)
    assert ai_cli("diagnose", str(case.run.root)).code == 11


def test_naming_nothing_is_told(ai_cli):
    told = ai_cli("diagnose")
    assert (told.code, "nothing to diagnose" in told.err) == (4, True)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_class_is_explained(name, ai_cli):
    told = ai_cli("diagnose", "--explain", name)
    assert (told.code, told.out.startswith(name)) == (0, True)


def test_a_class_that_is_not_known_is_told(ai_cli):
    assert ai_cli("diagnose", "--explain", "gpu_omo").code == 2


class Waits:
    """A clock whose waits end the work on a run."""

    def __init__(self, during):
        self._during = during
        self.waits = 0

    def now(self):
        return 0.0

    monotonic = now

    def sleep(self, _seconds):
        self.waits += 1
        self._during()


def test_following_a_run_tells_each_change_once_and_ends_with_it(case, monkeypatch):
    clock = Waits(lambda: None if clock.waits != 2 else broken_by(case, OOM))
    monkeypatch.setattr(type(case.run), "owner", lambda _: 1 if clock.waits < 4 else None)
    told = []
    found = follow_run(case.run, tell=told.append, clock=clock)
    assert found.fault == "gpu_oom"
    assert len(told) == 2
    assert told[1].startswith("fault: gpu_oom")


def test_a_page_of_logs_alone_is_refused(place, ai_cli):
    (place / "a.log").write_text("step 1\n")
    told = ai_cli("diagnose", "a.log", "--html", "page.html")
    assert (told.code, "no run at `a.log`" in told.err) == (4, True)


def test_the_page_of_a_run_is_written(case, place, ai_cli):
    told = ai_cli("diagnose", broken_by(case, OOM), "--html", "page.html")
    assert told.code == 10
    assert "gpu_oom" in (place / "page.html").read_text()
