"""Train a tiny model from Python, on a folder of text that the script makes itself."""

import sys
import tempfile
from pathlib import Path

from cnai import api

FIRST = ("red", "blue", "green", "small", "old")
SECOND = ("box", "bird", "house", "river", "stone")


def main(folder: Path) -> None:
    """Write text, plan, train and measure in a folder."""
    text = folder / "text"
    text.mkdir()
    for number in range(40):
        lines = [f"the {FIRST[(number + i) % 5]} {SECOND[i % 5]} is here.\n" for i in range(60)]
        (text / f"{number}.txt").write_text("".join(lines))
    spec = {
        "name": "tiny",
        "output": str(folder / "runs"),
        "model": {"layers": 2, "width": 32, "heads": 2, "vocab": 320, "sequence": 32},
        "data": {"source": str(text), "validation_fraction": 0.1},
        "parallel": {"data_parallel": {"size": 1}},
        "resources": {"ranks": 1},
        "train": {"steps": 60, "batch": 8, "learning_rate": 1e-2},
    }
    print(f"layout {api.plan(spec).layout}")
    result = api.train(spec)
    print(f"loss {result.first_loss:.2f} -> {result.loss:.2f} in {result.steps} steps")
    found = api.evaluate(folder / "runs" / "tiny")
    print(f"perplexity {found.perplexity_before:.0f} -> {found.perplexity:.1f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(place))
