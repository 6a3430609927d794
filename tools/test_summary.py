#!/usr/bin/env python3
"""Counts the results in logs of `meson test`, and shows the end of what failed.

    test_summary.py TESTLOG.json...

Prints "PASSED FAILED SKIPPED" to stdout, and for each failure its name, how to run it again and the last
lines of its output to stderr.
"""
import fileinput
import json
import shlex
import sys

GOOD, SKIPPED = {"OK", "EXPECTEDFAIL"}, {"SKIP"}
TAIL = 30


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    passed = failed = skipped = 0
    for line in fileinput.input(sys.argv[1:], openhook=fileinput.hook_encoded("utf-8", "replace")):
        test = json.loads(line)
        if test["result"] in GOOD:
            passed += 1
        elif test["result"] in SKIPPED:
            skipped += 1
        else:
            failed += 1
            output = (test.get("stdout") or "") + (test.get("stderr") or "")
            print(f"\n--- {test['result']}: {test['name']} ({test.get('duration', 0):.1f} s)\n"
                  f"    {shlex.join(test.get('command') or [])}", file=sys.stderr)
            for shown in output.splitlines()[-TAIL:]:
                print("    " + shown[:2000], file=sys.stderr)
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
