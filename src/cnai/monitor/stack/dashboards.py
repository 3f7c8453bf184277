"""The dashboards: a run, its ranks, its data and checkpoints, and serving."""

from __future__ import annotations

from cnai.monitor.stack.panels import Dashboard, Kind, Panel, Query

_RUN = '{run="$run"}'
_MODEL = '{model="$model"}'
_FINDINGS = f"changes(cnai_train_findings{_RUN}[1m]) > 0"


def _number(title: str, expr: str, unit: str = "short", kind: Kind = "stat") -> Panel:
    return Panel(title=title, queries=(Query(expr),), kind=kind, unit=unit, width=4, height=4)


def _by_rank(title: str, expr: str, unit: str, description: str = "") -> Panel:
    return Panel(
        title=title, queries=(Query(expr, "rank {{rank}}"),), unit=unit, description=description
    )


def _quantiles(title: str, metric: str) -> Panel:
    buckets = f"sum by (le) (rate({metric}_bucket{_MODEL}[5m]))"
    queries = tuple(
        Query(f"histogram_quantile({share}, {buckets})", f"{share:.0%}")
        for share in (0.5, 0.95, 0.99)
    )
    return Panel(title=title, queries=queries, unit="s")


RUN = Dashboard(
    uid="cnai-run",
    title="cnai: run",
    variable="run",
    of="cnai_train_step",
    annotation=_FINDINGS,
    panels=(
        _number("Done", f"cnai_train_step{_RUN} / cnai_train_target_steps{_RUN}", "percentunit"),
        _number(
            "Time left",
            f"(cnai_train_target_steps{_RUN} - cnai_train_step{_RUN}) * on (run) "
            f"cnai_train_step_duration_seconds_sum{_RUN} / on (run) "
            f"cnai_train_step_duration_seconds_count{_RUN}",
            "s",
        ),
        _number("Loss", f"cnai_train_loss{_RUN}"),
        _number("Tokens a second", f"cnai_train_tokens_per_second{_RUN}"),
        _number("Goodput", f"cnai_train_goodput_ratio{_RUN}", "percentunit"),
        _number("Quiet for", f"time() - max(cnai_train_last_step_timestamp_seconds{_RUN})", "s"),
        Panel(
            title="Loss, nats",
            queries=(
                Query(f"cnai_train_loss{_RUN}", "training"),
                Query(f"cnai_train_validation_loss{_RUN}", "validation"),
            ),
            width=24,
            height=9,
        ),
        Panel(title="Gradient norm", queries=(Query(f"cnai_train_gradient_norm{_RUN}", "norm"),)),
        Panel(title="Learning rate", queries=(Query(f"cnai_train_learning_rate{_RUN}", "rate"),)),
        Panel(
            title="Tokens a second",
            queries=(
                Query(f"cnai_train_tokens_per_second{_RUN}", "median of 20 steps"),
                Query(f"rate(cnai_train_tokens_total{_RUN}[5m])", "with all that lies between"),
            ),
        ),
        Panel(
            title="Time by what it was spent on",
            queries=(Query(f"cnai_train_spent_seconds{_RUN}", "{{on}}"),),
            unit="s",
            stacked=True,
        ),
        Panel(
            title="State",
            queries=(Query(f"cnai_train_run_state{_RUN} == 1", "{{state}}"),),
            kind="state-timeline",
        ),
        Panel(title="Findings", queries=(Query(f"cnai_train_findings{_RUN}", "{{detector}}"),)),
    ),
)

