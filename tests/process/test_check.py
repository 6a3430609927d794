"""ddl-launch --check: what it says of hosts that reach each other, and of those that do not.

    test_check.py LAUNCHER [CLASS[.TEST]...] [-v]

Hosts are network namespaces; what needs them is skipped where they cannot be made.
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import test_addresses
import test_redis
from test_addresses import FIREWALL, PORT, Networks, nft
from test_hosts import clean_environment
from world import DEADLINE, Rank, bound

LAUNCHER = None
REASON = test_addresses.permitted()


class Check(Networks):
    def check(self, *flags, prefix=(), program=None, **environment):
        variables = {**clean_environment(), "DDL_START_TIMEOUT": f"{DEADLINE:g}s", **environment}
        started = Rank(program or LAUNCHER, [*flags, "--check"], variables, f"the check {flags}", prefix)
        self.addCleanup(started.close)
        return started

    def finish(self, started, code):
        """All that it wrote on stdout."""
        lines = []
        while (record := started.next()) is not None:
            lines.append(record["line"])
        started.finish(code)
        return "".join(lines)

    def nodes(self, hosts, per_node=1, master="10.77.0.1", port=PORT, etc_hosts=None, each=None, **environment):
        """A launcher on each host, whose name is nodea, nodeb, ...; on as many as there are in each, with variables of
        their own."""
        each = each or [{}] * len(hosts.names)
        return [self.check("--nnodes", str(len(each)), "--node_rank", str(h), "--nproc_per_node", str(per_node),
                           "--master_addr", master, "--master_port", str(port),
                           prefix=self.on(hosts, h, etc_hosts, name=f"node{'abc'[h]}"), **{**environment, **own})
                for h, own in enumerate(each)]

    # ---- one host ----

    def test_a_laptop_needs_no_flags(self):
        text = self.finish(self.check(), 0)
        for word in ("2 ranks on 1 host;", "security auth", "127.0.0.1:", "latency", "bandwidth", "verdict: fine"):
            self.assertIn(word, text)

    def test_a_link_to_the_launcher_will_do(self):
        """The program that checks is beside what the link leads to; the link is found in PATH, too."""
        with tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, "launch")
            os.symlink(os.path.realpath(LAUNCHER), link)
            for program in (link, "launch"):
                text = self.finish(self.check(program=program, PATH=f"{folder}:{os.environ['PATH']}"), 0)
                self.assertIn("verdict: fine", text)

    def test_the_program_tells_its_usage_and_version(self):
        check = os.path.join(os.path.dirname(LAUNCHER), "ddl-check")
        version = subprocess.run([LAUNCHER, "--version"], capture_output=True, text=True).stdout.split()[1]
        for flag, said in (("--help", "usage: "), ("-h", "usage: "), ("--version", f"ddl-check {version}\n"), ("-V", f"ddl-check {version}\n")):
            ran = subprocess.run([check, flag], capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            self.assertTrue(ran.stdout.startswith(said), ran.stdout)
        for flags in (["--helpp"], ["--version", "x"], ["x"]):
            ran = subprocess.run([check, *flags], capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual((ran.returncode, ran.stdout), (2, ""))
            self.assertTrue(ran.stderr.startswith(f"ddl-check: it does not take {flags[-1]}; usage: "), ran.stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_report_that_is_lost_is_told(self):
        check = os.path.join(os.path.dirname(LAUNCHER), "ddl-check")
        job = [LAUNCHER, "--no_prefix", "-np", "2", "sh", "-c", f"exec {check} >/dev/full"]
        for command, environment in (([check], {}), ([check, "--help"], {}), ([check], {"WORLD_SIZE": "many"}), (job, {})):
            with self.subTest(command=command, **environment), open("/dev/full", "w") as full:
                ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE,
                                     env={**clean_environment(), **environment})
                self.assertEqual(ran.returncode, 2, ran.stderr)
                self.assertIn("ddl-check: cannot write to standard output: No space left on device\n", ran.stderr)

    def test_what_a_setting_lacks_is_told_and_the_exit_code_says_so(self):
        text = self.finish(self.check(DDL_IFACE="nosuch0"), 1)
        self.assertTrue(text.startswith("verdict: "), text)
        self.assertRegex(text, r"verdict: no job can run like this: DDL_ENETWORK: rank \d on \S+\[\d+\]: .*nosuch0.*lo 127\.0\.0\.1")

    def test_who_does_not_come_is_named(self):
        """With what to ask, also if somebody else has called."""
        port = test_addresses.free_port()
        started = self.check("--nnodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", str(port),
                             DDL_START_TIMEOUT=f"{bound(2):g}s")
        while started.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as stranger:
                    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    stranger.recv(1000)
                break
            except ConnectionError:
                time.sleep(0.01)
        text = self.finish(started, 1)
        self.assertIn(": the other end does not speak ddl", "".join(started.errors))
        self.assertRegex(text, r"verdict: no job .*DDL_ETIMEDOUT: rank 1 of 2 did not come; .*tcp://127\.0\.0\.1")

    def test_a_job_and_a_check_find_out_at_once(self):
        """Whichever of them rank 0 is in, and wherever they meet."""
        actor = os.path.join(os.path.dirname(LAUNCHER), "../../tests/process/actor")
        with tempfile.TemporaryDirectory() as folder:
            for zero, store in ((0, {}), (1, {}), (1, {"DDL_STORE": "file://" + folder})):
                flags = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(test_addresses.free_port())]
                began = time.monotonic()
                check = self.check(*flags, "--node_rank", str(zero), **store)
                job = Rank(LAUNCHER, [*flags, "--node_rank", str(1 - zero), "--no_prefix", actor, "init"],
                           {**clean_environment(), **store}, "the job")
                self.addCleanup(job.close)
                sides = ("a program", "a check (--check)")
                said = "rank 1 on %s runs %s, and rank 0 %s; start" % (socket.gethostname(), sides[zero], sides[1 - zero])
                record = job.expect("init", "DDL_ECONFIG")
                self.assertIn(said, record["text"])
                self.assertEqual(record["culprit"], 1)
                self.assertIn(said, self.finish(check, 1) + "".join(check.errors))
                self.assertLess(time.monotonic() - began, bound(3))

    def test_a_world_of_one_has_nothing_to_look_at(self):
        self.assertIn("a world of one", self.finish(self.check("--nproc_per_node", "1"), 0))

    def test_what_the_job_would_do_otherwise_is_shown(self):
        """Another level; an address for others, behind which neighbours call each other."""
        text = self.finish(self.check("--security", "off", DDL_ADVERTISE="192.0.2.7"), 0)
        self.assertIn("security off\n", text)
        for rank in (0, 1):
            self.assertRegex(text, rf"(?m)^ +{rank}  \S+ +192\.0\.2\.7:(\d+) +\d+  behind it: 127\.0\.0\.1, port \1$")

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
        return [[None if cell == "." else float(cell) for cell in line.split()[2:]] for line in lines
                if not line.startswith("warning: ")]

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
        self.assertNotIn("warning: the clock", text)
        self.assertNotIn("warning: rank", text)
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
        started = self.nodes(hosts, per_node=3)
        text = self.finish(started[0], 0)
        self.assertEqual(text.count("note: rank "), 8, text)
        self.assertIn("note: and 1 more pair\n", text)
        self.assertRegex(text, r"note: rank 0 on nodea \(10\.77\.0\.1\) cannot connect to rank 3 on nodeb at 10\.77\.0\.2:\d+")
        self.assertIn("verdict: fine", text)
        self.finish(started[1], 0)

    @unittest.skipIf(REASON or "DDL_TEST_SKEWED" not in os.environ, REASON or "nothing can be preloaded here")
    def test_what_is_odd_is_warned_of_and_spoils_no_verdict(self):
        """A clock, once for its host; another version, of each rank; a link, in the direction that is slow."""
        hosts = self.hosts(3)
        shaped = subprocess.run(["ip", "netns", "exec", hosts.names[2], "tc", "qdisc", "add", "dev", "wire", "root", "tbf",
                                 "rate", "200mbit", "burst", "64kb", "latency", "50ms"], capture_output=True, text=True)
        if shaped.returncode != 0:
            self.skipTest(f"no link can be made slow here: {shaped.stderr}")
        started = [self.check("--nnodes", "3", "--node_rank", str(h), "--nproc_per_node", "2", "--master_addr", "10.77.0.1",
                              "--master_port", str(PORT), program=program, prefix=self.on(hosts, h, name=f"node{'abc'[h]}"),
                              **environment)
                   for h, (program, environment) in enumerate(((LAUNCHER, {}),
                                                               (LAUNCHER, {"LD_PRELOAD": os.environ["DDL_TEST_SKEWED"]}),
                                                               (self.other_version(), {})))]
        text = self.finish(started[0], 0)
        for one in started[1:]:
            self.finish(one, 0)
        self.assertRegex(text, r"(?m)^nodeb +\S+ +\+(89[89]|900)\d\d\.\d\d  Linux")
        self.assertRegex(text, r"(?m)^nodec +[0-9.]+x +")
        warnings = re.findall(r"(?m)^warning: (.*)$", text)
        slow = [warning for warning in warnings if warning.startswith("from ")]
        expected = [r"the clock of nodeb is (89\.9|90\.0) s off that of rank 0: ",
                    *[rf"rank {r} on nodec has ddl [0-9.]+x, rank 0 has [0-9.]+; install the same everywhere$" for r in (4, 5)]]
        self.assertEqual(len(warnings) - len(slow), len(expected), text)
        for warning, words in zip(warnings, expected):
            self.assertRegex(warning, words)
        for to in "ab":  # a link that this machine had no time for may be told of, too
            self.assertRegex("\n".join(slow), rf"(?m)^from nodec to node{to} it is \d\d? MB/s, elsewhere up to \d\d\d+: .*DDL_IFACE")
        bandwidth = self.table(text, "bandwidth, MB/s")
        for other in (0, 1):
            self.assertTrue(10 < bandwidth[2][other] < 50 < bandwidth[other][2], text)
        self.assertIn(f"verdict: fine, a job can run like this, with {len(warnings)} warnings\n", text)

    def other_version(self):
        """The launcher as it might be installed elsewhere: its ddl-check says that it is of another version."""
        folder = os.path.join(self.folder, "elsewhere")
        os.mkdir(folder)
        launcher = shutil.copy(LAUNCHER, folder)
        check = os.path.join(folder, "ddl-check")
        shutil.copy(os.path.join(os.path.dirname(LAUNCHER), "ddl-check"), check)
        version = re.search(rb" ([0-9.]+)", subprocess.run([LAUNCHER, "--version"], capture_output=True).stdout)[1]
        with open(check, "r+b") as file:
            content = file.read()
            self.assertEqual(content.count(b"\0" + version + b"\0"), 1)
            file.seek(content.index(b"\0" + version + b"\0") + len(version))
            file.write(b"x")
        return launcher

    # ---- level tls ----

    def authority(self, name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.pem",
                        "-addext", "basicConstraints=critical,CA:true"], check=True, capture_output=True, timeout=DEADLINE)

    def certificate(self, name, names, signed_by="ca", ca="both"):
        """The variables of a rank whose certificate is for these names."""
        path = f"{self.folder}/{name}-of-{signed_by}"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-CA", f"{self.folder}/{signed_by}.pem", "-CAkey",
                        f"{self.folder}/{signed_by}.key", "-keyout", path + ".key", "-out", path + ".pem",
                        "-addext", "basicConstraints=critical,CA:false", "-addext", f"subjectAltName={names}"],
                       check=True, capture_output=True, timeout=DEADLINE)
        return {"DDL_TLS_CA": f"{self.folder}/{ca}.pem", "DDL_TLS_CERT": path + ".pem", "DDL_TLS_KEY": path + ".key"}

    @unittest.skipIf(REASON or os.environ.get("DDL_TEST_TLS") != "1" or shutil.which("openssl") is None,
                     REASON or "this build is without TLS, or there is no openssl command")
    def test_level_tls_is_tried_and_what_fails_is_told_with_the_node(self):
        hosts = self.hosts(3)
        for name in ("ca", "other_ca"):
            self.authority(name)
        with open(f"{self.folder}/both.pem", "w") as both:
            for name in ("ca", "other_ca"):
                with open(f"{self.folder}/{name}.pem") as one:
                    both.write(one.read())
        names = [f"DNS:node{h},IP:10.77.0.{i}" for i, h in enumerate("abc", 1)]
        a, b, c = (self.certificate(f"node{h}", names[i]) for i, h in enumerate("abc"))
        with self.subTest("it works; and rows have both addresses where the place has a name of both families"):
            started = self.nodes(hosts, master="nodea", etc_hosts="10.77.0.1 nodea\nfd77::1 nodea\n", each=(a, b, c),
                                 DDL_SECURITY="tls")
            text = self.finish(started[0], 0)
            for one in started[1:]:
                self.finish(one, 0)
            self.assertIn("met at tcp://nodea:29500 (", text)
            self.assertIn("; security tls, secret: read from ", text)
            for rank, host in enumerate("abc"):
                four, six = rf"10\.77\.0\.{rank + 1}", f"fd77::{rank + 1}"
                self.assertRegex(text, rf"(?m)^ +{rank}  node{host} +({four}:\d+ +\d+  also: {six}|\[{six}\]:\d+ +\d+  also: "
                                       rf"{four}), port \d+$")
            self.assertIn("verdict: fine, a job can run like this", text)
        wrong, foreign = self.certificate("nobody", "DNS:elsewhere.org"), self.certificate("nodeb", names[1], "other_ca")
        strict = self.certificate("nodec", names[2], ca="ca")
        alike = r"start every rank with the same DDL_SECURITY"
        cases = {
            "the name of node 1": (
                ({**a, "DDL_LOG": "error"}, wrong), r"DDL_ETIMEDOUT: rank 1 of 2 did not come; rank 0 turned away 10\.77\.0\.2:\d+: .*its certificate is "
                            r"for elsewhere\.org, not for nodeb or 10\.77\.0\.2; .*subject alternative names; let MASTER_ADDR and hostname be names that certificates have; look at their output",
                {1: r"DDL_EAUTH: store at 10\.77\.0\.1:\d+: the certificate of this rank is for another host or rank"}),
            "the name of node 0": (
                (wrong, b), r"DDL_EAUTH: .*10\.77\.0\.1:\d+: its certificate is for elsewhere\.org, not for 10\.77\.0\.1; ", {}),
            "a level below": (
                (a, {"DDL_SECURITY": "auth"}),
                rf"DDL_ETIMEDOUT: rank 1 of 2 did not come; rank 0 turned away 10\.77\.0\.2:\d+: rank 1 on nodeb\[\d+\] has security "
                rf"level auth, but rank 0 on nodea\[\d+\] has tls; {alike}",
                {1: rf"DDL_EAUTH: .*rank 1 on nodeb\[\d+\] has security level auth, but rank 0 has tls; {alike}"}),
            "a level above": (
                ({"DDL_SECURITY": "auth"}, b),
                rf"DDL_ETIMEDOUT: rank 1 of 2 did not come; rank 0 turned away 10\.77\.0\.2:\d+: it calls in TLS, but rank 0 has "
                rf"security level auth; {alike}",
                {1: rf"DDL_EAUTH: .*rank 1 has security level tls, but what answers there has auth; {alike}"}),
            "the authority of node 1, at node 2": (
                (a, foreign, strict), r"DDL_EAUTH: rank 2 .*rank 1 on nodeb.*not signed by an authority in \S+/ca\.pem",
                {2: r"DDL_EAUTH: .*not signed by an authority in \S+/ca\.pem"})}
        started = {name: self.nodes(hosts, port=PORT + i, each=each, **{"DDL_SECURITY": "tls", "DDL_START_TIMEOUT": f"{bound(2):g}s"})
                   for i, (name, (each, _, _)) in enumerate(cases.items(), 1)}
        for name, (_, verdict, others) in cases.items():
            with self.subTest(name):
                self.assertRegex(self.finish(started[name][0], 1), "verdict: no job can run like this: " + verdict)
                for h, one in enumerate(started[name][1:], 1):
                    self.assertEqual(self.finish(one, 1), "")
                    self.assertRegex("".join(one.errors), rf"ddl-check: rank {h}: " + others.get(h, "DDL_"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LAUNCHER = os.path.abspath(sys.argv[1])
    del sys.argv[1]
    unittest.main()
