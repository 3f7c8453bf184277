"""Grafana's dashboards as typed records, and the JSON that Grafana reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 41
_COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Kind = Literal["timeseries", "stat", "bargauge", "state-timeline"]


@dataclass(frozen=True, slots=True)
class Query:
    """A question to Prometheus, and how its answers are named."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture.

    Attributes:
        unit: A unit of Grafana, `s` or `percentunit`.
        width: Columns of 24.
        stacked: Whether the curves lie on each other.
    """

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    stacked: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A page of panels over one variable, `run` or `model`.

    Attributes:
        of: Metric whose label gives the values of the variable.
        annotation: Expression whose rises are marked on all panels.
    """

    uid: str
    title: str
    variable: str
    of: str
    panels: tuple[Panel, ...]
    annotation: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as Grafana reads it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["cnai"],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [_source_variable(), self._variable()]},
            "annotations": {"list": self._annotations()},
            "panels": _placed(self.panels),
        }

    def _variable(self) -> dict[str, Any]:
        query = f"label_values({self.of}, {self.variable})"
        return {
            "type": "query",
            "name": self.variable,
            "label": self.variable.capitalize(),
            "datasource": _SOURCE,
            "query": {"query": query, "refId": "values"},
            "refresh": 2,
            "sort": 1,
            "multi": False,
            "includeAll": False,
        }

    def _annotations(self) -> list[dict[str, Any]]:
        if not self.annotation:
            return []
        return [
            {
                "name": "Findings",
                "datasource": _SOURCE,
                "enable": True,
                "iconColor": "orange",
                "target": {"refId": "Anno", "expr": self.annotation},
                "titleFormat": "{{detector}}",
            }
        ]


def _source_variable() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Source", "query": "prometheus"}


def _placed(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Put panels side by side, in rows as high as the highest of them."""
    placed = []
    x = y = row = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > _COLUMNS:
            x, y, row = 0, y + row, 0
        row = max(row, panel.height)
        position = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        placed.append({"id": number, "gridPos": position, **_panel(panel)})
        x += panel.width
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "range": True,
        }
        for number, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "custom": _custom(panel)},
            "overrides": [],
        },
        "options": _options(panel.kind),
    }


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {}
    mode = "normal" if panel.stacked else "none"
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if panel.stacked else 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": mode, "group": "A"},
    }


def _options(kind: Kind) -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    if kind == "timeseries":
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "state-timeline":
        return {"legend": legend, "mergeValues": True, "showValue": "never"}
    return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
