#!/usr/bin/env python3
"""Prints the kinds and names of tests of a build, a line each.

    test_names.py BUILD WORDS LEFT [OPTION...]

The kinds are aside, computing, waiting and alone. A test waits if its priority is negative, is to be alone if it is least,
and runs aside if it is positive (tests/meson.build). With WORDS, only names that contain them. LEFT has beginnings of the
names of tests that are left out, a line each. OPTIONs are those with which `meson test` chooses, such as --suite.
"""
import json
import subprocess
import sys

ALONE = -20


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout


def kind_of(priority):
    if priority > 0:
        return "aside"
    return "computing" if priority == 0 else "waiting" if priority > ALONE else "alone"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    build, words, left, *options = sys.argv[1:]
    left = tuple(left.splitlines())
    kinds = {test["name"]: kind_of(test["priority"])
             for test in json.loads(output("meson", "introspect", "--tests", build))}
    listed = output("meson", "test", "-C", build, "--no-rebuild", "--list", *options).splitlines()
    names = dict.fromkeys(line.split(" / ", 1)[1] for line in listed if " / " in line)
    for name in names:
        if words in name and name in kinds and not name.startswith(left):
            print(kinds[name], name)


if __name__ == "__main__":
    main()
