"""The files of a model folder in Hugging Face layout; what is in them is for others to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cnai.core.errors import DataError
from cnai.core.files import read_bytes, saving
from cnai.core.records import decode

INDEX_FILE = "model.safetensors.index.json"
WEIGHTS_FILE = "model.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors of a folder: those that its index names, or all.

    Raises:
        DataError: There are none, or the index is damaged.
    """
    index = folder / INDEX_FILE
    if index.exists():
        plain = decode(dict[str, Any], read_bytes(index, hint=""), where=str(index))
        listed = {folder / str(name) for name in plain.get("weight_map", {}).values()}
    else:
        listed = set(folder.glob("*.safetensors"))
    if not listed:
        raise DataError(
            f"no *.safetensors in `{folder}`",
            where=str(folder),
            hint="save the model with `save_pretrained(FOLDER)`, which writes safetensors; other "
            "formats are not read",
        )
    return sorted(listed)


def damaged(file: Path, why: object) -> DataError:
    """Return the error for weights that cannot be read."""
    return DataError(
        f"cannot read the weights in `{file.name}`: {why}",
        where=str(file),
        hint="the file is missing, cut short or damaged; fetch or make it again",
    )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file that people may read.

    Raises:
        RunError: It cannot be written.
    """
    with saving(path):
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
