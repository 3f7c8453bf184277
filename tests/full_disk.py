"""A disk of a few pages, for tests that fill it."""

import os
import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def tiny_disk(place, size="64k"):
    """Mount a small file system at `place`; needs root.

    Without root the test is skipped, or failed when CNAI_REQUIRE_SERVICES is set, because a gate
    that was meant to have everything must not pass without having looked.
    """
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        told = f"cannot mount a tiny disk: {done.stderr.strip()}"
        if os.environ.get("CNAI_REQUIRE_SERVICES") == "1":
            pytest.fail(told)
        pytest.skip(told)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
