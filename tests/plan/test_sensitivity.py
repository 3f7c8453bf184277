from dataclasses import replace

from cnai.plan import make_plan
from cnai.plan.sensitivity import sensitivity
from plan_cases import LARGE, fleet, large, small


def changes(request, machines):
    return {one.what: one for one in sensitivity(request, machines, make_plan(request, machines))}


REQUEST = large(shape=replace(LARGE, layers=8), batch=64, data=8, model=4, pipeline=1, ranks=32)


def test_faster_parts_never_make_a_step_slower():
    found = changes(REQUEST, fleet(4))
    assert min(one.gain for name, one in found.items() if "node" not in name) >= 1


def test_the_network_does_not_matter_on_one_node():
    request = replace(REQUEST, data=2, ranks=8, batch=16)
    assert changes(request, fleet(1, kind="B200"))["25% faster network"].gain == 1


def test_most_comes_first():
    found = list(changes(REQUEST, fleet(4)).values())
    assert found == sorted(found, key=lambda one: -one.gain)


def test_another_node_is_searched():
    request = replace(REQUEST, batch=320)
    assert changes(request, fleet(4))["another node"].gain > 1


def test_another_node_that_the_batch_cannot_feed_is_left_out():
    assert "another node" not in changes(replace(REQUEST, batch=64, data=16, ranks=64), fleet(8))


def test_of_a_plan_without_a_time_nothing_is_said():
    request = small(data=1, model=1, pipeline=1)
    plan = replace(make_plan(request, fleet()), estimate=None)
    assert sensitivity(request, fleet(), plan) == ()
