#!/usr/bin/env python3
"""Runs the commands of a README as a reader would type them.

    check_readme.py README.md STAGE

Blocks fenced as ```sh are run with `sh -eu`, one shell for each: in the repository if they start something
that lies there (./quickstart, meson ...), else in a scratch directory, in which a block fenced as ```c lies
as program.c. What `tools/check_install BUILD STAGE` put into STAGE counts as installed.
"""
import os
import re
import subprocess
import sys
import tempfile

LIMIT_S = 600
BLOCK = re.compile(r"^```(sh|c)\n(.*?)^```$", re.M | re.S)
IN_REPOSITORY = re.compile(r"^(?:\./(?!program)|meson |ninja |tools/|build/)", re.M)

# What cannot be done as it stands, and what is done instead.
INSTEAD = [
    (re.compile(r"^\./check\b.*$", re.M), "# ./check runs this"),
    (re.compile(r"^ddl-launch (?=.*--nnodes)", re.M), "ddl-launch --dry-run "),  # needs the other host
]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    readme, stage = map(os.path.abspath, sys.argv[1:])
    text = open(readme, encoding="utf-8").read()
    run = 0
    with tempfile.TemporaryDirectory() as scratch:
        for match in BLOCK.finditer(text):
            language, body = match.groups()
            if language == "c":
                with open(os.path.join(scratch, "program.c"), "w", encoding="utf-8") as file:
                    file.write(body)
                continue
            line = text.count("\n", 0, match.start(2)) + 1
            where = os.path.dirname(readme) if IN_REPOSITORY.search(body) else scratch
            for pattern, replacement in INSTEAD:
                body = pattern.sub(replacement, body)
            print(f"line {line}:", flush=True)
            done = subprocess.run(["sh", "-eux", "-c", f". '{stage}/env.sh'\n{body}"], cwd=where,
                                  stdin=subprocess.DEVNULL, timeout=LIMIT_S)
            if done.returncode != 0:
                sys.exit(f"the commands at line {line} of {os.path.basename(readme)} end with {done.returncode}")
            run += 1
    if run == 0:
        sys.exit("there is no command to run in it; are the blocks fenced as ```sh?")
    print(f"{run} blocks of commands work")


if __name__ == "__main__":
    main()
