"""A small layer over click: lazy verbs, `_` and `-` alike, an example with every verb."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from cnai.cli.options import output_flags, pass_output


def dashes(token: str) -> str:
    """Fold `--input_model` into `--input-model`; free values never come here."""
    return token.replace("_", "-")


CONTEXT = {
    "token_normalize_func": dashes,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}


class _Folding(click.Command):
    """A command whose completion also understands underscores, and whose help ends in examples."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete `--input_m` to `--input-model`."""
        return super().shell_complete(ctx, _folded(incomplete))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed, one a line."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))


class Verb(_Folding):
    """A command that a user types."""


class Topic(_Folding, click.Group):
    """A verb with verbs of its own, such as `config show`."""


class Verbs(_Folding, click.Group):
    """A group that knows the names of its verbs and imports one only when it runs.

    Args:
        lazy: Verb to its one-line help, in the order in which the list shows them.
        package: Package with a module of the verb's name, whose `verb` is the command.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str], package: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy)
        self.package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order written."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a verb."""
        if cmd_name not in self.lazy:
            return None
        command: click.Command = importlib.import_module(f"{self.package}.{cmd_name}").verb
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Let click suggest from the lazy names too."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.lazy, ctx=ctx
            ) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs and flags without importing a verb."""
        verbs = [
            CompletionItem(name, help=text)
            for name, text in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, _folded(incomplete))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing a verb."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lazy.items()))


def command(
    name: str, *, examples: Sequence[str], **settings: Any
) -> Callable[[Callable[..., int | None]], Verb]:
    """Make a verb of a function.

    The function gets its `Output` first, and returns None or an exit code; its docstring is the
    help. The flags `--json`, `-q` and `-v` are added to every verb.

    Args:
        name: The verb as it is typed.
        examples: Commands that work as they stand, shown at the end of the help.
        settings: What `click.command` takes.
    """

    def make(function: Callable[..., int | None]) -> Verb:
        epilog = "\n".join(examples)
        whole = output_flags(pass_output(function))
        return click.command(name, cls=Verb, epilog=epilog, **settings)(whole)

    return make


def _folded(incomplete: str) -> str:
    return "--" + dashes(incomplete[2:]) if incomplete.startswith("--") else incomplete
