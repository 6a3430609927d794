"""Programs of tests that a machine may not be able to run."""
import sys
import unittest

SKIPPED = 77  # what meson takes for it


def run_unless(reason):
    """Run the tests of this program, unless there is a reason not to."""
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
