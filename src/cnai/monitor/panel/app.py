"""The panel's HTTP application: the page, its data, the live stream and `/metrics`."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from cnai.core.clock import Clock, SystemClock
from cnai.core.runfolder import RunFolder
from cnai.monitor.exporter import render_training
from cnai.monitor.panel.access import Access, Guard
from cnai.monitor.panel.incident import style_hash
from cnai.monitor.panel.logfile import find_lines, log_names
from cnai.monitor.panel.pictures import POINTS, at_step, curve, layers, mark, news, waits, whole
from cnai.monitor.panel.record import RunRecord
from cnai.monitor.panel.table import CURVES
from cnai.monitor.uplot import chart_files, missing_charts

STATIC = Path(__file__).parent / "static"
POLL_SECONDS = 0.5
Draw = Callable[[RunFolder], str]
"""Draws a page of a run."""
_MOST_RECORDS = 8
_MOST_RUNS = 500
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Records:
    """The records of the runs of one folder, made when they are asked for."""

    def __init__(self, run: RunFolder, clock: Clock) -> None:
        self.run = run
        self._clock = clock
        self._records: OrderedDict[str, RunRecord] = OrderedDict()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return the runs that lie beside the run, the newest first, itself among them."""
        folders = [one for one in self.run.root.resolve().parent.iterdir() if _is_run(one)]
        newest = sorted(folders, key=lambda one: (one / "events").stat().st_mtime, reverse=True)
        return [one.name for one in newest[:_MOST_RUNS]]

    def get(self, name: str) -> RunRecord:
        """Return the record of a run, up to date.

        Raises:
            HTTPException: There is no such run.
        """
        with self._lock:
            record = self._records.get(name) or self._made(name)
            self._records[name] = record
            self._records.move_to_end(name)
            while len(self._records) > _MOST_RECORDS:
                self._records.popitem(last=False)
        record.refresh()
        return record

    def _made(self, name: str) -> RunRecord:
        here = self.run.root.resolve()
        if name == here.name:
            return RunRecord(self.run, self._clock)
        if name not in {one.name for one in here.parent.iterdir() if _is_run(one)}:
            raise HTTPException(404, f"there is no run `{name}` beside `{here.name}`")
        return RunRecord(RunFolder(here.parent / name), self._clock)


def _is_run(folder: Path) -> bool:
    return (folder / "events").is_dir()


class _Stream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


