"""The ladder of `ai-cli validate`, with an error planted for each rung."""

from dataclasses import replace
from pathlib import Path

import pytest

from cnai.core.spec import load_spec
from cnai.flows import validate
from cnai.flows.ladder_page import page
from cnai.flows.listener import Silence
from cnai.flows.plan import exact_request, plan_run
from cnai.flows.rungs import Gate, Ladder, Rung, judged
from cnai.flows.shrunk import shrunk, shrunk_layout
from cnai.flows.validate import same_losses, validate_run

SPEC = Path(__file__).parents[2] / "examples" / "01-plan-on-paper" / "run.yaml"
CURVE = {1: 5.0, 2: 4.5, 3: 4.25}


def spec_with(folder, *sets):
    return load_spec(SPEC, sets=[f"output={folder}", *sets]).spec


def split_in_three(folder):
    """Return a spec with a size that divides no heads, as no check of the spec would let through."""
    spec = spec_with(folder)
    model = spec.parallel.model_parallel.model_copy(update={"size": 3})
    parallel = spec.parallel.model_copy(update={"model_parallel": model})
    return spec.model_copy(update={"parallel": parallel})


def small(spec, folder, parallel=None):
    plan = plan_run(spec)
    request = exact_request(spec, plan)
    chosen = shrunk_layout(request, plan) if parallel is None else parallel
    return shrunk(spec, request, chosen, folder, "laid-out")


def test_the_same_curve_is_the_same():
    assert same_losses("loss", CURVE, {step: loss + 4e-6 for step, loss in CURVE.items()}).passed


@pytest.mark.parametrize(
    "other",
    [CURVE | {3: 4.2501}, {1: 5.0, 2: 4.5}, CURVE | {4: 4.0}, {}],
    ids=["a wrong loss", "a step too few", "a step too many", "nothing"],
)
def test_another_curve_is_caught_and_says_where_to_look(other):
    gate = same_losses("loss", CURVE, other)
    assert gate.passed is False
    assert "sizes of `parallel`" in gate.hint


def test_a_rung_with_one_bad_gate_failed():
    good = Gate(name="a", expected="b", measured="c", passed=True)
    assert judged(1, "x", [good], 0.0).status == "passed"
    assert judged(1, "x", [good, replace(good, passed=False)], 0.0).status == "failed"


def test_a_size_that_does_not_divide_the_heads_ends_on_paper(tmp_path):
    ladder = validate_run(split_in_three(tmp_path), Silence())
    assert [rung.status for rung in ladder.rungs] == ["failed", "skipped", "skipped", "skipped"]
    (gate,) = ladder.failed
    assert "does not divide" in gate.measured
    assert "set it to" in gate.hint


def test_memory_over_the_limit_ends_on_paper(tmp_path):
    ladder = validate_run(spec_with(tmp_path, "resources.device=A100-40GB"), Silence())
    (gate,) = ladder.failed
    assert "no plan fits" in gate.measured
    assert "fits with" in gate.hint


def test_the_evidence_is_kept(tmp_path):
    ladder = validate_run(split_in_three(tmp_path), Silence())
    assert "does not divide" in (Path(ladder.folder) / "evidence.json").read_text()


def test_a_page_shows_gates_and_hides_no_markup():
    gate = Gate(name="<b>", expected="1 < 2", measured="3", passed=False, hint="change & try")
    rung = Rung(number=0, name="on paper", status="failed", gates=(gate,))
    html = page(Ladder(name="x", layout="dp1", folder="f", rungs=(rung,)))
    assert "&lt;b&gt;" in html
    assert "change &amp; try" in html
    assert "<b>" not in html


@pytest.mark.parametrize(
    ("sets", "sizes"),
    [
        ([], (2, 2, 2)),
        (["parallel.data_parallel.size=128", "parallel.model_parallel.size=1",
          "parallel.pipeline_parallel.stages=1", "train.recompute=full"], (2, 1, 1)),
        (["parallel.data_parallel.size=32", "parallel.model_parallel.size=4",
          "parallel.pipeline_parallel.stages=1", "train.recompute=full"], (2, 2, 1)),
    ],
    ids=["all axes", "copies", "copies of groups"],
)  # fmt: skip
def test_the_small_copy_has_the_axes_of_the_layout(tmp_path, sets, sizes):
    copy = small(spec_with(tmp_path, *sets), tmp_path)
    plan = plan_run(copy)
    assert (plan.layout.data, plan.layout.model, plan.layout.pipeline) == sizes


def test_the_small_copy_keeps_schedule_and_split_layer(tmp_path):
    spec = spec_with(
        tmp_path, "parallel.pipeline_parallel.schedule=Interleaved1F1B", "train.recompute=full",
        "train.batch=64",
    )  # fmt: skip
    plan = plan_run(small(spec, tmp_path))
    assert (plan.schedule, plan.virtual, plan.layout.split_layer) == ("Interleaved1F1B", 2, 1)


@pytest.mark.slow
@pytest.mark.dist
def test_a_sound_plan_climbs_to_the_machines_that_are_missing(tmp_path):
    ladder = validate_run(spec_with(tmp_path), Silence())
    assert [rung.status for rung in ladder.rungs] == ["passed", "passed", "passed", "planned"]
    assert "device hours" in ladder.rungs[3].cost


@pytest.mark.slow
@pytest.mark.dist
def test_a_wrong_loss_under_the_layout_is_caught(tmp_path, monkeypatch):
    right = validate.shrunk

    def wrong(spec, request, parallel, folder, name):
        found = right(spec, request, parallel, folder, name)
        if name != "laid-out":
            return found
        return found.model_copy(update={"train": found.train.model_copy(update={"seed": 1})})

    monkeypatch.setattr(validate, "shrunk", wrong)
    ladder = validate_run(spec_with(tmp_path), Silence())
    assert [rung.status for rung in ladder.rungs] == ["passed", "failed", "skipped", "skipped"]
    assert "loss under the layout" in [gate.name for gate in ladder.failed]


@pytest.mark.slow
def test_too_little_memory_for_the_full_model_is_caught_on_the_second_rung(tmp_path):
    plan = plan_run(spec_with(tmp_path))
    poor = spec_with(tmp_path, "resources.device_memory=90 GB")
    gates = validate.without_memory(poor, plan)
    assert [gate.name for gate in gates if not gate.passed] == ["memory of the fullest rank"]
