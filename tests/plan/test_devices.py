import os
import subprocess
import sys

import pytest

from cnai.core.errors import SpecError
from cnai.plan import DEVICES, device_memory_bytes, device_named
from cnai.plan.devices import read_device


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


GOOD = """
name = "Mine"
memory_gib = 64
[teraflops]
bfloat16 = 100
float32 = 10
[gigabytes_per_second]
memory = 1000
node = 100
network = 10
[constants]
matmul = 0.5
"""


def test_a_file_of_ones_own_makes_a_device():
    device = read_device(GOOD, "mine.toml")
    assert (device.name, device.bf16_flops, device.constants.matmul) == ("Mine", 100e12, 0.5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name =", "nome =", "name"),
        ("node = 100", "node = 0", "above 0"),
        ("matmul", "matmull", "unknown constant `matmull`"),
        ("bfloat16 = 100", "bfloat16 = 'fast'", "fast"),
        ("[teraflops]", "teraflops]", r"line \d"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(old, new, message):
    with pytest.raises(SpecError, match=message) as caught:
        read_device(GOOD.replace(old, new), "mine.toml")
    assert caught.value.where == "mine.toml"


def test_a_folder_of_ones_own_adds_devices(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    code = "from cnai.plan import DEVICES; print(DEVICES['Mine'].memory_bytes)"
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"CNAI_HARDWARE": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(found.stdout) == 64 * 2**30


@pytest.mark.parametrize("device", DEVICES.values(), ids=str)
def test_shares_of_a_peak_are_shares(device):
    constants = device.constants
    shares = (constants.matmul, constants.narrow, constants.attention, constants.memory,
              constants.node, constants.network, constants.overlap)  # fmt: skip
    assert 0 < min(shares) <= max(shares) < 1
