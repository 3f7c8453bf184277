"""Whether this machine has what torch.compile needs; answered without torch."""

from __future__ import annotations

import os
import shutil

_NAMES = ("g++", "c++", "clang++", "gcc", "cc", "clang")


def missing_compiler() -> str | None:
    """Say what is missing for torch.compile, None = nothing."""
    asked = os.environ.get("CXX")
    if any(shutil.which(name) for name in ((asked,) if asked else _NAMES)):
        return None
    return f"there is no C++ compiler ({asked or ', '.join(_NAMES)}) for torch.compile"
