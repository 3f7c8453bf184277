"""Build hook: fetches the library that draws the panel's curves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ChartsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts uPlot beside the panel; without a registry the package is built without it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Fetch the library unless it is there."""
        charts = _charts(Path(self.root))
        try:
            charts.fetch()
        except charts.ChartsError as problem:
            self.app.display_warning(f"{problem}; the panel will say so. Later: {charts.COMMAND}")


def _charts(root: Path) -> ModuleType:
    """Load the file of the panel that knows how, without importing cnai."""
    file = root / "src" / "cnai" / "monitor" / "uplot.py"
    spec = importlib.util.spec_from_file_location("cnai_uplot", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
