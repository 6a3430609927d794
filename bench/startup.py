#!/usr/bin/env python3
"""Measures start-ups on this host, and prints what ddl-sim's model says beside it.

    bench/startup.py BUILD [--ranks 16,32,64,128,256,512] [--rounds 3] [--eager-most 128]
                     [--set DDL_SECURITY=tls] [--set DDL_STORE=redis://127.0.0.1:6379]

BUILD is a release build. A rank's start-up is from the moment at which the first process calls ddl_init until the last
has returned from it, by default with auth on, over the tcp store; the launcher starts the processes meanwhile. Each figure is the best of the
rounds: others on the machine only add to it. Prints a table in Markdown.
"""
import argparse
import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys

LIMIT_S = 170


def measure(build, ranks, connect, settings):
    """Seconds, or None if the start-up failed or took too long."""
    clean = {k: v for k, v in os.environ.items() if not re.match(r"^(DDL_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)", k)}
    command = [build / "tools/launch/ddl-launch", "--no-prefix", "--nproc_per_node", str(ranks),
               build / "tests/process/actor", "init", "barrier", "free"]
    try:
        done = subprocess.run(command, env={**clean, "DDL_CONNECT": connect, **settings}, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    records = [json.loads(line) for line in done.stdout.splitlines() if '"event":"init"' in line]
    if done.returncode != 0 or len(records) != ranks or any(r["status"] != "DDL_OK" for r in records):
        sys.stderr.write(done.stderr[-2000:])
        return None
    return (max(r["end_ns"] for r in records) - min(r["begin_ns"] for r in records)) / 1e9


def predict(build, ranks):
    """{(ranks, "eager" or "lazy"): row of the model}, for this host alone."""
    cores = len(os.sched_getaffinity(0))
    text = subprocess.run([build / "tools/sim/ddl-sim", "startup", "--csv", "-p", ",".join(map(str, ranks)), "--per-host",
                           str(max(ranks)), "--cores", str(cores), "--rtt", "50us"],
                          capture_output=True, text=True, check=True).stdout
    return {(int(row["ranks"]), row["connect"]): row for row in csv.DictReader(io.StringIO(text))}


def rank_counts(text):
    counts = [int(count) for count in text.split(",")]
    if min(counts) < 2:
        raise ValueError
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--ranks", type=rank_counts, default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--eager-most", type=int, default=128)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.set)
    build = arguments.build.resolve()
    model = predict(build, arguments.ranks)
    print("| ranks | connect | connections | bytes of the store | model, s | measured, s |")
    print("|---:|---|---:|---:|---:|---:|")
    for n in arguments.ranks:
        for connect in ("eager", "lazy"):
            row = model[n, connect]
            times = []
            if connect == "lazy" or n <= arguments.eager_most:
                times = [t for t in (measure(build, n, connect, settings) for _ in range(arguments.rounds)) if t is not None]
            measured = f"{min(times):.2f}" if times else "-"
            print(f"| {n} | {connect} | {row['connections']} | {int(row['store_bytes']):,} | "
                  f"{float(row['seconds']):.2f} | {measured} |", flush=True)


if __name__ == "__main__":
    main()
