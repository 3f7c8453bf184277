from cnai.core.spec import load_spec
from cnai.flows.lighter import lighter
from cnai.flows.plan import plan_run
from cnai.flows.scale import with_sizes

BIG = {
    "model": {"layers": 32, "width": 4096, "heads": 32, "vocab": 32000, "sequence": 4096},
    "parallel": {"data_parallel": {"size": 8, "sharding": "none"}},
    "train": {"batch": 64},
    "resources": {"nodes": 1, "devices_per_node": 8, "device": "H200-141GB"},
}
SMALL = {
    "model": {"layers": 2, "width": 32, "heads": 2, "vocab": 300, "sequence": 32},
    "train": {"batch": 4},
}


def of(plain):
    spec = load_spec(plain).spec
    return spec, plan_run(spec)


def test_a_big_model_is_proposed_a_layout_that_needs_clearly_less():
    plain = {**BIG, "parallel": {"data_parallel": {"size": 8}}}
    spec, plan = of(plain)
    patch = lighter(spec, plan)
    after = plan_run(with_sizes(spec, dict(patch)))
    assert after.peak.memory.total_bytes < 0.9 * plan.peak.memory.total_bytes


def test_where_nothing_helps_nothing_is_proposed():
    assert lighter(*of(SMALL)) is None


def test_what_is_proposed_leaves_the_training_as_it_is():
    from cnai.core.spec import is_free

    spec, plan = of({**BIG, "parallel": {"data_parallel": {"size": 8}}})
    assert all(is_free(key) for key in lighter(spec, plan))
