import math

import pytest

from cnai.core.errors import SpecError
from cnai.serve import Sampling


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("seed", 2**63),
        ("stop", ("a", "")),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(key, value):
    with pytest.raises(SpecError, match=key) as caught:
        Sampling(**{key: value})
    assert caught.value.where == key


def test_the_ends_of_the_ranges_are_allowed():
    Sampling(max_tokens=1, temperature=2, top_p=1, seed=-(2**63))
