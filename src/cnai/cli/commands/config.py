"""`ai-cli config`: the values of a spec and where each comes from."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import CONTEXT, Topic, command
from cnai.cli.options import read_spec, spec_options
from cnai.cli.output import Output


@click.group("config", cls=Topic, context_settings=CONTEXT, epilog="ai-cli config show run.yaml")
def verb() -> None:
    """Show the values of a spec and where each comes from."""


@command("show", examples=["ai-cli config show run.yaml --origin --set train.steps=500"])
@spec_options
@click.option("--origin", is_flag=True, help="Tell for each value who gave it.")
def show(out: Output, spec: Path, sets: tuple[str, ...], *, origin: bool) -> None:
    """Show every key of a spec with its value.

    SPEC is the file, run.yaml when it is left out. A value comes from --set, else from the spec,
    else from the user's own configuration ($XDG_CONFIG_HOME/cnai/config.yaml), else it is the
    default.
    """
    from cnai.core.spec.identity import digest, value_of
    from cnai.core.spec.words import value_words

    loaded = read_spec(spec, sets)
    out.record(
        {
            "digest": digest(loaded.spec),
            "values": {key: value_of(loaded.spec, key) for key in loaded.origins},
            "origins": loaded.origins,
        }
    )
    rows = [
        (key, value_words(value_of(loaded.spec, key)), source)
        for key, source in loaded.origins.items()
    ]
    columns = ["key", "value", "origin"]
    kept = 3 if origin else 2
    out.table(columns[:kept], [row[:kept] for row in rows])


verb.add_command(show)
