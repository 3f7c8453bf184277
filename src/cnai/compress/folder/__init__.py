"""Model folders of safetensors made small without torch and without running them.

A folder of whatever architecture and size goes in; the same folder with smaller weights comes out,
file by file, in the format of compressed-tensors. It never holds more than a block of rows in
memory, and never does a finished file again after an interruption.
"""

from cnai.compress.folder.checkpoint import Checkpoint
from cnai.compress.folder.encode import TensorReport
from cnai.compress.folder.journal import UnfinishedFolder, unfinished
from cnai.compress.folder.selection import FolderWish, select
from cnai.compress.folder.stream import size_after, stream
from cnai.compress.folder.treatment import Form, Treatment, form_of

__all__ = [
    "Checkpoint",
    "FolderWish",
    "Form",
    "TensorReport",
    "Treatment",
    "UnfinishedFolder",
    "form_of",
    "select",
    "size_after",
    "stream",
    "unfinished",
]
