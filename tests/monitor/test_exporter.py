import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cnai.core.errors import RunError
from cnai.core.events import Finding, Rebalanced
from cnai.core.runfolder import RunFolder
from cnai.core.serving import Histogram, ServeSnapshot
from cnai.monitor import DETECTORS, METRICS, fold, render_serving, render_training, serve_metrics
from monitor_case import FakeClock, lost, saved, started, step

EVENTS = (
    started(),
    step(1, update_ratio=1e-3),
    step(1, rank=1),
    step(2, step_seconds=0.3),
    saved(2, at=7.5),
    lost(),
    Finding(time_unix=8.0, detector="stalled", severity="critical", message="m"),
)
TIMES = Histogram.empty((0.1, 1.0)).with_value(0.05).with_value(0.1).with_value(5.0)
SNAPSHOT = ServeSnapshot(
    model="demo",
    requests={"stop": 3, "failed": 1},
    prompt_tokens=100,
    generated_tokens=40,
    queue_depth=2,
    queue_limit=8,
    active=1,
    active_limit=4,
    latency_seconds=TIMES,
    first_token_seconds=TIMES,
    queue_seconds=TIMES,
)


def training():
    return render_training(fold(EVENTS, run="demo", now_unix=10.0))[0].decode()


def serving():
    return render_serving(SNAPSHOT)[0].decode()


def samples(text):
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(text, name, **labels):
    return samples(text)[(name, *sorted(labels.items()))]


def test_the_last_step_is_shown():
    text = training()
    assert value(text, "cnai_train_loss", run="demo") == pytest.approx(4.98)
    assert value(text, "cnai_train_gradient_norm", run="demo") == 1.0
    assert value(text, "cnai_train_steps_total", run="demo") == 2
    assert value(text, "cnai_train_tokens_total", run="demo") == 2000


def test_each_rank_has_its_own_samples():
    text = training()
    assert value(text, "cnai_train_data_wait_seconds_total", run="demo", rank="0") == 0.2
    assert value(text, "cnai_train_update_ratio", run="demo", rank="0") == 1e-3
    assert value(text, "cnai_train_last_step_timestamp_seconds", run="demo", rank="1") == 1.0


def test_computing_rows_and_moves_have_samples():
    done = step(1, rows=6, stage_seconds=(0.25,), wait_seconds=0.1)
    moved = Rebalanced(
        time_unix=1.0, attempt=0, step=1, moved="rows", before=(4, 4), after=(6, 2), gain=1.5,
        reason="",
    )  # fmt: skip
    progress = fold([started(), done, moved], run="demo", now_unix=10.0)
    text = render_training(progress)[0].decode()
    assert value(text, "cnai_train_compute_seconds_total", run="demo", rank="0") == 0.25
    assert value(text, "cnai_train_peer_wait_seconds_total", run="demo", rank="0") == 0.1
    assert value(text, "cnai_train_rows", run="demo", rank="0") == 6
    assert value(text, "cnai_train_moves_total", run="demo", moved="rows") == 1


def test_a_ratio_that_was_never_measured_has_no_sample():
    assert ("cnai_train_update_ratio", ("rank", "1"), ("run", "demo")) not in samples(training())


def test_exactly_one_state_is_on():
    states = {key: on for key, on in samples(training()).items() if key[0].endswith("run_state")}
    assert sum(states.values()) == 1
    assert value(training(), "cnai_train_run_state", run="demo", state="recovering") == 1


def test_losses_checkpoints_and_findings_are_shown():
    text = training()
    assert value(text, "cnai_rank_lost_total", run="demo") == 1
    assert value(text, "cnai_checkpoint_last_success_timestamp_seconds", run="demo") == 7.5
    assert value(text, "cnai_train_findings", run="demo", detector="stalled") == 1


def test_step_times_are_a_histogram():
    text = training()
    assert value(text, "cnai_train_step_duration_seconds_count", run="demo") == 2
    assert value(text, "cnai_train_step_duration_seconds_bucket", run="demo", le="0.5") == 2
    assert value(text, "cnai_train_step_duration_seconds_bucket", run="demo", le="0.25") == 0
    assert value(text, "cnai_train_step_duration_seconds_sum", run="demo") == 0.8


