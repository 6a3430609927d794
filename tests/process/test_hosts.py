"""Several hosts, as network namespaces joined by a bridge, each with an address of its own and one that lies.

    test_hosts.py LAUNCHER ACTOR COLLECTIVES SIMULATOR [CLASS[.TEST]...] [-v]

Needs the right to make network namespaces; exits with 77 (skipped) where it is not given.
"""
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

from link import Link, refused  # noqa: E402
from run_collectives import algorithms, rounds, settings_of
from world import DEADLINE, Rank, World, bound, clean_environment, end_well, run_unless, wait_until

LAUNCHER = ACTOR = COLLECTIVES = SIMULATOR = None
PORTABLE = os.environ.get("DDL_TEST_PORTABLE") == "1"
TLS = os.environ.get("DDL_TEST_TLS") == "1"
PORT = 29500


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


def cut_off(prefix):
    """Nothing passes into or out of a host any more, and nobody is told; until its table t is deleted."""
    drop = " chain %s { type filter hook %s priority 0; policy drop; }\n"
    subprocess.run([*prefix, "nft", "-f", "-"], check=True, text=True, capture_output=True, timeout=30,
                   input="table inet t {\n" + drop % ("i", "input") + drop % ("o", "output") + "}\n")


class Hosts:
    """nhosts namespaces at 10.77.0.1, .2, ... on one bridge; names are unique to this process."""

    made = 0

    def __init__(self, nhosts):
        Hosts.made += 1
        stem = f"ddl-{os.getpid()}-{Hosts.made}"
        self.hub = f"{stem}-hub"
        self.names = [f"{stem}-{i}" for i in range(nhosts)]

    def __enter__(self):
        try:
            ip("netns", "add", self.hub)
            ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.hub, "link", "set", "bridge", "up")
            for i, name in enumerate(self.names):
                self.join(i, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self, i, name):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.hub, "link", "add", f"port{i}", "type", "veth", "peer", "name", "wire", "netns", name)
        ip("-n", self.hub, "link", "set", f"port{i}", "master", "bridge", "up")
        ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "wire")
        ip("-n", name, "addr", "add", f"fd77::{i + 1}/64", "dev", "wire", "nodad")
        ip("-n", name, "link", "set", "wire", "up")
        # The same address on every host and no way between them, like the bridge of a container engine.
        ip("-n", name, "link", "add", "trap", "type", "veth", "peer", "name", "trap-end")
        ip("-n", name, "addr", "add", "172.17.0.1/16", "dev", "trap")
        ip("-n", name, "link", "set", "trap", "up")
        ip("-n", name, "link", "set", "trap-end", "up")

    def __exit__(self, *exc):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)

    def on(self, host):
        """What to put before a command to run it on this host."""
        enter = ["ip", "netns", "exec", self.names[host]]
        if PORTABLE:  # then hosts are told apart by their names alone
            enter += ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.names[host]]
        return enter


def slow_down(host, rate="1mbit", device="wire"):
    """What it sends goes at 1 Mbit/s, or at another rate: above that in bursts that take a segment of 64 KiB as it is. The
    system would cut it into packets and set a timer for each, which took both processors."""
    burst = "16kb" if rate == "1mbit" else "128kb"
    subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "300ms"],
                   check=True, capture_output=True, timeout=30)


class OnHosts(unittest.TestCase):
    """Starts ranks on hosts."""

    def hosts(self, nhosts):
        hosts = Hosts(nhosts)
        hosts.__enter__()
        self.addCleanup(hosts.__exit__)
        return hosts

    def launch(self, hosts, host, nhosts, per_host, *command, master="10.77.0.1", **environment):
        variables = clean_environment()
        variables.update(environment)
        arguments = ["--nnodes", nhosts, "--node_rank", host, "--nproc_per_node", per_host, "--master_addr", master,
                     "--master_port", PORT, "--no-prefix", *command]
        launched = Rank(LAUNCHER, [str(a) for a in arguments], variables, f"the launcher on host {host}",
                        hosts.on(host))
        self.addCleanup(launched.close)
        return launched

    def sweep(self, nhosts, per_host, cases, **more):
        self.sweep_on(self.hosts(nhosts), per_host, cases, **more)

    def sweep_on(self, hosts, per_host, cases, *arguments, **more):
        nhosts = len(hosts.names)
        launched = [self.launch(hosts, h, nhosts, per_host, COLLECTIVES, "--seed", 5, "--cases", cases, *arguments,
                                **more) for h in range(nhosts)]
        for one in launched:
            for _ in range(per_host):
                record = one.next()
                self.assertEqual(record and record.get("line"), f"ok {cases} cases\n", one.story())
            self.assertEqual(one.process.wait(DEADLINE), 0, one.story())

    def rank(self, world, hosts, host, rank, *commands, **environment):
        started = world.start(rank, *commands, prefix=hosts.on(host), MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT,
                              **environment)
        self.addCleanup(started.close)
        return started

    def at_once(self, check, *cases):
        """Cases that mostly wait, each with hosts of its own, which are made one after the other."""
        with ThreadPoolExecutor(len(cases)) as pool:
            for done in [pool.submit(check, *case) for case in cases]:
                done.result()

    def outcome(self, rank):
        record = rank.next()
        return rank.next() if record["event"] == "running" else record


