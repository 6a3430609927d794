#!/usr/bin/env python3
"""Prints the names of tests of a build, a line each, in two kinds.

    test_names.py BUILD computing|waiting WORDS [OPTION...]

A test waits if its priority is negative (tests/meson.build). With WORDS, only names that contain them; OPTIONs
are those with which `meson test` chooses, such as --suite.
"""
import json
import subprocess
import sys


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout


def main():
    if len(sys.argv) < 4 or sys.argv[2] not in ("computing", "waiting"):
        sys.exit(__doc__)
    build, kind, words, *options = sys.argv[1:]
    waiting = {test["name"] for test in json.loads(output("meson", "introspect", "--tests", build))
               if test["priority"] < 0}
    listed = output("meson", "test", "-C", build, "--no-rebuild", "--list", *options).splitlines()
    names = dict.fromkeys(line.split(" / ", 1)[1] for line in listed if " / " in line)
    for name in names:
        if words in name and (name in waiting) == (kind == "waiting"):
            print(name)


if __name__ == "__main__":
    main()
