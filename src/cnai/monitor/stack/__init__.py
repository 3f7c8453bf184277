"""What other servers need to watch runs: rules, dashboards, and files that wire them.

In goes nothing but this version's metrics and detectors; out come files for Prometheus,
Alertmanager, Grafana and Kubernetes. It never talks to any of them.
"""

from cnai.monitor.stack.dashboards import DASHBOARDS
from cnai.monitor.stack.files import Wiring, stack_files
from cnai.monitor.stack.rules import ALERTS, RECORDINGS

__all__ = ["ALERTS", "DASHBOARDS", "RECORDINGS", "Wiring", "stack_files"]
