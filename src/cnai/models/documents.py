"""Attention that ends where a document begins: rows hold several, and none sees another.

A token then costs as much as the document before it is long, not the row, so the work of a row is
the sum over its documents and differs from row to row. Source of the idea of packing with it:
Krell et al. 2021, arXiv 2107.02027; Llama 3 trains so (arXiv 2407.21783, section 3.2).

Shape suffixes as in `cnai.models.decoder`. Rotary positions need no restart: a score depends on the
distance of two tokens alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses


def documents_of(tokens_BT: Tensor, separator: int) -> Tensor:
    """Number the documents of each row, shape (B, T), int32.

    A document begins with its separator; what stands before the first one is the end of a document
    that began in another row.
    """
    return (tokens_BT == separator).cumsum(dim=1, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class Documents:
    """Where the documents of some rows lie.

    Attributes:
        lengths: Tokens of each document, in order, a tuple a row.
    """

    lengths: tuple[tuple[int, ...], ...]

    @classmethod
    def numbered(cls, document_BT: Tensor) -> Documents:
        """Read them from the number of each position's document, which rises along a row."""
        return cls(
            tuple(
                tuple(torch.unique_consecutive(one_T, return_counts=True)[1].tolist())
                for one_T in document_BT
            )
        )


# The lengths differ each time, so there is nothing to compile.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend_within(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor, documents: Documents) -> Tensor:
    """Attend causally within each document. Returns shape (B, H, T, K)."""
    rows = [
        _attend_row(q_BHTK[row : row + 1], k_BHTK[row : row + 1], v_BHTK[row : row + 1], lengths)
        for row, lengths in enumerate(documents.lengths)
    ]
    return torch.cat(rows)


def _attend_row(q_1HTK: Tensor, k_1HTK: Tensor, v_1HTK: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Attend in one row; torch has a fused kernel for four axes, and none for three."""
    parts = zip(*(one.split(lengths, dim=2) for one in (q_1HTK, k_1HTK, v_1HTK)), strict=True)
    mixed = [F.scaled_dot_product_attention(q, k, v, is_causal=True) for q, k, v in parts]
    return torch.cat(mixed, dim=2)
