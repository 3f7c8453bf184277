"""What is known of each class of fault: `classes.toml`."""

from __future__ import annotations

import difflib
import functools
import tomllib
from importlib.resources import files
from typing import Any

import msgspec

from cnai.core.errors import SpecError

TRY_AGAIN = frozenset({"restart_same", "restart_exclude_node", "previous_checkpoint"})
"""Actions after which the same command is run again."""


class Advice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repair as the table has it.

    Attributes:
        title: In words; `{place}` stands for the user's file and line.
        command: With `{run}` and `{spec}`.
        patch: Spec keys to change; `/2` and `*2` mean half and twice the present value.
        safe: Whether the runtime may do it by itself.
    """

    title: str
    command: str | None = None
    patch: dict[str, str | int | float | bool] | None = None
    safe: bool = False


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A class of fault.

    Attributes:
        action: What to do by default: restart_same, restart_exclude_node, previous_checkpoint,
            change_config, fix_code or hold.
        near: Classes that it is taken for, the likeliest first.
        yields: Classes that explain it away when they are seen too.
    """

    group: str
    meaning: str
    action: str
    near: tuple[str, ...] = ()
    yields: tuple[str, ...] = ()
    repairs: tuple[Advice, ...] = ()


@functools.cache
def faults() -> dict[str, Fault]:
    """Return all classes by name."""
    text = (files("cnai.diagnose") / "classes.toml").read_text()
    parsed: dict[str, Any] = tomllib.loads(text)
    return msgspec.convert(parsed, dict[str, Fault])


def fault_of(name: str) -> Fault:
    """Return a class by name.

    Raises:
        SpecError: There is none of that name.
    """
    known = faults()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    raise SpecError(
        f"`{name}` is no class of fault",
        where="--explain",
        hint=f"did you mean `{close[0]}`?" if close else f"the classes are: {', '.join(known)}",
    )


FAULTS = frozenset(faults())
"""Every class that a diagnosis may name."""
