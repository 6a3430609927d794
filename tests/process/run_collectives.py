"""The sweep: `collectives` under the launcher, for a number of ranks and each algorithm that takes them.

    run_collectives.py LAUNCHER COLLECTIVES SIMULATOR --ranks N [--cases C] [--max-count M] [--seed S]
                       [--algorithms] [--only OPERATION[=ALGORITHM]]

Without --algorithms the library chooses; with it, every algorithm that `SIMULATOR list` (ddl-sim) knows is forced
in turn by its variable, on the world and on parts of it; those for powers of two on the world alone.
"""
import argparse
import os
import re
import subprocess
import sys
import time

from world import PATIENCE, clean_environment

LIMIT_S = 240


def algorithms(simulator):
    """[(operation, algorithm, whether it takes any number of ranks)]"""
    listed = subprocess.run([simulator, "list"], check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    rows = re.findall(r"^(\w+)/(\w+) +(any p|p = 2\^k) ", listed, re.MULTILINE)
    if not rows or len(rows) != len(listed.splitlines()):
        sys.exit(f"run_collectives: cannot read the list of algorithms:\n{listed}")
    return [(operation, name, takes == "any p") for operation, name, takes in rows
            if operation not in ("send", "recv")]


def power_of_two(n):
    return n & (n - 1) == 0


def run(arguments, operation, algorithm, any_number):
    command = [arguments.launcher, "--nproc_per_node", str(arguments.ranks), arguments.collectives, "--seed",
               str(arguments.seed), "--cases", str(arguments.cases), "--max-count", str(arguments.max_count)]
    environment = clean_environment()
    if operation is not None:
        command += ["--only", operation]
        environment["DDL_" + operation.upper()] = algorithm
    if not any_number:
        command += ["--splits", "0"]
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S * PATIENCE)
        said, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        said, code = (late.stdout or b"").decode(errors="replace"), "nothing: it ran out of time"
    good = code == 0 and said.count(f"ok {arguments.cases} cases") == arguments.ranks
    name = "as chosen" if operation is None else f"{operation} by {algorithm}"
    print(f"{'ok' if good else 'FAILED':7}{name} on {arguments.ranks} ranks: {arguments.cases} cases, "
          f"{time.monotonic() - began:.1f} s", flush=True)
    if not good:
        setting = "" if operation is None else f"DDL_{operation.upper()}={algorithm} "
        print(f"ended with {code}; again with: {setting}{' '.join(command)}\n{said[-6000:]}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launcher")
    parser.add_argument("collectives")
    parser.add_argument("simulator")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--max-count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--algorithms", action="store_true")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    arguments.cases = max(1, int(arguments.cases * float(os.environ.get("DDL_TEST_SCALE", "100")) / 100))

    runs = [(None, None, True)]
    if arguments.only or arguments.algorithms:
        operation, _, algorithm = (arguments.only or "").partition("=")
        runs = [row for row in algorithms(arguments.simulator) if operation in ("", row[0])
                and algorithm in ("", row[1]) and (row[2] or power_of_two(arguments.ranks))]
        if not runs:
            sys.exit(f"run_collectives: no algorithm for {arguments.only} on {arguments.ranks} ranks")
    failed = [r for r in runs if not run(arguments, *r)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
