"""The spec: what a user may ask for, with types, ranges, defaults and meanings in one place.

Each key's docstring is what `ai-cli explain KEY` prints and what the generated reference shows.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import Field

from cnai.core.adapters import Adapters
from cnai.core.shape import DecoderShape
from cnai.core.spec.section import FUNCTION, LARGEST_INT, Fraction, Positive, Section

SPEC_VERSION = 1


class Model(Section):
    """The model: a decoder's shape, a Hugging Face folder, or a function that builds a module."""

    layers: Positive = 4
    """Transformer layers."""
    width: Positive = 128
    """Hidden size; must divide by `heads` unless `head_width` is given."""
    heads: Positive = 4
    """Query heads of attention."""
    kv_heads: Positive | None = None
    """Key and value heads (grouped-query attention); none = as many as `heads`."""
    ffn_width: Positive | None = None
    """Inner size of the feed-forward part; none = 8/3 of `width`, rounded up to a multiple
    of 32."""
    vocab: Annotated[int, Field(ge=257, le=LARGEST_INT)] = 4096
    """Tokens in the vocabulary, also the size of a tokenizer that is trained for the run."""
    sequence: Annotated[int, Field(ge=2, le=LARGEST_INT)] = 128
    """Tokens in a training sequence, and the longest context when serving."""
    rope_theta: Annotated[float, Field(gt=0)] = 10000.0
    """Base of the rotary position frequencies."""
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5
    """Added to the mean square in RMSNorm."""
    tied_head: bool = True
    """Whether the output head shares the embedding's weight."""
    head_width: Positive | None = None
    """Size of one head of attention; none = `width` over `heads`."""
    attention_bias: bool = False
    """Whether queries, keys and values have a bias, as in Qwen2."""
    qk_norm: bool = False
    """Whether queries and keys are normed head by head, as in Qwen3."""
    experts: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Experts of a sparse layer (mixture of experts): a Qwen3-MoE with `qk_norm`, else a Mixtral;
    0 = all layers are dense."""
    experts_per_token: Positive = 2
    """Experts that each token goes through."""
    expert_width: Positive | None = None
    """Inner size of an expert; none = `ffn_width`."""
    sparse_step: Positive = 1
    """Every so many layers one has experts, the last of each such group; 1 = all have."""
    dense_layers: tuple[int, ...] = ()
    """Indices of layers that have no experts all the same."""
    normed_choice: bool = True
    """Whether the weights of the experts that a token goes through add up to 1."""
    huggingface: str | None = None
    """Folder with a Llama, Mistral, Qwen2, Qwen3, Mixtral or Qwen3-MoE model in Hugging Face
    layout to start from; it fixes the shape."""
    module: str | None = None
    """`package.module:function` that returns a torch module of your own, alone or with the sharding
    table by which it may be split and cut."""
    loss: str = "cross_entropy"
    """What a module of your own is trained on: `cross_entropy` (of its outputs against the target),
    `squared_error`, `own` (the module is given the target too and returns the loss of each row), or
    `package.module:function` from outputs and target to the loss of each row."""

    def shape(self) -> DecoderShape:
        """Return the decoder's shape with every default worked out."""
        ffn_width = self.ffn_width or 32 * math.ceil(self.width * 8 / 3 / 32)
        fills_width = self.head_width is None or self.head_width * self.heads == self.width
        return DecoderShape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            ffn_width=ffn_width,
            vocab=self.vocab,
            sequence=self.sequence,
            rope_theta=self.rope_theta,
            norm_eps=self.norm_eps,
            tied_head=self.tied_head,
            attention_bias=self.attention_bias,
            qk_norm=self.qk_norm,
            head_size=None if fills_width else self.head_width,
            **(self._experts(ffn_width) if self.experts else {}),
        )

    def _experts(self, ffn_width: int) -> dict[str, Any]:
        return {
            "experts": self.experts,
            "experts_per_token": self.experts_per_token,
            "expert_width": self.expert_width or ffn_width,
            "sparse_step": self.sparse_step,
            "dense_layers": self.dense_layers,
            "normed_choice": self.normed_choice,
        }


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


class DataParallel(Section):
    """Copies of the model that each take a share of the batch."""

    size: Positive | None = None
    """Copies; none = chosen by the planner."""
    sharding: Literal["auto", "none", "hybrid", "full"] = "auto"
    """Whether the copies share out the parameters (`full`, FSDP), do so in groups (`hybrid`), or
    each hold all (`none`); `auto` = `none` where it fits the memory, else `full`."""
    shard_group: Positive | None = None
    """Copies in a group of hybrid sharding; none = as many as one machine holds."""


class ModelParallel(Section):
    """Ranks over which the weights of one layer are split (tensor parallelism)."""

    size: Positive | None = None
    """Ranks in a group; none = chosen by the planner."""
    split_layer: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Index of the first transformer layer whose weights are split over the group; layers before
    it are replicated inside the group. 0 = all layers are split."""
    sequence: bool = False
    """Whether the group also shares out the positions of the residual stream between the split
    matrices (sequence parallelism): less memory for activations, as many bytes sent."""


class ContextParallel(Section):
    """Ranks that share out the positions of the same sequences (context parallelism)."""

    size: Positive = 1
    """Ranks that each take a part of the positions through the whole model and exchange them for
    heads in attention; must divide the sequence and the heads of a model-parallel rank."""


class ExpertParallel(Section):
    """Ranks that share out the experts of a mixture (expert parallelism)."""

    size: Positive = 1
    """Ranks over which the experts of a layer are spread; tokens travel to them. They are ranks of
    the data and context axes, so this makes no more ranks; it must divide data x context and the
    number of experts."""


class PipelineParallel(Section):
    """Stages into which the layers are cut."""

    stages: Positive | None = None
    """Ranks in the pipeline, each with one stage, or with `virtual` of them; none = chosen by the
    planner."""
    schedule: Literal[
        "1F1B",
        "GPipe",
        "Interleaved1F1B",
        "LoopedBFS",
        "InterleavedZeroBubble",
        "ZBVZeroBubble",
        "DualPipeV",
    ] = "1F1B"
    """Order of forward and backward passes. With several stages a rank there is less idle time;
    the last three compute the gradients of the weights when they would else idle."""
    virtual: Positive | None = None
    """Stages a rank; none = 1, or 2 where the schedule needs them."""
    microbatches: Positive | None = None
    """Pieces into which a rank's share of the batch is cut; none = chosen by the planner."""


class Parallel(Section):
    """How the model lies over ranks. Their number is data x model x pipeline x context."""

    data_parallel: DataParallel = DataParallel()
    model_parallel: ModelParallel = ModelParallel()
    context_parallel: ContextParallel = ContextParallel()
    expert_parallel: ExpertParallel = ExpertParallel()
    pipeline_parallel: PipelineParallel = PipelineParallel()


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
    recompute: Literal["none", "selective", "full"] = "none"
    """Layers that forget their activations and compute them again in backward, which takes a third
    more work and much less memory: none of them, every second one (`selective`) or all."""
    compile: bool = False
    """Whether each layer is compiled (torch.compile): slower to start, faster after. Layers that
    are split over the model-parallel group are not."""
    deterministic: bool = False
    """Whether only kernels that give the same bits every time may be used."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the initial weights and of the order of the data."""
    lora: Lora = Lora()
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

    update_ratio_every: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 10
    """Steps between measurements of update norm over weight norm; 0 = never."""
    prometheus_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of `/metrics` while training; none = off (see `ai-cli monitor`)."""


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
