"""Which addresses ranks use and tell: several interfaces and families, names that mislead, firewalls and NAT.

    test_addresses.py LAUNCHER ACTOR [CLASS[.TEST]...] [-v]

Hosts are network namespaces, as in test_hosts.py; exits with 77 (skipped) where they cannot be made.
"""
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import test_hosts
from test_hosts import PORT, Hosts, ip
from world import DEADLINE, FolderTest, World, bound, end_well, free_port, listening, run_unless, wait_until

LAUNCHER = ACTOR = None
FIREWALL = ("table ip t {\n chain in {\n  type filter hook input priority 0; policy drop;\n"
            "  iif lo accept\n  ct state established,related accept\n  tcp dport { 29500, 29504, 30000-30003 } accept\n }\n}\n")
SSH = "SSH-2.0-OpenSSH_9.2\r\n" * 10
CALLS = ("init", "allreduce:1000:int32:sum", "free")


def nft(namespace, rules):
    subprocess.run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], input=rules, check=True, text=True,
                   capture_output=True, timeout=30)


class Networks(FolderTest):
    def hosts(self, nhosts):
        hosts = Hosts(nhosts)
        hosts.__enter__()
        self.addCleanup(hosts.__exit__)
        return hosts

    def file(self, text):
        fd, path = tempfile.mkstemp(dir=self.folder)
        with open(fd, "w") as file:
            file.write(text)
        return path

    def on(self, hosts, host, etc_hosts=None, resolv="nameserver 127.0.0.1\n", name=None):
        """Run there with other files in /etc, and by another name."""
        files = {"/etc/resolv.conf": resolv, "/etc/nsswitch.conf": "hosts: files dns\n", "/etc/hosts": etc_hosts or ""}
        script = "".join(f"mount --bind {self.file(text)} {path}; " for path, text in files.items())
        if name:
            script += f"hostname {name}; "
        return [*hosts.on(host), "unshare", "--mount", "--uts", "sh", "-ec", script + 'exec "$@"', "sh"]

    def occupy(self, hosts, host, address, greeting=""):
        """Another program listens there, and says this to everybody."""
        family = "AF_INET6" if ":" in address else "AF_INET"
        program = (f"import socket, sys, threading\ns = socket.create_server(('{address}', {PORT}), family=socket.{family})\n"
                   "def greet():\n  while True:\n    known.append(s.accept()[0])\n"
                   f"    known[-1].sendall({greeting.encode()})\n"
                   "known = []\nthreading.Thread(target=greet, daemon=True).start()\nprint(flush=True)\nsys.stdin.read()")
        other = subprocess.Popen([*hosts.on(host), sys.executable, "-c", program], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.addCleanup(other.communicate)
        other.stdout.readline()

    def take_ports(self, hosts, host, count):
        """Of the four that the system then gives out on this host; until the stdin of what is returned is closed."""
        program = (f"import socket, sys\nopen('/proc/sys/net/ipv4/ip_local_port_range', 'w').write('50000 50003')\n"
                   f"taken = [socket.create_server(('10.77.0.{host + 1}', 50000 + i)) for i in range({count})]\n"
                   "print(flush=True)\nsys.stdin.read()")
        other = subprocess.Popen([*hosts.on(host), sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(other.communicate)
        other.stdout.readline()
        return other

    def renew(self, hosts, host, seconds):
        """Set its IPv6 address anew, for which others are asked for so long."""
        name = hosts.names[host]
        subprocess.run([*hosts.on(host), "sh", "-c", f"echo {seconds} >/proc/sys/net/ipv6/conf/wire/dad_transmits"], check=True)
        ip("-n", name, "addr", "del", f"fd77::{host + 1}/64", "dev", "wire")
        ip("-n", name, "addr", "add", f"fd77::{host + 1}/64", "dev", "wire")

    def etc_hosts(self, prefix):
        """The file that `on` has put there."""
        return re.search(r"--bind (\S+) /etc/hosts;", " ".join(prefix)).group(1)

    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, **{"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": PORT, **environment})
        self.addCleanup(world.__exit__)
        return world

    def expect_all(self, ranks):
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        end_well(ranks, "free")

    def listens_at(self, rank):
        """What a rank that ran with DDL_LOG=debug said of itself."""
        return [found.group(1) for line in rank.errors for found in [re.search(r"rank \d+ on \S+ listens at (\S+);", line)]
                if found]


class Addresses(Networks):
    # ---- several interfaces ----

    def test_lists_and_exclusions_that_differ_per_host(self):
        hosts = self.hosts(2)
        for host in hosts.names:  # what a container engine's bridge is called
            ip("-n", host, "link", "set", "trap", "down")
            ip("-n", host, "link", "set", "trap", "name", "docker0", "up")
        for first, second in (("ib0,wire", "ib7,10.77.0.0/16"), ("^docker,lo", "docker*,wi*,^docker0"), ("wire", "^172.17.0.0/16,lo")):
            with self.subTest(first=first, second=second):
                world = self.world(2, DDL_LOG="debug")
                ranks = [world.start(r, *CALLS, prefix=hosts.on(r), DDL_IFACE=choice)
                         for r, choice in enumerate((first, second))]
                self.expect_all(ranks)
                for r, rank in enumerate(ranks):
                    self.assertRegex(" ".join(self.listens_at(rank)), rf"^10\.77\.0\.{r + 1}:\d+$", rank.story())

    def test_without_a_choice_a_bridge_for_containers_is_not_taken(self):
        """Ranks that meet in a directory, which leads to no address."""
        hosts = self.hosts(2)
        for h, host in enumerate(hosts.names):
            ip("-n", host, "link", "set", "trap", "down")
            ip("-n", host, "link", "set", "trap", "name", "br-1234", "up")
            ip("-n", host, "addr", "flush", "dev", "wire")
            ip("-n", host, "link", "add", "uplink", "type", "bridge")  # made after the other, so it is listed after it
            ip("-n", host, "link", "set", "wire", "master", "uplink")
            ip("-n", host, "addr", "add", f"10.77.0.{h + 1}/24", "dev", "uplink")
            ip("-n", host, "link", "set", "uplink", "up")
        place = os.path.join(self.folder, "place")
        os.mkdir(place)
        world = self.world(2, DDL_LOG="debug", DDL_STORE=f"file://{place}", MASTER_ADDR="nowhere")
        ranks = [world.start(r, *CALLS, prefix=hosts.on(r)) for r in range(2)]
        self.expect_all(ranks)
        for r, rank in enumerate(ranks):
            self.assertIn(f"10.77.0.{r + 1}", self.listens_at(rank)[0], rank.story())

    def test_a_bridge_of_the_default_route_is_taken_before_other_interfaces(self):
        """As hosts of OpenShift have br-ex, beside interfaces of names that tell nothing."""
        hosts = self.hosts(2)
        for h, host in enumerate(hosts.names):
            ip("-n", host, "link", "set", "trap", "down")
            ip("-n", host, "link", "set", "trap", "name", "ovn-k8s-mp0", "up")
            ip("-n", host, "link", "set", "wire", "down")
            ip("-n", host, "link", "set", "wire", "name", "br-ex", "up")
            ip("-n", host, "route", "add", "default", "via", "10.77.0.254")
        world = self.world(2, DDL_LOG="debug", DDL_STORE=f"file://{self.folder}", MASTER_ADDR="nowhere")
        ranks = [world.start(r, *CALLS, prefix=hosts.on(r)) for r in range(2)]
        self.expect_all(ranks)
        for r, rank in enumerate(ranks):
            self.assertIn(f"10.77.0.{r + 1}", self.listens_at(rank)[0], rank.story())

    # ---- what is open ----

    def doors(self, rank):
        """Where it listens once its door for ranks is open, which rank 0's store is before."""
        wait_until(lambda: self.listens_at(rank), DEADLINE, rank.story)
        return listening(rank.pid)

    def test_ports_are_open_where_they_are_needed_and_nowhere_else(self):
        """Of two ranks on two hosts that wait for a third. On all addresses only if that is asked for."""
        both, here = (0, 1), (0, 0)
        cases = [(both, "10.77.0.1", {}, ["10.77.0.1"], ["10.77.0.{}"]),
                 (both, "fd77::1", {}, ["fd77::1"], ["fd77::{}"]),
                 (both, "nodea", {}, ["10.77.0.1", "fd77::1"], ["10.77.0.{}", "fd77::{}"]),
                 (both, "10.77.0.1", {"DDL_IFACE": "fd77::/64"}, ["10.77.0.1"], ["fd77::{}"]),
                 (both, "10.77.0.1", {"DDL_PORT_RANGE": "30000-30003"}, ["10.77.0.1"], ["10.77.0.{}"]),
                 *((both, master, {"DDL_STORE": "file://" + self.folder}, [], ["10.77.0.{}", "fd77::{}"])
                   for master in ("x", "127.0.0.1", "10.77.0.1", "fd77::1")),
                 (here, "127.0.0.1", {}, ["127.0.0.1"], ["127.0.0.1"]),
                 (here, "localhost", {}, ["127.0.0.1", "::1"], ["127.0.0.1"]),
                 (here, "0.0.0.0", {}, ["0.0.0.0"], ["127.0.0.1"])]
        hosts = self.hosts(2)
        for places, address, environment, store, doors in cases:
            with self.subTest(address=address, **environment), \
                    self.world(3, MASTER_ADDR=address, DDL_LOG="debug", **environment) as world:
                for rank, host in enumerate(places):
                    world.start(rank, "init", prefix=self.on(hosts, host, "10.77.0.1 nodea\nfd77::1 nodea\n"))
                for rank, host in zip(world.ranks, places):
                    found = self.doors(rank)
                    meeting = [at for at, port in found if port == PORT]
                    others = [at for at, port in found if port != PORT]
                    self.assertEqual((meeting, others), (store if rank is world.ranks[0] else [],
                                                         [door.format(host + 1) for door in doors]), rank.story())

    # ---- families ----

    def test_hosts_of_one_family_meet_those_of_both(self):
        """Rank 2 has IPv4 alone, and rank 1 came to the meeting place by IPv6."""
        hosts = self.hosts(3)
        ip("-n", hosts.names[2], "addr", "del", "fd77::3/64", "dev", "wire")
        files = ["10.77.0.1 nodea\nfd77::1 nodea\n", "fd77::1 nodea\n", "10.77.0.1 nodea\n"]
        world = self.world(3, DDL_LOG="debug", MASTER_ADDR="nodea")
        ranks = [world.start(r, *CALLS, prefix=self.on(hosts, r, file)) for r, file in enumerate(files)]
        self.expect_all(ranks)
        said = self.listens_at(ranks[1])
        self.assertEqual(sorted(at.rsplit(":", 1)[0] for at in said), ["10.77.0.2", "[fd77::2]"], ranks[1].story())

    def test_another_program_at_one_of_the_addresses_of_a_name_is_told(self):
        """Else ranks that call there first would come to it."""
        hosts = self.hosts(1)
        self.occupy(hosts, 0, "10.77.0.1")
        world = self.world(2, MASTER_ADDR="nodea")
        names = self.on(hosts, 0, "fd77::1 nodea\n10.77.0.1 nodea\n10.77.0.1 nodea\n")
        for agent, words in (None, "is in use by another program"), ("True", "is in use, by torchrun perhaps"):
            rank = world.start(0, "init", prefix=names, TORCHELASTIC_USE_AGENT_STORE=agent)
            self.assertIn(f"port {PORT} on nodea {words}", rank.expect("init", "DDL_ENETWORK")["text"])

    def test_another_program_at_one_loopback_address_is_told(self):
        """Or by the name rank 0 would be at the other, and ranks that came before it at the program."""
        hosts = self.hosts(1)
        self.occupy(hosts, 0, "::1")
        rank = self.world(2, MASTER_ADDR="localhost").start(0, "init", prefix=hosts.on(0))
        self.assertIn(f"port {PORT} on localhost is in use by another program", rank.expect("init", "DDL_ENETWORK")["text"])

    def test_a_stranger_at_one_of_the_addresses_of_a_name_does_not_decide(self):
        """Rank 1 is refused there before rank 0 has come to another."""
        hosts = self.hosts(2)
        self.occupy(hosts, 1, "fd77::2", SSH)
        world = self.world(2, MASTER_ADDR="nodea", DDL_LOG="debug")
        ranks = [world.start(1, *CALLS, prefix=self.on(hosts, 1, "fd77::2 nodea\n10.77.0.1 nodea\n"))]
        time.sleep(1)
        ranks.append(world.start(0, *CALLS, prefix=self.on(hosts, 0, "10.77.0.1 nodea\n")))
        self.expect_all(ranks)

    def test_strangers_at_all_addresses_of_a_name_are_told_at_once(self):
        """And at the only one that can be reached."""
        hosts = self.hosts(1)
        self.occupy(hosts, 0, "fd77::1", SSH)
        self.occupy(hosts, 0, "10.77.0.1", SSH)
        for other in ("10.77.0.1", "10.99.0.1"):
            with self.subTest(other=other):
                world = self.world(2, MASTER_ADDR="nodea")
                record = world.start(1, "init", prefix=self.on(hosts, 0, f"fd77::1 nodea\n{other} nodea\n")).expect(
                    "init", "DDL_EPROTO")
                self.assertRegex(record["text"], f"(fd77::1|10.77.0.1).*:{PORT}.* does not speak ddl")
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2), record)

    def test_an_address_that_swallows_everything_costs_little(self):
        """Of the addresses of a name, one answers: nobody waits for the other."""
        hosts = self.hosts(2)
        nft(hosts.names[1], "table ip6 t {\n chain out { type filter hook output priority 0; tcp dport 29500 drop; }\n}\n")
        world = self.world(2, MASTER_ADDR="nodea")
        file = "fd77::1 nodea\n10.77.0.1 nodea\n"
        ranks = [world.start(0, *CALLS, prefix=self.on(hosts, 0, file))]
        ranks.append(world.start(1, *CALLS, prefix=self.on(hosts, 1, file)))
        record = ranks[1].expect("init", "DDL_OK")
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(4), ranks[1].story())
        ranks[0].expect("init", "DDL_OK")
        end_well(ranks, "call", "free")

    # ---- names ----

    def launch(self, hosts, host, prefix, *command, **environment):
        variables = {**test_hosts.clean_environment(), **environment}
        launched = test_hosts.Rank(LAUNCHER, ["--nnodes", "2", "--node_rank", str(host), "--nproc_per_node", "2",
                                              "--master_addr", "nodea", "--master_port", str(PORT), "--no-prefix",
                                              *command], variables, f"the launcher on host {host}", prefix)
        self.addCleanup(launched.close)
        return launched

    def test_a_name_that_is_127_0_1_1_on_its_own_host(self):
        """As Debian writes it into /etc/hosts; the other host has it from a name server."""
        hosts = self.hosts(2)
        for name in hosts.names:
            ip("-n", name, "route", "add", "default", "via", "10.77.0.254")
        for own in ("127.0.1.1 nodea.cluster nodea\n", ""):  # or no name server that knows it
            with self.subTest(own=own):
                prefixes = [self.on(hosts, 0, own, name="nodea"), self.on(hosts, 1, "10.77.0.1 nodea\n")]
                launched = [self.launch(hosts, h, prefixes[h], ACTOR, *CALLS) for h in range(2)]
                for one in launched:
                    for _ in range(2 * len(CALLS)):
                        record = one.next()
                        self.assertEqual(record and record.get("status"), "DDL_OK", one.story())
                    one.finish(0)
                said = [line for line in launched[0].errors if "MASTER_ADDR nodea is" in line]
                self.assertEqual(len(said), 1, launched[0].story())
                self.assertIn("rank 0 listens at 10.77.0.1 instead", said[0])
        alone = self.world(2, MASTER_ADDR="nodea", LOCAL_WORLD_SIZE=1, DDL_START_TIMEOUT="1s").start(0, "init", prefix=prefixes[0])
        self.assertIn(f" did not come to tcp://nodea:{PORT} (10.77.0.1) within ", alone.expect("init", "DDL_ETIMEDOUT")["text"])

    def test_interfaces_that_are_named_do_not_part_the_ranks_of_one_host(self):
        hosts = self.hosts(1)
        world = self.world(2, MASTER_ADDR="nodea", LOCAL_WORLD_SIZE=2, DDL_IFACE="wire")
        self.expect_all([world.start(r, *CALLS, prefix=self.on(hosts, 0, "127.0.1.1 nodea\n", name="nodea"))
                         for r in range(2)])

    def test_an_address_that_is_not_usable_yet_is_waited_for(self):
        """That of rank 0, at which all meet; those at which ranks listen that meet in a directory."""
        hosts = self.hosts(2)
        for settings in ({"MASTER_ADDR": "fd77::1"}, {"DDL_STORE": f"file://{self.folder}", "DDL_IFACE": "fd77::/64"}):
            with self.subTest(**settings):
                for host in range(2):
                    self.renew(hosts, host, 2)
                world = self.world(2, DDL_LOG="debug", **settings)
                ranks = [world.start(r, *CALLS, prefix=hosts.on(r)) for r in range(2)]
                self.expect_all(ranks)
                for r, rank in enumerate(ranks):
                    self.assertIn(f"[fd77::{r + 1}]", self.listens_at(rank)[0], rank.story())

    def test_an_address_that_another_host_has_is_not_taken(self):
        hosts = self.hosts(2)
        ip("-n", hosts.names[1], "addr", "add", "fd77::9/64", "dev", "wire", "nodad")
        for order in ("9", "1"), ("1", "9"):  # by which either may be listed first
            with self.subTest(order=order):
                for last in "19":
                    subprocess.run([*hosts.on(0), "ip", "addr", "del", f"fd77::{last}/64", "dev", "wire"], capture_output=True)
                for last in order:
                    ip("-n", hosts.names[0], "addr", "add", f"fd77::{last}/64", "dev", "wire")
                    self.settle(hosts, 0)
                world = self.world(2, DDL_LOG="debug", DDL_STORE=f"file://{self.folder}", DDL_IFACE="fd77::/64")
                ranks = [world.start(r, *CALLS, prefix=hosts.on(0)) for r in range(2)]
                self.expect_all(ranks)
                for rank in ranks:
                    self.assertIn("[fd77::1]", self.listens_at(rank)[0], rank.story())

    def settle(self, hosts, host):
        """Until others have been asked for all its addresses."""
        def is_settled():
            told = subprocess.run([*hosts.on(host), "ip", "-6", "addr"], capture_output=True, text=True, check=True).stdout
            return not any("tentative" in line and "dadfailed" not in line for line in told.splitlines())
        wait_until(is_settled, DEADLINE, "no address is tentative")

    def test_an_address_that_is_not_usable_yet_is_left_out(self):
        hosts = self.hosts(2)
        for host in range(2):
            self.renew(hosts, host, 600)
        world = self.world(2, MASTER_ADDR="nodea")
        self.expect_all([world.start(r, *CALLS, prefix=self.on(hosts, r, "10.77.0.1 nodea\n")) for r in range(2)])

    def test_the_own_name_needs_no_name_server(self):
        hosts = self.hosts(1)
        world = self.world(2, MASTER_ADDR="laptop", LOCAL_WORLD_SIZE=2)
        self.expect_all([world.start(r, *CALLS, prefix=self.on(hosts, 0, name="laptop.home")) for r in range(2)])
        stranger = self.world(2, MASTER_ADDR="phone").start(0, "init", prefix=self.on(hosts, 0, name="laptop"))
        self.assertIn("phone", stranger.expect("init", "DDL_ENETWORK")["text"])

    def test_a_name_may_come_to_be_known_and_to_mean_another_host(self):
        hosts = self.hosts(2)
        for before in ("", "10.77.0.99 nodea\n"):  # nobody knows it; where nobody is
            with self.subTest(before=before):
                world = self.world(2, MASTER_ADDR="nodea")
                prefix = self.on(hosts, 1, before)
                late = world.start(1, *CALLS, prefix=prefix)
                first = world.start(0, *CALLS, prefix=self.on(hosts, 0, "10.77.0.1 nodea\n"))
                time.sleep(1)
                with open(self.etc_hosts(prefix), "w") as file:
                    file.write("10.77.0.1 nodea\n")
                self.expect_all([first, late])

    def test_a_name_server_that_never_answers_holds_nobody(self):
        hosts = self.hosts(2)
        nft(hosts.names[1], "table ip t {\n chain in { type filter hook input priority 0; udp dport 53 drop; }\n}\n")
        resolv = "nameserver 10.77.0.2\noptions timeout:30\n"
        world = self.world(2, MASTER_ADDR="nodea", DDL_START_TIMEOUT="1s")
        one = world.start(1, "init", "line", prefix=self.on(hosts, 0, resolv=resolv))
        record = one.expect("init", "DDL_ENETWORK")
        for word in ("nodea", "name server"):
            self.assertIn(word, record["text"])
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2), record)
        one.expect("ready")
        one.go()  # the lookup is still under way, and does not hold the end of the process either
        one.finish(0, bound(5))

    # ---- firewalls and NAT ----

    def test_a_range_of_ports_fits_a_firewall(self):
        hosts = self.hosts(2)
        for name in hosts.names:
            nft(name, FIREWALL)
        world = self.world(4, DDL_PORT_RANGE="30000-30003", DDL_LOG="debug")
        ranks = [world.start(r, *CALLS, prefix=hosts.on(r % 2)) for r in range(4)]
        self.expect_all(ranks)
        for r, rank in enumerate(ranks):
            self.assertEqual(self.listens_at(rank), [f"10.77.0.{r % 2 + 1}:{30000 + r}"], rank.story())

    def test_a_range_that_is_too_narrow_is_told(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            world = self.world(2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), DDL_PORT_RANGE=f"{port}-{port}")
            record = world.start(0, "init").expect("init", "DDL_ENETWORK")
        for word in (f"DDL_PORT_RANGE={port}-{port}", "127.0.0.1", "widen"):
            self.assertIn(word, record["text"])

    def test_who_waits_for_rank_0_does_not_take_its_port(self):
        """A connect to a port on which nobody listens yet, and which the system gives out, sooner or later comes from that
        very port; closed as others are it would stay taken for a minute."""
        hosts = self.hosts(1)
        subprocess.run([*hosts.on(0), "sh", "-c", "echo 40000 40007 > /proc/sys/net/ipv4/ip_local_port_range"],
                       check=True, timeout=30)
        world = self.world(2, MASTER_ADDR="127.0.0.1", MASTER_PORT=40000)
        ranks = [world.start(1, *CALLS, prefix=hosts.on(0))]
        time.sleep(2.5)  # one attempt in four, of about 13
        ranks.append(world.start(0, *CALLS, prefix=hosts.on(0)))
        self.expect_all(ranks)

    def test_ranks_behind_a_gate_and_before_it(self):
        """Two inside at 10.88.0.2, whom others see as 10.77.0.3; one outside, above and one below in number."""
        hosts = self.hosts(3)
        outside, inside, gate = hosts.names
        ip("-n", inside, "link", "del", "wire")
        ip("-n", inside, "link", "del", "trap")
        ip("-n", gate, "link", "add", "inner", "type", "veth", "peer", "name", "wire", "netns", inside)
        for name, address in ((gate, "10.88.0.1/24"), (inside, "10.88.0.2/24")):
            device = "inner" if name == gate else "wire"
            ip("-n", name, "addr", "add", address, "dev", device)
            ip("-n", name, "link", "set", device, "up")
        ip("-n", inside, "route", "add", "default", "via", "10.88.0.1")
        subprocess.run([*hosts.on(2), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True, timeout=30)
        ports = ", ".join(f"{31000 + i} : 10.88.0.2 . {30000 + i}" for i in range(4))
        nft(gate, "table ip t {\n map ports { type inet_service : ipv4_addr . inet_service\n"
                  f"  elements = {{ 29500 : 10.88.0.2 . 29500, {ports} }}\n }}\n"
                  " chain pre {\n  type nat hook prerouting priority -100;\n"
                  "  iifname wire dnat ip to tcp dport map @ports\n }\n"
                  " chain post {\n  type nat hook postrouting priority 100;\n"
                  "  oifname wire ip saddr 10.88.0.0/24 masquerade\n }\n}\n")
        behind = {"DDL_ADVERTISE": "10.77.0.3:31000", "DDL_PORT_RANGE": "30000-30003"}
        with self.subTest("rank 0 inside"):
            world = self.world(4, MASTER_ADDR="10.77.0.3")
            ranks = [world.start(r, *CALLS, prefix=hosts.on(h), **(behind if h == 1 else {}))
                     for r, h in enumerate((1, 1, 0, 1))]
            self.expect_all(ranks)
        with self.subTest("rank 0 outside"):
            world = self.world(3, MASTER_ADDR="10.77.0.1")
            ranks = [world.start(r, *CALLS, prefix=hosts.on(h), **(behind if h == 1 else {}))
                     for r, h in enumerate((0, 1, 0))]
            self.expect_all(ranks)


class Unreachable(Networks):
    """What takes ten seconds in every build."""

    def test_an_address_that_accepts_and_says_nothing_is_called_last(self):
        """However often the name is looked up meanwhile."""
        hosts = self.hosts(2)
        self.occupy(hosts, 1, "10.77.0.2")
        world = self.world(2, MASTER_ADDR="nodea", DDL_START_TIMEOUT=f"{bound(20):.0f}s")
        self.expect_all([world.start(r, *CALLS, prefix=self.on(hosts, r, "10.77.0.2 nodea\n" * r + "10.77.0.1 nodea\n"))
                         for r in range(2)])

    def test_who_is_refused_at_one_address_waits_for_rank_0_at_the_others_but_not_for_long(self):
        hosts = self.hosts(1)
        self.occupy(hosts, 0, "::1", SSH)
        record = self.world(2, MASTER_ADDR="localhost").start(1, "init", prefix=hosts.on(0)).expect("init", "DDL_EPROTO")
        self.assertIn(f"[::1]:{PORT}", record["text"])
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, 10 + bound(2), record)

    def test_an_address_that_does_not_become_usable_is_told(self):
        hosts = self.hosts(1)
        self.renew(hosts, 0, 600)
        ranks = [self.world(2, MASTER_ADDR="fd77::1").start(0, "init", prefix=hosts.on(0)),
                 self.world(2, DDL_STORE=f"file://{self.folder}", DDL_IFACE="fd77::/64").start(0, "init", prefix=hosts.on(0)),
                 self.world(2, MASTER_ADDR="fd77::1", DDL_START_TIMEOUT="1s").start(0, "init", prefix=hosts.on(0))]
        for rank, seconds in zip(ranks, (5, 5, 1)):
            record = rank.expect("init", "DDL_ENETWORK")
            self.assertIn("fd77::1", record["text"])
            self.assertIn("is not usable yet (duplicate address detection)", record["text"])
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, seconds + bound(1), record)

    def test_a_host_without_a_free_port_is_told_and_waited_for(self):
        """To call from, or to listen at: where all are taken, and where that is all but the one to the store."""
        told = []
        for taken in (4, 3):
            hosts = self.hosts(2)
            self.take_ports(hosts, 1, taken)
            world = self.world(2, MASTER_ADDR="10.77.0.1")
            told.append([world.start(r, "init", prefix=hosts.on(r)) for r in range(2)][1])
            hosts = self.hosts(2)
            other = self.take_ports(hosts, 1, taken)
            world = self.world(2, MASTER_ADDR="10.77.0.1")
            ranks = [world.start(r, *CALLS, prefix=hosts.on(r)) for r in range(2)]
            time.sleep(1.5)
            self.assertTrue(all(rank.records.empty() for rank in ranks))
            other.communicate()
            self.expect_all(ranks)
        for rank, what in zip(told, (f"cannot connect to 10.77.0.1:{PORT}", "cannot listen on 10.77.0.2:0")):
            record = rank.expect("init", "DDL_ERESOURCE")
            self.assertEqual(record["culprit"], 1)
            for word in (what, "no local port is free", "net.ipv4.ip_local_port_range"):
                self.assertIn(word, record["text"])
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, 10 + bound(2), record)

    def test_what_keeps_ranks_apart_is_named_in_time(self):
        """A firewall, with the knobs; no way to the meeting place, or from there on to a rank; a name server that never
        answers; a secret that the other node may not have."""
        hosts = self.hosts(2)
        nft(hosts.names[0], FIREWALL)
        nft(hosts.names[1], "table ip t {\n chain in { type filter hook input priority 0; udp dport 53 drop; }\n}\n")
        lost = self.world(2, MASTER_ADDR="10.99.0.1").start(1, "init", prefix=hosts.on(1))
        resolv = "nameserver 10.77.0.2\noptions timeout:30\n"
        nameless = self.world(2, MASTER_ADDR="nodea").start(1, "init", prefix=self.on(hosts, 0, resolv=resolv))
        world = self.world(2)
        apart = [world.start(r, "init", prefix=hosts.on(r)) for r in range(2)]
        world = self.world(2, MASTER_PORT=29504, DDL_START_TIMEOUT="5s")
        hurried = [world.start(r, "init", prefix=hosts.on(r)) for r in (1, 0)]  # who calls has to give up first
        world = self.world(2, MASTER_PORT=PORT + 2, DDL_START_TIMEOUT="4s")
        shut_in = [world.start(r, "init", prefix=hosts.on(r)) for r in range(2)]
        world = self.world(2, MASTER_PORT=30000)
        halfway = [world.start(r, "init", prefix=hosts.on(r), DDL_PORT_RANGE="30001-30003", DDL_ADVERTISE=shown)
                   for r, shown in enumerate(("10.99.0.1", None))]
        home = tempfile.mkdtemp(dir=self.folder)
        secret = self.secret_of(home)
        alone = test_hosts.Rank(LAUNCHER, ["--nnodes", "2", "--node_rank", "0", "--master_addr", "fd77::1", "--master_port",
                                           str(PORT + 1), "--no-prefix", ACTOR, "init"],
                                {**test_hosts.clean_environment(), "HOME": home, "DDL_START_TIMEOUT": "10500ms"},
                                "the launcher of node 0", hosts.on(0))
        self.addCleanup(alone.close)
        # With another store than tcp the address is but a name, and no host.
        filed = self.world(2, MASTER_ADDR="x", DDL_STORE=f"file://{home}", DDL_START_TIMEOUT="7s", DDL_LOG="info",
                           HOME=home).start(0, "init")
        own = ("lo 127.0.0.1/8", "wire 10.77.0.2/24", "trap 172.17.0.1/16")  # of the host from which nobody is reached
        knobs = ("DDL_PORT_RANGE", "DDL_IFACE", *own)
        cases = [(apart, 10, ("rank 1", "rank 0", "10.77.0.1:", *knobs)),
                 (hurried, 5, ("rank 1", "cannot connect to rank 0", "10.77.0.1:", *knobs)),
                 (halfway, 10, ("rank 1", "(10.77.0.2)", "rank 0", "10.99.0.1:3000", "Network is unreachable", "DDL_IFACE", *own)),
                 ([lost], 10, (f"10.99.0.1:{PORT}", "Network is unreachable", "is there a network to it", "firewall", *own)),
                 ([nameless], 10, ("nodea", "name server"))]
        self.assertRegex(shut_in[1].expect("init", "DDL_ETIMEDOUT")["text"],
                         f"10.77.0.1:{PORT + 2} within (3[.][5-9]|4).* a firewall there drops what comes to that port")
        for ranks, seconds, words in cases:
            records = [rank.expect("init", "DDL_ENETWORK") for rank in ranks]
            all_came_ns = max(record["begin_ns"] for record in records)
            for record in records:
                for word in words:
                    self.assertIn(word, record["text"])
                self.assertLess((record["end_ns"] - all_came_ns) / 1e9, seconds + bound(1), records)
        alone.expect("init", "DDL_ETIMEDOUT")
        said = "".join(alone.errors)
        self.assertNotIn("made ", said)  # the secret was there, so its launcher told nothing when it began
        self.assertEqual(said.count(f"run: (umask 077; mkdir -p ~/.ddl && scp [fd77::1]:{home}/.ddl/secret ~/.ddl/secret)\n"), 1,
                         said)
        self.assertNotIn(secret, said)
        filed.expect("init", "DDL_ETIMEDOUT")
        self.assertIn(f"scp {socket.gethostname()}:{home}/.ddl/secret ~/.ddl/secret)\n", "".join(filed.errors))

    def test_both_addresses_have_their_turn_before_the_start_is_over(self):
        """Of a rank's two addresses the first swallows every call, and there is hardly time for one."""
        hosts = self.hosts(2)
        nft(hosts.names[0], "table ip t {\n chain in { type filter hook input priority 0; iif lo accept; "
                            "ct state established,related accept; tcp dport 1-65535 drop; }\n}\n")
        world = self.world(2, MASTER_ADDR="x", DDL_STORE=f"file://{self.folder}", DDL_START_TIMEOUT="3s")
        for rank in [world.start(r, *CALLS, prefix=hosts.on(r)) for r in range(2)]:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")

    def secret_of(self, home):
        os.mkdir(os.path.join(home, ".ddl"), 0o700)
        content = secrets.token_hex(32)
        with open(os.open(os.path.join(home, ".ddl", "secret"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(content)
        return content


def permitted():
    if shutil.which("nft") is None:
        return "there is no `nft` program"
    return test_hosts.permitted()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    LAUNCHER, ACTOR = [os.path.abspath(a) for a in sys.argv[1:3]]
    del sys.argv[1:3]
    run_unless(permitted())
