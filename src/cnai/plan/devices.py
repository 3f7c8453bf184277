"""Devices: memory, rates and links, read from the data files beside this one.

Dense rates without sparsity; links are one direction of the link in a node, and one network card a
device between nodes. Memory is what the driver reports, which is less than the name says. Each file
names its source. Files of the same form in the folder that `CNAI_HARDWARE` names add devices, or
replace those of the same name.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from cnai.core.errors import SpecError
from cnai.plan.constants import NAMES, Constants

GIB = 2**30
TERA = 1e12
GIGA = 1e9
FOLDER = "CNAI_HARDWARE"
_WIDE = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of device; for `cpu` the rates are those of one core.

    Attributes:
        memory_bytes: Memory of one device; 0 for `cpu`, where the machine says it.
        teraflops: Dense matrix products, 1e12 a second, by format: `bfloat16`, `float16`, `float32`
            without reduced-precision tensor cores, and where the device has them `fp8` and `fp4`.
        memory_bytes_per_second: Rate of its memory.
        node_bytes_per_second: One direction of the link to another device of the same node.
        network_bytes_per_second: One direction of the device's share of the node's network.
        fused_norm: Whether RMSNorm runs as one kernel; otherwise it keeps its unscaled output too.
        overhead_bytes: Memory taken before the first weight: driver context, libraries, buffers of
            the collectives.
        devices_per_node: Devices that a node of this kind usually has.
        watts: Power of one device at work.
        price_per_hour: Dollars for one device, about.
        constants: Shares of these rates that programs reach, and fixed times.
        error_percent: Mean error of the model on published steps of such devices; None = there
            were none.
        calibrated: The same from more measured steps of one cluster; None = there were none.
    """

    name: str
    memory_bytes: int
    teraflops: dict[str, float] = field(hash=False)
    memory_bytes_per_second: float
    node_bytes_per_second: float
    network_bytes_per_second: float
    fused_norm: bool = True
    overhead_bytes: int = 2 * GIB
    devices_per_node: int = 8
    watts: float = 0.0
    price_per_hour: float = 0.0
    constants: Constants = field(default_factory=Constants)
    calibrated: Constants | None = None
    error_percent: float | None = None

    @property
    def bf16_flops(self) -> float:
        """Dense matrix products a second in bfloat16 with float32 sums."""
        return self.teraflops["bfloat16"] * TERA

    @property
    def fp32_flops(self) -> float:
        """The same in float32."""
        return self.teraflops["float32"] * TERA

    def flops(self, precision: str) -> float:
        """Peak rate of matrix products in a precision; of narrow ones that of the rest."""
        return self.teraflops[_WIDE.get(precision, "bfloat16")] * TERA

    def narrow_flops(self, precision: str) -> float | None:
        """Peak rate of the layers' products in 8 or 4 bits; None = the precision has none."""
        if precision in _WIDE:
            return None
        rate = self.teraflops.get("fp4" if "fp4" in precision else "fp8")
        return rate * TERA if rate else None


def read_device(text: str, where: str) -> Device:
    """Read the data file of a device.

    Raises:
        SpecError: It is no TOML, or a key is missing, unknown or no number above 0.
    """
    try:
        raw = tomllib.loads(text)
        rates, links = dict(raw["teraflops"]), raw["gigabytes_per_second"]
        constants, calibrated = (dict(raw.get(name, {})) for name in ("constants", "calibrated"))
        _check_numbers([rates, links, constants, calibrated], {*constants, *calibrated})
        return Device(
            name=str(raw["name"]),
            memory_bytes=int(raw["memory_gib"] * GIB),
            teraflops={name: float(rates[name]) for name in ("bfloat16", "float32")}
            | {str(name): float(rate) for name, rate in rates.items()},
            memory_bytes_per_second=links["memory"] * GIGA,
            node_bytes_per_second=links["node"] * GIGA,
            network_bytes_per_second=links["network"] * GIGA,
            fused_norm=bool(raw.get("fused_norm", True)),
            overhead_bytes=int(raw.get("overhead_mib", 2048) * 2**20),
            devices_per_node=int(raw.get("devices_per_node", 8)),
            watts=float(raw.get("watts", 0.0)),
            price_per_hour=float(raw.get("price_per_hour", 0.0)),
            error_percent=raw.get("error_percent"),
            constants=Constants().changed(constants),
            calibrated=Constants().changed(calibrated) if calibrated else None,
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"cannot read the device: {error!r}" if isinstance(error, KeyError) else str(error),
            where=where,
            hint="it needs name, memory_gib, [teraflops] with bfloat16 and float32, and "
            "[gigabytes_per_second] with memory, node and network; see docs/rooms/plan.md",
        ) from error


def _check_numbers(tables: list[dict[str, float]], names: set[str]) -> None:
    if unknown := names - set(NAMES):
        raise ValueError(f"unknown constant `{min(unknown)}`")
    if min(float(number) for table in tables for number in table.values()) <= 0:
        raise ValueError("rates, links and constants must be above 0")


def hardware_folder() -> Path:
    """Return where the data files of the package lie."""
    return Path(str(resources.files("cnai.plan"))) / "hardware"


def _known() -> Iterator[Device]:
    """Yield the devices of the package, then those of the user, which replace them."""
    own = os.environ.get(FOLDER)
    folders = [hardware_folder(), *([Path(own)] if own else [])]
    for path in (path for folder in folders for path in sorted(folder.glob("*.toml"))):
        yield read_device(path.read_text(encoding="utf-8"), str(path))


DEVICES: dict[str, Device] = {device.name: device for device in _known()}


def device_named(name: str) -> Device:
    """Return a device of the table.

    Raises:
        SpecError: The table does not have it.
    """
    if name in DEVICES:
        return DEVICES[name]
    lower = {known.lower(): known for known in DEVICES}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    guess = f"did you mean `{lower[close[0]]}`? " if close else ""
    raise SpecError(
        f"unknown device `{name}`",
        where="resources.device",
        hint=f"{guess}known are: {', '.join(DEVICES)}",
    )


def device_memory_bytes(name: str) -> int:
    """Return the memory of a device of the table.

    Raises:
        SpecError: The table does not have it, or it is `cpu`, whose memory is the machine's.
    """
    device = device_named(name)
    if not device.memory_bytes:
        raise SpecError(
            f"the memory of a `{name}` machine is not known",
            where="resources.device_memory",
            hint="set it, for instance `resources.device_memory: 64 GiB`",
        )
    return device.memory_bytes
