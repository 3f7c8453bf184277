"""The panel in a real browser."""

import os
from pathlib import Path

import numpy as np
import pytest

from browser_case import FLAGS, chromium, open_page, until
from cnai.core.events import Finding, Repair
from cnai.core.runfolder import RunFolder
from cnai.core.vectors import Columns, LayersMeasured, VectorWriter
from cnai.flows.incident import incident_html
from cnai.monitor import uplot
from cnai.monitor.panel import serve_panel
from diagnose_case import Case, traceback
from monitor_case import ended, evaluated, lost, saved, started, step

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SHOTS = os.environ.get("CNAI_SCREENSHOTS")
"""A folder for screenshots, when somebody wants to look."""


def write(run, *events, name="rank-0"):
    with run.writer(name) as writer:
        for event in events:
            writer.write(event)


def finding(**changes):
    fields = {
        "time_unix": 60.0, "detector": "loss_spike", "severity": "warning",
        "message": "loss 9.1 is far above the last steps", "step": 60,
        "evidence": ("loss 9.1", "median 4.7"),
        "repairs": (Repair(title="Lower the rate", spec_patch={"train.learning_rate": 1e-4}),),
    }  # fmt: skip
    return Finding(**(fields | changes))


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    path = chromium()
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield one
        one.close()


@pytest.fixture(scope="module", autouse=True)
def charts():
    if uplot.missing_charts():
        try:
            uplot.fetch()
        except uplot.ChartsError as error:
            pytest.skip(str(error))


@pytest.fixture
def run(tmp_path):
    """A run of 80 steps that goes on."""
    folder = RunFolder.create(tmp_path / "runs" / "demo")
    write(folder, started(), saved(40, at=40.2), evaluated(40), name="agent")
    for rank in (0, 1):
        write(folder, *[step(n, rank=rank) for n in range(1, 81)], name=f"rank-{rank}")
        folder.rank_log(rank).write_text("step 1\nWARNING: the disk is slow\nstep 2\n")
    other = RunFolder.create(tmp_path / "runs" / "other")
    write(other, started(), *[step(n, loss=3.0) for n in range(1, 60)], ended("done"))
    return folder


@pytest.fixture
def server(run):
    with serve_panel(run, 0, poll_seconds=0.05) as one:
        yield one


@pytest.fixture
def page(browser, server):
    one = open_page(browser, server.url)
    yield one
    one.close()


def shoot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def fact(page, name):
    return page.locator(".fact", has_text=name).locator("strong").text_content()


def slide(page, step):
    page.locator("#at").fill(str(step))


def test_the_overview_shows_the_run_and_no_room_complains(page):
    assert fact(page, "Loss") == "4.2"
    assert fact(page, "Checkpoint") == "step 40"
    assert page.locator("#overview, .uplot").count() == 5
    for room in (
        "ranks",
        "layers",
        "data",
        "checkpoints",
        "findings",
        "logs",
        "compare",
        "overview",
    ):
        page.click(f"#tab-{room}")
        page.wait_for_selector(f"#tab-{room}[aria-selected=true]")
        until(page, "!document.querySelector('#room .card > div:only-child')")
        shoot(page, room)
    assert page.complaints == []


def test_steps_and_a_finding_appear_by_themselves(page, run):
    assert page.locator("#tab-findings b").count() == 0
    write(run, *[step(n) for n in range(81, 91)])
    write(run, finding(), name="agent")
    until(page, "document.querySelector('#steps').textContent.startsWith('step 90 ')")
    page.wait_for_selector("#tab-findings b")
    assert page.locator("#tab-findings b").text_content() == "1"
    page.click("#tab-findings")
    text = page.locator(".finding").inner_text()
    assert "median 4.7" in text
    assert "--set train.learning_rate=0.0001" in text
    shoot(page, "finding")
    assert page.complaints == []


def test_layers_are_drawn_by_depth_and_step(page, run):
    names = ("embedding.weight", *[f"layers.{n}.w" for n in range(12)], "norm.weight")
    columns = Columns(tuple((group, names) for group in ("gradient", "update", "weight")))
    depth = np.arange(len(names))
    writer = VectorWriter(run.layers_file)
    for number in range(1, 81):
        gradient = 10.0 ** (-depth / 6) * (1 + 0.5 * np.sin(number / 9 + depth))
        values = np.concatenate((gradient, 1e-3 * gradient, np.ones(len(names))))
        writer.write(
            LayersMeasured(
                time_unix=float(number), attempt=0, step=number, columns=columns,
                values=values.astype(np.float32),
            )
        )  # fmt: skip
    writer.close()
    page.click("#tab-layers")
    page.wait_for_selector("canvas.map")
    assert page.locator("canvas.map").count() == 2
    page.locator("canvas.map").first.hover()
    assert "layer" in page.locator(".axis span").nth(1).inner_text()
    shoot(page, "layers")
    assert page.complaints == []


def test_a_lost_rank_is_told(page, run):
    write(run, lost(), name="agent")
    page.wait_for_selector("text=rank 1 lost, exit code -9")
    page.wait_for_selector("#state.recovering")


