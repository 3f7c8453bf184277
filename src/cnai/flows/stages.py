"""Stages that are done once: their results lie in the run folder under the key of their inputs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cnai.core.errors import DataError
from cnai.core.files import read_bytes, write_atomically
from cnai.core.records import convert, decode, encode, encode_pretty, to_dict
from cnai.core.runfolder import RunFolder
from cnai.core.spec.section import Section
from cnai.flows.listener import Listener

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What lies in `results/STAGE.json`."""

    key: str
    seconds: float
    result: dict[str, Any]


def recorded(run: RunFolder, name: str, kind: type[T]) -> T:
    """Return what a stage of an earlier command found.

    Raises:
        DataError: The stage is not done.
    """
    path = run.results / f"{name}.json"
    content = read_bytes(
        path, hint=f"stage `{name}` is not done; do it with `ai-cli run {run.spec_file}`"
    )
    return convert(kind, decode(StageResult, content, where=str(path)).result, where=str(path))


def written(section: Section) -> dict[str, Any]:
    """Return the values of a section that differ from the defaults.

    A key that a later version adds, with a default that changes nothing, then changes no stage.
    """
    plain: dict[str, Any] = section.model_dump(mode="json", exclude_defaults=True)
    return plain


class Stages:
    """Runs stages in order, and passes over those whose result is there.

    The key of a stage is a hash of what it depends on and of the key of the stage before, so a
    change anywhere upstream makes everything after it run again.
    """

    def __init__(self, run: RunFolder, listener: Listener) -> None:
        self._run = run
        self._listener = listener
        self._key = ""
        self.seconds: dict[str, float] = {}

    def run(
        self,
        name: str,
        kind: type[T],
        inputs: object,
        body: Callable[[], T],
        *,
        still_good: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Return the stage's result, from the folder or by running it.

        Args:
            name: Name of the stage and of its file.
            kind: Record that the stage returns.
            inputs: Everything of the spec that the result depends on.
            body: Does the work.
            still_good: Tells whether what an earlier command left behind can still be used.
        """
        self._key = hashlib.sha256(encode([self._key, name, inputs])).hexdigest()[:16]
        earlier = self._earlier(name, kind)
        if earlier is not None and still_good(earlier[0]):
            self._listener.stage(name, skipped=True)
            result, self.seconds[name] = earlier
            return result
        self._listener.stage(name)
        start = time.monotonic()
        result = body()
        self.seconds[name] = time.monotonic() - start
        record = StageResult(key=self._key, seconds=self.seconds[name], result=to_dict(result))
        write_atomically(self._run.results / f"{name}.json", encode_pretty(record))
        return result

    def _earlier(self, name: str, kind: type[T]) -> tuple[T, float] | None:
        """Return what an earlier command found under this key, and the seconds that it took.

        None when there is nothing, or nothing that can be read.
        """
        path = self._run.results / f"{name}.json"
        if not path.is_file():
            return None
        try:
            earlier = decode(StageResult, path.read_bytes(), where=str(path))
            if earlier.key != self._key:
                return None
            return convert(kind, earlier.result, where=str(path)), earlier.seconds
        except DataError as error:
            self._listener.warn(f"{error.message} in {path}; doing stage `{name}` again")
            return None
