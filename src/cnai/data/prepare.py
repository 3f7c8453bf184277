"""Text into a packed dataset in a store: split, tokenize, pack, measure, and publish last.

Everything lies under a prefix named by the digest. `manifest.json` is written when all else is
there, so a preparation that was killed is never taken for a dataset; running it again writes the
same blobs over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.core.blobs import BlobStore
from cnai.core.dataset import Block, DatasetManifest
from cnai.core.errors import DataError
from cnai.core.records import encode
from cnai.data.catalog import load_manifest, manifest_key, save_manifest
from cnai.data.pack import Packed, Packer, PackShape, token_dtype, unpack
from cnai.data.sources import Document, read_documents
from cnai.data.split import Split, split_documents
from cnai.data.tokenizer import TextTokenizer, read_tokenizer, train_tokenizer
from cnai.data.trigram import ByteTrigram

FORMAT = 2
_ENCODED_AT_ONCE = 32

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """What makes a dataset besides its text.

    Attributes:
        text_field: Field or column with the text in JSONL and Parquet files.
        tokenizer: A tokenizer.json; None = train one on the training documents.
        vocab: Tokens of a trained tokenizer, and the most that a given one may have.
        sequence: Tokens predicted by a row.
    """

    text_field: str = "text"
    tokenizer: Path | None = None
    vocab: int = 4096
    sequence: int = 128
    validation_fraction: float = 0.05
    block_rows: int = 256


def prepare(
    source: str,
    store: BlobStore,
    *,
    options: PrepareOptions,
    progress: Progress,
) -> DatasetManifest:
    """Pack the text of a source, unless the store holds the result already.

    The source is read whole each time, because the digest depends on its content: a changed file
    gives another dataset beside the old one. The text has to fit in memory. Several processes may
    prepare into one store at once; equal inputs write equal blobs.

    Args:
        source: As `cnai.data.sources.read_documents` takes it.
        store: Where the blobs go; other datasets in it stay as they are.
        options: What makes the dataset besides the text.
        progress: Called with the name of a stage and the share of it that is done.

    Raises:
        DataError: The source, the tokenizer or the store is wrong, or there is too little text.
    """
    progress("read", 0.0)
    documents = list(read_documents(source, text_field=options.text_field))
    progress("read", 1.0)
    given = read_tokenizer(options.tokenizer) if options.tokenizer else None
    digest = dataset_digest(documents, options, given)
    if store.exists(manifest_key(digest)):
        manifest = load_manifest(store, digest)
        if _is_whole(store, manifest):
            return manifest
        # Blobs of a published dataset were lost: take the promise back before filling the gap.
        store.delete(manifest_key(digest))
    split = split_documents(documents, options.validation_fraction)
    tokenizer = given or _trained(split, options, progress)
    _check_vocab(tokenizer, options)
    manifest = _Preparation(store, digest, tokenizer, options, progress).run(source, split)
    save_manifest(store, manifest)
    return manifest


def dataset_digest(
    documents: Sequence[Document], options: PrepareOptions, given: TextTokenizer | None
) -> str:
    """Return 16 hex digits that name the text, the tokenizer, the options and this format.

    Names of documents do not count, so the same text elsewhere or in another format is the same
    dataset. The version of the tokenizers library counts when it trains, for another one may merge
    differently.
    """
    digest = hashlib.sha256()
    maker = given.to_json().decode() if given else f"tokenizers {version('tokenizers')}"
    options_key = (
        FORMAT, options.vocab, options.sequence, options.validation_fraction, options.block_rows,
    )  # fmt: skip
    for part in (encode(options_key), maker.encode()):
        digest.update(len(part).to_bytes(8, "little") + part)
    for document in documents:
        text = document.text.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()[:16]


def _is_whole(store: BlobStore, manifest: DatasetManifest) -> bool:
    """Tell by one listing whether every blob is there with its size."""
    sizes = {blob.key: blob.size_bytes for blob in store.list(f"{manifest.digest}/")}
    blocks = (*manifest.train, *manifest.train_work, *manifest.validation)
    return manifest.tokenizer in sizes and all(
        sizes.get(block.key) == block.size_bytes for block in blocks
    )


def _trained(split: Split, options: PrepareOptions, progress: Progress) -> TextTokenizer:
    progress("tokenizer", 0.0)
    tokenizer = train_tokenizer((document.text for document in split.train), options.vocab)
    progress("tokenizer", 1.0)
    return tokenizer


def _check_vocab(tokenizer: TextTokenizer, options: PrepareOptions) -> None:
    if tokenizer.vocab > options.vocab:
        raise DataError(
            f"the tokenizer has {tokenizer.vocab} tokens, the model only {options.vocab}",
            where=str(options.tokenizer or "model.vocab"),
            hint=f"set `model.vocab` to {tokenizer.vocab} or more",
        )


class _Preparation:
    """The steps between the split and the manifest."""

    def __init__(
        self,
        store: BlobStore,
        digest: str,
        tokenizer: TextTokenizer,
        options: PrepareOptions,
        progress: Progress,
    ) -> None:
        self._store = store
        self._digest = digest
        self._tokenizer = tokenizer
        self._options = options
        self._progress = progress
        self._dtype = token_dtype(tokenizer.vocab)

    def run(self, source: str, split: Split) -> DatasetManifest:
        """Store blocks and tokenizer and return the manifest, which is not stored yet."""
        # Validation first: it is small, and too little of it should show before hours of packing.
        validation = self._pack("validation", split.validation)
        train = self._pack("train", split.train)
        tokenizer_key = f"{self._digest}/tokenizer.json"
        self._store.put(tokenizer_key, self._tokenizer.to_json())
        everything = (*split.train, *split.validation)
        return DatasetManifest(
            digest=self._digest,
            source=source,
            documents=len(everything),
            source_bytes=sum(len(document.text.encode()) for document in everything),
            tokenizer=tokenizer_key,
            vocab=self._tokenizer.vocab,
            sequence=self._options.sequence,
            dtype=self._dtype,
            train=train.blocks,
            validation=validation.blocks,
            validation_row_bytes=self._row_bytes(validation.blocks),
            trigram_bits_per_byte=self._trigram(split),
            separator=self._tokenizer.end_token,
            train_work=train.work,
        )

    def _pack(self, part: str, documents: Sequence[Document]) -> Packed:
        shape = PackShape(
            sequence=self._options.sequence,
            block_rows=self._options.block_rows,
            dtype=self._dtype,
            separator=self._tokenizer.end_token if part == "train" else None,
        )
        packer = Packer(self._store, f"{self._digest}/{part}", shape)
        tokens = 0
        for piece in self._stream(part, documents):
            packer.add(piece)
            tokens += len(piece)
        packed = packer.finish()
        if not packed.blocks:
            raise self._too_short(part, tokens)
        return packed

    def _stream(self, part: str, documents: Sequence[Document]) -> Iterator[NDArray[np.int64]]:
        """Yield the documents' tokens with the separator before, between and after them."""
        end = np.array([self._tokenizer.end_token], dtype=np.int64)
        yield end
        for start in range(0, len(documents), _ENCODED_AT_ONCE):
            self._progress(part, start / len(documents))
            some = documents[start : start + _ENCODED_AT_ONCE]
            for tokens in self._tokenizer.encode([document.text for document in some]):
                yield tokens
                yield end
        self._progress(part, 1.0)

    def _too_short(self, part: str, tokens: int) -> DataError:
        row = self._options.sequence + 1
        remedy = (
            "give more text or shorten `model.sequence` (of `data import`: `--sequence`)"
            if part == "train"
            else "give more text, raise `data.validation_fraction` or shorten `model.sequence` "
            "(of `data import`: `--validation-fraction`, `--sequence`)"
        )
        return DataError(
            f"the {part} part has {tokens} tokens, one row needs {row}",
            where="data.source",
            hint=remedy,
        )

    def _row_bytes(self, blocks: Sequence[Block]) -> tuple[int, ...]:
        lengths: list[int] = []
        for block in blocks:
            content = self._store.get(block.key)
            rows = unpack(content, sequence=self._options.sequence, dtype=self._dtype)
            lengths += self._tokenizer.byte_length(rows[:, 1:].astype(np.int64)).tolist()
        return tuple(lengths)

    def _trigram(self, split: Split) -> float:
        self._progress("trigram", 0.0)
        model = ByteTrigram(document.text.encode() for document in split.train)
        bits = model.bits_per_byte(document.text.encode() for document in split.validation)
        self._progress("trigram", 1.0)
        return bits
