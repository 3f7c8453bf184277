"""`ai-cli data`: text into packed tokens, and what a store holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnai.cli.framework import Topic, command
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.dataset import DatasetManifest

verb = Topic("data", help="Pack text into tokens in a store, list and verify what is there.")

store_option = click.option(
    "--store",
    default="data",
    show_default=True,
    help="Folder, or file://, s3://bucket/prefix, bos://bucket/prefix.",
)
endpoint_option = click.option("--endpoint", help="Address of an S3-compatible service.")


@command(
    "import",
    examples=["ai-cli data import pydocs", "ai-cli data import notes/ --store s3://bucket/notes"],
)
@click.argument("source")
@store_option
@endpoint_option
@click.option("--vocab", type=click.IntRange(256), default=4096, help="Tokens of the tokenizer.")
@click.option("--sequence", type=click.IntRange(2), default=128, help="Tokens in a row.")
@click.option(
    "--validation-fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    help="Share of the documents kept out of training.",
)
@click.option("--text-field", default="text", help="Field of a JSONL or Parquet file.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json to use.")
def import_verb(out: Output, source: str, store: str, endpoint: str | None, **options: Any) -> None:
    """Read text, train a tokenizer on it, and pack the tokens into a store.

    SOURCE is `pydocs` (docstrings and comments of this Python's standard library), `pysources`
    (its whole sources), a folder of text files, or a .jsonl, .parquet or text file.
    """
    from cnai.cli.screen import screen
    from cnai.flows.data import import_text

    with screen(out) as listener:
        manifest = import_text(source, store, endpoint, options, listener)
    out.record(manifest)
    _show(out, [manifest])
    out.next("ai-cli data list --store", store)


@command("list", examples=["ai-cli data list", "ai-cli data list --store s3://bucket/notes"])
@store_option
@endpoint_option
def list_verb(out: Output, store: str, endpoint: str | None) -> None:
    """List the datasets of a store."""
    from cnai.flows.data import datasets_of

    found = datasets_of(store, endpoint)
    out.record({"store": store, "datasets": found})
    if found:
        _show(out, found)
    else:
        out.note(f"no dataset in `{store}`")
        out.hint("make one with `ai-cli data import SOURCE`, or name another store")


@command("verify", examples=["ai-cli data verify", "ai-cli data verify 3f2a90c1d4e5"])
@click.argument("digest", default="")
@store_option
@endpoint_option
def verify_verb(out: Output, digest: str, store: str, endpoint: str | None) -> int:
    """Read every block of the datasets of a store and check its checksum.

    DIGEST is the beginning of the digest of one dataset; without it all are checked. The exit code
    is 4 when a block is damaged.
    """
    from cnai.core.errors import DataError
    from cnai.flows.data import problems_of

    problems = problems_of(store, endpoint, digest)
    out.record({"store": store, "problems": problems})
    for problem in problems:
        out.text(problem)
    if not problems:
        out.note("every block is as it was written")
    return DataError.exit_code if problems else 0


def _show(out: Output, manifests: list[DatasetManifest]) -> None:
    from cnai.core.units import format_bytes, format_count

    out.table(
        ["dataset", "source", "documents", "text", "tokens", "train rows", "validation rows"],
        [
            [
                one.digest,
                one.source,
                str(one.documents),
                format_bytes(one.source_bytes),
                format_count((one.train_rows + one.validation_rows) * one.sequence),
                str(one.train_rows),
                str(one.validation_rows),
            ]
            for one in manifests
        ],
    )


for one in (import_verb, list_verb, verify_verb):
    verb.add_command(one)
