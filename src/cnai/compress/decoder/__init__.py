"""Decoders made small by way of torch: a model folder in, a small one with its proof out.

A model folder in Hugging Face layout (or trained weights) and validation rows go in; an artifact
comes out: a folder that transformers and `serve` load, with its measured perplexity. It never
replaces a target by a model that failed the gate, and never trains.
"""

from cnai.compress.decoder.export import export
from cnai.compress.decoder.gate import measure, passes, refusal
from cnai.compress.decoder.inspect import ModelInfo, TensorGroup, inspect
from cnai.compress.decoder.quantize import Guard, quantize
from cnai.compress.decoder.source import open_source

__all__ = [
    "Guard",
    "ModelInfo",
    "TensorGroup",
    "export",
    "inspect",
    "measure",
    "open_source",
    "passes",
    "quantize",
    "refusal",
]
