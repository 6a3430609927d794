"""Meeting through a Redis server: real servers, real processes, and what they say when Redis is not as it should be.

    test_redis.py LAUNCH ALLREDUCE ACTOR MAKE_CERTIFICATES [CLASS[.TEST]...] [-v]

Every server is the test's own: on a free port of this machine, with a directory of its own, and stopped by its number.
"""
import functools
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import peer
from relay import Relay
from world import DEADLINE, World, bound, clean_environment, end_well, free_port, wait_until

LAUNCH = ALLREDUCE = ACTOR = MAKE_CERTIFICATES = None
PASSWORD = "tr0ub4dor&3"
LIFE_INTERVAL = 0.8  # between looks of rank 0 at who still lives
HAS_TLS = os.environ.get("DDL_TEST_TLS") == "1"

# What docs/rendezvous.md says that a user of Redis needs.
RULES = ("-@all +auth +select +multi +exec +watch +xadd +xread +expire +sadd +spop +del "
         "+subscribe +pubsub|numsub").split()


class Redis:
    """A redis-server."""

    def __init__(self, *options, port=None, tls_port=None):
        self.directory = tempfile.mkdtemp(prefix="ddl-redis-")
        self.port, self.keeps_port = port, port is not None
        self.tls_port = tls_port
        self.options = options
        self.start()

    def start(self):
        """On its port; the first time on one of its own, which somebody may take before it does, or that of its bus."""
        deadline = time.monotonic() + DEADLINE
        self.process = None
        while True:
            if self.process is None or self.process.poll() is not None:
                self.port = self.port if self.keeps_port else free_port()
                self.process = subprocess.Popen(
                    ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", "",
                     "--appendonly", "no", "--logfile", self.directory + "/log", *self.options])
            try:
                assert self.ask("PING") == "PONG" and self.process.poll() is None
                self.keeps_port = True
                return
            except (OSError, AssertionError):  # not yet there, or loading
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def ask(self, *words):
        """One command; a reply that is no array."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as s:
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in
                      (w if isinstance(w, bytes) else str(w).encode() for w in words)))
            line = s.makefile("rb").readline().decode().rstrip()
        if line.startswith("-"):
            raise AssertionError(line)
        return line[1:]

    def keys(self):
        return sum(int(field.split("=")[1]) for line in self.info("keyspace") for field in line.split(",")[:1])

    def await_wills(self, count):
        """Wait until that many ranks have joined: the will is the last thing that a rank says then."""
        script = """local told = 0
                    for db = 0, 2 do
                        redis.call('SELECT', db)
                        for _, key in ipairs(redis.call('KEYS', '*:wills')) do told = told + redis.call('XLEN', key) end
                    end
                    return told"""
        wait_until(lambda: int(self.ask("EVAL", script, "0")) >= count, DEADLINE, f"{count} ranks have joined")

    def info(self, section):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as s:
            s.sendall(b"INFO %s\r\n" % section.encode())
            stream = s.makefile("rb")
            text = stream.read(int(stream.readline()[1:])).decode()
        return [line.split(":", 1)[1] for line in text.splitlines() if ":" in line]

    def url(self, login="", rest=""):
        return f"redis://{login}127.0.0.1:{self.port}{rest}"

    def tls_url(self, host="localhost", **files):
        return f"rediss://{host}:{self.tls_port}/0?" + "&".join(f"{k}={v}" for k, v in files.items())

    def send(self, number):
        self.process.send_signal(number)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class Tests(unittest.TestCase):
    def redis(self, *options, **more):
        redis = Redis(*options, **more)
        self.addCleanup(redis.stop)
        return redis

    def world(self, nranks, url, **environment):
        world = World(ACTOR, nranks, DDL_STORE=url, **environment)
        self.addCleanup(world.__exit__)
        return world

    def launch(self, url, nranks=4, limit=60, **environment):
        """An allreduce under the launcher: its exit code, what it said, how long it took."""
        everything = dict(clean_environment(), DDL_STORE=url, DDL_START_TIMEOUT="30", DDL_LOG="trace", **environment)
        begun = time.monotonic()
        done = subprocess.run([LAUNCH, "--nproc_per_node", str(nranks), "--master_port", str(free_port()), ALLREDUCE],
                              env=everything, capture_output=True, text=True, timeout=limit * bound(1))
        return done.returncode, done.stdout + done.stderr, time.monotonic() - begun

    def assert_computes(self, url, nranks=4, **environment):
        code, said, _ = self.launch(url, nranks, **environment)
        self.assertEqual(code, 0, said)
        self.assertIn(f"{nranks} processes measured {nranks * 1000} times: 20.0", said)
        return said

    def assert_refused(self, url, *words, seconds=4):
        code, said, took = self.launch(url, 2)
        self.assertNotEqual(code, 0, said)
        for word in words:
            self.assertIn(word, said)
        self.assertLess(took, bound(seconds), said)
        return said

    def assert_remedy(self, url, *words, prefix=(), number=0):
        """Rank 0, or that one, is told soon what to do about a server. prefix: what to start it by."""
        record = self.world(2, url).start(number, "init", prefix=prefix).expect("init", "DDL_ESTORE")
        for word in words:
            self.assertIn(word, record["text"])
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2), record)
        return record["text"]

    def password_file(self, mode=0o600, password=PASSWORD):
        descriptor, path = tempfile.mkstemp(prefix="ddl-password-")
        self.addCleanup(os.unlink, path)
        os.write(descriptor, password.encode() + b"\n")
        os.fchmod(descriptor, mode)
        os.close(descriptor)
        return path

    def at_once(self, *checks):
        """Do several checks that mostly wait."""
        with ThreadPoolExecutor(len(checks)) as pool:
            for done in [pool.submit(check) for check in checks]:
                done.result()


class Meeting(Tests):
    def test_jobs_meet_and_leave_nothing(self):
        redis = self.redis()
        for rest in ["", "/3", "?prefix=team.a", "/15?prefix=b"]:
            self.assert_computes(redis.url(rest=rest))
            self.assertEqual(redis.keys(), 0)
        self.at_once(*[lambda: self.assert_computes(redis.url())] * 3)
        self.assert_computes(redis.url(), nranks=16)
        self.assert_computes(redis.url(), DDL_SECURITY="off")
        if "DDL_TEST_JUMPING" in os.environ:  # the clock on the wall, of every process but the server
            self.assert_computes(redis.url(), LD_PRELOAD=os.environ["DDL_TEST_JUMPING"])
        self.assertEqual(redis.keys(), 0)
        # IPv6 where this machine has it.
        if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):
            with socket.socket(socket.AF_INET6) as s:
                if s.connect_ex(("::1", redis.port)) == 111:
                    redis6 = self.redis("--bind", "127.0.0.1 ::1")
                    self.assert_computes(f"redis://[::1]:{redis6.port}")

    def check_tries_again(self, url, name, wrong, right, culprits):
        world = self.world(3, url)
        ranks = [world.start(r, *([f"set:{name}={wrong}"] if r in culprits else []), "line", "init", f"set:{name}={right}", "init",
                             "barrier", "free") for r in range(3)]
        for rank in ranks:
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        for rank in ranks:
            self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
            record = rank.expect("init", "DDL_OK")
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(4), record)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_who_tries_another_setting_does_not_hear_of_the_last_try(self):
        redis = self.redis()
        tries = [("DDL_IFACE", "nosuch0", "", (0, 1, 2)), ("DDL_IFACE", "nosuch0", "", (1,)), ("WORLD_SIZE", "4", "3", (2,))]
        self.at_once(*[functools.partial(self.check_tries_again, redis.url(), *tried) for tried in tries])
        self.assertEqual(redis.keys(), 0)

    def test_who_ends_without_leaving_leaves_nothing_either(self):
        redis, nranks = self.redis(), 3
        with tempfile.TemporaryDirectory() as folder:
            for url in (redis.url(), "file://" + folder):
                ranks = self.world(nranks, url).start_all("init", "barrier", "exit:0")
                end_well(ranks, "init", "call")
            self.assertEqual((redis.keys(), os.listdir(folder)), (0, []))

    def test_what_keeps_rank_0_from_joining_is_told_to_who_waits(self):
        redis = self.redis()
        world = self.world(3, redis.url())
        waiting = [world.start(rank, "init") for rank in (1, 2)]
        time.sleep(0.2)
        begun = time.monotonic_ns()
        first = world.start(0, "init", DDL_IFACE="nosuch0")
        for rank in (first, *waiting):
            record = rank.expect("init", "DDL_ENETWORK")
            self.assertRegex(record["text"], rf"rank 0 on \S+\[{first.pid}\]: DDL_IFACE=nosuch0")
            self.assertLess((record["end_ns"] - begun) / 1e9, bound(2), record)
            rank.finish()
        self.assertEqual(redis.keys(), 0)

    def test_a_user_of_the_prefix_alone_is_enough(self):
        redis = self.redis()
        redis.ask("ACL", "SETUSER", "team", "on", ">" + PASSWORD, "resetkeys", "~team:*", "resetchannels", "&team:*", *RULES)
        path, wrong, open_to_all = self.password_file(), self.password_file(password="guess"), self.password_file(0o640)
        said = [self.assert_computes(redis.url(f"team:{path}@", "?prefix=team")),
                self.assert_remedy(redis.url(f"team:{path}@", "?prefix=other"), "NOPERM", "; a user needs ~PREFIX:* &PREFIX:* "
                                    + " ".join(rule for rule in RULES if rule not in ("-@all", "+auth")) + ", "),
                self.assert_refused(redis.url(f"team:{wrong}@", "?prefix=team"), "wrong password, or no user team; see the first line of " + wrong),
                self.assert_refused(redis.url(f"nobody:{path}@"), "no user nobody"),
                self.assert_refused(redis.url(f"team:{open_to_all}@"), open_to_all, "chmod 600"),
                self.assert_refused(redis.url(f"team:{path}.no@"), "No such file"),
                self.assert_refused(redis.url(f":{path}@"), f"has no password, but DDL_STORE names one: leave {path} out of it")]
        redis.ask("CONFIG", "SET", "requirepass", PASSWORD)
        said.append(self.assert_remedy(redis.url(), "NOAUTH", "; it wants a password: name a file with it"))
        said.append(self.assert_computes(redis.url(f":{path}@")))
        for words in said:
            self.assertNotIn(PASSWORD, words)
            self.assertNotIn("guess", words)

    def test_what_redis_refuses_has_a_remedy(self):
        replica, stale, alone, full, few, node, other = (
            self.redis(), self.redis("--replica-serve-stale-data", "no"), self.redis("--min-replicas-to-write", "1"), self.redis(),
            self.redis("--databases", "2"), self.redis("--cluster-enabled", "yes"), self.redis("--rename-command", "XADD", "ADDX"))
        for redis in (replica, stale):
            redis.ask("REPLICAOF", "127.0.0.1", free_port())
        full.ask("CONFIG", "SET", "maxmemory", 1)
        refused = lambda url, *words: lambda: self.assert_remedy(url, *words)
        self.at_once(refused(replica.url(), "READONLY", "; it is a replica: name its master in DDL_STORE"),
                     refused(stale.url(), "MASTERDOWN", "; it is a replica: name its master in DDL_STORE"),
                     refused(alone.url(), "NOREPLICAS", "; it takes nothing without its replicas: see its min-replicas-to-write"),
                     refused(full.url(), "OOM", "; its memory is full: raise its maxmemory"),
                     refused(few.url(rest="/2"), "SELECT: ERR DB index", "; it has fewer databases than the /N of DDL_STORE"),
                     refused(node.url(), "CLUSTERDOWN", "; it is a node of a cluster, which does not do"),
                     refused(other.url(), "ERR unknown command", "; it has to be Redis 5 or newer"))
        few.ask("CONFIG", "SET", "maxclients", 1)
        path, remedy = self.password_file(), "; raise its maxclients: each rank needs two"
        with socket.create_connection(("127.0.0.1", few.port)):
            self.at_once(refused(few.url(), "ERR max number of clients", remedy),
                         refused(few.url(f":{path}@", "/1"), "it does not log in user default" + remedy))

    def test_who_waits_for_rank_0_where_redis_refuses_writes_hears_of_that(self):
        """As rank 0 cannot leave word of it there. What tells is a key that is gone at once."""
        replica, full, forbidden, fine = self.redis(), self.redis(), self.redis(), self.redis()
        replica.ask("REPLICAOF", "127.0.0.1", free_port())
        full.ask("CONFIG", "SET", "maxmemory", 1)
        forbidden.ask("ACL", "SETUSER", "default", "-expire")
        refused = lambda redis, *words: lambda: self.assert_remedy(redis.url(), *words, number=1)
        self.at_once(refused(replica, "READONLY", "; it is a replica: name its master in DDL_STORE"),
                     refused(full, "OOM", "; its memory is full: raise its maxmemory"),
                     refused(forbidden, "NOPERM", "; a user needs "),
                     lambda: self.world(2, fine.url(), DDL_START_TIMEOUT="1.5s").start(1, "init").expect("init", "DDL_ETIMEDOUT"))
        self.assertEqual(fine.keys(), 0)

    def test_a_store_that_loses_what_a_rank_has_set_is_told(self):
        """As a Redis that evicts keys does: it is not rank 0 that is silent."""
        redis = self.redis()
        script = """local lost = redis.call('KEYS', '*:k:member.0')
                    return #lost > 0 and redis.call('DEL', unpack(lost)) or 0"""
        world = self.world(3, redis.url())
        ranks = [world.start(0, "init", DDL_START_TIMEOUT="3s"), world.start(1, "init")]
        wait_until(lambda: redis.ask("EVAL", script, "0") == "1", DEADLINE, "rank 0 has joined")
        for rank in ranks:
            record = rank.expect("init", "DDL_ESTORE")
            self.assertIn(" has lost the key member.0 of this run: ", record["text"])
            self.assertIn("maxmemory-policy", record["text"])
            rank.finish(0)

    def test_keys_of_others_below_the_prefix_have_a_remedy(self):
        redis = self.redis()
        world = self.world(2, redis.url())
        redis.ask("SET", f"ddl:127.0.0.1:{world.port}:meet", "of somebody else")
        record = world.start(0, "init").expect("init", "DDL_ESTORE")
        for word in ("WRONGTYPE", "keys that begin with the prefix", "?prefix="):
            self.assertIn(word, record["text"])

    def test_what_redis_cannot_do_has_a_remedy(self):
        unsaved, whole, part = self.redis(), self.redis("--cluster-enabled", "yes"), self.redis("--cluster-enabled", "yes")
        unsaved.ask("CONFIG", "SET", "save", "3600 1")
        os.makedirs(unsaved.directory + "/dump.rdb/in the way")
        unsaved.ask("BGSAVE")
        whole.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        self.elsewhere(part)
        no_cluster = "; it is a node of a cluster, which does not do: name a server by itself"
        self.at_once(lambda: self.refused_once(unsaved, "MISCONF", "; it cannot save to its disk"),
                     lambda: self.refused_once(whole, None, "CROSSSLOT", no_cluster),
                     lambda: self.refused_once(part, "MOVED", no_cluster),
                     self.refused_by_its_protection)

    def elsewhere(self, node):
        """Let all that a node of a cluster might hold be held by another, which is not there."""
        node.process.kill()
        node.process.wait()
        with open(node.directory + "/nodes.conf", "w") as nodes:
            nodes.write(f"{'1' * 40} 127.0.0.1:{node.port}@{node.port + 1} myself,master - 0 0 1 connected\n"
                        f"{'2' * 40} 127.0.0.1:{node.port + 2}@{node.port + 3} master - 0 0 2 connected 0-16383\n"
                        "vars currentEpoch 2 lastVoteEpoch 0\n")
        node.start()

    def refused_once(self, redis, answer, *words):
        """Once the server answers a write so (None: takes it), the error has the words."""
        def said():
            try:
                redis.ask("SET", "tried", 1)
                return None
            except AssertionError as error:
                return str(error)[1:].split()[0]
        wait_until(lambda: said() == answer, DEADLINE, lambda: f"{answer}, and not {said()}")
        self.assert_remedy(redis.url(), *words if answer is None else (answer, *words))

    def refused_by_its_protection(self):
        """A server that has no password, on an address that is not loopback. It ends with the rank."""
        unshare = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", *([] if os.geteuid() == 0 else ["-Ur"])]
        if subprocess.run([*unshare, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=30).returncode != 0:
            return print("no namespaces can be made here: nobody is refused by a protected mode")
        enter = [*unshare, "sh", "-ec", """
            ip link set lo up
            ip address add 10.77.9.1/32 dev lo
            redis-server --bind 10.77.9.1 127.0.0.1 --save '' --logfile /dev/null &
            until redis-cli ping > /dev/null 2>&1; do sleep 0.01; done
            "$@" """, "sh"]
        self.assert_remedy("redis://10.77.9.1:6379", "DENIED", "; it lets only its own host in: set its bind", prefix=enter)

    def test_what_a_job_sets_expires_if_it_cannot_remove_it(self):
        """An hour after the longest start-up."""
        redis = self.redis()
        world = self.world(3, redis.url(), DDL_START_TIMEOUT="60s")
        ranks = [world.start(r, "init") for r in range(2)]
        redis.await_wills(2)
        script = """local odd = ''
                    for _, key in ipairs(redis.call('KEYS', '*')) do
                        local left = redis.call('TTL', key)
                        if left <= 0 or left > 3600 + 60 then odd = odd .. key .. ' ' .. left .. '; ' end
                    end
                    return #redis.call('KEYS', '*') .. ' keys, without end: ' .. odd"""
        self.assertRegex(redis.ask("EVAL", f"return redis.status_reply((function() {script} end)())", "0"),
                         r"^[1-9][0-9]* keys, without end:$")
        for rank in ranks:
            rank.kill()

    def test_two_jobs_at_one_place_are_told_and_the_first_goes_on(self):
        redis = self.redis()
        first = self.world(3, redis.url())
        ranks = [first.start(r, "init", "line", "allreduce:1000:float32:sum", "free") for r in range(2)]
        self.wait_for_keys(redis)
        again = self.world(3, redis.url())
        larger = self.world(5, redis.url())
        again.port = larger.port = first.port
        for world in (again, larger):
            record = world.start(0, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
            self.assertIn("rank 0 is at ddl:127.0.0.1:", record["text"])
            self.assertIn("two jobs share the place", record["text"])
        # Rank 0 sees that this one is gone, who has left a will; but the key that it is for was set by another.
        record = again.start(1, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
        self.assertIn("rank 1 is here already", record["text"])
        time.sleep(2.5 * LIFE_INTERVAL)
        ranks.append(first.start(2, "init", "line", "allreduce:1000:float32:sum", "free"))
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        # Now that it computes, too.
        again.start(0, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
        record = again.start(1, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
        self.assertIn("rank 1 is here already", record["text"])
        larger.start(4, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")
        self.assertEqual(redis.keys(), 0)

    def wait_for_keys(self, redis, count=4):
        wait_until(lambda: redis.keys() >= count, DEADLINE, f"{count} keys")

    def test_what_the_dead_left_and_what_others_forged_is_ignored(self):
        redis = self.redis()
        dead = self.world(4, redis.url())
        for rank in range(3):
            dead.start(rank, "init")
        self.wait_for_keys(redis, 8)
        for rank in dead.ranks:
            rank.kill()
        left = redis.keys()
        self.assertGreaterEqual(left, 8)
        live = self.world(3, redis.url())
        live.port = dead.port
        late = [live.start(r, "init", "allreduce:1000:float32:sum", "free") for r in (1, 2)]
        time.sleep(0.1)  # they have found the dead run, and wait
        rank0 = live.start(0, "init", "allreduce:1000:float32:sum", "free")
        beside_leftovers = self.meet_and_leave(rank0, *late)
        self.assertEqual(redis.keys(), 0)
        late = [live.start(r, "init", "allreduce:1000:float32:sum", "free") for r in (1, 2)]
        time.sleep(0.1)
        rank0 = live.start(0, "init", "allreduce:1000:float32:sum", "free")
        without = self.meet_and_leave(rank0, *late)
        self.assertLess(beside_leftovers, without + bound(1))
        # A record of another version, and one that is well-formed and of a rank 0 that seems to subscribe.
        place = f"ddl:127.0.0.1:{live.port}"
        with self.subscriber(redis):
            for record in (b"nonsense", b"\x63" + bytes(151), self.meet(1)):
                redis.ask("XADD", place + ":meet", f"{self.ms_ago(redis, 3600)}-0", "meet", record)
                redis.ask("XADD", f"ddl:{'22' * 16}:k:member.1", "1-1", "by", "33" * 16, "value", "forged")
                world = self.world(3, redis.url())
                world.port = live.port
                ranks = world.start_all("init", "allreduce:1000:float32:sum", "free")
                self.assertLess(self.meet_and_leave(*ranks), without + bound(1))
                self.assertRegex(ranks[0].said.decode(), rf"rank 0 replaces {place}:meet in redis://127.0.0.1:{redis.port}/0"
                                                         r" \(36[0-9][0-9] s old\), left there by an earlier run")
                redis.ask("DEL", f"ddl:{'22' * 16}:k:member.1")
                self.assertEqual(redis.keys(), 0)

    def test_what_the_dead_left_is_removed_also_if_an_answer_is_lost(self):
        redis = self.redis()
        relay = Relay(redis.port)
        world = self.world(2, f"redis://127.0.0.1:{relay.port}")
        place, run = f"ddl:127.0.0.1:{world.port}", f"ddl:{'22' * 16}"
        redis.ask("XADD", place + ":meet", "1-1", "meet", self.meet(1))
        redis.ask("XADD", run + ":k:member.1", "1-1", "by", "33" * 16, "value", "left")
        foreign = (f"another:{'22' * 16}:k:member.1", f"ddl:{'33' * 16}:k:member.1", run[:-1] + "3:k:member.1")
        for key in foreign:
            redis.ask("SET", key, "not of that run")
        redis.ask("SADD", run + ":all", run + ":k:member.1", *foreign)
        relay.unanswered = b"DEL\r\n"  # with which the place is taken
        self.meet_and_leave(*world.start_all("init", "allreduce:1000:float32:sum", "free"))
        self.assertIsNone(relay.unanswered)
        self.assertEqual([redis.ask("DEL", key) for key in foreign], ["1"] * len(foreign))
        self.assertEqual(redis.keys(), 0)

    def meet_and_leave(self, rank0, *others):
        """All do; the seconds from when rank 0 came until the last had joined."""
        joined = [rank.expect("init", "DDL_OK") for rank in (rank0, *others)]
        end_well((rank0, *others), "call", "free")
        return (max(record["end_ns"] for record in joined) - joined[0]["begin_ns"]) / 1e9

    def ms_ago(self, redis, seconds):
        """As the beginning of a stream's id, by the clock of the server."""
        now = redis.ask("EVAL", "return redis.status_reply(redis.call('TIME')[1])", "0")
        return (int(now) - seconds) * 1000

    def meet(self, level):
        """A record at the meeting place, of a rank 0 that is none; at level auth with a proof that proves nothing."""
        words = [1, 3, 4711]
        body = b"".join(w.to_bytes(4, "little") for w in words) + b"\x22" * 16 + b"\x11" * 16 + b"evil".ljust(64, b"\0") + peer.LIBRARY
        return struct.pack("<I", peer.VERSION) + level.to_bytes(4, "little") + bytes(36 * level) + body

    def subscriber(self, redis):
        """What seems to be the rank 0 of such a record."""
        stream = socket.create_connection(("127.0.0.1", redis.port))
        stream.sendall(b"SUBSCRIBE ddl:alive:" + b"11" * 16 + b"\r\n")
        stream.recv(100)
        return stream

    def test_who_forges_a_run_that_seems_to_live_only_holds_others_up(self):
        redis = self.redis()
        with self.subscriber(redis):
            for level in (0, 1):
                world = self.world(3, redis.url(), DDL_START_TIMEOUT="1")
                place = f"ddl:127.0.0.1:{world.port}"
                redis.ask("XADD", place + ":meet", f"{self.ms_ago(redis, 7200)}-0", "meet", self.meet(level))
                redis.ask("XADD", f"ddl:{'22' * 16}:end", "1-1", "by", "33" * 16, "settled", "")
                record = world.start(0, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
                self.assertIn("rank 0 is at " + place, record["text"])
                self.assertIn("that one does not have the secret of this job", record["text"])
                record = world.start(1, "init").expect("init", "DDL_ETIMEDOUT", seconds=bound(5))
                self.assertIn("a job with another secret was there", record["text"])
                self.assertRegex(record["text"], place + r":meet in redis://\S+ \(72[0-9][0-9] s old\) names a run that does "
                                                         "not answer")
                redis.ask("DEL", place + ":meet", place + ":ask", f"ddl:{'22' * 16}:end")
            # One that has settled since it was asked, and so does not answer.
            world = self.world(3, redis.url(), DDL_SECURITY="off")
            place = f"ddl:127.0.0.1:{world.port}"
            redis.ask("XADD", place + ":meet", "1-1", "meet", self.meet(0))
            ranks = []
            for rank in (1, 0):
                ranks.append(world.start(rank, "init"))
                wait_until(lambda: int(redis.ask("XLEN", place + ":ask")) >= len(ranks), DEADLINE, ranks[-1].story)
            redis.ask("XADD", f"ddl:{'22' * 16}:end", "1-1", "by", "33" * 16, "settled", "")
            record = ranks[1].expect("init", "DDL_ECONFIG", seconds=bound(5))
            self.assertIn("rank 0 is at " + place, record["text"])
            self.assertIn("if its host has died, which Redis may not notice for minutes, take another MASTER_PORT", record["text"])
            record = ranks[0].expect("init", "DDL_EPROTO", seconds=bound(5))
            self.assertIn("rank 0 on evil[4711] has version 1", record["text"])

    def test_a_rank_0_that_is_stopped_loses_its_place_and_all_of_its_job_are_told(self):
        redis = self.redis()
        first = self.world(3, redis.url())
        ranks = [first.start(r, "init") for r in range(2)]
        redis.await_wills(2)
        ranks[0].process.send_signal(signal.SIGSTOP)
        second = self.world(3, redis.url())
        second.port = first.port
        others = second.start_all("init", "line", "allreduce:1000:float32:sum", "free")
        joined = [rank.expect("init", "DDL_OK") for rank in others]
        for rank in others:
            rank.expect("ready")
        self.assertLess((max(record["end_ns"] for record in joined) - joined[0]["begin_ns"]) / 1e9, bound(1.5))
        ranks[0].process.send_signal(signal.SIGCONT)
        for rank in ranks:
            record = rank.expect("init", "DDL_ECONFIG", seconds=bound(5))
            self.assertRegex(record["text"], rf"another rank 0, \S+\[{others[0].pid}\], has taken the meeting place ddl:127.0.0.1:{first.port}; "
                                             "do two jobs share it")
            rank.finish(None)
        for rank in others:
            rank.go()
        end_well(others, "call", "free")
        self.assertEqual(redis.keys(), 0)

    def test_a_rank_0_that_cannot_take_part_leaves_the_place_to_one_that_is_stopped(self):
        redis = self.redis()
        world = self.world(3, redis.url())
        ranks = [world.start(r, "init", "allreduce:1000:float32:sum", "free") for r in range(2)]
        redis.await_wills(2)
        ranks[0].process.send_signal(signal.SIGSTOP)
        other = world.start(0, "init", DDL_TRANSPORT="pigeon")
        self.assertIn("DDL_TRANSPORT=pigeon", other.expect("init", "DDL_ECONFIG")["text"])
        ranks[0].process.send_signal(signal.SIGCONT)
        ranks.append(world.start(2, "init", "allreduce:1000:float32:sum", "free"))
        end_well(ranks, "init", "call", "free")

    def test_whose_record_is_replaced_is_told(self):
        """By nonsense, or by what may be of another version: of the store it is an error, not of the protocol."""
        redis = self.redis()
        for record in (b"nonsense", b"\x63" + bytes(151)):
            world = self.world(2, redis.url())
            rank = world.start(0, "init")
            self.wait_for_keys(redis)
            place = f"ddl:127.0.0.1:{world.port}:meet"
            redis.ask("DEL", place)
            redis.ask("XADD", place, "2-1", "meet", record)
            text = rank.expect("init", "DDL_ESTORE")["text"]
            self.assertIn(f"{place} has been replaced by what is no record of this version of ddl", text)
            redis.ask("FLUSHALL")

    def test_a_job_with_another_secret_is_told_and_the_first_goes_on(self):
        redis = self.redis()
        theirs = self.password_file(password="a secret of another job")
        world = self.world(3, redis.url())
        calls = "init", "line", "allreduce:1000:float32:sum", "free"
        ranks = [world.start(r, *calls) for r in range(2)]
        self.wait_for_keys(redis)
        other = self.world(3, redis.url(), DDL_SECRET_FILE=theirs)
        other.port = world.port
        self.assert_other_job(other, theirs, world)
        ranks.append(world.start(2, *calls))
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        record = other.start(0, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
        self.assertIn("that one does not have the secret of this job", record["text"])
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")
        self.assertEqual(redis.keys(), 0)

    def assert_other_job(self, other, secret, world):
        record = other.start(0, "init").expect("init", "DDL_ECONFIG", seconds=bound(5))
        self.assertIn("that one does not have the secret of this job", record["text"])
        record = other.start(2, "init").expect("init", "DDL_EAUTH", seconds=bound(5))
        self.assertIn("does not know the secret that rank 2 has, read from " + secret, record["text"])
        record = world.start(2, "init", DDL_SECURITY="off").expect("init", "DDL_EAUTH", seconds=bound(5))
        self.assertIn("has security level off", record["text"])


class Absent(Tests):
    def assert_told(self, rank, redis, begun, seconds, *words):
        record = rank.expect("init", "DDL_ESTORE", seconds=bound(seconds + 10))
        took = record["end_ns"] / 1e9 - begun
        self.assertLess(took, bound(seconds), record)
        for word in (f"127.0.0.1:{redis.port}/2", *words):
            self.assertIn(word, record["text"])
        self.assertEqual(record["culprit"], -1, record)  # as all have failed by the server

    def test_a_server_that_is_not_there_goes_away_or_is_none_is_told_in_time(self):
        tls = [self.plain_where_tls_is_wanted, self.tls_where_there_is_none] if HAS_TLS else []
        self.at_once(self.down_at_start, self.killed_meanwhile, self.presence_ends_first, self.ends_while_it_joins, self.presence_ends_late, self.stopped_meanwhile, self.stopped_before, *self.slow(), self.hasty, *tls,
                     *self.floods())

    def slow(self):
        """Requests take long, each of them; all together they keep the deadline."""
        def told(rank, delay):
            world = self.world(2, f"redis://127.0.0.1:{Relay(self.redis().port, delay).port}", DDL_START_TIMEOUT="3")
            record = world.start(rank, "init").expect("init")
            self.assertIn(record["status"], ("DDL_ESTORE", "DDL_ETIMEDOUT"))
            self.assertRegex(record["text"], f"rank {1 - rank} .*did not come|Redis at redis://127.0.0.1:.* does not answer")
            seconds = (record["end_ns"] - record["begin_ns"]) / 1e9
            self.assertTrue(2.9 <= seconds <= bound(4), record)
        return [functools.partial(told, rank, delay) for rank in range(2) for delay in (0.1, 0.4, 0.9)]

    def plain_where_tls_is_wanted(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([MAKE_CERTIFICATES, folder], check=True)
            port = free_port()
            self.redis("--tls-port", str(port), "--tls-cert-file", folder + "/good.pem", "--tls-key-file",
                       folder + "/good.key", "--tls-ca-cert-file", folder + "/ca.pem")
            said = self.assert_refused(f"redis://localhost:{port}", f"Redis at redis://localhost:{port}/0: ", seconds=8)
            self.assertRegex(said, "(: Connection reset by peer|closed the connection), for [0-9.]+ s; "
                             "if it wants TLS on that port, say rediss://")

    def tls_where_there_is_none(self):
        self.assert_refused(f"rediss://localhost:{self.redis().port}", "does it speak TLS on that port?",
                            "; if that port is without TLS, say redis://", seconds=8)

    def down_at_start(self):
        taken = socket.socket()  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        world = World(ACTOR, 2, DDL_STORE=f"redis://127.0.0.1:{port}/2", DDL_START_TIMEOUT="60")
        with taken, world:
            begun = time.monotonic()
            for rank in world.start_all("init"):
                record = rank.expect("init", "DDL_ESTORE", seconds=bound(20))
                self.assertLess(record["end_ns"] / 1e9 - begun, bound(10), record)
                self.assertIn(f"redis://127.0.0.1:{port}/2: cannot connect to 127.0.0.1:{port}", record["text"])
                self.assertIn("Connection refused", record["text"])
                self.assertEqual(record["culprit"], -1, record)  # all have failed by the server

    def waiting_ranks(self, redis):
        world = self.world(4, redis.url(rest="/2"), DDL_START_TIMEOUT="60")
        for rank in range(3):
            world.start(rank, "init")
        redis.await_wills(3)
        return world.ranks

    def killed_meanwhile(self):
        redis = self.redis()
        ranks = self.waiting_ranks(redis)
        begun = time.monotonic()
        redis.send(signal.SIGKILL)
        for rank in ranks:
            self.assert_told(rank, redis, begun, 6, "Connection refused")

    def presence_ends_first(self):
        """As it may look where a server is killed; what is told is why it is not reached any more."""
        redis = self.redis()
        relay = Relay(redis.port)
        world = self.world(2, f"redis://127.0.0.1:{relay.port}/2", DDL_START_TIMEOUT="60")
        rank = world.start(0, "init")
        redis.await_wills(1)
        begun = time.monotonic()
        relay.cut()
        self.assert_told(rank, relay, begun, 7, "Connection refused")

    def ends_while_it_joins(self):
        """Nor is it asked then, for as long again, whether the start-up has been declined meanwhile."""
        redis = self.redis()
        relay = Relay(redis.port)
        relay.fatal = b"member.0"
        world = self.world(2, f"redis://127.0.0.1:{relay.port}/2", DDL_START_TIMEOUT="60")
        rank = world.start(0, "init")
        wait_until(lambda: hasattr(relay, "cut_at") or rank.process.poll() is not None, DEADLINE, rank.story)
        self.assertTrue(hasattr(relay, "cut_at"), rank.story())
        self.assert_told(rank, relay, relay.cut_at, 7, "Connection refused")

    def presence_ends_late(self):
        """What made it anew would have its time to itself: a server that stalls is noticed no later for that."""
        redis = self.redis()
        relay = Relay(redis.port)
        world = self.world(2, f"redis://127.0.0.1:{relay.port}/2", DDL_START_TIMEOUT="60")
        rank = world.start(0, "init")
        redis.await_wills(1)
        begun = relay.stall_and_cut_late()
        self.assert_told(rank, relay, begun, 7)

    def stopped_meanwhile(self):
        redis = self.redis()
        ranks = self.waiting_ranks(redis)
        begun = time.monotonic()
        redis.send(signal.SIGSTOP)
        for rank in ranks:
            self.assert_told(rank, redis, begun, 6, "does not answer")

    def stopped_before(self):
        redis = self.redis()
        redis.send(signal.SIGSTOP)
        world = self.world(2, redis.url(rest="/2"), DDL_START_TIMEOUT="60")
        begun = time.monotonic()
        for rank in world.start_all("init"):
            self.assert_told(rank, redis, begun, 6, "does not answer")

    def hasty(self):
        """One that is none, and says at once that nothing has come, is not asked round and round."""
        asked = []
        def serve(stream):
            said = b""
            try:
                while data := stream.recv(65536):
                    said += data
                    while match := re.match(rb"\*(\d+)\r\n", said):
                        parts = re.match(rb"\*\d+\r\n" + rb"\$\d+\r\n([^\r]*)\r\n" * int(match[1]), said)
                        if parts is None:
                            break
                        said = said[parts.end():]
                        asked.append(parts[1])
                        stream.sendall({b"XREAD": b"*-1\r\n", b"SUBSCRIBE": b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"}.get(parts[1], b"+OK\r\n"))
            except OSError:
                pass
        def accept():
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=accept, daemon=True).start()
        world = self.world(2, f"redis://127.0.0.1:{listener.getsockname()[1]}", DDL_START_TIMEOUT="3")
        record = world.start(1, "init").expect("init", "DDL_ETIMEDOUT")
        self.assertIn("rank 0 did not come", record["text"])
        self.assertTrue(10 < asked.count(b"XREAD") < 300, len(asked))

    def floods(self):
        """What a server says that is none."""
        floods = [(b"$2000000000\r\n" + b"x" * (1 << 20), "more bytes"), (b"*2147483647\r\n", "more elements"),
                  (b"*4000\r\n" * 1000, "more elements"), (b"+" + b"y" * (1 << 20), "a longer line"),
                  (b"HTTP/1.1 200 OK\r\n\r\n", "no reply of Redis"),
                  (b"-ASK 3999 127.0.0.1:1\r\n", "ASK 3999 127.0.0.1:1; it is a node of a cluster"),
                  (b"-LOADING Redis is loading the dataset in memory\r\n", "in memory; wait until it has, for "),
                  (b"-BUSY Redis is busy running a script.\r\n", "end that by SCRIPT KILL, for ")]
        together = (b"$8000000\r\n" + b"x" * 8000000 + b"\r\n", "more bytes", 0)  # replies to one request
        return [lambda flood=flood: self.flooded(*flood) for flood in [*floods, together]]

    def flooded(self, flood, words, number=1):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(8)
            def serve():
                while True:
                    try:
                        stream, _ = listener.accept()
                        threading.Thread(target=pour, args=(stream,), daemon=True).start()
                    except OSError:
                        return
            def pour(stream):
                try:
                    stream.recv(1)
                    while True:
                        stream.sendall(flood)
                except OSError:
                    stream.close()
            threading.Thread(target=serve, daemon=True).start()
            world = World(ACTOR, 2, DDL_STORE=f"redis://127.0.0.1:{listener.getsockname()[1]}", DDL_START_TIMEOUT="60")
            with world:
                rank = world.start(number, "init", "resources")
                record = rank.expect("init", "DDL_ESTORE", seconds=bound(10))
                self.assertIn(words, record["text"])
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(6))
            listener.shutdown(socket.SHUT_RDWR)


class Breaking(Tests):
    def test_redis_is_not_needed_once_all_are_connected(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            redis = self.redis()
            world = self.world(4, redis.url())
            ranks = world.start_all("init", "line", "200=allreduce:5000:float32:sum", "barrier", "free", "exit:0")
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("ready")
            redis.send(number)
            begun = time.monotonic()
            for rank in ranks:
                rank.go()
            end_well(ranks, "repeated", "call", "free")
            self.assertLess(time.monotonic() - begun, bound(3))

    def test_broken_connections_are_made_anew(self):
        redis = self.redis()
        world = self.world(4, redis.url())
        ranks = [world.start(r, "init", "allreduce:1000:float32:sum", "free") for r in range(3)]
        redis.await_wills(3)
        for _ in range(3):
            for kind in ("normal", "pubsub"):
                redis.ask("CLIENT", "KILL", "TYPE", kind)
            time.sleep(0.05)
        ranks.append(world.start(3, "init", "allreduce:1000:float32:sum", "free"))
        end_well(ranks, "init", "call", "free")
        self.assertEqual(redis.keys(), 0)

    def test_a_server_that_was_away_for_a_moment_has_killed_nobody(self):
        redis = self.redis("--appendonly", "yes", "--appendfsync", "always")
        world = self.world(4, redis.url())
        commands = ("init", "allreduce:1000:float32:sum", "free")
        ranks = [world.start(r, *commands) for r in range(3)]
        redis.await_wills(3)
        redis.send(signal.SIGKILL)
        redis.process.wait()
        time.sleep(2.3)  # long enough for the ranks to try again at different times
        redis.start()
        time.sleep(1)
        ranks.append(world.start(3, *commands))
        end_well(ranks, "init", "call", "free")

    def test_a_server_that_loads_its_data_is_waited_for(self):
        """Also where it says so in the middle of what is asked: it says yes to the beginning of a transaction."""
        for key in (b"member.1", b"meshed.1"):
            with self.subTest(key=key):
                redis = self.redis()
                relay = Relay(redis.port)
                relay.loading = key
                end_well(self.world(2, f"redis://127.0.0.1:{relay.port}").start_all("init", "barrier", "free"), "init", "call", "free")
                self.assertIsNone(relay.loading)
                self.assertEqual(redis.keys(), 0)

    def test_a_killed_rank_is_named_by_the_others(self):
        redis = self.redis()
        world = self.world(4, redis.url())
        ranks = [world.start(r, "init") for r in range(3)]
        redis.await_wills(3)
        begun = ranks[2].kill() / 1e9
        for rank in ranks[:2]:
            record = rank.expect("init", "DDL_EPEERLOST")
            self.assertIn("rank 2 on", record["text"])
            self.assertLess(record["end_ns"] / 1e9 - begun, bound(2))


@unittest.skipUnless(HAS_TLS and shutil.which("openssl"), "this build is without TLS, or there is no openssl command")
class Tls(Tests):
    def test_the_server_has_to_prove_who_it_is(self):
        folder = tempfile.mkdtemp(prefix="ddl-tls-")
        self.addCleanup(shutil.rmtree, folder)
        subprocess.run([MAKE_CERTIFICATES, folder], check=True)
        path = lambda name: f"{folder}/{name}"
        def served(name, clients="no"):
            port = free_port()
            return self.redis("--tls-port", str(port), "--tls-cert-file", path(name + ".pem"), "--tls-key-file",
                              path(name + ".key"), "--tls-ca-cert-file", path("ca.pem"), "--tls-auth-clients", clients,
                              tls_port=port)
        good, elsewhere, expired, strict = served("good"), served("elsewhere"), served("expired"), served("good", "yes")
        ca = path("ca.pem")
        self.assert_computes(good.tls_url(cacert=ca))
        self.assert_computes(good.tls_url("127.0.0.1"), DDL_REDIS_CACERT=ca)
        self.assert_computes(strict.tls_url(cacert=ca, cert=path("client.pem"), key=path("client.key")))
        ranks = self.world(3, good.tls_url(cacert=ca)).start_all("init", "barrier", "exit:0")
        end_well(ranks, "init", "call")
        self.assertEqual(good.keys() + strict.keys(), 0)
        where = lambda redis: f"127.0.0.1:{redis.tls_port}"
        self.at_once(
            lambda: self.assert_refused(good.tls_url(cacert=path("other_ca.pem")), where(good),
                                        "not signed by an authority in", "other_ca.pem"),
            lambda: self.assert_refused(good.tls_url(), "not signed by an authority in the system's"),
            lambda: self.assert_refused(elsewhere.tls_url(cacert=ca), where(elsewhere),
                                        "is for example.org, 192.0.2.1, not for localhost"),
            lambda: self.assert_refused(expired.tls_url(cacert=ca), where(expired), "expired on Jan  1 00:00:00 2020"),
            lambda: self.assert_refused(strict.tls_url(cacert=ca), "it wants a certificate of ours"),
            lambda: self.assert_refused(good.tls_url(cacert="/no/such"), "/no/such"))
        # What goes over the wire is not to be read there.
        self.assert_secret(good, ca)

    def test_a_file_that_is_never_read_to_its_end_keeps_the_deadline(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            os.mkfifo(pipe)
            url = f"rediss://127.0.0.1:{free_port()}"
            for rest, environment in ((f"?cacert={pipe}", {}), (f"?cert={pipe}&key={pipe}", {}), ("", {"DDL_REDIS_CACERT": pipe}),
                                      ("", {"DDL_REDIS_CERT": pipe})):
                with self.subTest(rest=rest, **environment):
                    record = self.world(2, url + rest, DDL_START_TIMEOUT="1", **environment).start(1, "init").expect("init", "DDL_ETIMEDOUT")
                    # For what of the second was left when it began.
                    self.assertRegex(record["text"], rf"reading what TLS to Redis needs, from {pipe} has not returned for [01]\.\d s")
                    self.assertEqual(record["culprit"], 1)

    def assert_secret(self, redis, ca):
        seen = []
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(16)
            def copy(source, sink):
                try:
                    while data := source.recv(65536):
                        seen.append(data)
                        sink.sendall(data)
                    sink.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
            def serve():
                while True:
                    try:
                        near, _ = listener.accept()
                    except OSError:
                        return
                    far = socket.create_connection(("127.0.0.1", redis.tls_port))
                    self.addCleanup(near.close)
                    self.addCleanup(far.close)
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=copy, args=ends, daemon=True).start()
            threading.Thread(target=serve, daemon=True).start()
            self.assert_computes(f"rediss://localhost:{listener.getsockname()[1]}?cacert={ca}")
            listener.shutdown(socket.SHUT_RDWR)
        everything = b"".join(seen)
        self.assertGreater(len(everything), 2000)
        for plain in (b"XADD", b"member", b"ddl:", b"MULTI"):
            self.assertNotIn(plain, everything)


def main():
    global LAUNCH, ALLREDUCE, ACTOR, MAKE_CERTIFICATES
    if shutil.which("redis-server") is None:
        print("redis-server is not installed: nothing is tested over redis://")
        sys.exit(77)  # to meson: skipped
    LAUNCH, ALLREDUCE, ACTOR, MAKE_CERTIFICATES = sys.argv[1:5]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)


if __name__ == "__main__":
    main()
