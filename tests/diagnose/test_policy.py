import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.diagnose import FAULTS, Diagnosis, Verdict, fault_of
from cnai.diagnose.policy import Action, Circumstances, decide


def found(fault, confidence=0.9):
    if fault is None:
        return Diagnosis(verdict=Verdict.UNKNOWN, summary="?", confidence=0.2)
    return Diagnosis(
        verdict=Verdict.FAULT,
        summary=fault,
        confidence=confidence,
        fault=fault,
        action=fault_of(fault).action,
    )


def action(fault, confidence=0.9, **now):
    circumstances = Circumstances(**{"restarts": 0, "most_restarts": 3, **now})
    return decide(found(fault, confidence), circumstances).action


@pytest.mark.parametrize("fault", ["killed", "preempted", "native_crash", "collective_timeout"])
def test_what_may_pass_is_tried_again(fault):
    assert action(fault) is Action.RESTART_SAME


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_no_fault_is_tried_again_more_often_than_allowed(fault):
    assert action(fault, restarts=3) is Action.STOP


@pytest.mark.parametrize("fault", ["user_code_error", "collective_mismatch", "data_error"])
def test_a_fault_of_the_code_stops_at_once(fault):
    assert action(fault) is Action.STOP


def test_a_fault_of_the_code_that_is_not_sure_is_tried_again():
    assert action("user_code_error", 0.3) is Action.RESTART_SAME


@pytest.mark.parametrize("fault", ["gpu_ecc", "node_failure", "ib_network"])
def test_a_fault_of_a_machine_gives_the_machine_up_where_there_is_room(fault):
    assert action(fault, may_exclude=True) is Action.EXCLUDE_NODE


def test_the_only_machine_is_kept():
    assert action("gpu_ecc") is Action.RESTART_SAME


def test_a_broken_checkpoint_is_put_aside():
    assert action("ckpt_corrupt", resumed_step=10) is Action.PREVIOUS_CHECKPOINT


def test_without_a_checkpoint_in_use_none_is_put_aside():
    assert action("ckpt_corrupt") is Action.RESTART_SAME


def test_memory_of_a_gpu_that_ran_out_stops_and_asks_for_a_lighter_plan():
    decision = decide(found("gpu_oom"), Circumstances(restarts=0, most_restarts=3))
    assert (decision.action, decision.lighter) == (Action.STOP, True)


def test_memory_of_the_machine_that_ran_out_gets_one_more_try():
    assert action("host_oom") is Action.RESTART_SAME
    assert action("host_oom", same=1) is Action.STOP


def test_a_crash_in_one_place_is_not_tried_for_ever():
    assert action("native_crash", same=1) is Action.RESTART_SAME
    assert action("native_crash", same=2) is Action.STOP


def test_a_kill_from_outside_is_tried_as_often_as_allowed():
    assert action("killed", same=2, restarts=2) is Action.RESTART_SAME


def test_what_no_rule_knows_is_tried_again():
    assert action(None) is Action.RESTART_SAME


def test_an_error_that_a_rank_reported_and_no_rule_knows_stops():
    assert action(None, reported=True) is Action.STOP


@pytest.mark.parametrize("fault", ["nan_loss", "auth_credentials", "disk_full", "config_error"])
def test_what_waits_for_a_person_stops(fault):
    assert action(fault, resumed_step=10) is Action.STOP


@given(
    fault=st.sampled_from([None, *sorted(FAULTS)]),
    confidence=st.floats(0, 1),
    restarts=st.integers(0, 5),
    same=st.integers(0, 5),
    resumed=st.integers(0, 20),
    may_exclude=st.booleans(),
    reported=st.booleans(),
)
def test_every_case_is_decided_with_a_reason(
    fault, confidence, restarts, same, resumed, may_exclude, reported
):
    now = Circumstances(
        restarts=restarts, most_restarts=3, same=same, resumed_step=resumed,
        may_exclude=may_exclude, reported=reported,
    )  # fmt: skip
    decision = decide(found(fault, confidence), now)
    assert decision.reason
    assert decision.action is Action.STOP or restarts < 3
    assert decision.action is not Action.EXCLUDE_NODE or may_exclude
    assert decision.action is not Action.PREVIOUS_CHECKPOINT or resumed
