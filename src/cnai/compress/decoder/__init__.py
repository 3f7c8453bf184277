"""Decoders made small by way of torch: a model folder in, an INT8 folder with its proof out.

A model folder in Hugging Face layout (or trained weights) and validation rows go in; an artifact
comes out: a folder that transformers and `serve` load, with its measured perplexity. It never
replaces a target by a model that failed the gate, and never trains.
"""

from cnai.compress.decoder.export import export
from cnai.compress.decoder.gate import measure, require
from cnai.compress.decoder.inspect import ModelInfo, TensorGroup, inspect
from cnai.compress.decoder.matrix import QuantizedMatrix, Quantizer
from cnai.compress.decoder.quantize import quantize
from cnai.compress.decoder.source import open_source

__all__ = [
    "ModelInfo",
    "QuantizedMatrix",
    "Quantizer",
    "TensorGroup",
    "export",
    "inspect",
    "measure",
    "open_source",
    "quantize",
    "require",
]
