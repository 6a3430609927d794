"""ddl-bench --calibrate where ranks are on two hosts, which are network namespaces.

    test_bench_hosts.py LAUNCHER DDL_BENCH [TEST...]

Needs the right to make network namespaces; exits with 77 (skipped) where it is not given.
"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "process"))

from jobs import LIMIT_S, clean_environment  # noqa: E402
from test_hosts import PORT, Hosts, permitted  # noqa: E402
from world import FolderTest, run_unless  # noqa: E402

LAUNCHER, BENCH = [os.path.abspath(a) for a in sys.argv[1:3]]
LOCAL = {"local.latency_ns", "local.message_ns", "local.byte_ns", "reduce_ns"}
REMOTE = {"remote.latency_ns", "remote.message_ns", "remote.byte_ns"}


class TwoHosts(FolderTest):
    def setUp(self):
        super().setUp()
        self.profile = self.path("profile")

    def run_on(self, hosts, per_host, *arguments, **environment):
        """What rank 0's host said; every host ends well."""
        started = [subprocess.Popen(
            [*hosts.on(host), LAUNCHER, "--nnodes", "2", "--node_rank", str(host), "--nproc_per_node", str(per_host),
             "--master_addr", "10.77.0.1", "--master_port", str(PORT), "--no-prefix", BENCH, *arguments],
            env={**clean_environment(), **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True) for host in range(2)]
        try:
            said = [one.communicate(timeout=LIMIT_S) for one in started]
        finally:
            for one in started:
                one.kill()
                one.wait()
        self.assertEqual([one.returncode for one in started], [0, 0], said)
        return said[0][0]

    def calibrate(self, hosts, per_host):
        said = self.run_on(hosts, per_host, "--calibrate", self.profile, "--seconds", "0.05")
        with open(self.profile, encoding="utf-8") as file:
            self.assertEqual(said, file.read())
        self.assertIn("on 2 hosts", said)
        return said, {name: float(value) for name, value in re.findall(r"^([\w.]+) = ([\d.]+)$", said, re.M)}

    def test_both_kinds_of_links_are_measured(self):
        with Hosts(2) as hosts:
            said, constants = self.calibrate(hosts, 2)
            self.assertEqual(set(constants), LOCAL | REMOTE)
            self.assertIn("between ranks 0 and 1, which are on one host", said)
            self.assertIn("between ranks 0 and 2, which are on different hosts", said)
            used = self.run_on(hosts, 2, "allreduce", "--max", "64k", "--factor", "128", "--seconds", "0.01",
                               DDL_PROFILE=self.profile)
            self.assertIn("4 processes on 2 hosts", used)
            self.assertIn(f"# chosen by the constants in {self.profile}", used)

    def test_without_two_ranks_on_a_host_local_links_keep_their_defaults(self):
        with Hosts(2) as hosts:
            said, constants = self.calibrate(hosts, 1)
            self.assertEqual(set(constants), REMOTE)
            self.assertIn("local links keep their defaults", said)

    def test_a_shaped_link_is_told_from_the_local_one(self):
        with Hosts(2) as hosts:
            for name in hosts.names:
                shaped = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "wire", "root", "tbf",
                                         "rate", "500mbit", "burst", "128kb", "latency", "50ms"], capture_output=True,
                                        text=True, timeout=30)
                if shaped.returncode != 0:
                    self.skipTest(f"no way to shape a link here: {shaped.stderr.strip()}")
            _, constants = self.calibrate(hosts, 2)
            self.assertGreater(constants["remote.byte_ns"], 12)  # 16 are those of the wire; headers and bursts
            self.assertGreater(constants["remote.byte_ns"], 2 * constants["local.byte_ns"])


if __name__ == "__main__":
    del sys.argv[1:3]
    run_unless(permitted())
