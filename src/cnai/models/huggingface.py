"""A decoder in the layout of a Hugging Face folder: names, reading, writing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cnai.core.errors import DataError
from cnai.core.files import saving
from cnai.core.llama_config import CONFIG_FILE, config_of, family_of, read_config, shape_of
from cnai.core.model_folder import WEIGHTS_FILE, damaged, weight_files, write_json
from cnai.core.records import decode
from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder
from cnai.models.initialise import fill, parameter_sizes
from cnai.models.packed import (
    PACKED,
    SCALE,
    PackedScheme,
    matrix,
    packing_of,
    round_inputs,
)

END_OF_TEXT = "<|endoftext|>"
_OUTER = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
_INNER = {
    "attention_norm": "input_layernorm",
    "attention": "self_attn",
    "ffn_norm": "post_attention_layernorm",
    "ffn": "mlp",
}
_STACKED = re.compile(r"layers\.(\d+)\.ffn\.experts\.(gate|up|down)_proj")
_MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}
_EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.\d+\.(\w+)\.weight")
_ROUTER = re.compile(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.gate\.weight")
_OUTER_BACK = {theirs: ours for ours, theirs in _OUTER.items()}
_INNER_BACK = {theirs: ours for ours, theirs in _INNER.items()}
_SAMPLES, _SAMPLE_BYTES = 16, 65_536
_OS_ERROR = re.compile(r"os error (\d+)")


def huggingface_name(name: str, *, expert: int = 0, mixtral: bool = False) -> str:
    """Return Hugging Face's name of one of our parameters.

    Args:
        name: Our name; the experts of a layer are stacked under one.
        expert: Which of the experts is meant.
        mixtral: Whether the experts go by the names of Mixtral, not by those of Qwen3-MoE.
    """
    if name in _OUTER:
        return _OUTER[name]
    layers, index, part, rest = name.split(".", 3)
    stem = f"model.{layers}.{index}."
    sparse = stem + ("block_sparse_moe." if mixtral else "mlp.")
    if rest == "router.weight":
        return f"{sparse}gate.weight"
    stacked = _STACKED.fullmatch(name)
    if stacked is None:
        return f"{stem}{_INNER[part]}.{rest}"
    matrix = _MIXTRAL[stacked[2]] if mixtral else f"{stacked[2]}_proj"
    return f"{sparse}experts.{expert}.{matrix}.weight"


def stored_names(name: str, shape: DecoderShape) -> tuple[str, ...]:
    """Return the names under which a parameter lies in a folder: one, or one for each expert."""
    mixtral = shape.experts > 0 and family_of(shape) == "mixtral"
    count = shape.experts if _STACKED.fullmatch(name) else 1
    return tuple(huggingface_name(name, expert=one, mixtral=mixtral) for one in range(count))


def parameter_name(theirs: str) -> str | None:
    """Return our name of a Hugging Face tensor, None when the decoder has no such parameter."""
    if theirs in _OUTER_BACK:
        return _OUTER_BACK[theirs]
    if expert := _EXPERT.fullmatch(theirs):
        names = {old: f"{new}_proj" for new, old in _MIXTRAL.items()}
        return f"layers.{expert[1]}.ffn.experts.{names.get(expert[2], expert[2])}"
    if router := _ROUTER.fullmatch(theirs):
        return f"layers.{router[1]}.ffn.router.weight"
    match = re.fullmatch(r"model\.layers\.([0-9]+)\.([a-z_]+)\.(.+)", theirs)
    if match is None or match[2] not in _INNER_BACK:
        return None
    return f"layers.{match[1]}.{_INNER_BACK[match[2]]}.{match[3]}"


def is_stacked(name: str) -> bool:
    """Tell whether one of our parameters holds a matrix of every expert of a layer."""
    return _STACKED.fullmatch(name) is not None


def named_pieces(name: str, tensor: Tensor, shape: DecoderShape) -> Iterator[tuple[str, Tensor]]:
    """Yield what a parameter is stored as, by name: itself, or each expert's matrix."""
    pieces = tensor.unbind() if is_stacked(name) else (tensor,)
    return zip(stored_names(name, shape), pieces, strict=True)


