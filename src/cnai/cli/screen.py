"""What the user sees while a flow works: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cnai.cli.output import Output
from cnai.core.units import format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from cnai.core.events import Rebalanced
    from cnai.flows.listener import Listener
    from cnai.monitor import RunProgress
    from cnai.monitor.progress import RankRow

_LINE_SECONDS = 10.0
_BLOCKS = "▁▂▃▄▅▆▇█"


@contextmanager
def screen(out: Output) -> Iterator[Listener]:
    """Show a flow's progress while the block runs."""
    if out.quiet:
        yield Warnings(out)
    elif sys.stderr.isatty() and not out.as_json:
        view = LiveView(out)
        try:
            yield view
        finally:
            view.close()
    else:
        yield Lines(out)


class Warnings:
    """Shows nothing but warnings."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def stage(self, name: str, *, skipped: bool = False) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""

    def warn(self, text: str) -> None:
        """Show a warning."""
        self._out.warn(text)

    def fraction(self, what: str, done: float) -> None:
        """Ignore."""

    def training(self, progress: RunProgress) -> None:
        """Ignore."""


class Lines(Warnings):
    """A line for each stage and note, and one every ten seconds for what goes on."""

    def __init__(self, out: Output, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(out)
        self._clock = clock
        self._last = clock()

    def stage(self, name: str, *, skipped: bool = False) -> None:
        """Show which stage begins."""
        self._last = self._clock()
        self._out.note(f"{name}: done before" if skipped else f"{name}: started")

    def note(self, text: str) -> None:
        """Show a note."""
        self._out.note(text)

    def fraction(self, what: str, done: float) -> None:
        """Show how far something is, if it is time for a line."""
        if self._is_time():
            self._out.note(f"{what}: {done:.0%}")

    def training(self, progress: RunProgress) -> None:
        """Show how training stands, if it is time for a line or it has reached its end."""
        if self._is_time() or progress.state.is_final:
            self._out.note(training_line(progress))

    def _is_time(self) -> bool:
        if self._clock() - self._last < _LINE_SECONDS:
            return False
        self._last = self._clock()
        return True


class LiveView(Warnings):
    """A picture of the training that is drawn again and again at the foot of the terminal."""

    def __init__(self, out: Output) -> None:
        super().__init__(out)
        self._live: Live | None = None

    def stage(self, name: str, *, skipped: bool = False) -> None:
        """Show which stage begins."""
        self.close()
        self._out.note(f"{name}: done before" if skipped else f"{name} ...")

    def note(self, text: str) -> None:
        """Show a note above the picture."""
        self._above(text)

    def warn(self, text: str) -> None:
        """Show a warning above the picture."""
        self._above(f"warning: {text}")

    def fraction(self, what: str, done: float) -> None:
        """Draw how far something is."""
        self._draw(fraction_picture(what, done))

    def training(self, progress: RunProgress) -> None:
        """Draw how training stands."""
        self._draw(training_picture(progress))

    def close(self) -> None:
        """Leave the last picture standing and stop drawing."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _above(self, text: str) -> None:
        if self._live is None:
            self._out.note(text)
        else:
            self._live.console.print(text, markup=False, highlight=False)

    def _draw(self, picture: RenderableType) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False)
            self._live.start()
        self._live.update(picture, refresh=True)


def training_line(progress: RunProgress) -> str:
    """Return one line that tells how training stands."""
    if progress.loss is None:
        return f"train: {progress.state}, no step yet"
    if progress.state.is_final:
        left = str(progress.state)
    elif progress.eta_seconds is None:
        left = "? left"
    else:
        left = f"{format_seconds(progress.eta_seconds)} left"
    speed = format_count(progress.tokens_per_second or 0)
    unseen = progress.validation_loss
    validation = "" if unseen is None else f"validation {unseen:.3f}  "
    return (
        f"train: step {progress.step}/{progress.steps}  loss {progress.loss:.3f}  {validation}"
        f"{speed} tokens/s  ranks {len(progress.ranks)}  {left}"
    )


