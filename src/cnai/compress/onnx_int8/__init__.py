"""INT8 arithmetic of ONNX models: prepared, calibrated and written by ourselves.

A float model and what its tensors hold on real data go in; a model whose chosen operations compute
in INT8 comes out, in standard operators. It never invents data and never judges the result.
"""

from cnai.compress.onnx_int8.calibrate import Ranges, calibrate
from cnai.compress.onnx_int8.dynamic import dynamic_nodes, write_dynamic
from cnai.compress.onnx_int8.prepare import prepare
from cnai.compress.onnx_int8.qdq import write_static
from cnai.compress.onnx_int8.selection import OpSet, calibrated_tensors, static_nodes

__all__ = [
    "OpSet",
    "Ranges",
    "calibrate",
    "calibrated_tensors",
    "dynamic_nodes",
    "prepare",
    "static_nodes",
    "write_dynamic",
    "write_static",
]
