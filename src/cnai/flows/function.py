"""Functions of the user's own that a spec names as `package.module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from cnai.core.errors import CnaiError, SpecError


def function_named(name: str, *, where: str) -> Callable[..., Any]:
    """Find a function; the current folder is searched too.

    Raises:
        SpecError: It cannot be imported.
    """
    module_name, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with redirect_stdout(sys.stderr):  # stdout carries our own data only
            found = getattr(importlib.import_module(module_name), function)
    except Exception as error:
        raise SpecError(
            f"cannot load `{name}`: {_words(error)}",
            where=where,
            hint="write `package.module:function`; the current folder is searched too",
        ) from error
    if not callable(found):
        raise SpecError(f"`{name}` is no function", where=where, hint="name a function")
    function_found: Callable[..., Any] = found
    return function_found


def called(name: str, *, where: str) -> Any:
    """Call a function without arguments.

    Raises:
        SpecError: It cannot be imported, or fails.
    """
    function = function_named(name, where=where)
    try:
        with redirect_stdout(sys.stderr):
            return function()
    except CnaiError:
        raise
    except Exception as error:
        raise SpecError(
            f"`{name}` failed: {_words(error)}",
            where=where,
            hint="it is called without arguments; try it in a Python of your own",
        ) from error


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
