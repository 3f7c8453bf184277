"""Progress and snapshots as metric families, filled at the moment of the scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from cnai.core.serving import Histogram, ServeSnapshot
from cnai.monitor.metrics import METRICS
from cnai.monitor.progress import RankRow, RunProgress, RunState

_MOST_RANKS = 200

Sample = tuple[Sequence[str], float]


def train_families(progress: RunProgress) -> Iterator[Metric]:
    """Yield the metrics of a run; what has not happened yet has no sample."""
    run = progress.run
    yield from _values(progress)
    yield histogram("cnai_train_step_duration_seconds", {"run": run}, progress.step_histogram)
    yield from _ranks(progress)
    yield gauge(
        "cnai_train_run_state",
        ("run", "state"),
        [((run, state.value), float(state is progress.state)) for state in RunState],
    )
    yield gauge(
        "cnai_train_spent_seconds",
        ("run", "on"),
        [((run, part), seconds) for part, seconds in progress.goodput.parts.items()],
    )
    yield counter(
        "cnai_train_moves_total",
        ("run", "moved"),
        [((run, moved), count) for moved, count in progress.moves_made],
    )
    found = Counter(finding.detector for finding in progress.findings)
    yield gauge(
        "cnai_train_findings",
        ("run", "detector"),
        [((run, name), count) for name, count in sorted(found.items())],
    )


def _values(progress: RunProgress) -> Iterator[Metric]:
    gauges = {
        "cnai_train_loss": progress.loss,
        "cnai_train_validation_loss": progress.validation_loss,
        "cnai_train_noise_scale_sequences": progress.noise_scale,
        "cnai_train_gradient_norm": progress.grad_norm,
        "cnai_train_learning_rate": progress.learning_rate,
        "cnai_train_step": progress.step,
        "cnai_train_target_steps": progress.steps,
        "cnai_train_tokens_per_second": progress.tokens_per_second,
        "cnai_train_goodput_ratio": progress.goodput.share,
        "cnai_checkpoint_last_step": progress.checkpoint_step,
        "cnai_checkpoint_last_success_timestamp_seconds": progress.checkpoint_unix,
    }
    counters = {
        "cnai_train_steps_total": progress.steps_executed,
        "cnai_train_tokens_total": progress.tokens_executed,
        "cnai_train_attempts_total": 0 if progress.attempt is None else progress.attempt + 1,
        "cnai_rank_lost_total": progress.ranks_lost,
    }
    for name, value in gauges.items():
        yield gauge(name, ("run",), _present([((progress.run,), value)]))
    for name, count in counters.items():
        yield counter(name, ("run",), [((progress.run,), count)])


def _ranks(progress: RunProgress) -> Iterator[Metric]:
    labels = ("run", "rank")
    rows = [((progress.run, str(row.rank)), row) for row in _sample(progress.ranks)]
    yield gauge(
        "cnai_train_update_ratio", labels, _present((key, row.update_ratio) for key, row in rows)
    )
    yield gauge(
        "cnai_train_last_step_timestamp_seconds",
        labels,
        [(key, row.last_event_unix) for key, row in rows],
    )
    yield counter(
        "cnai_train_data_wait_seconds_total",
        labels,
        [(key, row.data_wait_total_seconds) for key, row in rows],
    )
    yield counter(
        "cnai_train_compute_seconds_total",
        labels,
        [(key, row.compute_total_seconds) for key, row in rows],
    )
    yield counter(
        "cnai_train_peer_wait_seconds_total",
        labels,
        [(key, row.wait_total_seconds) for key, row in rows],
    )
    yield gauge("cnai_train_rows", labels, _present((key, row.rows) for key, row in rows))


def _sample(rows: Sequence[RankRow]) -> Sequence[RankRow]:
    """Return all ranks, or so many evenly spread ones that a run stays within 1,500 series.

    They are the same at each scrape: series that come and go are what Prometheus bears worst.
    """
    every = -(-len(rows) // _MOST_RANKS)
    return rows[:: max(1, every)]


def serve_families(snapshot: ServeSnapshot) -> Iterator[Metric]:
    """Yield the metrics of a service."""
    model = {"model": snapshot.model}
    yield counter(
        "cnai_serve_requests_total",
        ("model", "outcome"),
        [((snapshot.model, name), count) for name, count in sorted(snapshot.requests.items())],
    )
    counters = {
        "cnai_serve_prompt_tokens_total": snapshot.prompt_tokens,
        "cnai_serve_generated_tokens_total": snapshot.generated_tokens,
    }
    gauges = {
        "cnai_serve_queue_depth": snapshot.queue_depth,
        "cnai_serve_queue_limit": snapshot.queue_limit,
        "cnai_serve_active": snapshot.active,
        "cnai_serve_active_limit": snapshot.active_limit,
    }
    histograms = {
        "cnai_serve_latency_seconds": snapshot.latency_seconds,
        "cnai_serve_first_token_seconds": snapshot.first_token_seconds,
        "cnai_serve_queue_seconds": snapshot.queue_seconds,
    }
    for name, count in counters.items():
        yield counter(name, ("model",), [((snapshot.model,), count)])
    for name, value in gauges.items():
        yield gauge(name, ("model",), [((snapshot.model,), value)])
    for name, times in histograms.items():
        yield histogram(name, model, times)


def gauge(name: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """Return a value that rises and falls."""
    family = GaugeMetricFamily(name, METRICS[name], labels=labels)
    for key, value in samples:
        family.add_metric(key, value)
    return family


def counter(name: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """Return a value that only rises."""
    family = CounterMetricFamily(name, METRICS[name], labels=labels)
    for key, value in samples:
        family.add_metric(key, value)
    return family


def histogram(name: str, labels: dict[str, str], times: Histogram) -> Metric:
    """Return durations in buckets."""
    family = HistogramMetricFamily(name, METRICS[name], labels=list(labels))
    bounds = [*(str(float(bound)) for bound in times.bounds), "+Inf"]
    buckets = list(zip(bounds, times.cumulative, strict=True))
    family.add_metric(list(labels.values()), buckets=buckets, sum_value=times.sum)
    return family


def _present(samples: Iterable[tuple[Sequence[str], float | None]]) -> list[Sample]:
    return [(key, value) for key, value in samples if value is not None]
