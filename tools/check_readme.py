#!/usr/bin/env python3
"""Runs the commands of a README as a reader would type them.

    check_readme.py README.md STAGE

Blocks fenced as ```sh are run with `sh -eu`, one shell for each block, in the repository; blocks fenced as
```c are saved under the file name in their first comment (`/* hello.c ...`) for the blocks after them. What
`tools/check_install BUILD STAGE` put into STAGE counts as installed. An HTML comment on the line before a
fence changes this:

    <!-- check: skip -->       not run (commands that need another machine, or ./check itself)
    <!-- check: scratch -->    run in the scratch directory in which the saved files are
"""
import os
import re
import subprocess
import sys
import tempfile

LIMIT_S = 600
BLOCK = re.compile(r"(?:^<!-- check: (\w+) -->\n+)?^```(\w+)\n(.*?)^```$", re.M | re.S)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    readme, stage = map(os.path.abspath, sys.argv[1:])
    top = os.path.dirname(readme)
    text = open(readme, encoding="utf-8").read()
    run = saved = 0
    with tempfile.TemporaryDirectory() as scratch:
        for match in BLOCK.finditer(text):
            mark, language, body = match.groups()
            line = text.count("\n", 0, match.start(3)) + 1
            if language == "c":
                name = re.match(r"\s*/\*\s*([\w.-]+\.c)\b", body)
                if name:
                    with open(os.path.join(scratch, name.group(1)), "w", encoding="utf-8") as file:
                        file.write(body)
                    saved += 1
                continue
            if language != "sh" or mark == "skip":
                continue
            script = f". '{stage}/env.sh'\n{body}"
            print(f"README line {line}:", flush=True)
            done = subprocess.run(["sh", "-eux", "-c", script], cwd=scratch if mark == "scratch" else top,
                                  stdin=subprocess.DEVNULL, timeout=LIMIT_S)
            if done.returncode != 0:
                sys.exit(f"the commands at line {line} of {os.path.basename(readme)} end with {done.returncode}")
            run += 1
    if run == 0:
        sys.exit("there is no command to run in it; are the blocks fenced as ```sh?")
    print(f"{run} blocks of commands work, {saved} programs saved")


if __name__ == "__main__":
    main()
