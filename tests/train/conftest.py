from collections.abc import Iterator

import pytest

from cnai.cluster.local import LocalGang
from training_case import new_gang


@pytest.fixture(scope="module")
def gang() -> Iterator[LocalGang]:
    with new_gang() as started:
        yield started
