"""Which tensors of a folder are the weights of linear layers, told by name and shape alone.

So a model whose code nobody here knows is compressed too. What is not clearly a linear layer stays
a float: that costs space, never accuracy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cnai.compress.folder.checkpoint import Checkpoint, StoredTensor
from cnai.compress.folder.dtypes import FLOATS
from cnai.compress.folder.treatment import QUANTIZED, Form, Treatment, group_for
from cnai.core.errors import SpecError

_EMBEDDING = re.compile(r"embed|^wte$|^wpe$|^shared$|relative_attention_bias|codebook")
_HEAD = re.compile(r"^(lm_)?head$|_head$|^classifier$|^score$|^qa_outputs$|^embed_out$")
_NORM = re.compile(r"norm|^ln(_|$)", re.IGNORECASE)
_ROUTER = re.compile(r"^(gate|router|shared_expert_gate)$")
_SMALLEST_SIDE = 4
NO_MATRIX, NORM, EMBEDDING = "is no matrix of a layer", "is a norm", "is an embedding"
HEAD, ROUTER = "is the head", "chooses the experts"
"""Why a tensor stays a float."""
_TRANSPOSED = frozenset({"gpt2", "openai-gpt", "imagegpt", "decision_transformer"})
_WIDE = frozenset({"F32", "F64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWish:
    """What the user wants of the tensors of a folder.

    Attributes:
        form: For the weights of linear layers.
        embeddings: Embedding and head become INT8 too.
        ignore: Regular expression; tensors whose name it finds stay as they are.
    """

    form: Form = Form.W8A16
    embeddings: bool = False
    ignore: str | None = None


def select(checkpoint: Checkpoint, wish: FolderWish) -> dict[str, Treatment]:
    """Return what becomes of each tensor.

    Raises:
        SpecError: Nothing in the folder can become what is wanted.
    """
    kind = str(checkpoint.config.get("model_type", "unknown"))
    chosen = {tensor.name: _treatment(tensor, wish, kind) for tensor in checkpoint.tensors.values()}
    if all(one.form is Form.KEPT for one in chosen.values()):
        reasons = sorted({one.reason for one in chosen.values()})
        raise SpecError(
            f"nothing in `{checkpoint.folder}` can be made smaller ({'; '.join(reasons)})",
            where=str(checkpoint.folder),
            hint="look at it with `ai-cli inspect`",
        )
    return chosen


def _treatment(tensor: StoredTensor, wish: FolderWish, model_type: str) -> Treatment:
    if wish.ignore and re.search(wish.ignore, tensor.name):
        return Treatment(form=Form.KEPT, reason="is ignored as asked")
    if tensor.dtype not in FLOATS:
        return Treatment(form=Form.KEPT, reason="is no float")
    if wish.form not in QUANTIZED:
        return cast_to(tensor, wish.form)
    reason = reason_to_stay(tensor, model_type)
    if reason in {EMBEDDING, HEAD} and wish.embeddings and _is_matrix(tensor):
        return Treatment(form=Form.W8A16)
    if reason:
        shrinks = len(tensor.shape) == 2 and tensor.dtype in _WIDE
        return Treatment(form=Form.BF16 if shrinks else Form.KEPT, reason=reason)
    return quantized_to(tensor, wish.form)


def quantized_to(tensor: StoredTensor, form: Form) -> Treatment:
    """Return how a matrix takes a quantized form; INT8 where no group divides its inputs."""
    if form is not Form.W4A16:
        return Treatment(form=form)
    group = group_for(tensor.shape[1])
    if group is None:
        return Treatment(form=Form.W8A16, reason="its inputs are no multiple of 32")
    return Treatment(form=form, group=group)


def cast_to(tensor: StoredTensor, form: Form) -> Treatment:
    """Return how a tensor becomes a shorter float."""
    held = {"BF16": Form.BF16, "F16": Form.FP16}.get(tensor.dtype)
    if held is form:
        return Treatment(form=Form.KEPT, reason="is of this format already")
    return Treatment(form=form)


def reason_to_stay(tensor: StoredTensor, model_type: str) -> str:
    """Say why a tensor is no weight of a linear layer; empty when it is one."""
    last = tensor.module.rsplit(".", 1)[-1]
    if not tensor.name.endswith(".weight") or not _is_matrix(tensor):
        return NO_MATRIX
    rules = (
        (_HEAD, HEAD), (_EMBEDDING, EMBEDDING), (_NORM, NORM), (_ROUTER, ROUTER),
    )  # fmt: skip
    for rule, reason in rules:
        if rule.search(last):
            return reason
    if model_type in _TRANSPOSED and last.startswith("c_"):
        return f"is stored transposed by `{model_type}`"
    if min(tensor.shape) < _SMALLEST_SIDE:
        return "is too small to gain anything"
    return ""


def _is_matrix(tensor: StoredTensor) -> bool:
    return len(tensor.shape) == 2 and min(tensor.shape) > 0
