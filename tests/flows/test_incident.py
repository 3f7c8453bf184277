from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from cnai.core.events import Decided, Finding, RankStood
from cnai.core.runfolder import RunFolder
from cnai.flows.incident import incident_html, incident_of, write_incident
from cnai.monitor.panel import create_app
from diagnose_case import Case, traceback


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path)


def killed(case):
    for step in (1, 2):
        case.step(0, step)
        case.step(1, step)
    case.log(1, traceback("ValueError: shapes do not fit"))
    case.lost(1, 1)
    case.lost(0, 1)
    case.record(
        Decided(time_unix=200.0, attempt=0, fault="user_code_error", action="stop", reason="why")
    )
    return incident_of(case.run)


def test_a_lost_rank_is_the_root_and_its_lane_is_marked(case):
    found = killed(case)
    assert [(lane.rank, lane.is_root) for lane in found.lanes] == [(0, False), (1, True)]
    assert found.break_at == 0.0


def test_the_steps_before_are_on_the_lanes(case):
    titles = [span.title for lane in killed(case).lanes for span in lane.spans]
    assert "rank 1, step 2: computes" in titles


def test_what_followed_is_told_in_order_with_the_root_first(case):
    happenings = killed(case).happenings
    assert happenings[0].is_root
    seconds = [one.seconds for one in happenings]
    assert seconds == sorted(seconds)
    assert happenings[-1].what == "decides stop: why"


def test_the_root_line_is_among_the_lines_of_its_log(case):
    log = next(one for one in killed(case).logs if one.rank == 1)
    assert log.part == "root"
    assert dict(log.lines)[log.root] == "ValueError: shapes do not fit"


def test_what_was_done_is_told(case):
    assert killed(case).done == ("stop: why",)


def test_a_rank_that_hangs_shows_where_it_stood(case):
    case.step(0, 1)
    case.step(1, 1)
    stood = RankStood(
        time_unix=150.0, rank=1, attempt=0, look=0, host="node-a", step=1, phase="data",
        phase_seconds=40.0, process="S", stack=("/home/me/store.py:7 fetch",),
    )  # fmt: skip
    waits = replace(stood, rank=0, phase="collective", stack=("/v/torch/distributed/a.py:1 b",))
    case.record(waits)
    case.record(stood)
    case.record(
        Finding(time_unix=151.0, detector="hung", severity="critical", message="rank 1 hangs")
    )
    found = incident_of(case.run)
    facts = dict(found.facts)
    assert (facts["rank"], facts["phase"], facts["frame"]) == ("1", "data", "/home/me/store.py:7")
    assert facts["machine"] == "node-a"
    assert found.logs[0].stack == ("/home/me/store.py:7 fetch",)
    assert found.happenings[1].seconds == pytest.approx(41.0)


def test_a_run_that_ended_well_has_a_page(case):
    case.ended("done")
    assert "the run is done" in incident_html(case.run)


def test_a_folder_without_events_has_a_page(tmp_path):
    assert "unknown" in incident_html(RunFolder.create(tmp_path / "empty"))


def test_the_page_is_written_to_a_file(case, tmp_path):
    write_incident(case.run, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_the_panel_serves_the_page_under_a_policy_that_allows_its_style_alone(case):
    app = create_app(case.run, draw_incident=incident_html)
    told = TestClient(app, base_url="http://127.0.0.1").get("/incident")
    assert told.status_code == 200
    assert "unsafe-inline" not in told.headers["Content-Security-Policy"]
    assert "default-src 'none'; style-src 'sha256-" in told.headers["Content-Security-Policy"]


def test_a_panel_that_draws_none_says_so(case):
    told = TestClient(create_app(case.run), base_url="http://127.0.0.1").get("/incident")
    assert told.status_code == 404
