"""Small networks trained on scikit-learn's digits and frozen by TensorFlow, where it is there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from compress_models import Case, Missing

EPOCHS = 15


def cnn(cache: Path) -> Case:
    """Convolutions, a normalisation, a depthwise convolution."""

    def build(layers: Any) -> list[Any]:
        return [
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(64, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.DepthwiseConv2D(3, padding="same"),
            layers.Conv2D(96, 1, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(128, activation="relu"),
        ]

    return digits(cache, "cnn", build)


def mlp(cache: Path) -> Case:
    """Two wide layers."""

    def build(layers: Any) -> list[Any]:
        wide = [layers.Dense(512, activation="relu") for _ in range(2)]
        return [layers.Reshape((64,)), *wide]

    return digits(cache, "mlp", build)


def lstm(cache: Path) -> Case:
    """Rows of the image one after the other; the weights stand outside of a loop."""
    return digits(cache, "lstm", lambda layers: [layers.LSTM(128)])


def attention(cache: Path) -> Case:
    """Rows of the image that look at each other."""
    return digits(cache, "attention", None)


def digits(cache: Path, name: str, build: Callable[[Any], list[Any]] | None) -> Case:
    """Train once, freeze, and keep the test images."""
    model, samples = cache / f"digits-{name}.pb", cache / "digits.npz"
    if not model.exists() or not samples.exists():
        if not all(importlib.util.find_spec(one) for one in ("tensorflow", "sklearn")):
            raise Missing("tensorflow and scikit-learn are not installed")
        train(model, samples, build)
    if not any(importlib.util.find_spec(one) for one in ("tensorflow", "openvino")):
        raise Missing("neither tensorflow nor openvino is installed to run it")
    return Case(model=model, samples=samples)


def train(model: Path, samples: Path, build: Callable[[Any], list[Any]] | None) -> None:
    """Write the frozen graph and the test images with their labels."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    data = load_digits()
    images = (data.images / 16).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, data.target, test_size=540, random_state=0
    )
    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    entry = layers.Input((8, 8))
    net = tf.keras.Model(entry, last(layers, entry, build))
    net.compile("adam", "sparse_categorical_crossentropy")
    net.fit(train_x, train_y, epochs=EPOCHS, batch_size=32, verbose=0)
    function = tf.function(lambda x: net(x, training=False))
    spec = tf.TensorSpec((None, 8, 8), tf.float32, name="x")
    frozen = convert_variables_to_constants_v2(function.get_concrete_function(spec))
    model.write_bytes(frozen.graph.as_graph_def().SerializeToString())
    np.savez(samples, x=test_x, labels=test_y)


def last(layers: Any, entry: Any, build: Callable[[Any], list[Any]] | None) -> Any:
    """Return the probabilities of the ten digits."""
    if build is None:
        hidden = layers.Dense(64)(entry)
        looked = layers.MultiHeadAttention(4, 16)(hidden, hidden)
        hidden = layers.LayerNormalization()(hidden + looked)
        hidden = layers.GlobalAveragePooling1D()(hidden)
    else:
        hidden = entry
        for one in build(layers):
            hidden = one(hidden)
    return layers.Dense(10, activation="softmax")(hidden)
