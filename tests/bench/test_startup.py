"""bench/startup.py: what it measures is plausible, over each store and at each level; Redis and TLS keep their bounds.

    test_startup.py BUILD_ROOT [TEST...]

DDL_TEST_ROUNDS above 1 (./check --long) starts 64 and 128 ranks, as often.
"""
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process"))

from world import connect, free_port  # noqa: E402

BENCH = pathlib.Path(__file__).parent.parent.parent / "bench"
BUILD = sys.argv.pop(1)
ROUNDS = int(os.environ.get("DDL_TEST_ROUNDS", "1"))
RANKS = (64, 128) if ROUNDS > 1 else (16, 32)


def measured(*settings):
    """{ranks: seconds} of eager starts."""
    more = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([BENCH / "startup.py", BUILD, "--ranks", ",".join(map(str, RANKS)), "--rounds", str(2 + ROUNDS),
                           *more], capture_output=True, text=True, timeout=170)
    print(done.stdout, done.stderr, flush=True)
    rows = [re.findall(r"[^|\s][^|]*[^|\s]|[^|\s]", line) for line in done.stdout.splitlines()]
    return {int(row[0]): float(row[5]) for row in rows if len(row) == 6 and row[1] == "eager"}


def bare(ranks):
    """Seconds for processes that are started and do nothing."""
    command = [os.path.join(BUILD, "tools/launch/ddl-launch"), "--nproc_per_node", str(ranks),
               os.path.join(BUILD, "tests/process/actor")]
    times = []
    for _ in range(2 + ROUNDS):
        began = time.monotonic()
        subprocess.run(command, check=True, timeout=170)
        times.append(time.monotonic() - began)
    return min(times)


def allowed(tcp):
    """Seconds with Redis, where it took so many with the TCP store."""
    return 1.5 * tcp + 0.05


class Startup(unittest.TestCase):
    def redis(self):
        port = free_port()
        server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                                  stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: (server.kill(), server.wait()))
        connect(port).close()  # it answers
        return f"redis://127.0.0.1:{port}"

    @unittest.skipUnless(shutil.which("redis-server"), "no redis-server here")
    def test_redis_and_tls_take_little_more(self):
        store, tls = self.redis(), measured("DDL_SECURITY=tls")
        tcp, redis = dict.fromkeys(RANKS, math.inf), dict.fromkeys(RANKS, math.inf)
        # In turns, and again where it seems more: what takes longer does so each time, what a busy machine adds does not.
        for _ in range(3):
            for least, settings in (tcp, ()), (redis, ("DDL_STORE=" + store,)):
                times = measured(*settings)
                self.assertEqual(set(times), set(RANKS))
                least.update((ranks, min(least[ranks], time)) for ranks, time in times.items())
            if all(redis[ranks] < allowed(tcp[ranks]) for ranks in RANKS):
                break
        self.assertEqual(set(tls), set(RANKS))
        for ranks in RANKS:
            self.assertGreater(tcp[ranks], 0)
            # A half more to three times as long was measured; what takes each pair longer shows.
            self.assertLess(tcp[ranks], 8 * bare(ranks))
            self.assertLess(redis[ranks], allowed(tcp[ranks]))
        if 32 in tls:
            self.assertLess(tls[32], 2)

    def test_what_does_not_start_has_no_time(self):
        with self.assertRaisesRegex(ValueError, "could not convert string to float: '-'"):
            measured("DDL_TRANSPORT=pigeon")


if __name__ == "__main__":
    unittest.main()
