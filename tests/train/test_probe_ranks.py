"""The probe of any loop over two ranks: exact norms of shards that are uneven, and of copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.cluster.ranks import Order
from cnai.core.events import RankMeasured
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.vectors import read_vectors
from probe_ranks import alone
from training_case import ENVIRONMENT, ends_of, logs_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]


@pytest.fixture(scope="module")
def ranks() -> Iterator[LocalGang]:
    with LocalGang(server="cnai.train.forkserver", preload=["probe_ranks"]) as gang:
        yield gang


@pytest.mark.parametrize("sharded", [True, False], ids=["fsdp2", "copies"])
def test_the_norms_of_two_ranks_are_those_of_one(
    ranks: LocalGang, tmp_path: Path, sharded: bool
) -> None:
    run = RunFolder.create(tmp_path / "two")
    ranks.start(
        Order(
            target="probe_ranks:be_rank",
            ranks=2,
            payload={"folder": str(run.root), "sharded": sharded},
            logs=run.logs,
            environment=ENVIRONMENT,
            attempt=0,
        )
    )
    assert set(ends_of(ranks).values()) == {0}, logs_of(run)
    alone(str(tmp_path / "one"))
    expected = read_vectors(RunFolder(tmp_path / "one").layers_file)
    found = read_vectors(run.layers_file)
    assert [one.step for one in found] == [1, 2, 3]
    for one, other in zip(found, expected, strict=True):
        for group in ("gradient", "update", "weight"):
            assert one.group(group) == pytest.approx(other.group(group), rel=1e-5)
    hashes = {
        one.weights_hash
        for one in read_events(run)
        if isinstance(one, RankMeasured) and one.step == 0
    }
    assert len(hashes) == 1
