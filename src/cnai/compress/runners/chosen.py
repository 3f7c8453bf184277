"""A model of which only some inputs are given, or only some outputs count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cnai.compress.runners.runner import Runner
from cnai.core.errors import SpecError


class ChosenRunner:
    """Another runner, seen through the names that a user gave.

    Args:
        runner: The model itself.
        inputs: Names of the inputs that are given; () = all.
        outputs: Names of the outputs that count, the one to judge first; () = all.

    Raises:
        SpecError: The model has none of such a name.
    """

    def __init__(self, runner: Runner, *, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._runner = runner
        self._names = (tuple(inputs), tuple(outputs))
        given = [_plain(one.name) for one in runner.inputs]
        places = [_place(name, given, "--inputs") for name in inputs] or range(len(given))
        self.inputs = tuple(runner.inputs[place] for place in places)
        found = [_plain(one) for one in runner.outputs]
        self._outputs = [_place(name, found, "--outputs") for name in outputs]
        self._outputs = self._outputs or list(range(len(found)))
        self.outputs = tuple(runner.outputs[place] for place in self._outputs)
        self.runtime = runner.runtime

    def same_for(self, path: Path) -> ChosenRunner:
        """Load another model."""
        inputs, outputs = self._names
        return ChosenRunner(self._runner.same_for(path), inputs=inputs, outputs=outputs)

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs that count."""
        found = self._runner.run(feeds)
        return [found[place] for place in self._outputs]


def _plain(name: str) -> str:
    return name.removesuffix(":0")


def _place(name: str, there: Sequence[str], flag: str) -> int:
    if _plain(name) in there:
        return there.index(_plain(name))
    raise SpecError(
        f"the model has no `{name}`; it has {', '.join(f'`{one}`' for one in there)}",
        where=flag,
        hint="take one of these names",
    )