class HuggingFaceWeights:
    """The parameters of a model folder, read one by one when they are asked for.

    Plain weights may be float32, bfloat16 or float16; quantized ones are turned back into floats.

    Args:
        folder: The folder.
        sequence: Longest sequence that the model is used at; None = what it was made for.

    Raises:
        DataError: The folder holds no model that is read, see `core.llama_config`.
    """

    def __init__(self, folder: Path, *, sequence: int | None = None) -> None:
        self.folder = folder
        config = read_config(folder)
        where = str(folder / CONFIG_FILE)
        self.shape = shape_of(config, where=where, sequence=sequence)
        self._packing = packing_of(config, where=where)
        self.packed = self._packing is not None
        self._sizes = parameter_sizes(self.shape)
        self._files = tensor_files(folder)

    def tensor(self, name: str) -> Tensor:
        """Return the whole float32 tensor of one of our parameter names, on the CPU.

        Raises:
            DataError: The tensor is missing, of another size or type, or its file is damaged.
        """
        name = self._held(name)
        stored = stored_names(name, self.shape)
        pieces = [self._whole(name, one) for one in stored]
        return torch.stack(pieces) if is_stacked(name) else pieces[0]

    __call__ = tensor

    def part(self, name: str, index: tuple[slice, ...]) -> Tensor:
        """Return the float32 numbers of a parameter at a slice of each axis, reading only these.

        Raises:
            DataError: As in `tensor`.
        """
        name = self._held(name)
        stored = stored_names(name, self.shape)
        if not is_stacked(name):
            return self._slice(name, stored[0], index)
        pieces = [self._slice(name, one, index[1:]) for one in stored[index[0]]]
        return torch.stack(pieces) if pieces else torch.empty(0, *self._sizes[name][1:])[index]

    def identity(self) -> str:
        """Return a short hash that changes with the model.

        Config, headers and sizes count in full; of the numbers sixteen samples a file do, because
        reading a hundred billion of them takes longer than anybody waits for a start.
        """
        digest = hashlib.sha256((self.folder / CONFIG_FILE).read_bytes())
        for path in sorted(set(self._files.values())):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}".encode())
            with path.open("rb") as file:
                for sample in range(_SAMPLES):
                    file.seek(size * sample // _SAMPLES)
                    digest.update(file.read(_SAMPLE_BYTES))
        return digest.hexdigest()[:16]

    def _whole(self, name: str, stored: str) -> Tensor:
        """Read one stored tensor of a parameter."""
        tensor = self._restored(stored) if self._is_quantized(stored) else self._read(stored)
        kind, is_float = str(tensor.dtype), tensor.is_floating_point()
        self._check(name, stored, kind, tensor.shape, is_float=is_float)
        return tensor.float()

    def _slice(self, name: str, stored: str, index: tuple[slice, ...]) -> Tensor:
        """Read a part of one stored tensor of a parameter."""
        if self._is_quantized(stored):
            return self._whole(name, stored)[index]
        with self._opened(stored) as file:
            lazy = file.get_slice(stored)
            kind = lazy.get_dtype()
            self._check(name, stored, kind, lazy.get_shape(), is_float="F" in kind)
            tensor: Tensor = lazy[index]
        return tensor.float()

    def _held(self, name: str) -> str:
        """Return the parameter under which a name is stored."""
        tied = self.shape.tied_head and name == "head.weight"
        return "embedding.weight" if tied else name

    def _check(
        self, name: str, stored: str, kind: str, size: Sequence[int], *, is_float: bool
    ) -> None:
        asked = self._sizes[name][1:] if is_stacked(name) else self._sizes[name]
        if not is_float or tuple(size) != asked:
            raise DataError(
                f"`{stored}` is {kind} of {tuple(size)}; config.json asks for floats of {asked}",
                where=str(self.folder),
                hint="config.json and the weights belong to different models; fetch both again",
            )

    def rounds_inputs(self, name: str) -> bool:
        """Tell whether the activations that meet a parameter are to be rounded to INT8."""
        scheme = self._scheme(stored_names(self._held(name), self.shape)[0])
        return scheme is not None and scheme.rounds_inputs

    def _scheme(self, stored: str) -> PackedScheme | None:
        module = stored.removesuffix(".weight")
        return self._packing.scheme(module) if self._packing is not None else None

    def _is_quantized(self, stored: str) -> bool:
        return self.packed and stored + SCALE in self._files

    def _restored(self, stored: str) -> Tensor:
        packed = stored + PACKED in self._files
        where = str(self.folder)
        return matrix(self._read, stored, self._scheme(stored), packed=packed, where=where)

    def _read(self, stored: str) -> Tensor:
        with self._opened(stored) as file:
            tensor: Tensor = file.get_tensor(stored)
        return tensor

    @contextmanager
    def _opened(self, stored: str) -> Iterator[Any]:
        """Open the file that holds a tensor."""
        file = self._files.get(stored)
        if file is None:
            raise DataError(
                f"the weights hold no tensor `{stored}`",
                where=str(self.folder),
                hint="the folder is incomplete, or config.json belongs to another model; fetch "
                "both again",
            )
        try:
            with safe_open(file, framework="pt") as opened:
                yield opened
        except (SafetensorError, OSError) as error:
            raise damaged(file, error) from error


def tensor_files(folder: Path) -> dict[str, Path]:
    """Return in which file each tensor of a folder lies, by Hugging Face's name.

    Raises:
        DataError: There are no safetensors, one is damaged, or the index names a missing one.
    """
    files: dict[str, Path] = {}
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="np") as opened:
                files.update(dict.fromkeys(opened.keys(), file))
        except (SafetensorError, OSError) as error:
            raise damaged(file, error) from error
    return files


