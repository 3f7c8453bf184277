import pytest

from cnai.core.events import Finding
from cnai.monitor import DETECTORS, Watch
from cnai.monitor.detectors import CAUSES, Resolver, primary
from monitor_case import started, step


def finding(name, at=10):
    return Finding(time_unix=float(at), detector=name, severity="warning", message="m", step=at)


def test_only_detectors_that_exist_are_in_the_graph():
    named = {*CAUSES, *(cause for causes in CAUSES.values() for cause in causes)}
    assert named - set(DETECTORS) == set()


def test_no_fault_explains_itself():
    assert [name for name, causes in CAUSES.items() if name in causes] == []


def test_a_finding_names_the_earlier_one_that_explains_it():
    resolver = Resolver()
    assert resolver.explained(finding("rate_high", 3)).cause is None
    assert resolver.explained(finding("dead_units", 11)).cause == "rate_high"


@pytest.mark.parametrize("between", ["a long time", "an attempt"])
def test_what_lies_far_back_explains_nothing(between):
    resolver = Resolver()
    resolver.explained(finding("rate_high", 3))
    if between == "an attempt":
        resolver.update(started(1))
    later = finding("dead_units", 500 if between == "a long time" else 11)
    assert resolver.explained(later).cause is None


def test_the_primary_finding_may_come_after_its_symptom():
    found = [finding("loss_spike", 10), finding("replica_mismatch", 15)]
    assert primary(found).detector == "replica_mismatch"


def test_of_two_that_explain_each_other_the_first_is_primary():
    found = [finding("logit_drift", 10), finding("wrong_sign", 20)]
    assert primary(found).detector == "logit_drift"


def test_nothing_found_has_no_primary():
    assert primary([]) is None


def test_a_finding_much_later_belongs_to_another_fault():
    assert primary([finding("loss_spike", 10), finding("rate_high", 400)]).detector == "loss_spike"


class Speaks:
    name = "rate_high"

    def update(self, event):
        return finding(self.name)


class Follows(Speaks):
    name = "exploding"


def test_a_watch_says_what_follows_from_what():
    assert [one.cause for one in Watch([Speaks(), Follows()]).update(step(1))] == [
        None,
        "rate_high",
    ]
