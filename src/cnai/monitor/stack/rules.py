"""Recording and alert rules for Prometheus, made of the metrics and the detectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cnai.monitor.detectors import DETECTORS
from cnai.monitor.detectors.stalled import LEAST_SECONDS, STEPS

_TRAINING = 'on (run) cnai_train_run_state{state="training"} == 1'
_CHECKPOINT_SECONDS = 3600
_WAIT_SHARE = 0.2
_SLOW_ANSWER_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A value that Prometheus works out again and again, under a name of its own."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition that somebody is to hear of.

    Attributes:
        severity: `critical` wakes somebody, `warning` waits for the morning.
        held: How long it must hold, as Prometheus writes times.
        summary: A sentence, with the labels of the alert in `{{ $labels.NAME }}`.
        advice: What to do first.
    """

    alert: str
    expr: str
    severity: str
    summary: str
    advice: str
    held: str = "0s"


RECORDINGS = (
    Recording(
        record="cnai:train_step_seconds:mean",
        expr="cnai_train_step_duration_seconds_sum / (cnai_train_step_duration_seconds_count > 0)",
    ),
    Recording(
        record="cnai:train_quiet_seconds:min",
        expr="time() - max by (run) (cnai_train_last_step_timestamp_seconds)",
    ),
    Recording(record="cnai:train_tokens:rate5m", expr="rate(cnai_train_tokens_total[5m])"),
    Recording(
        record="cnai:train_data_wait:share5m",
        expr="rate(cnai_train_data_wait_seconds_total[5m])",
    ),
    Recording(
        record="cnai:serve_latency_seconds:p95",
        expr="histogram_quantile(0.95, sum by (model, le) "
        "(rate(cnai_serve_latency_seconds_bucket[5m])))",
    ),
    Recording(
        record="cnai:serve_failed:share5m",
        expr='(sum by (model) (rate(cnai_serve_requests_total{outcome="failed"}[5m])) or '
        "0 * sum by (model) (rate(cnai_serve_requests_total[5m]))) / "
        "(sum by (model) (rate(cnai_serve_requests_total[5m])) > 0)",
    ),
)

_FOUND = {
    "nonfinite": ("LossNotANumber", "critical"),
    "loss_spike": ("LossSpike", "warning"),
    "stalled": ("DetectedStall", "critical"),
    "lagging_rank": ("LaggingRank", "warning"),
}
"""Names and severities of alerts that stand for a detector; others get made-up ones."""


def _found(detector: str) -> Alert:
    """Return the alert that tells of a detector's findings, for ten minutes after each."""
    words = "".join(word.capitalize() for word in detector.split("_"))
    name, severity = _FOUND.get(detector, (f"Found{words}", "warning"))
    series = f'cnai_train_findings{{detector="{detector}"}}'
    return Alert(
        alert=f"Cnai{name}",
        expr=f"{series} > ({series} offset 10m or 0 * {series})",
        severity=severity,
        summary=f"Run {{{{ $labels.run }}}}: detector `{detector}` found something",
        advice="`ai-cli monitor RUN` shows the finding with its evidence and repairs",
    )


ALERTS = (
    Alert(
        alert="CnaiNoStep",
        expr=f"cnai:train_quiet_seconds:min > on (run) clamp_min({STEPS} * "
        f"cnai:train_step_seconds:mean, {LEAST_SECONDS:g}) and {_TRAINING}",
        severity="critical",
        held="30s",
        summary="Run {{ $labels.run }}: no step for {{ $value | humanizeDuration }}",
        advice="`ai-cli diagnose RUN` names the rank that is behind",
    ),
    *(_found(detector) for detector in DETECTORS),
    Alert(
        alert="CnaiRankLost",
        expr="increase(cnai_rank_lost_total[10m]) > 0",
        severity="warning",
        summary="Run {{ $labels.run }}: a rank was lost; the run recovers by itself",
        advice="`ai-cli diagnose RUN` tells why it was lost",
    ),
    Alert(
        alert="CnaiRunFailed",
        expr='cnai_train_run_state{state="failed"} == 1',
        severity="critical",
        summary="Run {{ $labels.run }} has failed",
        advice="`ai-cli diagnose RUN` tells why; `ai-cli train` goes on from its last checkpoint",
    ),
    Alert(
        alert="CnaiCheckpointOld",
        expr="time() - cnai_checkpoint_last_success_timestamp_seconds > "
        f"{_CHECKPOINT_SECONDS} and {_TRAINING}",
        severity="warning",
        held="5m",
        summary="Run {{ $labels.run }}: last checkpoint {{ $value | humanizeDuration }} ago",
        advice="look whether the disk of its folder is full, and at `checkpoint.every_steps`",
    ),
    Alert(
        alert="CnaiWaitsForData",
        expr=f"max by (run) (cnai:train_data_wait:share5m) > {_WAIT_SHARE:g} and {_TRAINING}",
        severity="warning",
        held="10m",
        summary="Run {{ $labels.run }} waits {{ $value | humanizePercentage }} of time for data",
        advice="look at the store and at the disk of its cache",
    ),
    Alert(
        alert="CnaiGoodputLow",
        expr=f"cnai_train_goodput_ratio < 0.5 and {_TRAINING} and on (run) "
        "sum by (run) (cnai_train_spent_seconds) > 3600",
        severity="warning",
        held="30m",
        summary="Run {{ $labels.run }}: {{ $value | humanizePercentage }} of its time was useful",
        advice="`ai-cli monitor RUN` shows where the time went",
    ),
    Alert(
        alert="CnaiServeQueueFull",
        expr="cnai_serve_queue_depth / cnai_serve_queue_limit > 0.9",
        severity="warning",
        held="2m",
        summary="Model {{ $labels.model }}: its queue is nearly full, requests will be refused",
        advice="start another server, or shorten answers with `serve.max_tokens`",
    ),
    Alert(
        alert="CnaiServeFails",
        expr="cnai:serve_failed:share5m > 0.05",
        severity="critical",
        held="5m",
        summary="Model {{ $labels.model }}: {{ $value | humanizePercentage }} of requests fail",
        advice="look at the log of `ai-cli serve`",
    ),
    Alert(
        alert="CnaiServeSlow",
        expr=f"cnai:serve_latency_seconds:p95 > {_SLOW_ANSWER_SECONDS}",
        severity="warning",
        held="10m",
        summary="Model {{ $labels.model }}: 1 answer in 20 takes {{ $value | humanizeDuration }}",
        advice="look at the queue on the serving dashboard",
    ),
    Alert(
        alert="CnaiExporterDown",
        expr='up{job=~"cnai-.*"} == 0',
        severity="warning",
        held="2m",
        summary="{{ $labels.instance }} does not answer Prometheus",
        advice="look whether `ai-cli monitor` or `ai-cli serve` runs there",
    ),
)
"""All alerts; each detector has one."""


def rule_groups() -> dict[str, Any]:
    """Return the file of rules as Prometheus reads it."""
    return {
        "groups": [
            {
                "name": "cnai-recordings",
                "rules": [{"record": one.record, "expr": one.expr} for one in RECORDINGS],
            },
            {"name": "cnai-alerts", "rules": [_alert_rule(one) for one in ALERTS]},
        ]
    }


def _alert_rule(one: Alert) -> dict[str, Any]:
    return {
        "alert": one.alert,
        "expr": one.expr,
        "for": one.held,
        "labels": {"severity": one.severity},
        "annotations": {"summary": one.summary, "description": one.advice},
    }