def test_logs_are_searched_while_typing(page):
    page.keyboard.press("/")
    page.keyboard.type("disk")
    until(page, "document.querySelectorAll('.log mark').length === 2")
    page.select_option("#room select", "rank-1")
    until(page, "document.querySelectorAll('.log mark').length === 1")
    shoot(page, "log-search")
    assert page.complaints == []


def test_the_past_can_be_looked_at_and_left(page):
    slide(page, 30)
    until(page, "document.querySelector('#when').textContent === 'step 30'")
    assert fact(page, "Loss") == "4.7"
    assert fact(page, "Checkpoint") == "-"
    shoot(page, "replay")
    page.click("#live")
    assert fact(page, "Loss") == "4.2"
    assert page.complaints == []


def test_a_run_plays_from_its_beginning(page):
    page.click("#play")
    page.wait_for_selector("body.replay")
    until(page, "Number(document.querySelector('#at').value) > 3")
    page.click("#play")
    assert page.locator("#play").get_attribute("aria-label") == "Play the run"
    assert page.complaints == []


def test_tabs_are_walked_by_keyboard(page):
    page.focus("#tab-overview")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-ranks"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.id") == "tab-compare"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    page.wait_for_selector("#tab-overview[aria-selected=true]")


def test_runs_are_compared(page):
    page.click("#tab-compare")
    page.wait_for_selector("canvas")
    assert page.locator("input[type=checkbox]:checked").count() == 2
    page.select_option("#room select", "step_seconds")
    page.wait_for_selector("text=time of a step >> visible=true")
    assert page.complaints == []


def test_another_run_can_be_chosen(page):
    page.select_option("#run", "other")
    page.wait_for_selector("#state.done")
    assert fact(page, "Loss") == "3"


@pytest.mark.parametrize(("scheme", "paper"), [("light", "246, 247, 249"), ("dark", "15, 18, 23")])
def test_the_page_is_dark_or_light_as_the_system(browser, server, scheme, paper):
    page = open_page(browser, server.url, color_scheme=scheme)
    shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
    shoot(page, scheme)
    page.close()
    assert shown == f"rgb({paper})"


def test_a_panel_that_ended_is_told_and_one_that_is_back_is_used(browser, run):
    with serve_panel(run, 0, poll_seconds=0.05) as first:
        page = open_page(browser, first.url)
        port = first.port
    page.wait_for_selector("text=not connected")
    write(run, step(81))
    with serve_panel(run, port, poll_seconds=0.05):
        until(page, "document.querySelector('#steps').textContent.startsWith('step 81 ')")
        page.close()


def test_names_and_logs_are_never_taken_for_markup(browser, tmp_path):
    run = RunFolder.create(tmp_path / "runs" / "<img src=x onerror=alert(1)>")
    write(run, started(), step(1), finding(message="<b id=evil>bold</b>"))
    run.rank_log(0).write_text("<b id=evil>bold</b>\n")
    with serve_panel(run, 0) as server:
        page = open_page(browser, server.url)
        for room in ("findings", "logs"):
            page.click(f"#tab-{room}")
            page.wait_for_selector("text=<b id=evil>")
        assert page.locator("#evil").count() == 0
        assert page.complaints == []
        page.close()


def test_a_long_run_is_painted_and_updated_quickly(browser, tmp_path):
    run = RunFolder.create(tmp_path / "runs" / "long")
    write(run, started(ranks=64), *[step(n) for n in range(1, 10_001)])
    for rank in range(1, 64):
        write(run, *[step(n, rank=rank) for n in range(9_990, 10_001)], name=f"rank-{rank}")
    with serve_panel(run, 0, poll_seconds=0.05) as server:
        open_page(browser, server.url).close()  # from here on the run has been read
        page = open_page(browser, server.url)
        page.wait_for_selector("canvas")
        write(run, *[step(n) for n in range(10_001, 10_021)])
        until(page, "performance.getEntriesByName('cnai-update').length > 5")
        first = "performance.getEntriesByName('cnai-first')[0]"
        updates = "performance.getEntriesByName('cnai-update').map((one) => one.duration).sort((a, b) => a - b)"
        painted = page.evaluate(f"{first}.startTime + {first}.duration")
        update = page.evaluate(f"({updates})[Math.floor(({updates}).length / 2)]")
        page.close()
    assert painted < 3000, "1 s on an idle machine; tests share theirs"
    assert update < 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_an_incident_is_drawn_without_a_complaint(browser, tmp_path, scheme):
    case = Case(tmp_path)
    for number in (1, 2, 3):
        case.step(0, number)
        case.step(1, number)
    case.log(1, traceback("ValueError: shapes do not fit"))
    case.lost(1, 1)
    with serve_panel(case.run, 0, draw_incident=incident_html) as server:
        page = open_page(browser, server.url, color_scheme=scheme)
        page.click("text=Incident")
        page.wait_for_selector("svg circle.break")
        root = page.locator("svg text.root")
        assert root.text_content() == "rank 1"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(15, 18, 23)") == (scheme == "dark")
        assert page.complaints == []
        page.close()
