"""The dashboards' questions, asked of a real Prometheus that scrapes a real run and a real server."""

import time
from dataclasses import replace

import pytest
from openai import OpenAI

from cnai.core.events import EvaluationDone, Finding, StepDone
from cnai.core.runfolder import read_events
from cnai.monitor.stack import DASHBOARDS, stack_files
from prometheus_case import Prometheus


def test_files_are_written_where_they_are_wanted(ai_cli, place):
    told = ai_cli("dashboards", "export", "--dir", "here", "--json").json
    assert told["files"] == list(stack_files())
    for name, content in stack_files().items():
        assert (place / "here" / name).read_bytes() == content


def test_a_folder_that_cannot_be_written_is_told(ai_cli, place):
    (place / "file").write_text("x")
    result = ai_cli("dashboards", "export", "--dir", "file")
    assert result.code == 5
    assert "Traceback" not in result.err


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.prometheus
def test_no_panel_is_empty(start, finished, place):
    enrich(finished)
    trains = start("monitor", finished.root, "--port", "0", "--json")
    serves = start("serve", finished.root, "--port", "0", "--json")
    targets = {"cnai-train": address(trains), "cnai-serve": address(serves)}
    rules = place / "rules.yml"
    rules.write_bytes(stack_files()["prometheus/cnai-rules.yml"])
    with Prometheus(place, targets, rules) as server:
        server.until(lambda: server.ask("cnai_train_step") and server.ask("cnai_serve_active"))
        talk(serves.url())
        server.until(lambda: server.ask("rate(cnai_serve_requests_total[5m]) > 0"))
        server.until(lambda: server.ask("cnai:serve_latency_seconds:p95 > 0"))
        go_on(finished)
        server.until(lambda: server.ask("rate(cnai_train_steps_total[5m]) > 0"))
        empty = [expr for expr in expressions(finished.name) if not answered(server, expr)]
    assert empty == []


def address(command):
    return command.url().removeprefix("http://").strip("/")


def expressions(run):
    for page in DASHBOARDS:
        for panel in page.panels:
            for query in panel.queries:
                yield query.expr.replace("$run", run).replace("$model", "model-int8")
        if page.annotation:
            yield page.annotation.replace("$run", run)


def answered(server, expr):
    """Tell whether a question has an answer that is a number."""
    return any(one["value"][1] != "NaN" for one in server.ask(expr))


def enrich(run):
    """Let a short and healthy run have what longer ones have: a measurement, a finding, a ratio."""
    now = time.time()
    with run.writer("agent") as writer:
        writer.write(
            EvaluationDone(time_unix=now, attempt=0, step=8, loss=3.0, sequences=8, seconds=0.1)
        )
        writer.write(Finding(time_unix=now, detector="loss_spike", severity="warning", message="m"))


def go_on(run):
    """Let each rank do another step."""
    steps = [one for one in read_events(run) if isinstance(one, StepDone) and one.step == 8]
    for one in steps:
        with run.writer(f"rank-{one.rank}") as writer:
            writer.write(replace(one, step=9, time_unix=time.time()))
    with run.writer("agent") as writer:
        writer.write(
            Finding(time_unix=time.time(), detector="loss_spike", severity="x", message="")
        )


def talk(url):
    with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        (model,) = client.models.list().data
        for _ in range(3):
            client.completions.create(model=model.id, prompt="the cat", max_tokens=3)
            time.sleep(1.2)
