"""Reference architectures in plain single-device PyTorch.

A shape (`core.shape`) goes in, a module whose tensor names carry their shapes comes out, with its
initialisation, its loss and its Hugging Face layout. Nothing here knows of ranks, files of a run or
optimizers: parallelism is applied from outside, in `train`.
"""

from cnai.models.decoder import Decoder, KeyValueCache

__all__ = ["Decoder", "KeyValueCache"]