RANKS = Dashboard(
    uid="cnai-ranks",
    title="cnai: ranks",
    variable="run",
    of="cnai_train_step",
    annotation=_FINDINGS,
    panels=(
        _number("Attempts", f"cnai_train_attempts_total{_RUN}"),
        _number("Ranks lost", f"cnai_rank_lost_total{_RUN}"),
        _number("Ranks", f"count(cnai_train_last_step_timestamp_seconds{_RUN})"),
        _by_rank(
            "Last seen", f"time() - cnai_train_last_step_timestamp_seconds{_RUN}", "s",
            "Time since a rank finished a step; of a run that is over it grows for ever.",
        ),
        _by_rank(
            "Share of time computed", f"rate(cnai_train_compute_seconds_total{_RUN}[5m])",
            "percentunit", "A slow rank computes while the others wait for it.",
        ),
        _by_rank(
            "Share of time waited for other ranks",
            f"rate(cnai_train_peer_wait_seconds_total{_RUN}[5m])", "percentunit",
        ),
        _by_rank(
            "Share of time waited for data",
            f"rate(cnai_train_data_wait_seconds_total{_RUN}[5m])", "percentunit",
        ),
        _by_rank("Rows of a step", f"cnai_train_rows{_RUN}", "short"),
        _by_rank("Update over weight", f"cnai_train_update_ratio{_RUN}", "sci"),
        Panel(
            title="Time of a step",
            queries=tuple(
                Query(
                    f"histogram_quantile({share}, sum by (le) "
                    f"(rate(cnai_train_step_duration_seconds_bucket{_RUN}[5m])))",
                    f"{share:.0%}",
                )
                for share in (0.5, 0.99)
            ),
            unit="s",
        ),
    ),
)  # fmt: skip

DATA = Dashboard(
    uid="cnai-data",
    title="cnai: data and checkpoints",
    variable="run",
    of="cnai_train_step",
    panels=(
        _number("Last checkpoint", f"cnai_checkpoint_last_step{_RUN}"),
        _number("Its age", f"time() - cnai_checkpoint_last_success_timestamp_seconds{_RUN}", "s"),
        _number("Steps since", f"cnai_train_step{_RUN} - on (run) cnai_checkpoint_last_step{_RUN}"),
        _number("Tokens seen", f"cnai_train_tokens_total{_RUN}"),
        Panel(
            title="Share of time waited for data",
            queries=(
                Query(f"max(rate(cnai_train_data_wait_seconds_total{_RUN}[5m]))", "slowest rank"),
                Query(f"avg(rate(cnai_train_data_wait_seconds_total{_RUN}[5m]))", "mean"),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Time spent on data, checkpoints and recovery",
            queries=(
                Query(
                    'cnai_train_spent_seconds{run="$run", '
                    'on=~"data_wait|checkpoint|evaluation|recovery|repeated"}',
                    "{{on}}",
                ),
            ),
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Step, and step of the last checkpoint",
            queries=(
                Query(f"cnai_train_step{_RUN}", "step"),
                Query(f"cnai_checkpoint_last_step{_RUN}", "checkpoint"),
            ),
            width=24,
        ),
    ),
)

SERVING = Dashboard(
    uid="cnai-serving",
    title="cnai: serving",
    variable="model",
    of="cnai_serve_active",
    panels=(
        _number("Requests a second", f"sum(rate(cnai_serve_requests_total{_MODEL}[5m]))", "reqps"),
        _number("Tokens a second", f"rate(cnai_serve_generated_tokens_total{_MODEL}[5m])"),
        _number(
            "Busy", f"cnai_serve_active{_MODEL} / cnai_serve_active_limit{_MODEL}", "percentunit"
        ),
        _number(
            "Queue", f"cnai_serve_queue_depth{_MODEL} / cnai_serve_queue_limit{_MODEL}",
            "percentunit",
        ),
        Panel(
            title="Requests by outcome",
            queries=(
                Query(
                    f"sum by (outcome) (rate(cnai_serve_requests_total{_MODEL}[5m]))",
                    "{{outcome}}",
                ),
            ),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Tokens a second",
            queries=(
                Query(f"rate(cnai_serve_prompt_tokens_total{_MODEL}[5m])", "prompts"),
                Query(f"rate(cnai_serve_generated_tokens_total{_MODEL}[5m])", "answers"),
            ),
        ),
        _quantiles("Time of an answer", "cnai_serve_latency_seconds"),
        _quantiles("Time to the first token", "cnai_serve_first_token_seconds"),
        _quantiles("Time in the queue", "cnai_serve_queue_seconds"),
        Panel(
            title="Requests at once",
            queries=(
                Query(f"cnai_serve_active{_MODEL}", "generating"),
                Query(f"cnai_serve_queue_depth{_MODEL}", "waiting"),
            ),
        ),
    ),
)  # fmt: skip

DASHBOARDS = (RUN, RANKS, DATA, SERVING)
"""All dashboards."""