def load_decoder(folder: Path) -> Decoder:
    """Load a plain or quantized folder as a float32 decoder on the CPU, in evaluation mode.

    Where the folder says so, activations are rounded to INT8, as its runtimes do.

    Raises:
        DataError: The folder holds no model that is read, or is damaged.
    """
    weights = HuggingFaceWeights(folder)
    with torch.device("meta"):
        decoder = Decoder(weights.shape)
    decoder.to_empty(device="cpu")
    decoder.tie_head()
    fill(decoder, weights.tensor)
    for name in parameter_sizes(weights.shape):
        if not is_stacked(name) and weights.rounds_inputs(name):
            round_inputs(decoder.get_submodule(name.removesuffix(".weight")))
    return decoder.eval()


def save_model(
    folder: Path, shape: DecoderShape, state: Mapping[str, Tensor], tokenizer_json: bytes
) -> None:
    """Write a float32 folder that transformers loads.

    The caller gives a temporary folder (`core.files.folder_atomically`).

    Args:
        folder: An existing folder.
        shape: The model.
        state: Whole tensors by our names; a tied head may be left out.
        tokenizer_json: The tokenizer in the format of the `tokenizers` library.

    Raises:
        DataError: A parameter is missing or has another size, or the tokenizer is no JSON.
        RunError: The disk is full or the folder cannot be written.
    """
    tokenizer = decode(dict[str, Any], tokenizer_json, where="tokenizer.json")
    end_token = _end_token(tokenizer)
    write_tensors(
        folder / WEIGHTS_FILE,
        {
            stored: tensor
            for name, size in parameter_sizes(shape).items()
            for stored, tensor in named_pieces(name, _checked(state, name, size), shape)
        },
    )
    write_json(folder / CONFIG_FILE, config_of(shape, end_token=end_token))
    write_json(
        folder / "generation_config.json",
        {"bos_token_id": end_token, "eos_token_id": end_token},
    )
    special = None if end_token is None else END_OF_TEXT
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": special,
            "eos_token": special,
            "model_max_length": shape.sequence,
            "clean_up_tokenization_spaces": False,
        },
    )
    with saving(folder):
        (folder / "tokenizer.json").write_bytes(tokenizer_json)


def _end_token(tokenizer: dict[str, Any]) -> int | None:
    for token in tokenizer.get("added_tokens") or ():
        if token.get("content") == END_OF_TEXT:
            return int(token["id"])
    return None


def _checked(state: Mapping[str, Tensor], name: str, size: tuple[int, ...]) -> Tensor:
    tensor = state.get(name)
    if tensor is None or tuple(tensor.shape) != size:
        found = "missing" if tensor is None else f"of {tuple(tensor.shape)}"
        raise DataError(
            f"parameter `{name}` is {found}; the model needs one of {size}",
            where=name,
            hint="the checkpoint is incomplete or belongs to another model; take another one",
        )
    return tensor.detach().to("cpu", torch.float32)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file.

    Raises:
        RunError: The disk is full or the file cannot be written.
    """
    own = {name: _own(tensor) for name, tensor in tensors.items()}
    with saving(path):
        try:
            save_file(own, path, metadata={"format": "pt"})
        except SafetensorError as error:
            code = _OS_ERROR.search(str(error))
            raise OSError(int(code[1]) if code else 0, str(error)) from error


def _own(tensor: Tensor) -> Tensor:
    """Give a contiguous tensor that shares its memory with no other, as safetensors demands."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)
