"""The files that wire Prometheus, Alertmanager, Grafana and a cluster to runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cnai.monitor.stack.dashboards import DASHBOARDS
from cnai.monitor.stack.rules import rule_groups
from cnai.monitor.stack.yamltext import as_yaml

_HEAD = "# Written by `ai-cli dashboards export`; changes will be overwritten.\n"
_LABELS = {"app.kubernetes.io/part-of": "cnai"}
_ETC = "/etc/grafana/provisioning/dashboards/cnai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Where the servers find each other, and what tells people.

    Attributes:
        train: Host and port of the `/metrics` of a run; `serve` likewise.
        dashboards: Folder in which Grafana finds the dashboards.
        hooks: Address to which alerts go, as `/now` and `/morning`; None = they are only kept.
    """

    train: str = "127.0.0.1:9460"
    serve: str = "127.0.0.1:8000"
    prometheus: str = "127.0.0.1:9090"
    alertmanager: str = "127.0.0.1:9093"
    dashboards: str = _ETC
    hooks: str | None = "http://127.0.0.1:9095"


def stack_files(wiring: Wiring | None = None) -> dict[str, bytes]:
    """Return every file by its path inside the folder."""
    wiring = wiring or Wiring()
    written: dict[str, dict[str, Any]] = {
        "prometheus/cnai-rules.yml": rule_groups(),
        "prometheus/prometheus.yml": _prometheus(wiring),
        "alertmanager/alertmanager.yml": _alertmanager(wiring.hooks),
        "grafana/provisioning/datasources/cnai.yml": _source(wiring.prometheus),
        "grafana/provisioning/dashboards/cnai.yml": _provider(wiring.dashboards),
        "kubernetes/podmonitor.yaml": _monitor("PodMonitor", "train", "podMetricsEndpoints"),
        "kubernetes/servicemonitor.yaml": _monitor("ServiceMonitor", "serve", "endpoints"),
        "kubernetes/prometheusrule.yaml": _resource("PrometheusRule", "cnai", rule_groups()),
        "kubernetes/dashboards.yaml": _config_map(),
    }
    files = {path: (_HEAD + as_yaml(plain)).encode() for path, plain in written.items()}
    for name, text in _dashboards().items():
        files[f"grafana/dashboards/{name}"] = text.encode()
    return dict(sorted(files.items()))


def _dashboards() -> dict[str, str]:
    return {f"{one.uid}.json": json.dumps(one.as_json(), indent=2) + "\n" for one in DASHBOARDS}


def _prometheus(wiring: Wiring) -> dict[str, Any]:
    def job(name: str, target: str) -> dict[str, Any]:
        return {"job_name": name, "static_configs": [{"targets": [target]}]}

    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": ["cnai-rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [wiring.alertmanager]}]}]},
        "scrape_configs": [
            job("cnai-train", wiring.train),
            job("cnai-serve", wiring.serve),
        ],
    }


def _alertmanager(hooks: str | None) -> dict[str, Any]:
    """Return a route: what is critical at once, the rest together and seldom."""

    def receiver(name: str) -> dict[str, Any]:
        return {
            "name": name,
            **({"webhook_configs": [{"url": f"{hooks}/{name}"}]} if hooks else {}),
        }

    return {
        "route": {
            "receiver": "morning",
            "group_by": ["alertname", "run", "model"],
            "group_wait": "30s",
            "repeat_interval": "12h",
            "routes": [
                {
                    "matchers": ['severity="critical"'],
                    "receiver": "now",
                    "group_wait": "0s",
                    "repeat_interval": "1h",
                }
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": ['alertname="CnaiRunFailed"'],
                "target_matchers": ['severity="warning"'],
                "equal": ["run"],
            }
        ],
        "receivers": [receiver("now"), receiver("morning")],
    }


def _source(prometheus: str) -> dict[str, Any]:
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": f"http://{prometheus}",
        "isDefault": True,
    }
    return {"apiVersion": 1, "datasources": [source]}


def _provider(folder: str) -> dict[str, Any]:
    provider = {
        "name": "cnai",
        "folder": "cnai",
        "type": "file",
        "options": {"path": folder, "foldersFromFilesStructure": False},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _monitor(kind: str, part: str, endpoints: str) -> dict[str, Any]:
    """Return what tells the Prometheus operator to scrape pods or services of ours."""
    spec = {
        "selector": {"matchLabels": {**_LABELS, "app.kubernetes.io/component": part}},
        endpoints: [{"port": "metrics", "path": "/metrics", "interval": "15s"}],
    }
    return _resource(kind, f"cnai-{part}", spec)


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": _LABELS},
        "spec": spec,
    }


def _config_map() -> dict[str, Any]:
    """Return the dashboards where the usual sidecar of Grafana looks for them."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cnai-dashboards", "labels": {**_LABELS, "grafana_dashboard": "1"}},
        "data": _dashboards(),
    }
