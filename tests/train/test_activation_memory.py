"""Holds the planner's bytes of a layer against what a rank of a real group keeps."""

import json
import os
from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.cluster.ranks import Order
from cnai.core.layout import Layout
from cnai.core.records import to_dict
from cnai.plan.activations import layer_activation_bytes
from cnai.plan.devices import DEVICES
from training_case import BATCH, SHAPE, ends_of, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]


def kept(gang: LocalGang, folder: Path, layout: Layout, layers: int, **train: str) -> int:
    folder.mkdir()
    gang.start(
        Order(
            target="saved_bytes:rank",
            ranks=layout.ranks,
            payload={
                "plan": to_dict(plan_of(layout, layers=layers)), "folder": str(folder),
                "train": train,
            },
            logs=folder,
            environment={
                "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo",
                "PYTHONPATH": os.pathsep.join(
                    str(Path(__file__).parents[2] / name) for name in ("src", "tests")
                ),
            },
            attempt=0,
        )
    )  # fmt: skip
    codes = ends_of(gang)
    assert set(codes.values()) == {0}, (folder / "rank-0.log").read_text()
    return json.loads((folder / "0.json").read_text())


def two_layers(gang: LocalGang, folder: Path, layout: Layout, **train: str) -> float:
    """Bytes that two more layers keep for one token."""
    few = kept(gang, folder / "few", layout, 2, **train)
    more = kept(gang, folder / "more", layout, 4, **train)
    return (more - few) / (BATCH * SHAPE.sequence)


@pytest.mark.parametrize("sequence", [False, True])
def test_a_split_layer_keeps_what_the_planner_says(gang, sequence, tmp_path):
    layout = Layout(model=2, split_sequence=sequence)
    said = layer_activation_bytes(SHAPE, 2, 4, DEVICES["cpu"], split_sequence=sequence)
    assert two_layers(gang, tmp_path, layout) == pytest.approx(2 * said, rel=0.05)


def test_a_layer_that_exchanges_positions_keeps_what_the_planner_says(gang, tmp_path):
    said = layer_activation_bytes(SHAPE, 2, 4, DEVICES["cpu"], exchanged=True)
    found = two_layers(gang, tmp_path, Layout(model=2, context=2))
    assert found == pytest.approx(2 * said / 2, rel=0.05)


@pytest.mark.parametrize("sequence", [False, True])
def test_a_recomputed_layer_keeps_its_input(gang, sequence, tmp_path):
    layout = Layout(model=2, split_sequence=sequence)
    said = 2 * 4 * SHAPE.width // (2 if sequence else 1)
    assert two_layers(gang, tmp_path, layout, recompute="full") == pytest.approx(said)


def test_selective_recomputing_keeps_every_second_layer(gang, tmp_path):
    said = 4 * SHAPE.width + layer_activation_bytes(SHAPE, 1, 4, DEVICES["cpu"])
    found = two_layers(gang, tmp_path, Layout(), recompute="selective")
    assert found == pytest.approx(said, rel=0.05)
