"""What serving costs in CPU time: a token of a small decoder, and a request around it.

Run with `python benchmarks/serve_cost.py`. CPU time of the whole process is taken (the best of
several repeats), since wall time means little on a busy machine.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cnai.core.shape import DecoderShape
from cnai.models import Decoder, KeyValueCache
from cnai.serve import FinishReason, Piece, Sampling, Server, TextEngine, TextService, create_app

SHAPE = DecoderShape(
    layers=4, width=128, heads=4, kv_heads=4, ffn_width=352, vocab=4096, sequence=256,
    tied_head=True,
)  # fmt: skip
PROMPT = list(range(1, 17))
TOKENS = 64
REQUESTS = 500


class InstantEngine:
    """Says the same words without computing, so that only the server is left to measure."""

    name = "instant"
    context_tokens = 10_000

    def encode(self, text: str) -> list[int]:
        """Return a token a word."""
        return [1] * len(text.split())

    def generate(
        self, _prompt_tokens: Sequence[int], sampling: Sampling
    ) -> Generator[Piece, None, None]:
        """Yield words at once."""
        for left in range(sampling.max_tokens - 1, -1, -1):
            yield Piece(token=1, text="word ", finish_reason=None if left else FinishReason.LENGTH)


def tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["a"], trainer)
    return made


def cpu_ms(work: Callable[[], object], *, repeats: int = 5) -> float:
    """Return the least CPU time of a few runs, in milliseconds."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append((time.process_time() - started) * 1e3)
    return min(times)


def engine_costs() -> dict[str, float]:
    """Return CPU ms a token: the bare forward pass with a cache, and the whole engine."""
    torch.manual_seed(0)
    decoder = Decoder(SHAPE)
    engine = TextEngine(decoder, tokenizer(), name="bench", end_tokens=[])
    greedy = Sampling(max_tokens=TOKENS, temperature=0)
    sampled = Sampling(max_tokens=TOKENS, top_p=0.9, seed=0)
    return {
        "bare decoder, cached": cpu_ms(lambda: bare(decoder)) / TOKENS,
        "engine, greedy": cpu_ms(lambda: list(engine.generate(PROMPT, greedy))) / TOKENS,
        "engine, top_p 0.9": cpu_ms(lambda: list(engine.generate(PROMPT, sampled))) / TOKENS,
        "no cache (for comparison)": cpu_ms(lambda: uncached(decoder), repeats=2) / TOKENS,
    }


@torch.inference_mode()
def bare(decoder: Decoder) -> None:
    """Generate greedily with nothing around the decoder."""
    cache, tokens = KeyValueCache(), PROMPT
    for _ in range(TOKENS):
        tokens = [int(decoder(torch.tensor([tokens]), cache)[0, -1].argmax())]


@torch.inference_mode()
def uncached(decoder: Decoder) -> None:
    """Generate greedily, each token from the whole text."""
    tokens = list(PROMPT)
    for _ in range(TOKENS):
        tokens.append(int(decoder(torch.tensor([tokens]))[0, -1].argmax()))


def bare_app() -> Starlette:
    """Return an application that decodes a request and answers with about as many bytes."""

    async def complete(request: Request) -> Response:
        asked = json.loads(await request.body())
        return JSONResponse({"model": asked["model"], "text": "word " * 60})

    return Starlette(routes=[Route("/v1/completions", complete, methods=["POST"])])


def full_app() -> Starlette:
    """Return our application around an engine that takes no time."""
    return create_app(TextService(InstantEngine()), chat_prompt=str)


def served(make_app: Callable[[], Starlette], fields: dict[str, object]) -> float:
    """Return CPU ms a request of the server process, which is a child of this one."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        server = Server(make_app(), port=0)
        server.run(lambda _url: os.write(write, f"{server.port}\n".encode()))
        os._exit(0)
    port = int(os.read(read, 100))
    body = json.dumps({"model": InstantEngine.name, "prompt": "a b c"} | fields)
    before = child_cpu(child)
    ask(port, body)
    spent = child_cpu(child) - before
    os.kill(child, 15)
    os.waitpid(child, 0)
    return spent * 1e3 / REQUESTS


def ask(port: int, body: str) -> None:
    """Send the requests one after another over one connection."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(REQUESTS):
        client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(content.decode())
    client.close()


def child_cpu(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print two tables."""
    cases = {
        "bare": (bare_app, {}),
        "one": (full_app, {"max_tokens": 1}),
        "many": (full_app, {"max_tokens": 65}),
        "stream": (full_app, {"max_tokens": 65, "stream": True}),
    }
    rounds = [{name: served(*case) for name, case in cases.items()} for _ in range(3)]
    least = {name: min(costs[name] for costs in rounds) for name in cases}
    costs = engine_costs()
    print("CPU ms a token, layers 4, width 128, vocab 4096:")
    for name, cost in costs.items():
        print(f"  {name:<42} {cost:7.3f}")
    print("CPU ms of the server, with an engine that takes no time:")
    print(f"  bare Starlette on uvicorn, for comparison  {least['bare']:7.3f}")
    print(f"  a request of one token                     {least['one']:7.3f}")
    print(
        f"  each further token                         {(least['many'] - least['one']) / 64:7.3f}"
    )
    stream = (least["stream"] - least["one"]) / 64
    print(f"  each further token, streamed               {stream:7.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
