"""The probe of a plain loop, in one process."""

import math

import pytest
import torch
from torch import nn

from cnai.core.events import Finding, RankMeasured, RankReady, StepDone
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.vectors import LayersMeasured, read_vectors
from cnai.train.probe import Probe
from cnai.train.probe_trainer import ProbeSettings


def model_of(activation=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), activation(), nn.Linear(8, 3))


def train(model, events, *, steps=3, rule=None, break_at=None, **more):
    """Train a plain loop with the probe in it."""
    optimizer = rule or torch.optim.AdamW(model.parameters(), lr=1e-2)
    probe = Probe(model, optimizer, into=events.append, **more)
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    for step in range(steps):
        probe.saw((x.numpy() + step, y.numpy()))
        loss = nn.functional.cross_entropy(model(x), y)
        if step == break_at:
            loss = loss * math.inf
        loss.backward()
        optimizer.step()
        probe.done(loss)
        optimizer.zero_grad()
    return probe


def of(kind, events):
    return [one for one in events if isinstance(one, kind)]


def test_a_step_is_told_when_the_next_is_done():
    events = []
    probe = train(model_of(), events, steps=2)
    assert [one.step for one in of(LayersMeasured, events)] == [1]
    probe.close()
    assert [one.step for one in of(LayersMeasured, events)] == [1, 2]


def test_a_step_that_is_not_finite_is_told_at_once():
    events = []
    train(model_of(), events, steps=2, break_at=1)
    assert [one.step for one in of(StepDone, events)] == [1, 2]
    assert not math.isfinite(of(StepDone, events)[1].grad_norm)


def test_the_norms_are_those_that_torch_gives():
    model, events = model_of(), []
    before = [one.detach().clone() for one in model.parameters()]
    rule = torch.optim.SGD(model.parameters(), lr=0.5)
    train(model, events, steps=1, rule=rule).close()
    found = of(LayersMeasured, events)[0]
    after = [one.detach() for one in model.parameters()]
    moved = [float((a - b).norm()) for a, b in zip(after, before, strict=True)]
    assert found.group("weight") == pytest.approx([float(one.norm()) for one in before])
    assert found.group("update") == pytest.approx(moved, rel=1e-5)
    assert found.group("gradient") == pytest.approx([2 * one for one in moved], rel=1e-5)
    assert found.names("gradient") == ("0.weight", "0.bias", "2.weight", "2.bias")


def test_a_parameter_that_is_frozen_has_no_update():
    model, events = model_of(), []
    model[0].weight.requires_grad = False
    train(model, events).close()
    assert [float(one.group("update")[0]) for one in of(LayersMeasured, events)] == [0, 0, 0]
    assert of(RankReady, events)[0].frozen == ("0.weight",)


def test_freezing_need_not_count_as_declared():
    model, events = model_of(), []
    model[0].weight.requires_grad = False
    train(model, events, settings=ProbeSettings(declared_frozen=False))
    assert of(RankReady, events)[0].frozen == ()


def test_a_unit_that_never_fires_is_dead():
    model, events = model_of(), []
    nn.init.constant_(model[0].bias, -100)
    train(model, events).close()
    assert of(LayersMeasured, events)[0].group("dead") == pytest.approx([1.0])


@pytest.mark.parametrize(("activation", "bias"), [(nn.Sigmoid, 50), (nn.Tanh, -50)])
def test_a_unit_at_its_end_is_saturated(activation, bias):
    model, events = model_of(activation), []
    nn.init.constant_(model[0].bias, bias)
    train(model, events).close()
    assert of(LayersMeasured, events)[0].group("saturated") == pytest.approx([1.0])


def test_activations_are_measured_now_and_then():
    events = []
    settings = ProbeSettings(activations_every=2)
    train(model_of(), events, steps=4, settings=settings).close()
    seen = [not math.isnan(one.group("dead")[0]) for one in of(LayersMeasured, events)]
    assert seen == [True, False, True, False]


def test_a_forward_pass_without_gradients_is_not_measured():
    model, events = model_of(), []
    probe = train(model, events, steps=0)
    with torch.no_grad():
        model(torch.full((1, 4), -1e6))
    assert math.isnan(probe._activations.taken("dead")[0])


def test_the_hash_of_a_batch_tells_equal_ones():
    events = []
    settings = ProbeSettings(ranks_every=1)
    probe = train(model_of(), events, steps=2, settings=settings)
    probe.saw(torch.zeros(2, 2))
    probe.saw(torch.zeros(2, 2))
    probe._measure_rank()
    first, second, third = (one.batches for one in of(RankMeasured, events)[1:])
    assert first != second
    assert third[0] == third[1]


def test_a_module_in_the_wrong_mode_shows():
    model, events = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), []
    model.eval()
    train(model, events, steps=0)
    assert of(RankMeasured, events)[0].training == 0


def test_the_steps_of_the_optimizer_are_counted():
    events = []
    train(model_of(), events, settings=ProbeSettings(ranks_every=1))
    assert [one.optimizer_steps for one in of(RankMeasured, events)] == [None, 1, 2, 3]


def test_the_module_where_a_number_broke_is_named():
    model, events = model_of(), []
    probe = train(model, events, steps=0)
    x = torch.ones(2, 4)
    model[1].register_forward_hook(lambda _module, _inputs, out: out / 0)
    assert probe.origin(lambda: model(x)) == "the output of `1`"
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    assert probe.origin(lambda: model(x)) == "the weights of `0`"


def test_what_breaks_in_backward_is_found_by_its_gradient():
    model, events = model_of(), []
    probe = train(model, events, steps=0)
    x = torch.ones(2, 4)
    model(x).sum().backward()
    model[0].weight.grad.fill_(math.nan)
    assert probe.origin(lambda: model(x)) == "the gradient of `0.weight`"


def test_a_run_folder_gets_events_and_vectors(tmp_path):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Probe(model, optimizer, into=tmp_path / "mine", steps=2) as probe:
        for batch in probe.batches([torch.ones(2, 4), torch.zeros(2, 4)]):
            model(batch).sum().backward()
            optimizer.step()
            probe.done(1.0)
    run = RunFolder(tmp_path / "mine")
    assert [one.step for one in of(StepDone, read_events(run))] == [1, 2]
    assert [one.step for one in read_vectors(run.layers_file)] == [1, 2]


def test_a_second_probe_of_a_folder_is_its_second_attempt(tmp_path):
    for attempt in range(2):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Probe(model, optimizer, into=tmp_path, done=attempt) as probe:
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            probe.done(1.0)
    run = RunFolder(tmp_path)
    assert [(one.attempt, one.step) for one in read_vectors(run.layers_file)] == [(0, 1), (1, 2)]


def test_a_full_disk_ends_the_record_and_not_the_training(tmp_path):
    run = RunFolder.create(tmp_path)
    run.layers_file.parent.mkdir()
    run.layers_file.symlink_to("/dev/full")
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Probe(model, optimizer, into=tmp_path) as probe:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            probe.done(1.0)
    events = read_events(run)
    assert [one.step for one in of(StepDone, events)] == [1, 2, 3]
    assert ["no space left" in one.message for one in of(Finding, events)] == [True]