def test_a_service_is_shown():
    text = serving()
    assert value(text, "cnai_serve_requests_total", model="demo", outcome="stop") == 3
    assert value(text, "cnai_serve_queue_depth", model="demo") == 2
    assert value(text, "cnai_serve_latency_seconds_bucket", model="demo", le="0.1") == 2
    assert value(text, "cnai_serve_latency_seconds_bucket", model="demo", le="+Inf") == 3


def test_every_metric_is_in_the_table_and_in_the_text():
    text = training() + serving()
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    assert named == set(METRICS)


def test_a_run_that_has_not_started_gives_valid_text():
    text = render_training(fold([], run="demo", now_unix=0.0))[0].decode()
    assert value(text, "cnai_train_steps_total", run="demo") == 0
    assert ("cnai_train_loss", ("run", "demo")) not in samples(text)


def test_a_run_with_an_odd_name_gives_valid_text():
    text = render_training(fold(EVENTS, run='a"b\\c\n', now_unix=0.0))[0].decode()
    assert value(text, "cnai_train_steps_total", run='a"b\\c\n') == 2


@pytest.fixture
def run(tmp_path):
    folder = RunFolder.create(tmp_path / "demo")
    with folder.writer("rank-0") as writer:
        for event in EVENTS:
            writer.write(event)
    return folder


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_metrics_are_served_and_follow_the_run(run):
    with serve_metrics(run, 0, clock=FakeClock()) as server:
        assert value(scrape(server.port), "cnai_train_step", run="demo") == 2
        with run.writer("rank-0") as writer:
            writer.write(step(3))
        assert value(scrape(server.port), "cnai_train_step", run="demo") == 3


def test_a_taken_port_says_so_and_proposes_another(run):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RunError, match=f"port {port} on 127.0.0.1 is in use") as caught:
            serve_metrics(run, port)
    assert caught.value.where == "monitor.prometheus_port"
    assert "ss -ltnp" in caught.value.hint


def test_two_servers_may_follow_one_run(run):
    with serve_metrics(run, 0) as one, serve_metrics(run, 0) as two:
        assert samples(scrape(one.port)).keys() == samples(scrape(two.port)).keys()


def test_a_closed_server_frees_its_port(run):
    with serve_metrics(run, 0) as server:
        port = server.port
    with serve_metrics(run, port) as again:
        assert again.port == port


@pytest.mark.prometheus
@pytest.mark.parametrize("text", [training, serving], ids=["training", "serving"])
def test_promtool_finds_nothing_to_lint(text):
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CNAI_REQUIRE_SERVICES") == "1":
            pytest.fail("promtool is not on PATH, but CNAI_REQUIRE_SERVICES=1")
        pytest.skip("promtool is not on PATH")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text(), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_every_metric_is_in_the_documentation():
    page = Path(__file__).parents[2] / "docs" / "rooms" / "monitor.md"
    text = page.read_text()
    assert [name for name in METRICS if f"`{name}`" not in text] == []


def test_watching_does_not_load_torch():
    code = "import sys, cnai.monitor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("ranks", [8, 200, 201, 1000, 16_384])
def test_a_run_of_any_size_has_at_most_1500_series(ranks):
    events = [
        started(ranks=ranks),
        *[
            step(1, rank=rank, update_ratio=1e-3, rows=2, stage_seconds=(0.1,), wait_seconds=0.1)
            for rank in range(ranks)
        ],
        saved(1),
        *[
            Finding(time_unix=2.0, detector=name, severity="warning", message="m")
            for name in (*DETECTORS, "other")
        ],
    ]
    text = render_training(fold(events, run="demo", now_unix=3.0))[0].decode()
    assert len(samples(text)) <= 1500
    assert value(text, "cnai_train_rows", run="demo", rank="0") == 2
