import pytest

from chain_case import write_spec
from cnai import api
from cnai.core.errors import SpecError


def test_8_bit_floats_without_torchao_are_refused_before_a_rank_starts(place, monkeypatch):
    write_spec(place, {"train.float8": True, "train.precision": "bfloat16"})
    monkeypatch.setattr("cnai.flows.train.find_spec", lambda _: None)
    with pytest.raises(SpecError, match="torchao") as caught:
        api.train("run.yaml")
    assert "cnai[float8]" in caught.value.hint
