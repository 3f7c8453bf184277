"""Makes a trained model small and proves what that cost.

A model folder in Hugging Face layout (or trained weights) and validation rows go in; an artifact
comes out: a folder that transformers and `serve` load, with checksums and the measured
quality in its manifest. It never replaces a target by a model that failed the gate, never trusts
a number that was not measured on the files as they lie on the disk, and never trains.
"""

from cnai.compress.export import export
from cnai.compress.gate import measure, require
from cnai.compress.inspect import ModelInfo, TensorGroup, inspect
from cnai.compress.manifest import check_whole, read_artifact
from cnai.compress.matrix import QuantizedMatrix, Quantizer
from cnai.compress.quantize import quantize
from cnai.compress.source import open_source
from cnai.compress.target import check_target

__all__ = [
    "ModelInfo",
    "QuantizedMatrix",
    "Quantizer",
    "TensorGroup",
    "check_target",
    "check_whole",
    "export",
    "inspect",
    "measure",
    "open_source",
    "quantize",
    "read_artifact",
    "require",
]
