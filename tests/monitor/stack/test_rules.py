import json
import subprocess
import time

import pytest
import yaml

from cnai.core.events import Finding
from cnai.core.runfolder import RunFolder
from cnai.monitor import DETECTORS, METRICS
from cnai.monitor.panel import serve_panel
from cnai.monitor.stack import ALERTS, RECORDINGS, Wiring, stack_files
from monitor_case import started, step
from prometheus_case import Prometheus, binary, promtool

RULES = stack_files()["prometheus/cnai-rules.yml"]


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yml"
    path.write_bytes(RULES)
    return path


def test_every_detector_has_an_alert():
    told = " ".join(one.expr for one in ALERTS)
    assert [name for name in DETECTORS if f'detector="{name}"' not in told] == []


def test_names_are_there_once():
    names = [one.alert for one in ALERTS] + [one.record for one in RECORDINGS]
    assert len(set(names)) == len(names)


def test_every_alert_says_what_to_do():
    assert [one.alert for one in ALERTS if not one.advice or not one.summary] == []


@pytest.mark.prometheus
def test_promtool_accepts_the_rules(rules):
    code, said = promtool("check", "rules", rules)
    assert code == 0, said
    assert f"{len(ALERTS) + len(RECORDINGS)} rules found" in said


@pytest.mark.prometheus
def test_promtool_accepts_the_whole_configuration(tmp_path, rules):
    config = tmp_path / "prometheus.yml"
    config.write_bytes(stack_files()["prometheus/prometheus.yml"])
    rules.rename(tmp_path / "cnai-rules.yml")
    code, said = promtool("check", "config", config)
    assert code == 0, said


@pytest.mark.prometheus
@pytest.mark.parametrize("hooks", ["http://127.0.0.1:9095", None])
def test_amtool_accepts_the_routes(tmp_path, hooks):
    config = tmp_path / "alertmanager.yml"
    config.write_bytes(stack_files(Wiring(hooks=hooks))["alertmanager/alertmanager.yml"])
    done = subprocess.run(
        [binary("amtool"), "check-config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 receivers" in done.stdout


def series(name, values, **labels):
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


TRAINS = series("cnai_train_run_state", "1x120", run="a", state="training")
STEPS = (
    series("cnai_train_step_duration_seconds_sum", "10x120", run="a"),
    series("cnai_train_step_duration_seconds_count", "10x120", run="a"),
)
CASES = {
    "CnaiNoStep": (
        [TRAINS, *STEPS, series("cnai_train_last_step_timestamp_seconds", "0x120", run="a", rank="0")],
        "1m", "5m", {"run": "a"},
    ),
    "CnaiLossSpike": (
        [series("cnai_train_findings", "_x20 1x60", run="a", detector="loss_spike")],
        "19m", "25m", {"run": "a", "detector": "loss_spike"},
    ),
    "CnaiRankLost": ([series("cnai_rank_lost_total", "0x20 1x60", run="a")], "19m", "25m", {"run": "a"}),
    "CnaiRunFailed": (
        [series("cnai_train_run_state", "0x20 1x60", run="a", state="failed")],
        "19m", "25m", {"run": "a", "state": "failed"},
    ),
    "CnaiCheckpointOld": (
        [TRAINS, series("cnai_checkpoint_last_success_timestamp_seconds", "0x120", run="a")],
        "50m", "100m", {"run": "a"},
    ),
    "CnaiWaitsForData": (
        [TRAINS, series("cnai_train_data_wait_seconds_total", "0+30x120", run="a", rank="1")],
        "2m", "30m", {"run": "a"},
    ),
    "CnaiGoodputLow": (
        [TRAINS, series("cnai_train_goodput_ratio", "0.3x120", run="a"),
         series("cnai_train_spent_seconds", "5000x120", run="a", on="idle")],
        "10m", "50m", {"run": "a"},
    ),
    "CnaiServeQueueFull": (
        [series("cnai_serve_queue_depth", "1x20 8x60", model="m"), series("cnai_serve_queue_limit", "8x120", model="m")],
        "19m", "30m", {"model": "m"},
    ),
    "CnaiServeFails": (
        [series("cnai_serve_requests_total", "0+6x120", model="m", outcome="stop"),
         series("cnai_serve_requests_total", "0x20 0+6x60", model="m", outcome="failed")],
        "19m", "40m", {"model": "m"},
    ),
    "CnaiServeSlow": (
        [series("cnai_serve_latency_seconds_bucket", "0x120", model="m", le="30"),
         series("cnai_serve_latency_seconds_bucket", "0+6x120", model="m", le="60"),
         series("cnai_serve_latency_seconds_bucket", "0+6x120", model="m", le="+Inf")],
        "1m", "30m", {"model": "m"},
    ),
    "CnaiExporterDown": (
        [series("up", "1x20 0x60", job="cnai-train", instance="x")],
        "19m", "25m", {"job": "cnai-train", "instance": "x"},
    ),
}  # fmt: skip
"""What is seen, when the alert is quiet, when it fires, and with which labels."""


@pytest.mark.prometheus
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_is_quiet_before_and_fires_after(alert, rules, tmp_path):
    seen, quiet, loud, labels = CASES[alert]
    without(rules, "annotations")  # promtool would compare their texts
    (one,) = [rule for rule in ALERTS if rule.alert == alert]
    expected = {"exp_labels": {"severity": one.severity, **labels}}
    tests = {
        "rule_files": [str(rules)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": seen,
                "alert_rule_test": [
                    {"eval_time": quiet, "alertname": alert, "exp_alerts": []},
                    {"eval_time": loud, "alertname": alert, "exp_alerts": [expected]},
                ],
            }
        ],
    }
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps(tests))
    code, said = promtool("test", "rules", file)
    assert code == 0, said


def without(rules, key):
    """Take a key out of all rules."""
    plain = yaml.safe_load(rules.read_text())
    for group in plain["groups"]:
        for rule in group["rules"]:
            rule.pop(key, None)
    rules.write_text(yaml.safe_dump(plain))


@pytest.mark.prometheus
@pytest.mark.slow
def test_a_run_that_stands_still_alarms_a_real_prometheus(rules, tmp_path):
    """The held times are cut, so that nobody waits for them."""
    without(rules, "for")
    run = RunFolder.create(tmp_path / "runs" / "hung")
    last = time.time() - 300
    with run.writer("rank-0") as writer:
        writer.write(started(at=last - 9, ranks=1))
        for number in range(1, 5):
            writer.write(step(number, time_unix=last - 4 + number))
        writer.write(
            Finding(time_unix=last, detector="stalled", severity="critical", message="no step")
        )
    with serve_panel(run, 0) as panel:
        target = {"cnai-train": f"127.0.0.1:{panel.port}"}
        with Prometheus(tmp_path, target, rules) as server:
            server.until(lambda: {"CnaiNoStep", "CnaiDetectedStall"} <= server.firing())
            assert server.firing() == {"CnaiNoStep", "CnaiDetectedStall"}
            with run.writer("rank-0") as writer:
                writer.write(step(5, time_unix=time.time()))
            server.until(lambda: "CnaiNoStep" not in server.firing())


def test_the_rules_ask_for_metrics_that_there_are():
    suffixes = ("_bucket", "_sum", "_count")
    known = {*METRICS, *(name + end for name in METRICS for end in suffixes)}
    words = {
        word
        for one in (*ALERTS, *RECORDINGS)
        for word in one.expr.replace("{", " ")
        .replace("(", " ")
        .replace("[", " ")
        .replace(")", " ")
        .split()
        if word.startswith("cnai_")
    }
    assert words <= known
