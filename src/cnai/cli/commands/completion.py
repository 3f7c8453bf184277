"""`ai-cli completion`: the script that teaches a shell our verbs and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cnai.cli.framework import command
from cnai.cli.output import Output

PLACES = {
    "bash": "~/.local/share/bash-completion/completions/ai-cli",
    "zsh": "~/.zfunc/_ai-cli",
    "fish": "~/.config/fish/completions/ai-cli.fish",
}


@command("completion", examples=["ai-cli completion bash", "ai-cli completion fish"])
@click.argument("shell", type=click.Choice(list(PLACES)))
@click.pass_context
def verb(ctx: click.Context, out: Output, shell: str) -> None:
    """Print the completion script of a shell.

    Save it where the shell looks for such scripts.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise RuntimeError(f"click knows no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "ai-cli", "_AI_CLI_COMPLETE").source()
    out.record({"shell": shell, "script": script})
    out.text(script)
    out.next(f"ai-cli completion {shell} > {PLACES[shell]}")
