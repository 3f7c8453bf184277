"""Settings for all tests."""

import os

import pytest
from hypothesis import settings

# The machines that run the tests are shared, so a time limit per example would only be noise.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

NOT_FOR_ROOT = "root may write everywhere"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let a test that misses its component fail where every component is required."""
    report = yield
    required = os.environ.get("CNAI_REQUIRE_SERVICES") == "1"
    if required and report.skipped and NOT_FOR_ROOT not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CNAI_REQUIRE_SERVICES=1: {report.longrepr}"
    return report
