"""Crowds at the doors of a job: what scanners send, who hardly sends anything, who comes in thousands.

    test_storms.py ACTOR [CLASS[.TEST]...] [-v]

DDL_TEST_ROUNDS above 1 (./check --long) brings a thousand of each kind, and measures what that costs.
"""
import os
import random
import re
import secrets
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
import unittest

import peer
from world import DEADLINE, Unexpected, World, bound, end_well, listening_ports

ACTOR = None
SEED = int(os.environ.get("DDL_TEST_SEED", "1"))
LONG = int(os.environ.get("DDL_TEST_ROUNDS", "1")) > 1
HAS_TLS = os.environ.get("DDL_TEST_TLS") == "1"
PORTABLE = os.environ.get("DDL_TEST_PORTABLE") == "1"
CALL = "allreduce:20000:int32:sum"
RESET = struct.pack("ii", 1, 0)

KINDS = {
    "random": lambda draw: draw.randbytes(draw.randrange(1, 2000)),
    "http": lambda draw: b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n\r\n",
    "tls": lambda draw: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(300),
    "ssh": lambda draw: b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "redis": lambda draw: b"*1\r\n$4\r\nPING\r\n",
    "reset": lambda draw: b"",
    "half-open": lambda draw: peer.client_hello()[:draw.randrange(0, peer.CLIENT_BYTES)],
}


class Crowd:
    """Strangers of every kind, some of whom stay until they are sent away, at most so many at a time."""

    STAY = 100

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.staying = []
        self.came = 0
        self.foreign = {}  # how many came to a port and said what is not ddl's

    def come(self, kind, port):
        stranger = socket.socket()
        stranger.settimeout(DEADLINE)
        self.came += 1
        if kind in ("http", "tls", "ssh", "redis"):
            self.foreign[port] = self.foreign.get(port, 0) + 1
        try:
            stranger.connect(("127.0.0.1", port))
            stranger.sendall(KINDS[kind](self.draw))
            if kind == "reset":
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            pass  # sent away already
        if kind == "half-open":
            self.staying.append(stranger)
        else:
            stranger.close()
        while len(self.staying) > self.STAY:
            self.staying.pop(0).close()

    def all_come(self, ports, of_each):
        kinds = [kind for kind in KINDS for _ in range(of_each)]
        self.draw.shuffle(kinds)
        for kind in kinds:
            self.come(kind, self.draw.choice(ports))

    def leave(self):
        for stranger in self.staying:
            stranger.close()


def memory_kib(pid, field):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise Unexpected(f"process {pid} has no {field}")


