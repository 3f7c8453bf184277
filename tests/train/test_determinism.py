import pytest
import torch

from cnai.core.layout import Layout, Sharding
from cnai.train.determinism import make_deterministic
from training_case import curve, plan_of


@pytest.fixture
def as_before():
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("as_before")
def test_a_kernel_that_may_differ_raises(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    make_deterministic()
    values, places = torch.zeros(4), torch.tensor([0, 0])
    with pytest.raises(RuntimeError, match="deterministic"):
        values.put_(places, torch.ones(2), accumulate=False)


@pytest.mark.dist
@pytest.mark.slow
def test_two_runs_over_all_axes_give_the_same_bits(gang, tmp_path):
    layout = Layout(data=2, model=2, pipeline=2, split_sequence=True)
    plan = plan_of(layout, sharding=Sharding.FULL, schedule="ZBVZeroBubble")
    first = curve(gang, tmp_path / "first", plan, deterministic=True)
    assert curve(gang, tmp_path / "second", plan, deterministic=True) == first
