from dataclasses import replace

import pytest

from cnai.plan import make_plan
from cnai.plan.calibrate import Observation, calibrate
from cnai.plan.constants import Constants
from cnai.plan.machines import Machines
from cnai.plan.sensitivity import trial_of
from plan_cases import LARGE, fleet, large

TRUTH = Constants(matmul=0.6, node=0.5, network=0.6, overlap=0.5)
SIZES = (
    {"data": 16, "model": 8, "pipeline": 1}, {"data": 8, "model": 4, "pipeline": 4},
    {"data": 32, "model": 4, "pipeline": 1}, {"data": 128, "model": 1, "pipeline": 1},
    {"data": 64, "model": 2, "pipeline": 1}, {"data": 4, "model": 8, "pipeline": 4},
)  # fmt: skip


def steps(truth=TRUTH, shape=LARGE):
    """Return ten made-up steps of a 100 B model on B200, as they would be with other constants."""
    machines = Machines.of(fleet(16, kind="B200"))
    found = []
    for sizes in SIZES:
        for layers in (8, 16):
            request = large(shape=replace(shape, layers=layers), batch=128, **sizes)
            plan = make_plan(request, machines.fleet)
            one = Observation(
                request=request,
                shape=request.shape,
                trial=trial_of(plan),
                machines=machines,
                seconds=1.0,
            )
            found.append(replace(one, seconds=one.expected(truth)))
    return found


def error(seen, constants):
    return max(abs(one.expected(constants) / one.seconds - 1) for one in seen)


def test_steps_made_with_other_constants_are_met_after_calibration():
    seen = steps()
    assert error(seen, Constants()) > 0.1
    assert error(seen, calibrate(seen, Constants(), freedom=2.0)) < 0.03


def test_a_size_that_was_left_out_is_met_too():
    seen = steps()
    found = calibrate(seen[:-4], Constants(), freedom=2.0)
    assert error(seen[-4:], found) < 0.08


def test_one_odd_step_does_not_pull_the_rest():
    seen = steps()
    odd = [replace(seen[0], seconds=3 * seen[0].seconds), *seen[1:]]
    assert error(seen[1:], calibrate(odd, Constants(), freedom=2.0)) < 0.05


def test_without_steps_nothing_changes():
    assert calibrate([], TRUTH) == TRUTH


def test_steps_that_are_met_already_change_nothing_much():
    seen = steps(Constants())
    assert calibrate(seen, Constants()).matmul == pytest.approx(Constants().matmul, rel=0.01)


def test_shares_stay_below_one():
    fast = [replace(one, seconds=one.seconds / 20) for one in steps()]
    found = calibrate(fast, Constants(), freedom=5.0)
    assert max(found.matmul, found.node, found.network, found.memory) <= 0.98
