"""Reference architectures in plain single-device PyTorch.

A shape (`core.shape`) goes in, a module whose tensor names carry their shapes comes out, with its
initial weights, its loss and its Hugging Face layout. Nothing here knows of ranks, optimizers or
the files of a run: parallelism is applied from outside, in `train`.
"""

from cnai.models.decoder import Decoder, KeyValueCache
from cnai.models.initialise import Weights, fill, initial_weights, parameter_sizes
from cnai.models.loss import token_loss, token_losses
from cnai.models.perplexity import bits_per_byte, perplexity, sequence_losses

__all__ = [
    "Decoder",
    "KeyValueCache",
    "Weights",
    "bits_per_byte",
    "fill",
    "initial_weights",
    "parameter_sizes",
    "perplexity",
    "sequence_losses",
    "token_loss",
    "token_losses",
]
