#!/usr/bin/env python3
"""Prints the names of tests of a build, a line each, in four kinds.

    test_names.py BUILD aside|computing|waiting|alone WORDS [OPTION...]

A test waits if its priority is negative, is to be alone if it is least, and runs aside if it is positive (tests/meson.build). With WORDS, only names that contain them; OPTIONs
are those with which `meson test` chooses, such as --suite.
"""
import json
import subprocess
import sys

ALONE = -20


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout


def main():
    is_kind = {"aside": lambda priority: priority > 0, "computing": lambda priority: priority == 0,
               "waiting": lambda priority: ALONE < priority < 0, "alone": lambda priority: priority <= ALONE}
    if len(sys.argv) < 4 or sys.argv[2] not in is_kind:
        sys.exit(__doc__)
    build, kind, words, *options = sys.argv[1:]
    chosen = {test["name"] for test in json.loads(output("meson", "introspect", "--tests", build))
              if is_kind[kind](test["priority"])}
    listed = output("meson", "test", "-C", build, "--no-rebuild", "--list", *options).splitlines()
    names = dict.fromkeys(line.split(" / ", 1)[1] for line in listed if " / " in line)
    for name in names:
        if words in name and name in chosen:
            print(name)


if __name__ == "__main__":
    main()
