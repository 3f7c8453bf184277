"""Text in, packed token rows out, from a store that lies apart from the machines that compute.

In go a source of text, the URL of a store and options; out come blocks of tokens with checksums
and a manifest, and a reader that gives the rows of any step at any layout, also of a dataset of the
user's own. The room never changes a source, never keeps a position, and never imports torch.
"""

from cnai.data.catalog import discard, list_datasets, load_manifest, verify
from cnai.data.indexed import IndexedReader, describe
from cnai.data.prepare import PrepareOptions, prepare
from cnai.data.reader import DatasetReader
from cnai.data.stores import open_store
from cnai.data.tokenizer import TextTokenizer, load_tokenizer

__all__ = [
    "DatasetReader",
    "IndexedReader",
    "PrepareOptions",
    "TextTokenizer",
    "describe",
    "discard",
    "list_datasets",
    "load_manifest",
    "load_tokenizer",
    "open_store",
    "prepare",
    "verify",
]
