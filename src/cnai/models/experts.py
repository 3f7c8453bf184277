"""The feed-forward part of a sparse layer: each token goes through a few of many experts.

No token is dropped and no expert is filled up: the rows are sorted by expert, and each expert
multiplies its own. Sources: Shazeer et al. 2017, arXiv 1701.06538 (the mixture); Jiang et al. 2024
(Mixtral), arXiv 2401.04088; Yang et al. 2025 (Qwen3), arXiv 2505.09388; Gale et al. 2022
(MegaBlocks), arXiv 2211.15841 (without dropping).

Shape suffixes as in `cnai.models.decoder`, and N tokens, E experts, C choices of a token, M = N x C
rows that go through an expert, F inner width of an expert. Parallelism is applied from outside by
the attributes that hold functions, as for attention.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses

from cnai.core.shape import DecoderShape

Product = Callable[[Tensor, Tensor], Tensor]
"""From rows (M, D) sorted by expert, and the number of each (E), to what experts make of them."""


class Experts(nn.Module):
    """The experts of one layer, each a SwiGLU; their matrices are stacked.

    Attributes:
        place: Has a product done where the experts are; other ranks may hold some of them.
        local: Returns the matrices that lie here of stacked ones.
    """

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        count, width, inner = shape.experts, shape.width, shape.expert_width
        self.gate_proj = nn.Parameter(torch.empty(count, inner, width))
        self.up_proj = nn.Parameter(torch.empty(count, inner, width))
        self.down_proj = nn.Parameter(torch.empty(count, width, inner))
        self.count = count
        self.place: Callable[[Product, Tensor, Tensor], Tensor] = _here
        self.local: Callable[[Tensor], Tensor] = _as_it_is

    def forward(self, x_ND: Tensor, weight_NC: Tensor, chosen_NC: Tensor) -> Tensor:
        """Return for each token the weighted sum of what its experts make of it (N, D)."""
        flat_M = chosen_NC.flatten()
        order_M = flat_M.argsort(stable=True)
        token_M = order_M // chosen_NC.shape[1]
        rows_E = torch.bincount(flat_M, minlength=self.count)
        made_MD = self.place(self.product, x_ND[token_M], rows_E)
        made_NCD = made_MD[order_M.argsort()].unflatten(0, chosen_NC.shape)
        out_ND: Tensor = (made_NCD * weight_NC.unsqueeze(2).to(made_NCD.dtype)).sum(dim=1)
        return out_ND

    def product(self, x_MD: Tensor, rows_E: Tensor) -> Tensor:
        """Send rows that are sorted by expert through the experts that lie here."""
        stacks = (self.local(w).unbind() for w in (self.gate_proj, self.up_proj, self.down_proj))
        pieces = x_MD.split(rows_E.tolist())
        return torch.cat(
            [
                F.linear(F.silu(F.linear(piece_MD, gate)) * F.linear(piece_MD, up), down)
                for piece_MD, gate, up, down in zip(pieces, *stacks, strict=True)
            ]
        )


def _here(product: Product, x_MD: Tensor, rows_E: Tensor) -> Tensor:
    return product(x_MD, rows_E)


def _as_it_is(x: Tensor) -> Tensor:
    return x


class SparseFeedForward(nn.Module):
    """A router and its experts.

    Attributes:
        balance_weight: Weight of the loss that keeps the experts evenly used, 0 = none.
        total: Adds up counts over the ranks that hold other positions of the same sequences.
    """

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        self.experts = Experts(shape)
        self.choices = shape.experts_per_token
        self.normed_choice = shape.normed_choice
        self.balance_weight = 0.0
        self.total: Callable[[Tensor], Tensor] = _as_it_is

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the transformed vectors."""
        share_BTE = self.router(x_BTD).float().softmax(dim=-1)
        weight_BTC, chosen_BTC = share_BTE.topk(self.choices, dim=-1)
        if self.normed_choice:
            weight_BTC = weight_BTC / weight_BTC.sum(dim=-1, keepdim=True)
        flat = (x.flatten(0, 1) for x in (x_BTD, weight_BTC, chosen_BTC))
        out_BTD: Tensor = self.experts(*flat).view_as(x_BTD)
        if self.balance_weight and torch.is_grad_enabled():
            loss = balance_loss(share_BTE, chosen_BTC, self.total)
            out_BTD = _with_loss(out_BTD, self.balance_weight * loss)
        return out_BTD


def balance_loss(
    share_BTE: Tensor, chosen_BTC: Tensor, total: Callable[[Tensor], Tensor] = _as_it_is
) -> Tensor:
    """Return how unevenly each sequence uses the experts, averaged over sequences; 1 = evenly.

    It is taken sequence by sequence, so that it does not depend on how a batch is cut. Source:
    DeepSeek-AI 2024 (DeepSeek-V3), arXiv 2412.19437, section 2.1.2, equations 17 to 20, after Fedus
    et al. 2021 (Switch), arXiv 2101.03961, section 2.2.

    Args:
        share_BTE: The router's probabilities.
        chosen_BTC: The experts that each token goes through.
        total: As in `SparseFeedForward`.
    """
    B, _, E = share_BTE.shape
    rows_BE = torch.zeros(B, E, dtype=share_BTE.dtype, device=share_BTE.device)
    chosen_BM = chosen_BTC.flatten(1)
    rows_BE.scatter_add_(1, chosen_BM, torch.ones_like(chosen_BM, dtype=rows_BE.dtype))
    rows_BE = total(rows_BE)
    used_BE = E * rows_BE / rows_BE.sum(dim=1, keepdim=True)
    return (used_BE * share_BTE.mean(dim=1)).sum(dim=1).mean()


class WithLoss(torch.autograd.Function):
    """Pass a tensor on, and let backward begin at a loss too.

    A stage of a pipeline returns only its activations; the loss of a layer inside joins them here.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, loss: Tensor) -> Tensor:
        """Return the tensor."""
        ctx.set_materialize_grads(True)
        del loss
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient as it is, and 1 for the loss."""
        del ctx
        return grad, torch.ones((), dtype=torch.float32, device=grad.device)


_with_loss: Callable[[Tensor, Tensor], Tensor] = WithLoss.apply
