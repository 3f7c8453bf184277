"""The spec: what a user may ask for, with types, ranges, defaults and meanings in one place.

Each key's docstring is what `ai-cli explain KEY` prints and what the generated reference shows.
The sections `model`, `parallel`, `train.balance` and `monitor.reactions` are in files of their own.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from cnai.core.adapters import Adapters
from cnai.core.spec.balance_section import Balance
from cnai.core.spec.model_section import Model
from cnai.core.spec.parallel_section import Parallel
from cnai.core.spec.reactions_section import Reactions
from cnai.core.spec.section import FUNCTION, LARGEST_INT, Fraction, Positive, Section

SPEC_VERSION = 1


class Data(Section):
    """What to train on, and the store in which text lies packed."""

    source: str = "pydocs"
    """`pydocs` (docstrings and comments of this Python's standard library), a folder of text files,
    a .jsonl, .parquet or text file, or `package.module:function` that returns a dataset of your own
    for a module of your own: indexable, with a length, its items arrays, or tuples or dicts of
    arrays."""
    text_field: str = "text"
    """Field or column that holds the text of a JSONL or Parquet file."""
    store: str | None = None
    """Where the packed tokens lie: `file://`, `s3://bucket/prefix`, `bos://bucket/prefix`; none =
    `data` in the run folder."""
    endpoint: str | None = None
    """Address of an S3-compatible service, for instance `http://localhost:9000`; none = the
    provider's own."""
    tokenizer: str | None = None
    """A tokenizer.json to use instead of training one on the source."""
    validation_fraction: Fraction = 0.05
    """Share of the documents (or items) kept for validation; none is ever in both parts."""
    block_rows: Positive = 256
    """Rows in one block of the store, the unit that is read, checked and cached."""

    @property
    def function(self) -> str | None:
        """The function that returns a dataset of the user's own; None = the source is text."""
        return self.source if re.fullmatch(FUNCTION, self.source) else None


class Lora(Section):
    """Training of low-rank adapters beside frozen weights (LoRA) instead of the weights."""

    rank: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Inner size of the adapters; 0 = the weights themselves are trained."""
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """Scale of what the adapters add, times `rank`."""
    targets: tuple[
        Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], ...
    ] = ("q_proj", "v_proj")
    """Matrices of every layer that get adapters."""

    def adapters(self) -> Adapters | None:
        """Return what is trained beside the frozen weights; None = the weights are trained."""
        if not self.rank:
            return None
        return Adapters(rank=self.rank, alpha=self.alpha, targets=self.targets)


class Train(Section):
    """The training itself."""

    steps: Positive = 200
    """Optimizer steps."""
    tokens: Positive | None = None
    """Tokens to train on instead of a number of steps; rounded up to whole steps."""
    batch: Positive = 16
    """Sequences in a step over all ranks."""
    learning_rate: Annotated[float, Field(gt=0, lt=10)] = 3e-3
    """Peak learning rate."""
    warmup_steps: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 10
    """Steps over which the rate rises from 0."""
    schedule: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    """How the rate falls after the warm-up; `wsd` keeps it (stable) and lets it fall at the end
    (decay)."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the steps, at the end, over which `wsd` falls."""
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Rate at the last step as a share of the peak."""
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    """Update rule; `muon` updates the matrices of the layers by orthogonalised momentum, at a scale
    that AdamW's learning rate fits, and everything else by AdamW."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Decay of Muon's average."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (
        0.9,
        0.95,
    )
    """Decay of AdamW's two averages."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Decay of the matrices (not of norms)."""
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest norm of the gradient; none = no clipping."""
    z_loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Weight of the squared log-partition of the logits in what is minimised, which keeps them from
    drifting, for instance 1e-4; the loss that is shown is without it."""
    balance_loss: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    """Weight of the loss that keeps the experts of a mixture evenly used, sequence by sequence; it
    is minimised, but not shown. Without experts it does nothing."""
    evaluate_every: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Steps between measurements on validation sequences, and one after the last; 0 = never."""
    evaluate_sequences: Positive = 64
    """Validation sequences in such a measurement."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of the matrix products; weights and optimizer stay in float32."""
    float8: bool = False
    """Whether the matrices of the layers are multiplied in 8-bit floats, on GPUs that can (on a CPU
    it is played, slowly); needs `precision: bfloat16` and the extra `float8`. Layers that are split
    over the model-parallel group are not."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Layers that forget their activations and compute them again in backward, which takes a third
    more work and much less memory: none of them, every second one (`selective`) or all."""
    documents: Literal["joined", "apart"] = "joined"
    """Whether a token sees all that stands before it in its row (`joined`) or its own document
    alone (`apart`); apart, the rows of a step are dealt out so that ranks and micro-batches get
    about the same work."""
    compile: bool = False
    """Whether each layer is compiled (torch.compile): slower to start, faster after. Layers that
    are split over the model-parallel group are not."""
    deterministic: bool = False
    """Whether only kernels that give the same bits every time may be used."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the initial weights and of the order of the data."""
    lora: Lora = Lora()
    balance: Balance = Balance()
    max_restarts: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 3
    """How often a run may be started again after it lost a rank."""
    timeout_seconds: Positive = 300
    """Longest wait for another rank before a step counts as hung."""
    elastic: bool = False
    """Whether a run whose machines have become fewer goes on with fewer ranks, on the same curve,
    and grows back when they return; otherwise it waits for its own layout."""
    give_up_rank_after: Positive = 2
    """Losses of the same rank after which an elastic run goes on without its place."""
    regrow_seconds: Annotated[float, Field(ge=0)] = 300.0
    """Shortest time before an elastic run that has shrunk tries to grow back; doubled each time
    that ranks are given up again."""


