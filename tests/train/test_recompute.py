"""Computing activations twice changes no number."""

import pytest

from cnai.core.layout import Layout, Sharding
from cnai.core.recompute import Recompute
from training_case import curve, plan_of, same

pytestmark = [pytest.mark.dist, pytest.mark.slow]
MODES = ["selective", "full"]
ALL_AXES = Layout(data=2, model=2, pipeline=2, split_sequence=True)


@pytest.mark.parametrize("mode", MODES)
def test_one_process_gives_the_same_bits(gang, one_process, mode, tmp_path):
    assert curve(gang, tmp_path, plan_of(Layout()), recompute=mode) == one_process()


@pytest.mark.parametrize("mode", MODES)
def test_all_axes_give_the_same_curve(gang, one_process, mode, tmp_path):
    same(curve(gang, tmp_path, plan_of(ALL_AXES), recompute=mode), one_process(), 1e-5)


def test_sharded_weights_are_gathered_again(gang, one_process, tmp_path):
    plan = plan_of(Layout(data=2, pipeline=2), sharding=Sharding.FULL, schedule="Interleaved1F1B")
    same(curve(gang, tmp_path, plan, recompute="full"), one_process(), 1e-6)


def test_bfloat16_gives_the_same_bits(gang, tmp_path):
    kept = curve(gang, tmp_path / "kept", plan_of(Layout()), precision="bfloat16")
    again = curve(
        gang, tmp_path / "again", plan_of(Layout()), precision="bfloat16", recompute="full"
    )
    assert again == kept


def test_every_second_layer_is_selected():
    covered = [[layer for layer in range(4) if mode.covers(layer)] for mode in Recompute]
    assert covered == [[], [1, 3], [0, 1, 2, 3]]
