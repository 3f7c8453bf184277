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
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="Port; 0 = any free one.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=32, help="When not asked.")
def verb(out: Output, model: Path, host: str, port: int, max_tokens: int) -> None:
    """Serve a model folder, or the smallest model of a run, until Ctrl-C.

    The server answers /v1/completions, /v1/chat/completions and /v1/models as OpenAI's does, and
    /healthz, /readyz and /metrics.
    """
    from cnai.flows.servable import servable
    from cnai.flows.serve import serve_model

    folder = servable(model)

    def tell(url: str) -> None:
        out.record({"url": url, "model": folder.name})
        out.note(f"serving {folder} at {url}; Ctrl-C ends it")
        out.next(
            f"curl {url}/v1/completions -H 'content-type: application/json' "
            f"""-d '{{"model": "{folder.name}", "prompt": "Return the"}}'"""
        )

    serve_model(folder, host=host, port=port, max_tokens=max_tokens, on_ready=tell)
