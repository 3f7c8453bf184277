"""The drawing library of the page, uPlot: fetched from an npm registry, never committed.

Building a wheel or an editable install fetches it; `python -m cnai.monitor.uplot` does so by
hand. The build loads this file by its path, so it uses the standard library alone.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

VERSION = "1.6.32"
INTEGRITY = "sha512-" + (
    "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
)
"""What npm says of the package; another content is refused."""

FOLDER = Path(__file__).parent / "panel" / "vendor"
COMMAND = "python -m cnai.monitor.uplot"
_FILES = {
    "uPlot.iife.min.js": "package/dist/uPlot.iife.min.js",
    "uPlot.min.css": "package/dist/uPlot.min.css",
    "LICENSE": "package/LICENSE",
}
_PUBLIC_REGISTRY = "https://registry.npmjs.org/"
_TIMEOUT_SECONDS = 30.0


class ChartsError(Exception):
    """The library cannot be had."""


def chart_files() -> list[Path]:
    """Return where the files lie that the page loads, whether or not they are there."""
    return [FOLDER / "uPlot.iife.min.js", FOLDER / "uPlot.min.css"]


def missing_charts() -> str:
    """Return what to do when the library is missing; empty when it is there."""
    if all(file.is_file() for file in chart_files()):
        return ""
    return f"The library that draws the curves is not installed. Fetch it with: {COMMAND}"


def fetch(folder: Path = FOLDER) -> bool:
    """Fetch the library unless it is there; tell whether it was fetched.

    The registry is that of npm's own settings: `NPM_CONFIG_REGISTRY`, then `registry=` in
    `.npmrc` of the home folder, then npm's public one.

    Raises:
        ChartsError: The registry cannot be reached, or gave another content than the pinned one.
    """
    if all((folder / name).is_file() for name in _FILES):
        return False
    address = f"{registry()}uplot/-/uplot-{VERSION}.tgz"
    if not address.startswith(("https://", "http://")):
        raise ChartsError(f"`{address}` is no web address")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            content = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise ChartsError(f"cannot fetch uPlot {VERSION} from the npm registry: {error}") from error
    unpack(content, folder)
    return True


def unpack(content: bytes, folder: Path) -> None:
    """Put the files of a package into a folder.

    Raises:
        ChartsError: The content is not the pinned one.
    """
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if digest != INTEGRITY:
        raise ChartsError(f"the npm registry gave another uPlot {VERSION} than the pinned one")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as package:
        for name, member in _FILES.items():
            file = package.extractfile(member)
            if file is None:
                raise ChartsError(f"`{member}` is no file")
            unfinished = folder / f".{name}.{os.getpid()}"
            unfinished.write_bytes(file.read())
            unfinished.replace(folder / name)


def registry() -> str:
    """Return the address of the npm registry that the user's settings name."""
    for name, value in os.environ.items():
        if name.lower() == "npm_config_registry" and value:
            return value.rstrip("/") + "/"
    try:
        lines = (Path.home() / ".npmrc").read_text().splitlines()
    except (OSError, RuntimeError):
        lines = []
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "registry" and value.strip():
            return value.strip().rstrip("/") + "/"
    return _PUBLIC_REGISTRY


if __name__ == "__main__":
    try:
        print("fetched" if fetch() else "it is there already", file=sys.stderr)  # noqa: T201
    except ChartsError as problem:
        sys.exit(f"error: {problem}")
