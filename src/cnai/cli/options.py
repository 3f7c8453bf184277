"""Flags and arguments that several verbs share, so that they are spelled and explained alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.spec import LoadedSpec

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SPEC = "run.yaml"


def _switch(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Make a callback that turns on a switch of the output."""

    def turn_on(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
        out = ctx.find_object(Output)
        if value and out is not None:
            setattr(out, name, True)

    return turn_on


def _output_flag(*names: str, switch: str, text: str) -> Callable[[F], F]:
    return click.option(
        *names,
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_switch(switch),
        help=text,
    )


json_flag = _output_flag("--json", switch="as_json", text="Print one JSON object on stdout.")
"""`--json`; the verb prints its result with `Output.record`."""

quiet_flag = _output_flag("-q", "--quiet", switch="quiet", text="Only data, warnings and errors.")
verbose_flag = _output_flag("-v", "--verbose", switch="verbose", text="More about what is done.")

yes_flag = click.option("-y", "--yes", is_flag=True, help="Do not ask before the work starts.")
"""`-y`; the verb gets `yes: bool` and calls `Output.confirm(question, yes=yes)`."""

dry_run_flag = click.option("--dry-run", is_flag=True, help="Show what would be done, do nothing.")
"""`--dry-run`; the verb gets `dry_run: bool`."""

monitor_flag = click.option(
    "--monitor", is_flag=True, help="Show the training in the browser while it goes on."
)
"""`--monitor`; the verb gets `monitor: bool` and wraps its work in `panel_beside`."""

pass_output = click.make_pass_decorator(Output)
"""Gives the verb its `Output` as the first argument."""

set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the spec, for instance train.steps=500. May be repeated.",
)
"""`--set`; the verb gets `sets: tuple[str, ...]`."""

spec_argument = click.argument(
    "spec", required=False, default=DEFAULT_SPEC, type=click.Path(path_type=Path)
)
"""The spec file; the verb gets `spec: Path`."""


class _Share(click.ParamType[float]):
    """A share of one, written `0.01` or `1%`."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return it as a number from 0 to below 1."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            self.fail(f"`{value}` is no share; write for instance 1% or 0.01", param, ctx)
        return share


class _Duration(click.ParamType[float]):
    """A time, written `90`, `90s`, `10m` or `1h`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return it in seconds."""
        text = str(value).strip().lower()
        factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
        try:
            seconds = float(text[:-1] if factor else text) * (factor or 1)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            self.fail(f"`{value}` is no duration; write for instance 90s or 10m", param, ctx)
        return seconds


SHARE = _Share()
DURATION = _Duration()


def output_flags(function: F) -> F:
    """Add `--json`, `-q` and `-v`."""
    return json_flag(quiet_flag(verbose_flag(function)))


def spec_options(function: F) -> F:
    """Add the spec argument and `--set`; pass both to `read_spec`."""
    return spec_argument(set_option(function))


def read_spec(spec: Path, sets: Sequence[str] = ()) -> LoadedSpec:
    """Load a spec as every verb does: over the user's own configuration.

    Raises:
        SpecError: Something is wrong in it.
    """
    from cnai.core.spec import load_spec, user_config_path

    return load_spec(spec, sets=sets, user_config=user_config_path())


on_option = click.option(
    "--on",
    type=click.Choice(["local", "kubernetes"], case_sensitive=False),
    help="Where to run; overrides `resources.on`.",
)
"""`--on`; the verb gets `on: str | None`."""

fresh_flag = click.option(
    "--fresh", is_flag=True, help="Start over; a run of this name is kept under another."
)
"""`--fresh`; the verb gets `fresh: bool`."""

run_argument = click.argument("run", type=click.Path(path_type=Path))
"""A run folder; the verb gets `run: Path`."""
