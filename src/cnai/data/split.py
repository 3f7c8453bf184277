"""Which documents are held out, by their content and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from cnai.core.errors import DataError
from cnai.data.sources import Document

_HASHES = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Documents in their given order; none is in both parts, and no part is empty."""

    train: tuple[Document, ...]
    validation: tuple[Document, ...]


def split_documents(documents: Sequence[Document], fraction: float) -> Split:
    """Hold out the documents whose hash lies in the lowest `fraction` of all hashes.

    A document's part depends on its text alone: a source that grows or is renamed keeps its parts,
    and copies of a text are never on both sides. Only where one part would be empty does the
    document nearest to the limit change sides.

    Raises:
        DataError: There are fewer than two documents.
    """
    if len(documents) < 2:
        raise DataError(
            f"{len(documents)} document cannot be split into training and validation",
            where="data.source",
            hint="give more text, or cut it into several files or lines",
        )
    hashes = [xxhash.xxh3_64_intdigest(document.text.encode()) for document in documents]
    limit = int(fraction * _HASHES)
    limit = min(max(limit, min(hashes) + 1), max(hashes))
    pairs = list(zip(documents, hashes, strict=True))
    held = tuple(document for document, value in pairs if value < limit)
    kept = tuple(document for document, value in pairs if value >= limit)
    if not held:
        raise DataError(
            f"all {len(documents)} documents are the same",
            where="data.source",
            hint="give documents that differ, else validation would measure memory",
        )
    return Split(train=kept, validation=held)
