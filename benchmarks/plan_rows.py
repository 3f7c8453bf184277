"""Rows of published training throughput, read as what the planner would be asked.

A row names hardware, shape, layout and batch; the measured columns may be blank. What the program
of a source does (`Software`) is taken from its papers and documentation. A row that lacks a column
which nothing else tells is skipped, with the reason; what was filled in is said in `assumed`.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from plan_programs import program_of

from cnai.core.errors import CnaiError
from cnai.core.fleet import Fleet, Node
from cnai.core.layout import Layout, Sharding
from cnai.plan.balance import Cuts, balance
from cnai.plan.described import DescribedShape
from cnai.plan.devices import DEVICES, Device
from cnai.plan.machines import Machines
from cnai.plan.request import PlanRequest, Trial

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row that can be predicted.

    Attributes:
        index: Its place in the file, from 0.
        kind: Name of the device.
        hardware_flops: Whether its TFLOP/s count recomputed work.
        measured: What the file says was measured, by column; may be empty.
        recompute_unsaid: Whether nothing says what was recomputed.
        is_bare: Whether its memory is weights, optimizer and activations alone.
        assumed: Columns that were filled in.
    """

    index: int
    source: str
    kind: str
    request: PlanRequest
    shape: DescribedShape
    trial: Trial
    machines: Machines
    memory_gib: float
    measured: dict[str, float]
    oom: bool | None = None
    hardware_flops: bool = False
    recompute_unsaid: bool = False
    is_bare: bool = False
    assumed: tuple[str, ...] = ()

    def on(self, device: Device) -> Machines:
        """Return the row's machines with a device's constants; the row's own links stay."""
        return replace(
            self.machines, device=replace(self.machines.device, constants=device.constants)
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be predicted, and why."""

    index: int
    source: str
    reason: str


class BlankError(ValueError):
    """A column that is needed is blank."""


@dataclass
class _Cells:
    """The cells of a row as numbers, with notes on what was filled in."""

    cells: dict[str, str]
    assumed: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return (self.cells.get(name) or "").strip()

    def maybe(self, name: str) -> float | None:
        found = re.match(r"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?", self.text(name).lstrip("~<>= "))
        return float(found.group().replace(",", "")) if found else None

    def above(self, name: str) -> float | None:
        """Return a number above 0; None = blank, or it cannot be."""
        value = self.maybe(name)
        return value if value and value > 0 else None

    def need(self, name: str) -> int:
        value = self.maybe(name)
        if value is None:
            raise BlankError(f"`{name}` is blank")
        if value < 1:
            raise BlankError(f"`{name}` is {value:g}")
        return int(value)

    def fill(self, name: str, default: int) -> int:
        value = self.maybe(name)
        if value is None or value < 1:
            self.assumed.append(name)
            return default
        return int(value)


MEASURED = ("measured_tflops_per_gpu", "tokens_per_s_per_gpu", "step_time_s", "memory_gb")
_KINDS = (
    ("gb300", "GB300"), ("gb200", "GB200"), ("b300", "B300"), ("b200", "B200"),
    ("h100-96", "H100-96GB-500W"), ("h200", "H200-141GB"), ("h800", "H800-80GB"),
    ("h100", "H100-80GB"), ("a100-40", "A100-40GB"), ("a100", "A100-80GB"), ("a800", "A100-80GB"),
    ("v100-16", "V100-16GB"), ("v100", "V100-32GB"), ("v5p", "TPU-v5p"), ("v5e", "TPU-v5e"),
    ("v4", "TPU-v4"), ("910b", "Ascend-910B"),
)  # fmt: skip


def read_rows(path: Path) -> list[Row | Skipped]:
    """Read every row of a file."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        return [read_row(index, cells) for index, cells in enumerate(csv.DictReader(file))]


def read_row(index: int, cells: dict[str, str]) -> Row | Skipped:
    """Read one row, or say why it cannot be."""
    source = (cells.get("source") or "").strip()
    try:
        return _read(index, source, _Cells(cells))
    except (BlankError, CnaiError) as error:
        return Skipped(index, source, str(error))


def _read(index: int, source: str, cells: _Cells) -> Row:
    notes = cells.text("notes").lower()
    if "lora" in source.lower() or "lora" in notes or "adapter on" in source.lower():
        raise BlankError("tunes adapters, of which the row does not say the size")
    if "vllm" in source.lower() or "inference" in source.lower():
        raise BlankError("not training")
    program = program_of(source, notes, cells.text("precision").lower(), cells.text("hardware"))
    shape = _stretched(_shape(cells, program.gated), cells)
    device, per_node = _device(cells)
    ranks = cells.need("n_gpus")
    layout, sharding = _layout(cells, ranks, program.shards_weights)
    precision = _precision(cells, source)
    rows, count = _pieces(cells, layout)
    recompute = _recompute(cells, program.recompute)
    software = program.software
    layout = replace(
        layout, split_sequence=program.sequence_parallel(cells.text("notes"), recompute)
    )
    virtual = cells.fill("virtual_pp", 1) if cells.text("virtual_pp") else 1
    virtual = virtual if shape.layers >= layout.pipeline * virtual and layout.pipeline > 1 else 1
    trial = Trial(
        layout=layout,
        cuts=_cuts(shape.layers, layout.pipeline * virtual),
        microbatches=count,
        rows=rows,
        schedule="Interleaved1F1B" if virtual > 1 else "1F1B",
        sharding=sharding,
        shard_group=_shard_group(sharding, layout, per_node),
    )
    request = PlanRequest(
        shape=shape,
        batch=rows * count * layout.data,
        sequence=shape.sequence,
        precision=precision,
        context=layout.context,
        expert=layout.expert,
        recompute=recompute,
        software=replace(
            software,
            shards_optimizer=software.shards_optimizer
            or _says(cells, "zero_or_fsdp", "zero-1", "zero-2", "dist-opt"),
        ),
    )
    memory = cells.above("gpu_mem_gb") or round(device.memory_bytes / GIB)
    node = Node(
        name="row", cpus=64, memory_bytes=0, device_kind=device.name, devices=per_node,
        device_memory_bytes=int(memory * GIB),
    )  # fmt: skip
    return Row(
        index=index,
        source=source,
        kind=device.name,
        request=request,
        shape=shape,
        trial=trial,
        machines=Machines(
            fleet=Fleet(nodes=(node,)), device=device, per_node=per_node, cpus_per_node=64
        ),
        memory_gib=memory,
        measured={name: value for name in MEASURED if (value := cells.above(name)) is not None},
        oom={"true": True, "false": False}.get(cells.text("oom").lower()),
        hardware_flops=software.counts_twice,
        is_bare="params+optimizer" in notes,
        recompute_unsaid=not cells.text("recompute") and recompute == "none",
        assumed=tuple(cells.assumed),
    )


def _cuts(layers: int, stages: int) -> Cuts:
    """Cut layers as these programs do, by their number.

    Where embedding and head make the number divide, they take the place of a layer each; else all
    stages but the last ones have as many, rounded up.
    """
    if layers % stages and (layers + 2) % stages == 0 and stages > 1:
        each = (layers + 2) // stages
        ends = [each * (stage + 1) - 1 for stage in range(stages)]
        ends[-1] = layers
        if each > 1:
            return tuple(zip([0, *ends[:-1]], ends, strict=True))
    each = -(-layers // stages)
    ends = [each * (stage + 1) for stage in range(stages)]
    ends[-1] = layers
    if ends[-2:-1] < [layers]:
        return tuple(zip([0, *ends[:-1]], ends, strict=True))
    return balance([1.0] * layers, stages)


def _says(cells: _Cells, name: str, *words: str) -> bool:
    text = cells.text(name).lower()
    return any(word in text for word in words)


def _shape(cells: _Cells, gated: bool) -> DescribedShape:
    width, layers = cells.need("hidden"), cells.need("layers")
    sequence = cells.need("seq_len")
    if cells.maybe("heads") is None and width % 128:
        raise BlankError("`heads` is blank, and the width says nothing about them")
    heads = cells.fill("heads", max(1, width // 128))
    kv_heads = cells.fill("kv_heads", heads)
    ffn = cells.fill("ffn_hidden", 4 * width)
    vocab = cells.fill("vocab", 50257)
    if heads > width or kv_heads > heads:
        raise BlankError(f"{heads} heads of {kv_heads} keys do not go with a width of {width}")
    gated = gated or ffn % width != 0 or kv_heads != heads
    shape = DescribedShape(
        layers=layers, width=width, heads=heads, kv_heads=kv_heads, ffn_width=ffn, vocab=vocab,
        sequence=sequence, gated=gated, tied_head=not gated, biased=not gated,
    )  # fmt: skip
    said = cells.above("params_b")
    if said and not 0.96 < shape.parameters / (said * 1e9) < 1.04:
        rest = said * 1e9 - shape.embedding_parameters - shape.head_parameters
        guess = round(rest / shape.layer_parameters)
        if guess >= 1 and 0.9 < guess / layers < 1.2 and guess != layers:
            cells.assumed.append(f"layers {guess}, from params_b")
            return replace(shape, layers=guess)
    return shape


def _stretched(shape: DescribedShape, cells: _Cells) -> DescribedShape:
    """Give a model that has fewer layers than stages as many, and the inner width that is left."""
    stages, said = int(cells.above("pp") or 1), cells.above("params_b")
    if shape.layers >= stages:
        return shape
    if cells.maybe("ffn_hidden") or not said:
        raise BlankError(f"{shape.layers} layers cannot be laid over {stages} stages")
    rest = (said * 1e9 - shape.embedding_parameters) / stages - shape.attention_parameters
    inner = round(rest / (3 if shape.gated else 2) / shape.width / 128) * 128
    if inner < 128:
        raise BlankError(f"{shape.layers} layers cannot be laid over {stages} stages")
    cells.assumed.append(f"layers {stages} and ffn_hidden {inner}, from pp and params_b")
    return replace(shape, layers=stages, ffn_width=inner)


def _device(cells: _Cells) -> tuple[Device, int]:
    name = cells.text("hardware").lower().replace(" ", "-")
    if not name:
        raise BlankError("`hardware` is blank")
    if "a100" in name and cells.maybe("gpu_mem_gb") == 40:
        name = "a100-40"
    if "v100" in name and cells.maybe("gpu_mem_gb") == 16:
        name = "v100-16"
    kind = next((kind for word, kind in _KINDS if word in name), None)
    if kind is None:
        raise BlankError(f"unknown hardware `{cells.text('hardware')}`")
    device = DEVICES[kind]
    per_node = int(cells.above("gpus_per_node") or device.devices_per_node)
    network = _network(cells.text("interconnect"), per_node)
    if network:
        device = replace(device, network_bytes_per_second=network)
    return device, max(1, per_node)


def _network(text: str, per_node: int) -> float | None:
    """Read bytes a second and device from words such as `1600Gbps/node RoCE`."""
    low = text.lower()
    if "omnipath" in low:
        return 4 * 100e9 / 8 / per_node / 2  # driven by the host, without direct access by GPUs
    found = re.search(r"([\d.]+)\s*gb(?:ps|/s|it/s)", low)
    if not found:
        return None
    rate = float(found.group(1)) * 1e9 / 8
    return rate / per_node if "node" in low and "per gpu" not in low else rate


def _layout(cells: _Cells, ranks: int, shards: bool) -> tuple[Layout, Sharding]:
    model, pipeline = cells.above("tp"), cells.above("pp")
    if model is None or pipeline is None:
        if not shards:
            raise BlankError("`tp` or `pp` is blank")
        model, pipeline = 1, 1
    context = cells.fill("cp", 1) if cells.text("cp") else 1
    model, pipeline = max(1, int(model)), max(1, int(pipeline))
    data = max(1, ranks // (model * pipeline * context))
    said = cells.above("dp")
    if said and said * context * model * pipeline == ranks:
        data = int(said)
    elif said and said * model * pipeline == ranks:
        data = max(1, int(said) // context)
    elif data * model * pipeline * context != ranks:
        context = max(1, ranks // (model * pipeline * data))
    expert = int(cells.above("ep") or 1)
    layout = Layout(data=data, model=model, pipeline=pipeline, context=context)
    if expert > 1 and layout.copies % expert == 0:
        layout = replace(layout, expert=expert)
    word = cells.text("zero_or_fsdp").lower()
    full = "fsdp" in word or "zero-3" in word or (not word and shards)
    if not full or layout.copies == 1:
        return layout, Sharding.NONE
    return layout, Sharding.HYBRID if "hsdp" in word else Sharding.FULL


def _shard_group(sharding: Sharding, layout: Layout, per_node: int) -> int:
    if sharding is not Sharding.HYBRID:
        return 1
    size = max(1, per_node // layout.model)
    return size if layout.copies % size == 0 and size < layout.copies else layout.copies


def _precision(cells: _Cells, source: str) -> str:
    word = cells.text("precision").lower()
    if "fp4" in word:
        return "nvfp4"
    if "mx" in word:
        return "mxfp8"
    if "fp8" in word or "float8" in word or (word == "unspecified" and "bridge" in source.lower()):
        return "fp8"
    if "v100" in cells.text("hardware").lower():
        return "float16"
    if word in {"fp32", "float32", "tf32"}:
        return "float32"
    return "bfloat16"


def _pieces(cells: _Cells, layout: Layout) -> tuple[int, int]:
    """Return sequences in a microbatch, and microbatches of a rank."""
    batch, rows = cells.above("global_batch_seqs"), cells.above("micro_batch")
    if batch is None and rows is None:
        raise BlankError("`global_batch_seqs` and `micro_batch` are blank")
    if batch is None:
        cells.assumed.append("global_batch_seqs")
        return max(1, int(rows or 1)), max(
            1, 4 * (layout.pipeline - 1)
        ) if layout.pipeline > 1 else 1
    share = max(1, round(batch / layout.data))
    if rows is None:
        if layout.pipeline > 1:
            raise BlankError("`micro_batch` is blank, and with it the bubble of the pipeline")
        cells.assumed.append("micro_batch")
        rows = min(share, 4)
    rows = max(1, min(share, int(rows)))
    return rows, max(1, round(share / rows))


def _recompute(cells: _Cells, default: str) -> str:
    word = cells.text("recompute").lower()
    for name in ("selective", "full", "none"):
        if name in word:
            return name
    return default
