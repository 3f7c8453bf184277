"""What INT8 costs in perplexity and saves in bytes, beside torch's own dynamic INT8.

    python benchmarks/int8_quality.py [RUN] [--rows 64] [--json]

RUN is the folder of a finished run (`make demo` makes `runs/quickstart`). Both are measured in one
call on the same validation rows of that run: the model in float32, ours as it lies on the disk
(INT8 weights by output channel, activations untouched), and the peer, torch.ao's dynamic
quantization of the same linear layers (INT8 weights by output channel, activations rounded to INT8
as they come). Printed are the relative rise of the perplexity of each and the ratio of sizes.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

from cnai.compress import read_artifact
from cnai.core.dataset import DatasetManifest
from cnai.core.runfolder import RunFolder
from cnai.flows.data import reader_of_run
from cnai.flows.folder import spec_of
from cnai.flows.stages import recorded
from cnai.models import load_decoder, perplexity, sequence_losses


def dynamic_int8(model: nn.Module) -> nn.Module:
    """Quantize the linear layers the way torch.ao does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(
            model, {nn.Linear: torch.ao.quantization.per_channel_dynamic_qconfig}
        )


def bytes_of(model: nn.Module) -> int:
    """Return the size of a module as torch saves it."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(model.state_dict(), buffer)
    return buffer.tell()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("run", nargs="?", default="runs/quickstart", type=Path)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    run = RunFolder(arguments.run)
    if not run.events.is_dir():
        sys.exit(f"no run at {arguments.run}; make one with `make demo`")
    spec = spec_of(run)
    manifest = recorded(run, "data", DatasetManifest)
    rows = reader_of_run(spec, run, manifest).validation(arguments.rows)
    exact = load_decoder(run.artifacts / "model")
    small = run.artifacts / f"model-{spec.compress.precision}"
    before = perplexity(sequence_losses(exact, rows))
    size = read_artifact(run.artifacts / "model").size_bytes
    found = {
        "ours": {
            "relative_loss": perplexity(sequence_losses(load_decoder(small), rows)) / before - 1,
            "times_smaller": size / read_artifact(small).size_bytes,
        },
    }
    peer = dynamic_int8(load_decoder(run.artifacts / "model"))
    found["torch.ao dynamic"] = {
        "relative_loss": perplexity(sequence_losses(peer, rows)) / before - 1,
        "times_smaller": bytes_of(exact) / bytes_of(peer),
    }
    if arguments.json:
        print(json.dumps({"perplexity": before, "rows": len(rows), **found}, indent=2))
        return
    print(f"perplexity in float32: {before:.3f} on {len(rows)} rows")
    print(f"{'':<18}{'perplexity':>14}{'times smaller':>16}")
    for name, result in found.items():
        print(f"{name:<18}{result['relative_loss']:>+14.4%}{result['times_smaller']:>16.2f}")


if __name__ == "__main__":
    main()