class Resources(Section):
    """The machines."""

    on: Literal["local", "kubernetes"] = "local"
    """Where to run; the flag `--on` overrides it."""
    ranks: Positive | None = None
    """Ranks in all; none = the product of the parallel sizes, or what the machine has."""
    nodes: Positive = 1
    """Machines, for a plan on a fleet other than this machine."""
    devices_per_node: Positive | None = None
    """Devices on one machine; none = what this machine has, else ranks over nodes."""
    device: str = "auto"
    """`auto` (this machine), `cpu`, or a device such as `A100-80GB` or `H100-80GB`."""
    device_memory: str | None = None
    """Memory of one device such as `80 GB`; none = known from `device`."""


class Checkpoint(Section):
    """Saved states from which a run goes on."""

    every_steps: Positive = 50
    """Steps between checkpoints; the last step is always saved."""
    keep: Positive = 2
    """Newest checkpoints kept."""
    grace_seconds: Annotated[float, Field(gt=0)] = 120.0
    """Longest time from a request to stop (Ctrl-C, SIGTERM, a preemption notice) until the ranks
    are ended, whether or not the last checkpoint is written."""
    mode: Literal["async", "sync"] = "async"
    """`async`: training goes on while a copy of the state is written, which takes as much memory
    again as the state; `sync`: training waits. The last checkpoint is always waited for."""


class Monitor(Section):
    """What is watched while training."""

    update_ratio_every: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 1
    """Steps between measurements of update norm over weight norm; 0 = never."""
    layers_every: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 1
    """Steps between records of the gradient of every parameter, and of its weights and update as
    often as `monitor.update_ratio_every` says; 0 = no layer is recorded."""
    activations_every: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 10
    """Steps between measurements of what flows between the modules, on a sample of the rows; 0 =
    never."""
    ranks_every: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 10
    """Steps between measurements that each rank makes of itself: memory, hashes of its batches and
    of its weights, which copies must have in common; 0 = never."""
    prometheus_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of `/metrics` while training; none = off (see `ai-cli monitor`)."""
    stall_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Shortest time without a step after which the ranks are asked where they stand; it is never
    shorter than ten usual steps. A rank that hangs is named, and the ranks are started again."""
    reactions: Reactions = Reactions()


class Compress(Section):
    """Compression of the trained model."""

    enabled: bool = True
    """Whether `ai-cli run` compresses the model."""
    precision: Literal["int8"] = "int8"
    """Number format of the compressed weights."""
    max_loss: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Largest relative rise of the validation perplexity; more is refused with exit code 6."""
    validation_sequences: Annotated[int, Field(ge=2, le=LARGEST_INT)] = 64
    """Validation sequences on which the loss is measured."""


class Serve(Section):
    """The server."""

    enabled: bool = True
    """Whether `ai-cli run` serves the model and sends it a request."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 = any free one."""
    prompt: str = "Return the"
    """Prompt of the request that `ai-cli run` sends."""
    max_tokens: Positive = 32
    """Tokens generated when a request does not say."""


class RunSpec(Section):
    """One run, from data to a served model."""

    version: Annotated[int, Field(ge=1)] = SPEC_VERSION
    """Version of this format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    """Name of the run and of its folder."""
    output: str = "runs"
    """Folder that holds the run folders."""
    model: Model = Model()
    data: Data = Data()
    parallel: Parallel = Parallel()
    train: Train = Train()
    resources: Resources = Resources()
    checkpoint: Checkpoint = Checkpoint()
    monitor: Monitor = Monitor()
    compress: Compress = Compress()
    serve: Serve = Serve()

    @property
    def steps(self) -> int:
        """Optimizer steps, worked out from `train.tokens` when that is given."""
        if self.train.tokens is None:
            return self.train.steps
        return -(-self.train.tokens // (self.train.batch * self.model.sequence))
