"""Waiting for what can be seen, and how patient this build is."""
import os
import time

# Sanitizers slow everything down; the build says by how much.
PATIENCE = float(os.environ.get("DDL_TEST_PATIENCE", "1"))


def bound(seconds):
    """A promised bound, as it stands in this build."""
    return seconds * PATIENCE


def wait_until(condition, seconds, what):
    """The first true value of condition(), which must come within so many seconds; else `what`, a text or a function that
    gives one, is told."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.005)
    return value
