"""A real Chromium that tests look at the panel with."""

import shutil
import time

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WAIT_MS = 30_000


def chromium():
    """Return the browser's path; skip the test when there is none."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("Chromium is not on PATH")
    return found


def open_page(browser, url, **settings):
    """Open a page and collect what it complains about in `page.complaints`."""
    page = browser.new_page(viewport={"width": 1360, "height": 1250}, **settings)
    page.set_default_timeout(WAIT_MS)
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(url)
    page.wait_for_selector(".fact strong")
    return page


def until(page, expression):
    """Wait until an expression is true in the page.

    Playwright's own way evaluates text inside the page, which the panel forbids to everybody.
    """
    end = time.monotonic() + WAIT_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(30)
