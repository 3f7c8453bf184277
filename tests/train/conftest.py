from collections.abc import Callable, Iterator
from functools import cache

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.layout import Layout
from training_case import SHAPE, Curve, curve, new_gang, plan_of


@pytest.fixture(scope="module")
def gang() -> Iterator[LocalGang]:
    with new_gang() as started:
        yield started


@pytest.fixture(scope="module")
def one_process(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Curve]:
    """The curve of one process, for a number of layers, with the head tied or not."""

    @cache
    def curve_of(layers: int = SHAPE.layers, tied: bool = True) -> Curve:
        plan = plan_of(Layout(), layers=layers)
        return curve(gang, tmp_path_factory.mktemp("one"), plan, tied=tied)

    return curve_of