class Computing(OnHosts):
    """What several hosts compute together, and how they find each other."""

    def test_two_hosts_compute(self):
        self.sweep(2, 2, 60)

    def test_hosts_compute_over_several_connections(self):
        hosts = self.hosts(3)
        for environment in ({}, {"DDL_CONNECT": "lazy"}, {"DDL_SECURITY": "tls"}):
            if environment.get("DDL_SECURITY") == "tls" and os.environ.get("DDL_TEST_TLS") != "1":
                continue
            with self.subTest(**environment):
                self.sweep_on(hosts, 2, 15, "--max-count", 200000, DDL_STREAMS="3", **environment)

    def test_pairs_that_meet_late_have_several_connections_at_once(self):
        """What is large is expected before there are any."""
        def meet(hosts, streams):
            world = World(ACTOR, 6, DDL_CONNECT="lazy", DDL_STREAMS=streams)
            ranks = [world.start(r, "init", "alltoall:50000:int32", "alltoall:50001:int32", "free", prefix=hosts.on(r // 2),
                                 MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT) for r in range(6)]
            self.addCleanup(world.__exit__)
            end_well(ranks, "init", "call", "call", "free")
        self.at_once(meet, (self.hosts(3), "3"), (self.hosts(3), "auto"))

    def test_three_hosts_compute(self):
        self.sweep(3, 2, 40)

    def test_each_algorithm_on_three_hosts(self):
        """As many ranks on each, where slices are carried between hosts side by side."""
        hosts = self.hosts(3)
        for forced, _, _ in rounds(algorithms(SIMULATOR), True):
            with self.subTest(**forced):
                self.sweep_on(hosts, 2, 120, **settings_of(forced))

    def test_ranks_spread_over_hosts_in_any_way(self):
        """More on one than on another, and in an order that goes back and forth."""
        hosts = self.hosts(3)
        by_host = [row for row in algorithms(SIMULATOR)
                   if row[1].startswith("two_level") or row[0].startswith(("gather", "scatter"))]
        for places in ((0, 0, 0, 1, 2, 2), (0, 1, 0, 1, 2), (2, 1, 0, 0, 0, 0, 0)):
            for forced in ({}, *(forced for forced, _, _ in rounds(by_host, True))):
                with self.subTest(places=places, **forced):
                    world = World(COLLECTIVES, len(places))
                    master = f"10.77.0.{places[0] + 1}"
                    ranks = [world.start(r, "--cases", 80, "--max-count", 5000, prefix=hosts.on(host),
                                         MASTER_ADDR=master, MASTER_PORT=PORT, **settings_of(forced))
                             for r, host in enumerate(places)]
                    self.addCleanup(world.__exit__)
                    for rank in ranks:
                        record = rank.next()
                        self.assertEqual(record and record.get("line"), "ok 80 cases\n", rank.story())
                        self.assertEqual(rank.process.wait(DEADLINE), 0, rank.story())

    def test_two_hosts_meet_over_ipv6(self):
        self.sweep(2, 1, 20, master="fd77::1")

    def test_ranks_know_their_places(self):
        hosts = self.hosts(3)
        launched = [self.launch(hosts, h, 3, 2, ACTOR, "init", "facts", "barrier", "free") for h in range(3)]
        for h, one in enumerate(launched):
            facts = []
            for _ in range(8):
                record = one.next()
                if record["event"] == "facts":
                    facts.append(record)
                else:
                    self.assertEqual(record.get("status"), "DDL_OK", one.story())
            self.assertEqual(sorted(f["rank"] for f in facts), [2 * h, 2 * h + 1])
            for f in facts:
                self.assertEqual((f["size"], f["node_rank"], f["node_count"]), (6, h, 3), f)
                self.assertEqual((f["local_rank"], f["local_size"]), (f["rank"] - 2 * h, 2), f)
            self.assertEqual(one.process.wait(DEADLINE), 0, one.story())

    def test_hosts_that_do_not_share_a_home_need_the_same_secret(self):
        """Ranks started by hand: what is told, and what helps."""
        hosts = self.hosts(2)
        with tempfile.TemporaryDirectory() as folder:
            homes = [os.path.join(folder, str(h)) for h in range(2)]
            for home in homes:
                os.mkdir(home)
            world = World(ACTOR, 2)
            first = self.rank(world, hosts, 0, 0, "init", "allreduce:1000:int32:sum", "free", HOME=homes[0])
            second = self.rank(world, hosts, 1, 1, "init", HOME=homes[1])
            record = second.expect("init", "DDL_EAUTH")
            for word in ("10.77.0.1", "rank 1", homes[1] + "/.ddl/secret", "DDL_SECRET_FILE"):
                self.assertIn(word, record["text"])
            shutil.copy(homes[0] + "/.ddl/secret", homes[1] + "/.ddl/secret")
            second = self.rank(world, hosts, 1, 1, "init", "allreduce:1000:int32:sum", "free", HOME=homes[1])
            end_well((first, second), "init", "call", "free")
            self.assertTrue(any("turned away 10.77.0.2" in line for line in first.errors), first.story())

    @unittest.skipUnless(os.environ.get("DDL_TEST_TLS") == "1" and os.environ.get("DDL_TEST_NCCL") == "1", "built without TLS or NCCL")
    def test_nccl_is_refused_where_traffic_between_hosts_is_to_be_encrypted(self):
        hosts = self.hosts(2)
        for places, status in (((0, 1), "DDL_ECONFIG"), ((0, 0), "DDL_OK")):
            with self.subTest(places=places):
                world = World(ACTOR, 2, DDL_SECURITY="tls", DDL_GPU="nccl")
                ranks = [self.rank(world, hosts, host, r, "init", "free") for r, host in enumerate(places)]
                for rank in ranks:
                    record = rank.expect("init", status)
                    self.assertEqual("between them in clear" in record.get("text", ""), status != "DDL_OK", record)
                    rank.finish(None)

    def test_an_interface_by_name_and_by_range(self):
        hosts = self.hosts(2)
        for choice in ("wire", "10.77.0.0/24", "10.77.0.0/16", "fd77::/64"):
            with self.subTest(choice=choice):
                world = World(ACTOR, 2)
                ranks = [self.rank(world, hosts, h, h, "init", "allreduce:1000:int32:sum", "free", DDL_IFACE=choice)
                         for h in range(2)]
                end_well(ranks, "init", "call", "free")

    def test_a_wrong_interface_lists_what_exists(self):
        hosts = self.hosts(2)
        for choice, status in (("eth7", "DDL_ENETWORK"), ("192.168.99.0/24", "DDL_ENETWORK"),
                               ("10.77.0.0/33", "DDL_ECONFIG"), ("/", "DDL_ECONFIG")):
            with self.subTest(choice=choice):
                world = World(ACTOR, 2)
                one = self.rank(world, hosts, 0, 0, "init", DDL_IFACE=choice)
                record = one.expect("init", status)
                for word in ("DDL_IFACE", choice, "lo 127.0.0.1/8", "wire 10.77.0.1/24", "trap 172.17.0.1/16"):
                    self.assertIn(word, record["text"])
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(1))

    def test_a_machine_without_a_network_is_told_at_once(self):
        enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
        for rank in range(2):
            one = World(ACTOR, 2).start(rank, "init", prefix=enter)
            record = one.expect("init", "DDL_ENETWORK")
            self.assertIn("no network interface that is up", record["text"])
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(1))
            one.close()

    def test_a_machine_without_a_loopback_is_told_at_once(self):
        """It reaches none of its own addresses, and nothing of the system's tells."""
        enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
        enter += ["sh", "-ec", "ip link add d0 type veth peer name d1; ip link set d1 up; ip link set d0 up; "
                  'ip addr add 10.77.0.1/24 dev d0; exec "$@"', "sh"]
        for rank, address in ((0, "10.77.0.1"), (1, "10.77.0.1"), (0, "127.0.0.1"), (1, "127.0.0.1")):
            with self.subTest(rank=rank, address=address):
                one = World(ACTOR, 2, MASTER_ADDR=address).start(rank, "init", prefix=enter)
                record = one.expect("init", "DDL_ENETWORK")
                for word in (address, "ip link set lo up"):
                    self.assertIn(word, record["text"])
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(1))
                one.close()

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root, and setpriv")
    def test_why_a_port_is_refused_is_told(self):
        """One for root only, and one that something else keeps from this process."""
        for port, first_free, words in ((80, 1024, "for root only"), (30000, 32000, "security module")):
            with self.subTest(port=port):
                enter = ["unshare", "-n", "sh", "-ec", "ip link set lo up; "
                         f"echo {first_free} >/proc/sys/net/ipv4/ip_unprivileged_port_start; "
                         'exec setpriv --bounding-set -net_bind_service --inh-caps -net_bind_service "$@"', "sh"]
                one = World(ACTOR, 2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port).start(0, "init", prefix=enter)
                record = one.expect("init", "DDL_ENETWORK")
                self.assertIn(words, record["text"])
                self.assertEqual(record["os_errno"], errno.EACCES, record)
                one.close()

    def test_who_joined_is_told_with_the_hosts(self):
        """By their names, if there is room for them; else how many there are. While they wait by the first rank of each."""
        hosts = self.hosts(3)
        told = []
        for names, joined, port, seconds in ((("na", "nb", "nc"), "0 on na, 1, 3 on nb, 4 on nc", PORT, 1),
                                             ([letter * 60 for letter in "abc"], "0-1, 3-4 on 3 hosts", PORT + 1, 7)):
            world = World(ACTOR, 6, DDL_START_TIMEOUT=f"{seconds}s")
            self.addCleanup(world.__exit__)
            for rank, host, local_rank in ((0, 0, 0), (1, 1, 0), (3, 1, 1), (4, 2, 0)):
                enter = [*hosts.on(host), "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', names[host]]
                told.append((world.start(rank, "init", prefix=enter, MASTER_ADDR="10.77.0.1", MASTER_PORT=port,
                                         LOCAL_RANK=local_rank), joined, port, local_rank == 0 and seconds > 1))
        for rank, joined, port, tells in told:
            record = rank.expect("init", "DDL_ETIMEDOUT")
            self.assertIn(f"ranks 2, 5 of 6 (joined: {joined}) did not come to tcp://10.77.0.1:{port} within ", record["text"])
            rank.finish(0)
            said = re.findall(r"waiting for ranks 2, 5 of 6 \(joined: (.*)\) at tcp://10.77.0.1:\d+, \d+ s left", "".join(rank.errors))
            self.assertEqual(said, [joined] * tells, rank.story())

    def test_a_place_that_others_do_not_reach_is_told(self):
        """Each tells where it is, or looks, so that the two can be compared."""
        hosts = self.hosts(2)
        world = World(ACTOR, 2, DDL_START_TIMEOUT="2s", MASTER_PORT=PORT)
        self.addCleanup(world.__exit__)
        ranks = [world.start(rank, "init", prefix=hosts.on(rank), MASTER_ADDR=address)
                 for rank, address in enumerate(("localhost", "10.77.0.1"))]
        for rank, words in zip(ranks, (f" did not come to tcp://localhost:{PORT} (which only this host reaches) within ",
                                       f" 10.77.0.1:{PORT} within ")):
            self.assertIn(words, rank.expect("init", "DDL_ETIMEDOUT")["text"])
            rank.finish(0)


class Failing(OnHosts):
    """Ranks that end, hosts that are cut off, slow links."""

    def test_a_rank_killed_on_one_host_is_told_on_the_others(self):
        hosts = self.hosts(3)
        for environment in ({}, {"DDL_STREAMS": "2"}):
            with self.subTest(**environment):
                world = World(ACTOR, 3, **environment)
                call = "forever=allreduce:100000:float32:sum"
                ranks = [self.rank(world, hosts, h, h, "init", "barrier", *(["mortal:40000"] if h == 1 else []), call,
                                   "free") for h in range(3)]
                for one in ranks:
                    one.expect("init", "DDL_OK")
                    one.expect("call", "DDL_OK")
                killed = self.outcome(ranks[1])
                self.assertEqual(killed["event"], "killed")
                ranks[1].finish(-signal.SIGKILL)
                for one in (ranks[0], ranks[2]):
                    record = self.outcome(one)
                    self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1), one.story())
                    self.assertLess((record["end_ns"] - killed["end_ns"]) / 1e9, bound(1), record)
                    one.expect("free", "DDL_OK")
                    one.finish(0)

    def begin_calls(self, ranks):
        """To the calls that all ranks were to wait with."""
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
            one.expect("ready")
        for one in ranks:
            one.go()
        time.sleep(0.3)

    def apply_in_calls(self, ranks, name, rules):
        """To a host of this name, while all ranks make these calls."""
        self.begin_calls(ranks)
        subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=rules, check=True, text=True,
                       capture_output=True, timeout=30)

    def cut(self, hosts, rules, culprits, **environment):
        """Ranks of three hosts between which something does not pass any more, and no connection is reset: rank 2's has
        these rules. culprits: whom each may name. The word of the others is that of the kernel, where it tells. Two go
        on: both but rank 2 if it has lost both, else both but the one that all name."""
        code, words = ("DDL_EUNRESPONSIVE", "no sign of life") if PORTABLE else ("DDL_EUNREACHABLE", "has acknowledged nothing for")
        world = World(ACTOR, 3, DDL_UNREACH_TIMEOUT=f"{bound(2)}s", DDL_WARN_AFTER=f"{bound(1)}s", **environment,
                      **({"DDL_UNRESP_TIMEOUT": f"{bound(2)}s"} if PORTABLE else {}))
        call = "forever=allreduce:100000:float32:sum"
        ranks = [self.rank(world, hosts, h, h, "init", "barrier", "line", call, "shrink:rest", "line", "use:rest",
                           "allreduce:1000:float32:sum", "free", "free") for h in range(3)]
        self.apply_in_calls(ranks, hosts.names[2], rules)
        began = time.monotonic_ns()
        blamed = set()
        for one, named in zip(ranks, culprits):
            record = self.outcome(one)
            self.assertEqual(record["status"], code, one.story())
            self.assertIn(record["culprit"], named, record)
            blamed.add(record["culprit"])
            self.assertIn(words, record["text"])
            self.assertLess((record["end_ns"] - began) / 1e9, bound(2) + bound(4), record)
        if 2 in named:  # the third reaches both
            self.assertEqual(len(blamed), 1, [one.story() for one in ranks])
        left_out = 2 if 2 not in named else record["culprit"]
        for number, one in enumerate(ranks):
            record = one.expect("shrink", "DDL_EABORTED" if number == left_out else "DDL_OK")
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2) + bound(4), record)
            one.expect("ready")
        for number, one in enumerate(ranks):
            if number != left_out:
                one.go()
        for number, one in enumerate(ranks):
            if number != left_out:
                self.assertTrue(one.expect("call", "DDL_OK")["exact"])
                one.expect("free", "DDL_OK")
                one.expect("free", "DDL_OK")
            one.close()

    def test_hosts_that_are_cut_off_are_named(self):
        """On both sides; of two that do not reach each other, but the third, one names the other, and all say so."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        chain = " chain %s { type filter hook %s priority 0; %s }\n"
        one_way = "table inet t {\n" + chain % ("i", "input", "policy drop;") + "}\n"
        both = "table inet t {\n" + chain % ("i", "input", "policy drop;") + chain % ("o", "output", "policy drop;") + "}\n"
        link = ("table ip t {\n" + chain % ("i", "input", "ip saddr 10.77.0.2 drop;")
                + chain % ("o", "output", "ip daddr 10.77.0.2 drop;") + "}\n")
        cases = [(rules, culprits, environment) for rules, culprits, environment in (
            (both, ((2,), (2,), (0, 1)), {}), (one_way, ((2,), (2,), (0, 1)), {"DDL_SECURITY": "tls"} if TLS else {}),
            (both, ((2,), (2,), (0, 1)), {"DDL_STREAMS": "2"}), (link, ((1, 2),) * 3, {}))]
        made = [self.hosts(3) for _ in cases]
        self.at_once(lambda hosts, case: self.cut(hosts, case[0], case[1], **case[2]), *zip(made, cases))

    def test_a_network_that_drops_what_is_large_is_told(self):
        """Towards the second host; from there all comes, so each hears the other, and nobody stands still."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        if PORTABLE:
            self.skipTest("nothing tells what a host has acknowledged")
        hosts = self.hosts(2)
        world = World(ACTOR, 2, DDL_UNREACH_TIMEOUT=f"{bound(2)}s")
        ranks = [self.rank(world, hosts, h, h, "init", "barrier", "line", "forever=allreduce:100000:float32:sum", "free")
                 for h in range(2)]
        self.apply_in_calls(ranks, hosts.names[1], "table ip t {\n chain i { type filter hook input priority 0; ip length > 1000 drop; }\n}\n")
        began = time.monotonic_ns()
        record = self.outcome(ranks[0])
        self.assertEqual((record["status"], record["culprit"]), ("DDL_EUNREACHABLE", 1), ranks[0].story())
        self.assertIn("is heard, but its host has acknowledged nothing for", record["text"])
        self.assertLess((record["end_ns"] - began) / 1e9, bound(2) + bound(4), record)
        ranks[0].expect("free", "DDL_OK")
        ranks[0].finish(0)
        self.assertIn(self.outcome(ranks[1])["status"], ("DDL_EPEERLOST", "DDL_EUNREACHABLE"), ranks[1].story())
        ranks[1].close()

    def drop_what_is_sent(self, hosts, unreachable, unresponsive):
        """Rank 1 has sent it to rank 0, whose host it does not reach, and waits for rank 2, which waits for rank 0: to that
        rank 1 is silent, as its answers wait behind it. All name the way to rank 0, whichever limit is the shorter one."""
        world = World(ACTOR, 3, DDL_UNREACH_TIMEOUT=f"{bound(unreachable)}s", DDL_UNRESP_TIMEOUT=f"{bound(unresponsive)}s", DDL_STREAMS="1")
        calls = (("recv:2000:int32:1", "send:1:int32:2"), ("send:2000:int32:0", "recv:1:int32:2"), ("recv:1:int32:0", "send:1:int32:1"))
        ranks = [self.rank(world, hosts, h, h, "init", "alltoall:100:int32", "line", *calls[h], "free") for h in range(3)]
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
            one.expect("ready")
        subprocess.run([*hosts.on(0), "nft", "-f", "-"], check=True, text=True, capture_output=True, timeout=30,
                       input="table ip t {\n chain i { type filter hook input priority 0; ip length > 1000 drop; }\n}\n")
        began = time.monotonic_ns()
        for one in ranks:
            one.go()
        ranks[1].expect("call", "DDL_OK")
        for one in ranks:
            record = self.outcome(one)
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EUNREACHABLE", 0), [one.story() for one in ranks])
            self.assertIn("look at the MTU", record["text"])
            self.assertLess((record["end_ns"] - began) / 1e9, bound(min(unreachable, unresponsive)) + bound(4), record)
        for one in ranks:
            one.close()

    def test_what_was_sent_and_is_dropped_is_told_of_who_does_not_get_it(self):
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        if PORTABLE:
            self.skipTest("nothing tells what a host has acknowledged")
        cases = ((2, 4), (8, 3))
        made = [self.hosts(3) for _ in cases]
        self.at_once(lambda hosts, case: self.drop_what_is_sent(hosts, *case), *zip(made, cases))

    def test_a_connection_that_the_system_gives_up_is_a_host_that_is_cut_off(self):
        """Sooner than ddl would: the process at the other end has not ended."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        hosts = self.hosts(2)
        world = World(ACTOR, 2, DDL_UNREACH_TIMEOUT="60s")
        subprocess.run(["ip", "netns", "exec", hosts.names[0], "sh", "-c", "echo 3 > /proc/sys/net/ipv4/tcp_retries2"], check=True, timeout=30)
        ranks = [self.rank(world, hosts, h, h, "init", "barrier", "line", "forever=allreduce:100000:float32:sum", "free")
                 for h in range(2)]
        self.apply_in_calls(ranks, hosts.names[1], "table ip t {\n chain i { type filter hook input priority 0; policy drop; }\n}\n")
        record = self.outcome(ranks[0])
        self.assertEqual((record["status"], record["culprit"]), ("DDL_EUNREACHABLE", 1), ranks[0].story())
        self.assertIn("its connection was given up by the system (Connection timed out)", record["text"])
        ranks[0].close()
        ranks[1].close()

    def test_most_go_on_where_two_hosts_do_not_reach_each_other(self):
        """Two ranks are on one of them, and the one on the third reaches all: three go on, whoever is blamed."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        if PORTABLE:
            self.skipTest("nothing tells a host that is cut off from a process that is stopped, which is lost to all")
        of_host = (0, 0, 1, 2)
        chain = " chain %s { type filter hook %s priority 0; ip %s 10.77.0.1 drop; }\n"
        rules = "table ip t {\n" + chain % ("i", "input", "saddr") + chain % ("o", "output", "daddr") + "}\n"

        def run(hosts, call):
            world = World(ACTOR, 4, DDL_UNREACH_TIMEOUT=f"{bound(1)}s", DDL_UNRESP_TIMEOUT=f"{bound(3)}s")
            ranks = [self.rank(world, hosts, host, rank, "init", "barrier", "line", call, "shrink:rest", "use:rest",
                               "allreduce:1000:float32:sum", "free", "free", LOCAL_RANK=of_host[:rank].count(host))
                     for rank, host in enumerate(of_host)]
            self.apply_in_calls(ranks, hosts.names[1], rules)
            for one in ranks:
                self.assertEqual(self.outcome(one)["status"], "DDL_EUNREACHABLE", one.story())
            for rank, one in enumerate(ranks):
                record = one.expect("shrink", "DDL_EABORTED" if rank == 2 else "DDL_OK")
                if rank != 2:
                    self.assertEqual(record["new_size"], 3, one.story())
                    self.assertTrue(one.expect("call", "DDL_OK")["exact"])
                    one.expect("free", "DDL_OK")
                    one.expect("free", "DDL_OK")
                one.close()

        calls = ("forever=allreduce:3000:float32:sum", "forever=barrier", "forever=allgather:1000:float32")
        made = [self.hosts(3) for _ in calls]
        self.at_once(run, *zip(made, calls))

    def heal(self, hosts, of_host, shrink_first):
        """Five ranks on two hosts fail for a cut between these, which is whole again when they shrink."""
        world = World(ACTOR, 5, DDL_UNREACH_TIMEOUT=f"{bound(1.5)}s", DDL_UNRESP_TIMEOUT=f"{bound(3)}s", DDL_TIMEOUT=f"{bound(20)}s")
        ranks = [self.rank(world, hosts, of_host[rank], rank, "init", "barrier", "line", "forever=allreduce:1000:float32:sum", "line",
                           "shrink:rest", "line", "use:rest", "allreduce:1000:float32:sum", "free", "free") for rank in range(5)]
        self.begin_calls(ranks)
        cut_off(hosts.on(1))
        for one in ranks:
            self.assertIn(self.outcome(one)["status"], ("DDL_EUNREACHABLE", "DDL_EUNRESPONSIVE"), one.story())
            one.expect("ready")
        subprocess.run([*hosts.on(1), "nft", "delete", "table", "inet", "t"], check=True, timeout=30)
        for host in shrink_first, 1 - shrink_first:
            for number, one in enumerate(ranks):
                if of_host[number] == host:
                    one.go()
            time.sleep(0.5)
        stays = []
        for one in ranks:
            record = one.next()
            self.assertEqual(record["event"], "shrink", one.story())
            self.assertIn(record["status"], ("DDL_OK", "DDL_EABORTED"), one.story())
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(5), record)
            one.expect("ready")
            if record["status"] == "DDL_OK":
                stays.append(one)
                size = record["new_size"]
        self.assertGreaterEqual(len(stays), 3, [one.story() for one in ranks])
        self.assertGreaterEqual(size, len(stays))
        for one in stays:
            one.go()
        for one in stays:
            if size == len(stays):
                self.assertTrue(one.expect("call", "DDL_OK")["exact"])
            else:  # one was lost, or has given up, after it was proposed
                record = one.expect("call", "DDL_EPEERLOST")
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2), record)
            one.expect("free", "DDL_OK")
            one.expect("free", "DDL_OK")
        for one in ranks:
            one.close()

    def test_most_go_on_after_a_cut_that_healed(self):
        """Each side has lost those of the other that it has found to be silent, and hears the rest of it again."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        if PORTABLE:
            self.skipTest("ranks of a host talk by its loopback interface, which is cut too, so that each is silent for all")
        cases = (((0, 0, 0, 1, 1), 1), ((0, 0, 0, 1, 1), 0), ((0, 1, 1, 1, 0), 0))
        made = [self.hosts(2) for _ in cases]
        self.at_once(lambda hosts, case: self.heal(hosts, *case), *zip(made, cases))

    def test_who_is_cut_off_before_it_shrinks_does_not_go_on(self):
        """Though it has heard that the others would have it."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        hosts = self.hosts(3)
        world = World(ACTOR, 3, DDL_UNREACH_TIMEOUT=f"{bound(2)}s", DDL_UNRESP_TIMEOUT=f"{bound(2)}s", DDL_TIMEOUT=f"{bound(30)}s")
        call = "allreduce:1000:float32:sum"
        ranks = [self.rank(world, hosts, h, h, "init", "barrier", "line", *(["abort:over"] if h == 0 else []), call, "line", "shrink:rest",
                           "line", "use:rest", call, "free", "free") for h in range(3)]
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
            one.expect("ready")
        for one in ranks:
            one.go()
        for one in ranks:
            record = one.next()
            while record["event"] != "ready":
                record = one.next()
        for one in ranks[:2]:
            one.go()
        time.sleep(bound(0.5))
        cut_off(hosts.on(2))
        ranks[2].go()
        ranks[2].expect("shrink", "DDL_EABORTED")
        for one in ranks[:2]:
            self.assertEqual(one.expect("shrink", "DDL_OK")["new_size"], 2)
            one.expect("ready")
            one.go()
        for one in ranks[:2]:
            self.assertTrue(one.expect("call", "DDL_OK")["exact"])
            one.close()
        ranks[2].close()

    def test_a_slow_link_is_a_sign_of_life(self):
        """1 Mbit/s, at which what waits to leave takes longer than a rank may be silent."""
        def computes(hosts, security):
            world = World(ACTOR, 2, DDL_UNREACH_TIMEOUT="3s", DDL_UNRESP_TIMEOUT="3s", DDL_SECURITY=security)
            ranks = [self.rank(world, hosts, h, h, "init", "barrier", "allreduce:225000:float32:sum", "free") for h in range(2)]
            for one in ranks:
                one.expect("init", "DDL_OK")
                one.expect("call", "DDL_OK")
            for one in ranks:
                record = one.expect("call", "DDL_OK")
                self.assertTrue(record["exact"])
                self.assertGreater((record["end_ns"] - record["begin_ns"]) / 1e9, 6, record)
            end_well(ranks, "free")
        made = [self.hosts(2), self.hosts(2)]
        for name in made[0].names + made[1].names:
            slow_down(name)
        self.at_once(computes, *zip(made, ("auth", "tls" if TLS else "auth")))

    def test_who_leaves_takes_nothing_with_it(self):
        """Over a slow link what was sent leaves long after its sender has ended, while the receiver still answers."""
        many = ["send:1500:float32:1"] * 14, ["recv:1500:float32:0", "send:1:int32:0"] * 8 + ["recv:1500:float32:0"] * 6
        striped = (["send:1:float32:1", "send:20000:float32:1"],  # whose two stripes go over other connections
                   ["recv:1:float32:0", "+recv:20000:float32:0", *["send:1:int32:0"] * 3, "wait"])

        def leaves(hosts, calls, how, **settings):
            world = World(ACTOR, 2, **settings)
            ranks = [self.rank(world, hosts, h, h, "init", "barrier", *calls[h], how) for h in range(2)]
            for one in ranks:
                one.expect("init", "DDL_OK")
            for one, own in zip(ranks, calls):
                for call in ["barrier", *own]:
                    one.expect({"+": "started", "w": "wait"}.get(call[0], "call"), "DDL_OK")
                if how == "free":
                    one.expect("free", "DDL_OK")
                one.finish(0)
        cases = [(many, "exit:0", {}), (many, "free", {}), (many, "exit:0", {"DDL_STREAMS": "3"}), (striped, "exit:0", {"DDL_STREAMS": "3"})]
        cases += [(many, "exit:0", {"DDL_SECURITY": "tls"})] if TLS else []
        made = [self.hosts(2) for _ in cases]
        for hosts in made:
            for name in hosts.names:
                slow_down(name)
        self.at_once(lambda hosts, case: leaves(hosts, *case[:2], **case[2]), *zip(made, cases))

    def test_a_slow_link_at_the_deadline(self):
        """How far who tells has come is told, as nobody is late: of 600 KB at 1 Mbit/s, 375 KB in 3 s."""
        def takes_too_long(hosts, calls, late, culprits):
            world = World(ACTOR, 2, DDL_TIMEOUT="3s")
            ranks = [self.rank(world, hosts, h, h, "init", "barrier", calls[h], "free") for h in range(2)]
            for one in ranks:
                one.expect("init", "DDL_OK")
                one.expect("call", "DDL_OK")
            for one in ranks[late:]:  # what leaves at once is sent
                record = one.expect("call", "DDL_ETIMEDOUT")
                self.assertIn(record["culprit"], culprits, record)
                share = re.search(r"; rank [01] has done (\d+) % of its part", record["text"])
                self.assertIsNotNone(share, record)
                self.assertTrue(15 <= int(share.group(1)) <= 85, record)
                one.close()
        made = [self.hosts(2), self.hosts(2)]
        for name in made[0].names + made[1].names:
            slow_down(name)
        self.at_once(takes_too_long, (made[0], ["allreduce:150000:float32:sum"] * 2, 0, (-1,)),
                     (made[1], ["send:150000:float32:1", "recv:150000:float32:0"], 1, (0,)))