class _Panel:
    """The endpoints."""

    def __init__(self, records: Records, poll_seconds: float, draw: Draw | None) -> None:
        self._records = records
        self._draw = draw
        self._poll = poll_seconds
        self._main = records.run.root.resolve().name
        self.closing = asyncio.Event()

    async def page(self, _request: Request) -> Response:
        """Answer with the page."""
        return FileResponse(STATIC / "index.html", headers=_HEADERS)

    async def about(self, _request: Request) -> Response:
        """Tell which runs there are, and whether charts can be drawn."""
        names = await run_in_threadpool(self._records.names)
        logs = await run_in_threadpool(log_names, self._records.run)
        return _json({"run": self._main, "runs": names, "logs": logs, "missing": missing_charts()})

    async def snapshot(self, request: Request) -> Response:
        """Answer with all of a run."""
        return _json(await run_in_threadpool(whole, await self._record(request)))

    async def curve(self, request: Request) -> Response:
        """Answer with one curve of a run."""
        name = request.query_params.get("curve", "loss")
        if name not in (*CURVES, "validation"):
            raise HTTPException(400, f"there is no curve `{name}`; take one of {', '.join(CURVES)}")
        return _json(await run_in_threadpool(curve, await self._record(request), name, POINTS))

    async def step(self, request: Request) -> Response:
        """Answer with how the run stood after a step."""
        step = _whole_number(request, "step", 0)
        return _json(await run_in_threadpool(at_step, await self._record(request), step))

    async def waits(self, request: Request) -> Response:
        """Answer with the waits of all ranks."""
        columns = min(500, max(8, _whole_number(request, "columns", 160)))
        return _json(await run_in_threadpool(waits, await self._record(request), columns))

    async def layers(self, request: Request) -> Response:
        """Answer with what was measured in all layers."""
        columns = min(500, max(8, _whole_number(request, "columns", 160)))
        return _json(await run_in_threadpool(layers, await self._record(request), columns))

    async def logs(self, request: Request) -> Response:
        """Answer with the last lines of logs that hold a text."""
        run = (await self._record(request)).run
        log = request.query_params.get("log") or None
        text = request.query_params.get("text", "")
        found = await run_in_threadpool(find_lines, run, log, text)
        names = await run_in_threadpool(log_names, run)
        return _json({"lines": found.lines, "complete": found.complete, "logs": names})

    async def live(self, request: Request) -> Response:
        """Stream the whole of a run, and then what is new, until the client leaves."""
        record = await self._record(request)
        return _Stream(self._events(record, request), headers=_HEADERS)

    async def incident(self, request: Request) -> Response:
        """Answer with the page of what broke a run."""
        run = (await self._record(request)).run
        if self._draw is None:
            raise HTTPException(404, "this panel draws no incidents")
        page = await run_in_threadpool(self._draw, run)
        policy = f"default-src 'none'; style-src '{style_hash()}'; frame-ancestors 'none'"
        return HTMLResponse(page, headers={**_HEADERS, "Content-Security-Policy": policy})

    async def metrics(self, _request: Request) -> Response:
        """Answer Prometheus."""
        record = await run_in_threadpool(self._records.get, self._main)
        body, content_type = await run_in_threadpool(lambda: render_training(record.progress()))
        return Response(body, headers={"Content-Type": content_type})

    async def _record(self, request: Request) -> RunRecord:
        name = request.query_params.get("run") or self._main
        return await run_in_threadpool(self._records.get, name)

    async def _events(self, record: RunRecord, request: Request) -> AsyncIterator[bytes]:
        with record.lock:
            seen, plain = mark(record), whole(record)
        yield _event("whole", plain)
        while not await self._ended() and not await request.is_disconnected():
            await run_in_threadpool(record.refresh)
            with record.lock:
                fresh = news(record, seen)
                kind, plain = ("whole", whole(record)) if fresh is None else ("news", fresh)
                seen = mark(record)
            yield _event(kind, plain)

    async def _ended(self) -> bool:
        """Wait until it is time to look again; true when the server is to end."""
        try:
            async with asyncio.timeout(self._poll):
                await self.closing.wait()
        except TimeoutError:
            return False
        return True


class PanelApp:
    """The application, with a way to end its streams."""

    def __init__(self, app: Guard, panel: _Panel, records: Records) -> None:
        self._app = app
        self._panel = panel
        self._records = records

    def preload(self) -> None:
        """Read the run now, so that the first visitor does not wait for it."""
        self._records.get(self._records.run.root.resolve().name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def close(self) -> None:
        """End all streams; call it in the event loop."""
        self._panel.closing.set()


def create_app(
    run: RunFolder,
    access: Access | None = None,
    *,
    clock: Clock | None = None,
    poll_seconds: float = POLL_SECONDS,
    draw_incident: Draw | None = None,
) -> PanelApp:
    """Build the application.

    Args:
        run: The run that is shown first; those beside it can be looked at too.
        access: Who may look; only this machine when it is left out.
        clock: For the ages of things.
        poll_seconds: Time between two looks at the files while a page is open.
        draw_incident: Draws the page of what broke a run; None = there is no such page.
    """
    records = Records(run, clock or SystemClock())
    panel = _Panel(records, poll_seconds, draw_incident)
    routes = [
        Route("/", panel.page),
        Route("/api/about", panel.about),
        Route("/api/run", panel.snapshot),
        Route("/api/curve", panel.curve),
        Route("/api/step", panel.step),
        Route("/api/waits", panel.waits),
        Route("/api/layers", panel.layers),
        Route("/api/logs", panel.logs),
        Route("/api/live", panel.live),
        Route("/incident", panel.incident),
        Route("/metrics", panel.metrics),
        Route("/favicon.ico", _file(STATIC / "icon.svg")),
        *[Route(f"/charts/{file.name}", _file(file)) for file in chart_files()],
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _problem})
    return PanelApp(Guard(app, access or Access()), panel, records)


def _file(file: Path) -> Any:
    async def answer(_request: Request) -> Response:
        if not file.is_file():
            raise HTTPException(404, missing_charts())
        return FileResponse(file, headers=_HEADERS)

    return answer


def _whole_number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise HTTPException(400, f"`{name}` is `{given[:40]}`, not a whole number")
    return int(given)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code)


def _json(plain: object) -> Response:
    return Response(msgspec.json.encode(plain), media_type="application/json", headers=_HEADERS)


def _event(kind: str, plain: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(plain))
