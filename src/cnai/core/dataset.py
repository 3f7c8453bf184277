"""What a packed dataset is: the record that lies beside its blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows that lie in one blob, the unit that is read, checked and cached.

    Attributes:
        checksum: xxh3-128 of the blob as hex digits.
    """

    key: str
    rows: int
    size_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetManifest:
    """A packed dataset.

    Attributes:
        digest: Hash of everything that made it (source content, tokenizer, options); equal digests
            mean equal rows.
        source: What was read, for people.
        documents: Documents in both parts.
        source_bytes: UTF-8 bytes of the text in both parts.
        tokenizer: Key of the tokenizer.json in the same store.
        sequence: Tokens predicted by a row; a row holds `sequence + 1` tokens and shares its first
            with the end of the row before.
        dtype: numpy type of the tokens, `uint16` or `uint32`, little endian.
        validation_row_bytes: UTF-8 bytes of the predicted tokens of each validation row, to turn
            nats per token into bits per byte.
        trigram_bits_per_byte: Bits per byte of a byte trigram model, trained on the training
            documents, on the validation documents: the floor that a model has to beat.
        separator: Token before, between and after the documents; None = not told.
        train_work: A blob for each of `train`: float32 a row, the pairs of tokens that see each
            other when no document sees another; none = not measured.
    """

    digest: str
    source: str
    documents: int
    source_bytes: int
    tokenizer: str
    vocab: int
    sequence: int
    dtype: str
    train: tuple[Block, ...]
    validation: tuple[Block, ...]
    validation_row_bytes: tuple[int, ...]
    trigram_bits_per_byte: float
    separator: int | None = None
    train_work: tuple[Block, ...] = ()

    @property
    def train_rows(self) -> int:
        """Rows for training."""
        return sum(block.rows for block in self.train)

    @property
    def validation_rows(self) -> int:
        """Rows for validation."""
        return sum(block.rows for block in self.validation)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedDataset:
    """A dataset of the user's own, which a function returns and which is read item by item.

    Attributes:
        digest: Hash of the function's name, the number of items and a sample of them; equal digests
            mean that the dataset is very likely the same.
        source: `package.module:function`.
        train_rows: Items for training.
        validation_rows: Items kept for validation.
        columns: What an item holds, a line each, for people.
    """

    digest: str
    source: str
    train_rows: int
    validation_rows: int
    columns: tuple[str, ...]


Dataset = DatasetManifest | IndexedDataset
