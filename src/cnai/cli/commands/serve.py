"""`ai-cli serve`: a model behind the OpenAI protocol."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.output import Output


@command(
    "serve",
    examples=[
        "ai-cli serve runs/quickstart/artifacts/model-int8",
        "ai-cli serve runs/quickstart --port 8001",
    ],
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 = any free one.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens when a request names none.")
def verb(
    out: Output, model: Path, host: str | None, port: int | None, max_tokens: int | None
) -> None:
    """Serve a model folder, or the smallest model of a run, until Ctrl-C.

    What is not given is taken from the `serve` section of the run's spec, else it is 127.0.0.1,
    port 8000 and 32 tokens.

    The server answers /v1/completions, /v1/chat/completions and /v1/models as OpenAI's does, and
    /healthz, /readyz and /metrics.
    """
    from cnai.flows.servable import servable, serving_of
    from cnai.flows.serve import serve_model

    folder, asked = servable(model), serving_of(model)

    def tell(url: str) -> None:
        out.record({"url": url, "model": folder.name})
        out.note(f"serving {folder} at {url}; Ctrl-C ends it")
        out.next(
            f"curl {url}/v1/completions -H 'content-type: application/json' "
            f"""-d '{{"model": "{folder.name}", "prompt": "Return the"}}'"""
        )

    serve_model(
        folder,
        host=host or asked.host,
        port=asked.port if port is None else port,
        max_tokens=max_tokens or asked.max_tokens,
        on_ready=tell,
    )