@unittest.skipUnless(sys.platform == "linux", "needs /proc")
class Storms(unittest.TestCase):
    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, **environment)
        self.addCleanup(world.__exit__)
        return world

    def crowd(self):
        crowd = Crowd(SEED)
        self.addCleanup(crowd.leave)
        return crowd

    def turned_away(self, rank, doors, seconds):
        """How many this rank says it turned away: the first at each door is told of, the others are counted, in a line
        in 10 s at most, and one at the end."""
        told = [re.search(r"turned away (?:(\d+) more, the last of them )?127\.0\.0\.1:\d+: ", line)
                for line in rank.errors if not line.startswith("ddl: waiting for ")]  # for a rank, which takes long in slow builds
        self.assertTrue(all(told), rank.story())
        self.assertLessEqual(len(told), doors * (2 + seconds // 10), rank.story())
        return sum(int(found.group(1) or 1) for found in told)

    def computes(self, ranks):
        end_well(ranks, "init", "call", "free")


class Scanners(Storms):
    OF_EACH = 1000 if LONG else 30

    def test_while_ranks_come(self):
        world, crowd = self.world(3), self.crowd()
        ranks = [world.start(0, "init", CALL, "free")]
        ports = own = ranks[0].await_ports(2)
        begun = time.monotonic()
        crowd.all_come(ports, self.OF_EACH // 2)
        ranks.append(world.start(1, "init", CALL, "free"))
        ports = ports + ranks[1].await_ports()
        crowd.all_come(ports, self.OF_EACH // 2)
        ranks.append(world.start(2, "init", CALL, "free"))
        crowd.all_come([world.port], 3)
        self.computes(ranks)
        counted = self.turned_away(ranks[0], len(own), time.monotonic() - begun)
        self.assertGreater(counted, 0.9 * sum(crowd.foreign[port] for port in own), ranks[0].story())
        self.assertLessEqual(counted, crowd.came, ranks[0].story())

    def test_while_ranks_compute(self):
        """Every result exact; and hardly a difference in time whether a crowd comes to the job or, in turn, to a port at
        which nobody answers. (What the crowd itself costs on the CPUs that it shares with the ranks is not the job's.)"""
        rounds, calls = (16, 400000) if LONG else (2, 10000)
        world, crowd = self.world(2), self.crowd()
        commands = [command for _ in range(1 + 2 * rounds) for command in ("line", f"{calls}={CALL}")]
        ranks = world.start_all("init", *commands, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
        self.assertIn(world.port, listening_ports(ranks[0].pid))

        def measure():
            for rank in ranks:
                rank.expect("ready")
            begun = time.monotonic_ns()
            for rank in ranks:
                rank.go()
            ended = []
            for rank in ranks:
                record = rank.expect("repeated", "DDL_OK")
                self.assertEqual((record["done"], record["exact"]), (calls, True), record)
                ended.append(record["end_ns"])
            return (max(ended) - begun) / 1e9

        seconds = measure()

        def measure_with(port):
            storm = threading.Thread(target=self.storm, args=(crowd, port, self.OF_EACH // rounds, seconds))
            storm.start()
            took = measure()
            storm.join()
            return took

        elsewhere, here = [], []
        for _ in range(rounds):
            with socket.create_server(("127.0.0.1", 0), backlog=4096) as nobody:
                elsewhere.append(measure_with(nobody.getsockname()[1]))
            here.append(measure_with(world.port))
        end_well(ranks, "free")
        if LONG:  # the best of each: what else this machine does comes and goes
            print(f"{crowd.came} strangers: {min(here):.3f} s, elsewhere {min(elsewhere):.3f} s; medians "
                  f"{statistics.median(here):.3f} s, {statistics.median(elsewhere):.3f} s")
            self.assertLess(min(here) / min(elsewhere), 1.05)

    def storm(self, crowd, port, of_each, seconds):
        """Spread over the time that the calls take without them."""
        kinds = [kind for kind in KINDS for _ in range(of_each)]
        crowd.draw.shuffle(kinds)
        begun = time.monotonic()
        for i, kind in enumerate(kinds):
            crowd.come(kind, port)
            time.sleep(max(0.0, begun + seconds * (i + 1) / len(kinds) - time.monotonic()))


class Slow(Storms):
    CONNECTIONS = 256
    LIMIT = 5 + 1

    def test_who_sends_a_byte_a_second_is_sent_away_and_keeps_nobody_out(self):
        world, started = self.world(3), time.monotonic()
        job = "init", CALL, "line", CALL, "free"  # the store's port is open as long as the job lasts
        ranks = [world.start(0, *job)]
        port = world.port
        ranks[0].await_ports(2)
        hello = peer.client_hello()
        selector = selectors.DefaultSelector()
        self.addCleanup(selector.close)
        for _ in range(self.CONNECTIONS):
            stranger = socket.socket()
            self.addCleanup(stranger.close)
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
            selector.register(stranger, selectors.EVENT_READ, {"sent": 0, "since": None, "next": 0})
        ranks += [world.start(r, *job) for r in (1, 2)]
        longest, deadline = 0, time.monotonic() + DEADLINE
        while selector.get_map():
            self.assertLess(time.monotonic(), deadline)
            for key, _ in selector.select(0.05):
                try:
                    self.assertEqual(key.fileobj.recv(1), b"")  # not a word
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                if key.data["since"] is not None:
                    longest = max(longest, time.monotonic() - key.data["since"])
                selector.unregister(key.fileobj)
            for key in list(selector.get_map().values()):
                now = time.monotonic()
                if now < key.data["next"]:
                    continue
                try:
                    key.fileobj.send(hello[key.data["sent"]:key.data["sent"] + 1])
                except BlockingIOError:
                    continue  # not connected yet
                except OSError:
                    selector.unregister(key.fileobj)
                    continue
                key.data.update(sent=key.data["sent"] + 1, next=now + 1, since=key.data["since"] or now)
        self.assertLess(longest, bound(self.LIMIT))
        self.assertGreater(longest, 4)  # there was somebody to be sent away
        for rank in ranks:
            record = rank.expect("init", "DDL_OK")
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(self.LIMIT), record)
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")
        self.assertGreater(self.turned_away(ranks[0], 2, time.monotonic() - started), self.CONNECTIONS // 4)


class Flood(Storms):
    CONNECTIONS = 10000
    SILENT = 500
    STANDING = 300  # at each door
    DOOR = 64 + 1  # who may stand there, and a real rank

    def test_memory_stays_flat_and_who_is_in_stays_in(self):
        world, started = self.world(3), time.monotonic()
        ranks = [world.start(r, "init", CALL, "free") for r in (0, 1)]
        ranks[0].await_ports(2)
        ranks[1].await_ports()
        crowd = self.crowd()
        crowd.all_come([world.port], 20)  # what is needed once is there then
        before, descriptors = memory_kib(ranks[0].pid, "VmRSS"), len(os.listdir(f"/proc/{ranks[0].pid}/fd"))
        most = before

        def look():
            nonlocal most
            most = max(most, memory_kib(ranks[0].pid, "VmRSS"))
            self.assertLessEqual(len(os.listdir(f"/proc/{ranks[0].pid}/fd")), descriptors + self.DOOR)

        # Never waited for: the system drops what comes faster than the door takes it in, and a caller that blocked would
        # rest for a second then. Those who were let in stay silent.
        strangers = []
        for i in range(self.CONNECTIONS):
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", world.port))
            strangers.append(stranger)
            if len(strangers) > self.SILENT:
                strangers.pop(0).close()
            if i % 50 == 0:
                look()
        for stranger in strangers:
            self.addCleanup(stranger.close)
        ranks.append(world.start(2, "init", CALL, "free"))
        self.computes(ranks)
        self.assertGreater(self.turned_away(ranks[0], 2, time.monotonic() - started), self.SILENT // 4)
        if bound(1) == 1:  # sanitizers keep what was freed
            self.assertLess(most - before, 2048)

    def test_ranks_come_in_while_it_goes_on(self):
        """At either door, from their own address, silent, with the beginning of a hello or with all of it."""
        hellos = {channel: peer.client_hello(channel, 1, size=3) for channel in (peer.STORE, peer.MESH)}
        for channel, length in ((peer.STORE, 0), (peer.STORE, 64), (peer.STORE, peer.CLIENT_BYTES), (peer.MESH, 64),
                                (peer.MESH, peer.CLIENT_BYTES)):
            world = self.world(3)
            ranks = [world.start(0, "init", CALL, "free")]
            ports = ranks[0].await_ports(2)
            port = world.port if channel == peer.STORE else next(p for p in ports if p != world.port)
            self.come_in_beside(world, ranks, port, hellos[channel][:length], self.SILENT)

    def test_silent_ones_at_both_doors_leave_ranks_their_descriptors(self):
        """Where the process may have more, and where it has as few as it needs."""
        asked = self.world(3).start(0, "init", prefix=["prlimit", "--nofile=30:30"])
        needed = re.search(r"ulimit -n (\d+)", asked.expect("init", "DDL_ERESOURCE")["text"]).group(1)
        for limit in ("30:", f"{needed}:{needed}"):
            with self.subTest(limit=limit):
                world = self.world(3)
                ranks = [world.start(0, "init", CALL, "free", prefix=["prlimit", f"--nofile={limit}"])]
                ports = ranks[0].await_ports(2)
                ended, replaced = threading.Event(), threading.Semaphore(0)
                crowd = threading.Thread(target=self.stand_at, args=(ports, ended, replaced))
                crowd.start()
                try:
                    for _ in range(self.SILENT):
                        self.assertTrue(replaced.acquire(timeout=DEADLINE), ranks[0].story())
                    self.bring_in(world, ranks)
                finally:
                    ended.set()
                    crowd.join()
                ranks[0].expect("init", "DDL_OK")
                end_well(ranks, "call", "free")
                self.assertNotIn("cannot let anybody in", "".join(ranks[0].errors))

    def stand_at(self, ports, ended, replaced):
        """As many at each of these, from two hundred addresses, and another one for each that is sent away."""
        standing, came = [], 0
        while not ended.is_set():
            while len(standing) < len(ports) * self.STANDING:
                stranger = socket.socket()
                stranger.setblocking(False)
                stranger.bind((f"127.0.1.{1 + came // len(ports) % 200}", 0))
                stranger.connect_ex(("127.0.0.1", ports[came % len(ports)]))
                standing.append(stranger)
                came += 1
            ended.wait(0.01)
            for stranger in list(standing):
                try:
                    stranger.recv(1)
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                stranger.close()
                standing.remove(stranger)
                replaced.release()
        for stranger in standing:
            stranger.close()

    @unittest.skipUnless(HAS_TLS and not PORTABLE, "needs TLS, and a system that tells who has left")
    def test_ranks_come_in_while_what_one_of_them_has_said_in_tls_is_played_again(self):
        with tempfile.NamedTemporaryFile("w") as secret:  # 0600
            secret.write(secrets.token_hex(32))
            secret.flush()
            level = {"DDL_SECURITY": "tls", "DDL_SECRET_FILE": secret.name}
            world = self.world(3, **level)
            with socket.create_server(("127.0.0.1", world.port)) as recorder:
                caller = world.start(1, "init")
                stream, _ = recorder.accept()
                with stream:
                    said = stream.recv(4096)  # as it knows no run, it fits in every run of this secret
            caller.kill()
            world = self.world(3, **level)
            ranks = [world.start(0, "init", CALL, "free")]
            ranks[0].await_ports(2)
            self.come_in_beside(world, ranks, world.port, said, self.CONNECTIONS)

    def bring_in(self, world, ranks):
        """Ranks 1 and 2 join rank 0 as if nobody else were there."""
        ranks += [world.start(r, "init", CALL, "free") for r in (1, 2)]
        for rank in ranks[1:]:
            record = rank.expect("init", "DDL_OK")
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2), record)

    def come_in_beside(self, world, ranks, port, said, calls):
        """Ranks 1 and 2 join rank 0, which is there, after so many calls of a flood that says this, and while it goes on."""
        ended, came = threading.Event(), threading.Semaphore(0)
        flood = threading.Thread(target=self.keep_coming, args=(port, said, ended, came))
        flood.start()
        try:
            for _ in range(calls):
                self.assertTrue(came.acquire(timeout=DEADLINE))
            self.bring_in(world, ranks)
        finally:
            ended.set()
            flood.join()
        ranks[0].expect("init", "DDL_OK")
        end_well(ranks, "call", "free")

    def keep_coming(self, port, said, ended, came):
        strangers = []
        while not ended.is_set():
            stranger = socket.socket()
            stranger.setblocking(False)
            try:
                stranger.connect_ex(("127.0.0.1", port))
                stranger.send(said)
            except OSError:
                pass  # not in, or sent away already
            strangers.append(stranger)
            came.release()
            if len(strangers) > self.SILENT:
                strangers.pop(0).close()
        for stranger in strangers:
            stranger.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ACTOR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
