"""The sweep: `collectives` under the launcher, for a number of ranks and each algorithm that takes them.

    run_collectives.py LAUNCHER COLLECTIVES --ranks N [--cases C] [--max-count M] [--seed S]
                       [--algorithms] [--only OPERATION[=ALGORITHM]]

Without --algorithms the library chooses; with it, every algorithm is forced in turn by its variable.
"""
import argparse
import os
import subprocess
import sys
import time

from world import PATIENCE, clean_environment

# As in the catalogue; those marked need a power of two.
ALGORITHMS = {
    "allreduce": ["flat", "doubling", "halving_doubling", "ring", "direct", "circulant"],
    "reduce_scatter": ["ring", "direct", "circulant", "halving*"],
    "allgather": ["ring", "direct", "circulant", "doubling*"],
    "broadcast": ["binomial"],
    "reduce": ["binomial"],
    "alltoall": ["direct", "pairwise"],
    "barrier": ["dissemination"],
}
LIMIT_S = 240


def power_of_two(n):
    return n & (n - 1) == 0


def run(arguments, operation, algorithm):
    command = [arguments.launcher, "--nproc_per_node", str(arguments.ranks), arguments.collectives, "--seed",
               str(arguments.seed), "--cases", str(arguments.cases), "--max-count", str(arguments.max_count)]
    environment = clean_environment()
    if operation is not None:
        command += ["--only", operation]
        environment["DDL_" + operation.upper()] = algorithm
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
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--max-count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--algorithms", action="store_true")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    arguments.cases = max(1, int(arguments.cases * float(os.environ.get("DDL_TEST_SCALE", "100")) / 100))

    runs = []
    if arguments.only:
        operation, _, algorithm = arguments.only.partition("=")
        runs = [(operation, algorithm or name.rstrip("*")) for name in
                ([algorithm] if algorithm else ALGORITHMS[operation])]
    elif arguments.algorithms:
        for operation, names in ALGORITHMS.items():
            for name in names:
                if not name.endswith("*") or power_of_two(arguments.ranks):
                    runs.append((operation, name.rstrip("*")))
    else:
        runs = [(None, None)]
    failed = [r for r in runs if not run(arguments, *r)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
