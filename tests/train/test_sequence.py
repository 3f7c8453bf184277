"""Sharing out the positions of a sequence changes no curve."""

import pytest

from cnai.core.layout import Layout, Sharding
from training_case import curve, plan_of, same

pytestmark = [pytest.mark.dist, pytest.mark.slow]

PLANS = {
    "tp2": plan_of(Layout(model=2, split_sequence=True)),
    "tp2 from layer 2": plan_of(Layout(model=2, split_layer=2, split_sequence=True)),
    "no layer is split": plan_of(Layout(model=2, split_layer=4, split_sequence=True)),
    "tp2 pp2 from layer 1": plan_of(
        Layout(model=2, pipeline=2, split_layer=1, split_sequence=True)
    ),
    "tp2 pp2 from layer 3": plan_of(
        Layout(model=2, pipeline=2, split_layer=3, split_sequence=True)
    ),
    "dp2 tp2 pp2": plan_of(Layout(data=2, model=2, pipeline=2, split_sequence=True)),
    "dp2 tp2 pp2 sharded in a V": plan_of(
        Layout(data=2, model=2, pipeline=2, split_sequence=True),
        schedule="ZBVZeroBubble",
        sharding=Sharding.FULL,
    ),
}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_layout_follows_the_curve_of_one_process(gang, one_process, plan, tied, tmp_path):
    same(curve(gang, tmp_path, PLANS[plan], tied=tied), one_process(tied=tied), 1e-5)


def test_in_bfloat16_the_curve_stays_near(gang, tmp_path):
    whole = curve(gang, tmp_path / "whole", plan_of(Layout()), precision="bfloat16")
    split = curve(gang, tmp_path / "split", PLANS["dp2 tp2 pp2"], precision="bfloat16")
    assert split[0] == pytest.approx(whole[0], rel=0.02)
