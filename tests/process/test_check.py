"""ddl-launch --check: what it says of hosts that reach each other, and of those that do not.

    test_check.py LAUNCHER [CLASS[.TEST]...] [-v]

Hosts are network namespaces; what needs them is skipped where they cannot be made.
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

import test_addresses
import test_redis
from test_addresses import FIREWALL, PORT, Networks, nft
from test_hosts import clean_environment
from world import DEADLINE, Rank

LAUNCHER = None
REASON = test_addresses.permitted()


class Check(Networks):
    def check(self, *flags, prefix=(), **environment):
        variables = {**clean_environment(), "DDL_START_TIMEOUT": f"{DEADLINE:g}s", **environment}
        started = Rank(LAUNCHER, [*flags, "--check"], variables, f"the check {flags}", prefix)
        self.addCleanup(started.close)
        return started

    def finish(self, started, code):
        """All that it wrote on stdout."""
        lines = []
        while (record := started.next()) is not None:
            lines.append(record["line"])
        started.finish(code)
        return "".join(lines)

    def nodes(self, hosts, per_node=1, master="10.77.0.1", **environment):
        """A launcher on each host, whose name is nodea, nodeb, ..."""
        return [self.check("--nnodes", str(len(hosts.names)), "--node_rank", str(h), "--nproc_per_node", str(per_node),
                           "--master_addr", master, "--master_port", str(PORT),
                           prefix=self.on(hosts, h, name=f"node{'abc'[h]}"), **environment)
                for h in range(len(hosts.names))]

    # ---- one host ----

    def test_a_laptop_needs_no_flags(self):
        text = self.finish(self.check(), 0)
        for word in ("2 ranks on 1 host;", "security auth", "127.0.0.1:", "latency", "bandwidth", "verdict: fine"):
            self.assertIn(word, text)

    def test_what_a_setting_lacks_is_told_and_the_exit_code_says_so(self):
        text = self.finish(self.check(DDL_IFACE="nosuch0"), 1)
        self.assertRegex(text, r"verdict: no job can run like this: DDL_ENETWORK: .*nosuch0.*lo 127\.0\.0\.1")

    def test_who_does_not_come_is_named(self):
        text = self.finish(self.check("--nnodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port",
                                      str(test_addresses.free_port()), DDL_START_TIMEOUT="1s"), 1)
        self.assertRegex(text, r"verdict: no job .*DDL_ETIMEDOUT: ranks 1 of 2 did not come; .*tcp://127\.0\.0\.1")

    def test_a_program_beside_it_is_refused(self):
        started = self.check("--nproc_per_node", "2", "--no-prefix")
        self.assertIn("verdict: fine", self.finish(started, 0))
        refused = Rank(LAUNCHER, ["--check", "true"], clean_environment(), "with a program")
        self.addCleanup(refused.close)
        self.finish(refused, 2)
        self.assertIn("--check starts no program", "".join(refused.errors))

    @unittest.skipIf(shutil.which("redis-server") is None, "redis-server is not installed")
    def test_redis_is_looked_at_where_it_is_the_store(self):
        if os.environ.get("DDL_TEST_REDIS") != "1":
            self.skipTest("built without Redis")
        server = test_redis.Redis()
        self.addCleanup(server.stop)
        text = self.finish(self.check(DDL_STORE=f"redis://127.0.0.1:{server.port}"), 0)
        self.assertRegex(text, rf"met at redis://127\.0\.0\.1:{server.port} \(a request takes \d+\.\d+ ms at most\)")
        self.assertIn("verdict: fine", text)
        server.stop()
        text = self.finish(self.check(DDL_STORE=f"redis://127.0.0.1:{server.port}", DDL_START_TIMEOUT="1s"), 1)
        self.assertRegex(text, rf"verdict: no job .*127\.0\.0\.1:{server.port}")

    # ---- several ----

    def table(self, text, title):
        """The numbers of a table, by row and column; None on the diagonal."""
        lines = text[text.index(title):].split("\n\n")[0].splitlines()[2:]
        return [[None if cell == "." else float(cell) for cell in line.split()[2:]] for line in lines]

    @unittest.skipIf(REASON, REASON)
    def test_hosts_that_reach_each_other(self):
        started = self.nodes(self.hosts(3), per_node=2)
        text = self.finish(started[0], 0)
        for one in started[1:]:
            self.assertEqual(self.finish(one, 0), "")
        self.assertIn("6 ranks on 3 hosts; met at tcp://10.77.0.1:29500", text)
        for rank, host in enumerate("aabbcc"):
            self.assertRegex(text, rf"(?m)^ +{rank}  node{host} +10\.77\.0\.{'abc'.index(host) + 1}:\d+ ")
        self.assertIn("any two ranks can connect, in both directions", text)
        for title in ("latency, us", "bandwidth, MB/s"):
            rows = self.table(text, title)
            self.assertEqual([len(row) for row in rows], [3, 3, 3], text)
            for i, row in enumerate(rows):
                for j, value in enumerate(row):
                    self.assertTrue(value is None if i == j else value > 0, text)
        clocks = re.findall(r"(?m)^node[abc] +\S+ +([+-]\d+\.\d+)  Linux", text)
        self.assertEqual(len(clocks), 3, text)
        self.assertTrue(all(abs(float(clock)) < 1000 for clock in clocks), text)  # it is one clock
        self.assertIn("verdict: fine, a job can run like this", text)

    @unittest.skipIf(REASON, REASON)
    def test_a_pair_that_cannot_connect_is_named_with_the_knobs(self):
        """Two of three hosts do not let each other in; one of them need not."""
        hosts = self.hosts(3)
        nft(hosts.names[1], FIREWALL)
        nft(hosts.names[2], FIREWALL)
        started = self.nodes(hosts)
        text = self.finish(started[0], 1)
        for one in started[1:]:
            self.finish(one, 1)
        self.assertRegex(text, r"FAIL: rank 2 on nodec \(10\.77\.0\.3\) cannot connect to rank 1 on nodeb at 10\.77\.0\.2:\d+: "
                               r"Connection timed out; .*nodeb.*DDL_PORT_RANGE.*DDL_IFACE.*DDL_ADVERTISE")
        self.assertEqual(text.count("FAIL:"), 1, text)
        self.assertEqual(text.count("note:"), 3, text)  # 0 to 1, 0 to 2, and 1 to 2
        self.assertRegex(text, r"(?m)^ +0  \.  o  o$\n^ +1  \+  \.  o$\n^ +2  \+  X  \.$")
        self.assertIn("verdict: no job can run like this: 1 connection cannot be made", text)

    @unittest.skipIf(REASON, REASON)
    def test_ranks_that_are_more_than_the_systems_queue_holds(self):
        """Callers are accepted while the rank that they call looks at others itself."""
        hosts = self.hosts(1)
        subprocess.run([*hosts.on(0), "sh", "-c", "echo 1 >/proc/sys/net/core/somaxconn"], check=True)
        once_none_can_be_accepted = {"DDL_FAILPOINTS": "io.accept:1"} if os.environ.get("DDL_TEST_FAILPOINTS") else {}
        text = self.finish(self.check("--nproc_per_node", "7", prefix=hosts.on(0), **once_none_can_be_accepted), 0)
        self.assertIn("any two ranks can connect, in both directions", text)
        self.assertIn("verdict: fine", text)

    @unittest.skipIf(REASON, REASON)
    def test_what_no_job_needs_does_not_spoil_the_verdict(self):
        hosts = self.hosts(2)
        nft(hosts.names[1], FIREWALL)
        started = self.nodes(hosts)
        text = self.finish(started[0], 0)
        self.assertRegex(text, r"note: rank 0 on nodea \(10\.77\.0\.1\) cannot connect to rank 1 on nodeb at 10\.77\.0\.2:\d+")
        self.assertIn("verdict: fine", text)
        self.finish(started[1], 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LAUNCHER = os.path.abspath(sys.argv[1])
    del sys.argv[1]
    unittest.main()
