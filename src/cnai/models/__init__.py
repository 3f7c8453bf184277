"""Reference architectures in plain single-device PyTorch.

A shape (`core.shape`) goes in, a module whose tensor names carry their shapes comes out, with its
initial weights, its loss and its Hugging Face layout. Nothing here knows of ranks, optimizers or
the files of a run: parallelism is applied from outside, in `train`.
"""

from cnai.models.decoder import Decoder, KeyValueCache
from cnai.models.huggingface import HuggingFaceWeights, load_decoder, save_model
from cnai.models.initialise import SlicedWeights, Weights, fill, initial_weights, parameter_sizes
from cnai.models.lora import AdaptedWeights, adapter_sizes, add_adapters, merged
from cnai.models.loss import ROW_LOSSES, RowLosses, token_loss, token_losses, training_loss
from cnai.models.perplexity import bits_per_byte, perplexity, sequence_losses

__all__ = [
    "ROW_LOSSES",
    "AdaptedWeights",
    "Decoder",
    "HuggingFaceWeights",
    "KeyValueCache",
    "RowLosses",
    "SlicedWeights",
    "Weights",
    "adapter_sizes",
    "add_adapters",
    "bits_per_byte",
    "fill",
    "initial_weights",
    "load_decoder",
    "merged",
    "parameter_sizes",
    "perplexity",
    "save_model",
    "sequence_losses",
    "token_loss",
    "token_losses",
    "training_loss",
]
