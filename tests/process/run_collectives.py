"""The sweep: `collectives` under the launcher, for a number of ranks and each algorithm that takes them.

    run_collectives.py LAUNCHER COLLECTIVES SIMULATOR --ranks N [--cases C] [--max-count M] [--seed S]
                       [--algorithms] [--only OPERATION[=ALGORITHM]] [--transport NAME] [--security LEVEL]
                       [--gpu DRIVER] [--connect WHEN] [--set VARIABLE=VALUE]...

Without --algorithms the library chooses; with it, every algorithm that `SIMULATOR list` (ddl-sim) knows is forced by
its variable: one of each operation at a time, as often as the operation with the most of them has another, on the
world and on parts of it; then those for powers of two, on the world alone. --only forces them one by one.
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


def rounds(rows, any_number):
    """Which algorithm to force for each operation in each of the rounds after which all have had their turn."""
    names = {}
    for operation, name, takes_any in rows:
        if takes_any == any_number:
            names.setdefault(operation, []).append(name)
    return [({operation: each[i % len(each)] for operation, each in names.items()}, any_number, None)
            for i in range(max(map(len, names.values()), default=0))]


def settings_of(forced):
    return {"DDL_" + operation.upper(): algorithm for operation, algorithm in forced.items()}


def run(arguments, forced, any_number, only):
    command = [arguments.launcher, "--nproc_per_node", str(arguments.ranks), arguments.collectives, "--seed",
               str(arguments.seed), "--cases", str(arguments.cases), "--max-count", str(arguments.max_count)]
    if only is not None:
        command += ["--only", only]
    if arguments.gpu:
        command += ["--gpu", arguments.gpu]
    if not any_number:
        command += ["--splits", "0"]
    settings = settings_of(forced)
    if arguments.transport:
        settings["DDL_TRANSPORT"] = arguments.transport
    if arguments.security:
        settings["DDL_SECURITY"] = arguments.security
    if arguments.connect:
        settings["DDL_CONNECT"] = arguments.connect
    settings.update(setting.split("=", 1) for setting in arguments.set)
    began = time.monotonic()
    try:
        done = subprocess.run(command, env={**clean_environment(), **settings}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S * PATIENCE)
        said, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        said, code = (late.stdout or b"").decode(errors="replace"), "nothing: it ran out of time"
    good = code == 0 and said.count(f"ok {arguments.cases} cases") == arguments.ranks
    name = ", ".join(f"{operation} by {algorithm}" for operation, algorithm in forced.items()) or "as chosen"
    print(f"{'ok' if good else 'FAILED':7}{name} on {arguments.ranks} ranks: {arguments.cases} cases, "
          f"{time.monotonic() - began:.1f} s", flush=True)
    if not good:
        again = " ".join([f"{variable}={algorithm}" for variable, algorithm in settings.items()] + command)
        print(f"ended with {code}; again with: {again}\n{said[-6000:]}", flush=True)
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
    parser.add_argument("--transport")
    parser.add_argument("--gpu")
    parser.add_argument("--security")
    parser.add_argument("--connect")
    parser.add_argument("--set", action="append", default=[])  # of this environment ranks see nothing of ddl's
    arguments = parser.parse_args()
    arguments.cases = max(1, int(arguments.cases * float(os.environ.get("DDL_TEST_SCALE", "100")) / 100))

    runs = [({}, True, None)]
    if arguments.only or arguments.algorithms:
        operation, _, algorithm = (arguments.only or "").partition("=")
        rows = [row for row in algorithms(arguments.simulator) if operation in ("", row[0])
                and algorithm in ("", row[1]) and (row[2] or power_of_two(arguments.ranks))]
        runs = rounds(rows, True) + rounds(rows, False)
        if arguments.only:
            runs = [({name: chosen}, any_number, name) for name, chosen, any_number in rows]
        if not runs:
            sys.exit(f"run_collectives: no algorithm for {arguments.only} on {arguments.ranks} ranks")
    failed = False
    for each in runs:
        failed = not run(arguments, *each) or failed
        arguments.seed += 1  # no algorithm of the next round is left out because this one's calls were so drawn
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