class Connections(OnHosts):
    """Several connections between two hosts."""

    def connections(self, on, own, other):
        """Ports of one end of the connections between two hosts, and how much each has sent; but those of the store."""
        listed = subprocess.run([*on, "ss", "-HtinO", "state", "established", "src", own, "dst", other],
                                check=True, capture_output=True, text=True, timeout=30).stdout
        found = {}
        for line in listed.splitlines():
            port, peer = (int(end.rpartition(":")[2]) for end in line.split()[2:4])
            sent = re.search(r"bytes_sent:(\d+)", line)
            if PORT not in (port, peer):
                found[port, peer] = int(sent[1]) if sent else 0
        return found

    def reset(self, hosts, host, ports):
        subprocess.run([*hosts.on(host), "ss", "-Kt", "sport", "=", f":{ports[0]}", "dport", "=", f":{ports[1]}"],
                       check=True, capture_output=True, timeout=30)

    def test_one_of_several_connections_that_breaks_is_a_lost_rank_on_both_sides(self):
        """Whichever it is; the one that has sent most carries stripes."""
        if not can_reset():
            self.skipTest("no connection can be reset here")
        hosts = self.hosts(2)
        for most in (True, False):
            with self.subTest(most=most):
                world = World(ACTOR, 2, DDL_STREAMS="2")
                ranks = [self.rank(world, hosts, h, h, "init", "allreduce:2000000:float32:sum",
                                   "forever=allreduce:100000:float32:sum", "free") for h in range(2)]
                for one in ranks:
                    one.expect("init", "DDL_OK")
                    one.expect("call", "DDL_OK")
                found = self.connections(hosts.on(1), "10.77.0.2", "10.77.0.1")
                self.assertEqual(len(found), 3, found)
                ports = (max if most else min)(found, key=found.get)
                self.assertEqual(found[ports] > 1000000, most, found)
                began = time.monotonic_ns()
                self.reset(hosts, 1, ports)
                for rank, one in enumerate(ranks):
                    record = self.outcome(one)
                    self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1 - rank), one.story())
                    self.assertRegex(record["text"], rf"rank {1 - rank} \(pid [0-9]+ on \S+\) 10.77.0.\S+: connection "
                                                     r"[1-3] of 3 (broke \(|was closed by the other end)")
                    self.assertLess((record["end_ns"] - began) / 1e9, bound(1), record)
                    one.expect("free", "DDL_OK")
                    one.finish(0)

    @unittest.skipIf(PORTABLE, "it does not know what was acknowledged")
    def test_one_of_several_connections_that_is_dropped_on_the_way_is_told(self):
        """While the first goes on, over which both say that they live."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")
        hosts = self.hosts(2)
        world = World(ACTOR, 2, DDL_STREAMS="2", DDL_UNREACH_TIMEOUT=f"{bound(2)}s")
        ranks = [self.rank(world, hosts, h, h, "init", "forever=allreduce:1000000:float32:sum", "free") for h in range(2)]
        for one in ranks:
            one.expect("init", "DDL_OK")
        found = self.await_shares(hosts.on, "10.77.0", lambda shares: len(shares) == 3 and min(shares[:2]) > 1000000)
        own, other = max(found, key=found.get)
        began = time.monotonic_ns()
        subprocess.run([*hosts.on(1), "nft", "-f", "-"], check=True, text=True, timeout=30, input=(
            f"table inet t {{\n chain o {{ type filter hook output priority 0;\n tcp sport {own} tcp dport {other} drop\n}}\n"
            f" chain i {{ type filter hook input priority 0;\n tcp sport {other} tcp dport {own} drop\n}}\n}}\n"))
        for rank, one in enumerate(ranks):
            record = self.outcome(one)
            self.assertEqual(record["status"], "DDL_EUNREACHABLE", record)
            self.assertRegex(record["text"], rf"rank {record['culprit']} \(pid [0-9]+ on \S+\): on connection [23] of 3 nothing has been ack")
            self.assertLess((record["end_ns"] - began) / 1e9, bound(2) * 2 + bound(2), record)
            one.expect("free", "DDL_OK")
            one.finish(0)

    def between_two(self, hosts, is_idle=False, **environment):
        """Ranks 0 and 2 lose the connection between them, and both reach rank 1, which may be in no call: all name the lower
        one, and that others have not lost it; then two go on."""
        world = World(ACTOR, 3, **environment)
        ranks = [self.rank(world, hosts, h, h, "init", "barrier", "alltoall:1000:float32", *(["line"] if is_idle and h == 1 else []),
                           "forever=allreduce:10000:float32:sum", "shrink:rest", "line", "use:rest", "allreduce:1000:float32:sum", "free", "free") for h in range(3)]
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
            one.expect("call", "DDL_OK")
        time.sleep(0.3)
        began = time.monotonic_ns()
        for ports in self.connections(hosts.on(2), "10.77.0.3", "10.77.0.1"):
            self.reset(hosts, 2, ports)
        if is_idle:
            time.sleep(0.5)
            ranks[1].expect("ready")
            ranks[1].go()
        for one in ranks:
            record = self.outcome(one)
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 0), [one.story() for one in ranks])
            self.assertIn("; others have not lost it: if it lives, the connection between it and rank 2 was cut on the way", record["text"])
            self.assertLess((record["end_ns"] - began) / 1e9, bound(1), record)
        for number, one in enumerate(ranks):
            record = one.expect("shrink", "DDL_EABORTED" if number == 2 else "DDL_OK")
            one.expect("ready")
        for one in ranks[:2]:
            one.go()
        for one in ranks[:2]:
            self.assertTrue(one.expect("call", "DDL_OK")["exact"])
            one.expect("free", "DDL_OK")
            one.expect("free", "DDL_OK")
        for one in ranks:
            one.close()

    def test_a_connection_between_two_that_a_third_reaches_is_named_by_all(self):
        if not can_reset():
            self.skipTest("no connection can be reset here")
        cases = ({"DDL_STREAMS": "1"}, {"DDL_STREAMS": "1", "is_idle": True}, {"DDL_CONNECT": "lazy", "DDL_STREAMS": "1"}, {"DDL_STREAMS": "2"})
        made = [self.hosts(3) for _ in cases]
        self.at_once(lambda hosts, environment: self.between_two(hosts, **environment), *zip(made, cases))

    def test_a_process_whose_end_comes_late_to_one_has_ended(self):
        """Rank 1 is killed while what it sent to rank 2 is on a slow way of its own, and rank 0 sees the end at once: nobody
        takes it for a connection that broke."""
        hosts = self.hosts(3)
        ip("-n", hosts.names[1], "link", "add", "slow", "type", "veth", "peer", "name", "slow", "netns", hosts.names[2])
        for host, other in (1, 3), (2, 2):
            ip("-n", hosts.names[host], "link", "set", "slow", "up")
            ip("-n", hosts.names[host], "route", "add", f"10.77.0.{other}/32", "dev", "slow", "src", f"10.77.0.{host + 1}")
        world = World(ACTOR, 3)
        calls = ("recv:10:float32:1", "send:60000000:float32:2", "recv:60000000:float32:1")
        ranks = [self.rank(world, hosts, h, h, "init", "barrier", "line", calls[h], "free") for h in range(3)]
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
            one.expect("ready")
        slow_down(hosts.names[1], device="slow")
        for one in ranks:
            one.go()
        time.sleep(1.5)
        ranks[1].kill()
        for one in ranks[0], ranks[2]:
            record = one.expect("call", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assertTrue(record["text"].endswith("its process ended (connection closed); look at the output of rank 1"), record)

    def meddle(self, hosts, how):
        """What all ranks report once rank 1's program has done that to a descriptor of its connection with rank 0."""
        world = World(ACTOR, 3, DDL_STREAMS="1")
        call = "alltoall:1000:float32"
        ranks = [self.rank(world, hosts, h, h, "init", call, "line", *([f"{how}:10.77.0.1"] if h == 1 else []), "forever=" + call, "free")
                 for h in range(3)]
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
            one.expect("ready")
        for one in (ranks[0], ranks[2], ranks[1]):
            one.go()
        records = [self.outcome(one) for one in ranks]
        for one in ranks:
            one.close()
        return records

    def test_who_closes_a_descriptor_of_the_library_is_named(self):
        """Or puts another file in its place. All say so, unless its peer sees the connection end long before it is used."""
        hosts = self.hosts(3)
        for how in "close", "replace":
            with self.subTest(how=how):
                for _ in range(5):
                    records = self.meddle(hosts, how)
                    self.assertEqual([(record["status"], record["culprit"]) for record in records], [("DDL_EPEERLOST", 1)] * 3, records)
                    if all("the descriptor of its connection with rank 0 is that no more" in record["text"] for record in records):
                        break
                else:
                    self.fail(f"no descriptor in {records}")

    def await_shares(self, on, stem, is_enough):
        """Until what each connection sends in a second is what it should be; all that each has sent then."""
        found, shares, now = {}, [], time.monotonic()
        deadline = now + bound(60)
        while now < deadline:
            earlier, before, now = now, found, time.monotonic()
            found = self.connections(on(1), f"{stem}.2", f"{stem}.1")
            shares = sorted(((sent - before.get(ports, 0)) / (now - earlier) for ports, sent in found.items()), reverse=True)
            if len(found) == len(before) and is_enough(shares):
                return found
            time.sleep(1)
        self.fail(f"in the last second these carried {shares}, of {found} in all")

    @unittest.skipIf(PORTABLE, "it does not know what was acknowledged")
    @unittest.skipIf(refused(40), "no rates for single connections here")
    def test_more_connections_are_used_where_each_is_limited(self):
        """To 5 MB/s, which is little beside what processors do that have other things to do. They find out how many."""
        def computes(wire, settings):
            world = World(ACTOR, 2, **settings)
            self.addCleanup(world.__exit__)
            ranks = [world.start(h, "init", "3=allreduce:4000000:float32:sum", "forever=allreduce:4000000:float32:sum",
                                 prefix=wire.on(h), MASTER_ADDR="10.78.0.1", MASTER_PORT=PORT) for h in range(2)]
            for one in ranks:
                one.expect("init", "DDL_OK")
                self.assertTrue(one.expect("repeated", "DDL_OK")["exact"])
            found = self.await_shares(wire.on, "10.78.0", lambda shares: sum(shares) > 1.6 * 5000000)
            self.assertEqual(len(found), 9)
        cases = [{}, {"DDL_CONNECT": "lazy"}, *[{"DDL_SECURITY": "tls"}] * TLS]
        wires = [Link(1000, 40) for _ in cases]
        for wire in wires:
            wire.__enter__()
            self.addCleanup(wire.__exit__)
        self.at_once(computes, *zip(wires, cases))

    @unittest.skipIf(PORTABLE, "it does not know what was acknowledged")
    def test_one_connection_is_used_where_the_link_is_the_limit(self):
        """Sooner or later: others are tried now and then, and a lucky moment may keep them for a while."""
        hosts = self.hosts(2)
        for name in hosts.names:
            slow_down(name, "200mbit")
        world = World(ACTOR, 2)
        ranks = [self.rank(world, hosts, h, h, "init", "forever=allreduce:1000000:float32:sum") for h in range(2)]
        for one in ranks:
            one.expect("init", "DDL_OK")
        self.await_shares(hosts.on, "10.77.0", lambda shares: len(shares) == 9 and min(shares[:2]) > 1000000)
        self.await_shares(hosts.on, "10.77.0", lambda shares: shares[1] < 100000 and shares[0] > 1000000)

    @unittest.skipIf(PORTABLE, "it does not know what was acknowledged")
    def test_all_goes_on_where_further_connections_cannot_be_had(self):
        """As where a firewall swallows them, refuses them, or lets in the first three; before both, or before one, which
        others knock at in vain then. Who is connected all the while is not said to have gone."""
        if shutil.which("nft") is None:
            self.skipTest("no nft")

        def computes(hosts, firewalls, verdict, words, settings):
            for name in hosts.names:
                slow_down(name, "100mbit")
            world = World(ACTOR, 2, DDL_LOG="info", **{"DDL_START_TIMEOUT": f"{bound(5)}s", **settings})
            ranks = [self.rank(world, hosts, h, h, "init", "forever=allreduce:500000:float32:sum") for h in range(2)]
            for one in ranks:
                one.expect("init", "DDL_OK")
            for h in firewalls:
                subprocess.run([*hosts.on(h), "nft", "-f", "-"], check=True, text=True, timeout=30, input=(
                    f"table inet t {{\n chain i {{ type filter hook input priority 0;\n tcp flags & (syn | ack) == syn {verdict}\n}}\n}}\n"))
            wait_until(lambda: all("go on over one connection" in "".join(one.errors) for one in ranks), bound(30),
                       lambda: [one.story() for one in ranks])
            for word, one in zip(words, ranks):
                self.assertIn(word, "".join(one.errors))

            def connections():
                return self.connections(hosts.on(1), "10.77.0.2", "10.77.0.1")
            # What was given up is still being closed.
            wait_until(lambda: len(connections()) == 1, bound(30), lambda: f"one of {connections()}")
            before = connections()
            time.sleep(1)
            after = connections()
            self.assertGreater(sum(after.values()), sum(before.values()) + 1000000)
        cases = [((0, 1), "drop", ["cannot connect to rank"] * 2, {}),
                 ((0, 1), "reject with tcp reset", ["cannot connect to rank"] * 2, {}),
                 ((0, 1), "limit rate over 1/hour burst 3 packets drop", ["rank 1", "cannot connect to rank"], {}),
                 ((0, 1), "limit rate over 1/hour burst 5 packets drop", ["rank 1", "cannot connect to rank"], {"DDL_CONNECT": "lazy"}),
                 ((0,), "reject with tcp reset", ["rank 1 has given up making more", "cannot connect to rank 0"],
                  {"DDL_START_TIMEOUT": f"{bound(300)}s"})]
        self.at_once(computes, *((self.hosts(2), *case) for case in cases))

    def test_nobody_has_further_connections_who_has_no_use_for_them(self):
        """As who sends nothing large, or is on the same host, or has said how many."""
        for nhosts, call, settings in ((2, "2000=allreduce:1000:float32:sum", {}),
                                       (2, "5=allreduce:1000000:float32:sum", {"DDL_STREAMS": "1"}),
                                       (1, "50=allreduce:1000000:float32:sum", {"DDL_TRANSPORT": "tcp"})):
            with self.subTest(nhosts=nhosts, call=call, **settings):
                hosts = self.hosts(nhosts)
                slow_down(hosts.names[0], "100mbit")
                world = World(ACTOR, 2)
                ranks = [self.rank(world, hosts, h % nhosts, h, "init", call, "line", **settings) for h in range(2)]
                for one in ranks:
                    one.expect("init", "DDL_OK")
                    one.expect("repeated", "DDL_OK")
                found = self.connections(hosts.on(nhosts - 1), f"10.77.0.{nhosts}", "10.77.0.1")
                self.assertEqual(len(found), 1 if nhosts == 2 else 2, found)  # both ends of it
                for one in ranks:
                    one.close()

    def test_rank_0_says_how_many_connections_there_are(self):
        """For all, and none of them inside a host."""
        hosts = self.hosts(2)
        world = World(ACTOR, 3)
        ranks = [self.rank(world, hosts, host, rank, "init", "barrier", "line", DDL_STREAMS=streams)
                 for rank, (host, streams) in enumerate(((0, "4"), (0, "1"), (1, "16")))]
        for one in ranks:
            one.expect("init", "DDL_OK")
            one.expect("call", "DDL_OK")
        self.assertEqual(len(self.connections(hosts.on(1), "10.77.0.2", "10.77.0.1")), 2 * 5)
        self.assertEqual(len(self.connections(hosts.on(0), "10.77.0.1", "10.77.0.1")), 2)  # both ends of one

    def test_descriptors_of_several_connections_are_counted(self):
        hosts = self.hosts(2)
        world = World(ACTOR, 2, DDL_STREAMS="16")
        ranks = [world.start(rank, "init", prefix=[*hosts.on(rank), *(["sh", "-c", 'ulimit -n 88 && exec "$@"', "sh"] * rank)],
                             MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT) for rank in range(2)]
        self.addCleanup(world.__exit__)
        for rank in ranks:
            record = rank.expect("init", "DDL_ERESOURCE")
            self.assertEqual(record["culprit"], 1, record)
            for word in ("DDL_STREAMS", "16", "88", "ulimit -n"):
                self.assertIn(word, record["text"])

    @unittest.skipIf(PORTABLE, "it does not know what was acknowledged")
    def test_who_may_open_few_descriptors_has_no_further_connections_by_itself(self):
        def computes(hosts, limits, most):
            for name in hosts.names:
                slow_down(name, "100mbit")
            world = World(ACTOR, 2)
            self.addCleanup(world.__exit__)
            ranks = [world.start(rank, "init", "15=allreduce:1000000:float32:sum", "line", MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT,
                                 prefix=[*hosts.on(rank), "sh", "-c", f'ulimit -n {may} && exec "$@"', "sh"])
                     for rank, may in enumerate(limits)]
            for one in ranks:
                one.expect("init", "DDL_OK")
                one.expect("repeated", "DDL_OK")
            self.assertEqual(len(self.connections(hosts.on(1), "10.77.0.2", "10.77.0.1")), most)
        cases = [((78, 1024), 1), ((1024, 78), 1), ((1024, 1024), 9)]
        self.at_once(computes, *((self.hosts(2), *case) for case in cases))

    def test_wrong_numbers_of_connections_are_refused(self):
        hosts = self.hosts(1)
        for wrong in ("0", "17", "-1", "two", "2.5"):
            with self.subTest(wrong=wrong):
                world = World(ACTOR, 2)
                one = self.rank(world, hosts, 0, 0, "init", DDL_STREAMS=wrong)
                record = one.expect("init", "DDL_ECONFIG")
                for word in ("DDL_STREAMS", wrong, "from 1 to 16"):
                    self.assertIn(word, record["text"])
                one.finish(None)


def can_reset():
    """Whether the kernel ends a connection when it is told to."""
    if shutil.which("ss") is None:
        return False
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        subprocess.run(["ss", "-Kt", "sport", "=", f":{client.getsockname()[1]}"], capture_output=True, timeout=30)
        client.setblocking(False)
        try:
            client.recv(1)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        return False


def permitted():
    if shutil.which("ip") is None:
        return "there is no `ip` program"
    try:
        with Hosts(1):
            return None
    except subprocess.CalledProcessError as refused:
        return refused.stderr.strip()
    except OSError as refused:
        return str(refused)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    LAUNCHER, ACTOR, COLLECTIVES, SIMULATOR = [os.path.abspath(a) for a in sys.argv[1:5]]
    del sys.argv[1:5]
    run_unless(permitted())
