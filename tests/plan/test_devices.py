import pytest

from cnai.core.errors import SpecError
from cnai.plan import DEVICES, device_memory_bytes, device_named


def test_a_device_is_found_by_its_name():
    assert device_named("H100-80GB") is DEVICES["H100-80GB"]


def test_a_typo_gets_a_guess_and_the_list():
    with pytest.raises(SpecError) as caught:
        device_named("a100_80gb")
    assert "did you mean `A100-80GB`" in caught.value.hint
    assert "B200" in caught.value.hint


@pytest.mark.parametrize("name", [name for name in DEVICES if "-" in name and name.endswith("GB")])
def test_a_device_reports_a_little_less_memory_than_its_name_says(name):
    named = int(name.split("-")[1].removesuffix("GB"))
    assert 0.9 * named < device_memory_bytes(name) / 2**30 <= named


def test_the_memory_of_a_cpu_machine_must_be_given():
    with pytest.raises(SpecError) as caught:
        device_memory_bytes("cpu")
    assert caught.value.where == "resources.device_memory"


@pytest.mark.parametrize("device", DEVICES.values(), ids=str)
def test_links_in_a_node_are_at_least_as_fast_as_between_nodes(device):
    assert device.node_bytes_per_second >= device.network_bytes_per_second


def test_bfloat16_is_taken_where_it_is_asked_for():
    device = DEVICES["A100-80GB"]
    assert device.flops("bfloat16") == 312e12
    assert device.flops("float32") == 19.5e12