def fraction_picture(what: str, done: float) -> RenderableType:
    """Draw a bar with its name."""
    from rich.columns import Columns
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    return Columns([Text(f"  {what:<10}"), ProgressBar(total=1, completed=done, width=40)])


def training_picture(progress: RunProgress) -> RenderableType:
    """Draw step, loss, speed and ranks of a training."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 3))
    loss = "-" if progress.loss is None else f"{progress.loss:.4f}"
    norm = "-" if progress.grad_norm is None else f"{progress.grad_norm:.3f}"
    eta = "-" if progress.eta_seconds is None else format_seconds(progress.eta_seconds)
    head.add_row(f"state {progress.state}", f"step {progress.step}/{progress.steps}", f"left {eta}")
    head.add_row(
        f"loss {loss}",
        f"gradient norm {norm}",
        f"{format_count(progress.tokens_per_second or 0)} tokens/s",
    )
    if progress.validation_loss is not None or progress.noise_scale is not None:
        head.add_row(*_unseen_and_noise(progress))
    more = len(progress.ranks) - 16
    parts: list[RenderableType] = [
        head,
        Text(sparkline([loss for _, loss in progress.loss_history])),
        _ranks_table(progress.ranks[:16]),
    ]
    if progress.moves:
        parts.append(Text(move_line(progress.moves[-1]), style="dim"))
    if more > 0:
        parts.append(Text(f"and {more} more ranks", style="dim"))
    return Group(*parts)


def _ranks_table(rows: Sequence[RankRow]) -> RenderableType:
    """Draw a line a rank; what it computes and waits where known, narrow enough for both."""
    from rich.table import Table

    known = any(row.compute_seconds is not None for row in rows)
    table = Table(box=None, padding=(0, 1 if known else 2), header_style="dim")
    more = ("computes", "waits") if known else ()
    for column in ("rank", "step", "step time", *more, "data wait", "update/weight", "seen"):
        table.add_column(column, justify="right")
    for row in rows:
        times = [_seconds_or_dash(row.compute_seconds), _seconds_or_dash(row.wait_seconds)]
        table.add_row(
            str(row.rank),
            str(row.step),
            format_seconds(row.step_seconds),
            *(times if known else ()),
            format_seconds(row.data_wait_seconds),
            "-" if row.update_ratio is None else f"{row.update_ratio:.1e}",
            f"{format_seconds(row.age_seconds)} ago",
        )
    return table


def move_line(move: Rebalanced) -> str:
    """Return one line that tells of work that was moved."""
    before, after = (" ".join(map(str, shares[:16])) for shares in (move.before, move.after))
    verb, gain = ("moved back", "was") if move.is_rollback else ("moved", "expected")
    return (
        f"{move.moved} {verb} after step {move.step}: {before} -> {after}, {move.gain:.2f} x {gain}"
    )


def _seconds_or_dash(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _unseen_and_noise(progress: RunProgress) -> tuple[str, str]:
    """Say what the last evaluation found, and which batch the gradient's noise is worth."""
    validation = noise = ""
    if progress.validation_loss is not None:
        validation = f"validation {progress.validation_loss:.4f} at step {progress.validation_step}"
    if progress.noise_scale is not None:
        noise = f"noise scale {progress.noise_scale:.0f} sequences"
    return validation, noise


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Draw a series as one line of blocks, the newest at the right."""
    if not values:
        return ""
    every = -(-len(values) // width)
    shown = values[(len(values) - 1) % every :: every]
    finite = [value for value in shown if math.isfinite(value)] or [0.0]
    low = min(finite)
    span = (max(finite) - low) or 1.0
    return "loss " + "".join(_block((value - low) / span) for value in shown)


def _block(height: float) -> str:
    """Return the block of a height from 0 to 1; `x` for a loss that is no number."""
    return _BLOCKS[round(height * (len(_BLOCKS) - 1))] if math.isfinite(height) else "x"
