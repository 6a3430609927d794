#!/usr/bin/env python3
"""Prints what tests of a build need to be built, a target of ninja each line: test_targets.py BUILD SUITE"""
import json
import os
import subprocess
import sys


def introspect(what, build):
    return json.loads(subprocess.run(["meson", "introspect", what, build], stdout=subprocess.PIPE, check=True).stdout)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, suite = sys.argv[1:]
    needed = {target for test in introspect("--tests", build) if suite in (name.split(":")[-1] for name in test["suite"])
              for target in test["depends"]}
    for target in introspect("--targets", build):
        if target["id"] in needed:
            for name in target["filename"]:
                print(os.path.relpath(name, os.path.abspath(build)))


if __name__ == "__main__":
    main()
