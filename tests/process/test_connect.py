"""Worlds in which most pairs of ranks connect when something first goes between them.

    test_connect.py ACTOR [CLASS[.TEST]...] [-v]

Of 9 ranks those at distances 1, 2, 4, 5, 7 and 8 are connected from the start, and rank 0, the lowest of the host, with
all; others at distances 3 and 6 are not: 1, 4 and 7, and 2, 5 and 8.
"""
import os
import random
import resource
import signal
import subprocess
import time
import unittest

import failures
from failures import SEED, SMALL, main
from test_communicators import CASES, Communicators
from test_strangers import Strangers
from world import await_rest, bound, end_well, listening_ports

NRANKS = 9
QUICK = "2s"


class Connecting(Communicators):
    def world(self, nranks=NRANKS, **environment):
        return super().world(nranks, **{"DDL_CONNECT": "lazy", **environment})

    def expect_all(self, ranks, status, culprit, since_ns=0, seconds=1.5, call="call"):
        for rank in ranks:
            record = rank.expect(call, status)
            self.assertEqual(record["culprit"], culprit, rank.story())
            self.assert_names(record, f"rank {culprit}")
            self.assert_within(record, max(since_ns, record["begin_ns"]), seconds)
            self.assert_gone_bad(rank)
            rank.finish(0)

    def find_stopped(self, caller, seconds, **limit):
        """The host of rank 4 takes the connection, it does not: whoever needs it says so, and all hear of it."""
        world = self.world(DDL_START_TIMEOUT="60s")
        rest = ["init", "line", "barrier", SMALL, "free"]
        ranks = [world.start(r, *rest) for r in range(NRANKS) if r not in (caller, 4)]
        stopped = world.start(4, "init", "line", "free")
        waiter = world.start(caller, "init", "line", "send:4:float32:4", SMALL, "free", **limit)
        for rank in [*ranks, stopped, waiter]:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        self.stop(stopped)
        for rank in [*ranks, waiter]:
            rank.go()
        self.expect_all([waiter, *ranks], "DDL_EUNRESPONSIVE", 4, seconds=seconds + 8)
        stopped.kill()

    def stop(self, rank):
        """The signal is taken by one thread, and the others go on until that has had its turn."""
        os.kill(rank.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, rank.pid, os.WSTOPPED | os.WNOWAIT)

    def links(self, rank):
        """How many TCP connections a process has, beside what it listens at; 0 where the system does not tell."""
        try:
            names = [os.readlink(f"/proc/{rank.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{rank.pid}/fd")]
        except OSError:
            return 0
        return sum(name.startswith("socket:") for name in names)


class Late(Connecting):
    """Results are the same, and connections are made by those that need them."""

    def test_messages_both_ways_between_strangers_to_each_other(self):
        """1 and 4 both send before they receive; 7, to which 1 sends too, receives only later."""
        world = self.world()
        others = {1: ["+recv:70:int32:4", "send:1000:int32:4", "recv:200000:int32:4", "+send:200000:int32:7", "wait"],
                  4: ["+send:70:int32:1", "send:200000:int32:1", "recv:1000:int32:1", "wait"],
                  7: ["line", "recv:200000:int32:1"]}
        ranks = world.start_all("init", "line", SMALL, "free",
                                others={r: ["init", "line", *calls, SMALL, "free"] for r, calls in others.items()})
        self.together(ranks, "init")
        for event in ("started", "call", "call", "wait"):
            ranks[4].expect(event, "DDL_OK")
        for event in ("started", "call", "call", "started", "wait"):
            ranks[1].expect(event, "DDL_OK")
        ranks[7].expect("ready")
        ranks[7].go()
        ranks[7].expect("call", "DDL_OK")
        ranks[1].expect("wait", "DDL_OK")
        end_well(ranks, "call", "free")

    def test_a_small_message_leaves_though_nobody_waits_for_it(self):
        """4 has nothing to do with 1 yet; 1, the lower one, knocks, and 7, the higher one, calls."""
        for sender in (1, 7):
            with self.subTest(sender=sender):
                world = self.world()
                others = {sender: ["init", "line", "send:4:float32:4", SMALL, "free"],
                          4: ["init", "line", "line", f"recv:4:float32:{sender}", SMALL, "free"]}
                ranks = world.start_all("init", "line", SMALL, "free", others=others)
                self.together(ranks, "init")
                ranks[sender].expect("call", "DDL_OK")
                ranks[4].expect("ready")
                ranks[4].go()
                ranks[4].expect("call", "DDL_OK")
                end_well(ranks, "call", "free")

    def test_only_who_needs_them(self):
        """Two of most ranks' pairs are missing until an alltoall goes to everybody; to 0 all are connected before."""
        world = self.world(DDL_ALLTOALL="direct", DDL_BARRIER="dissemination")
        ranks = world.start_all("init", "barrier", "line", "alltoall:10:int32", "barrier", "line", "free")
        counts = []
        for event in ("init", "call"):
            for rank in ranks:
                rank.expect(event, "DDL_OK")
                if event == "call":
                    rank.expect("ready")
        counts.append([self.links(rank) for rank in ranks])
        for rank in ranks:
            rank.go()
        for rank in ranks:
            rank.expect("call", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        counts.append([self.links(rank) for rank in ranks])
        for rank in ranks:
            rank.go()
        end_well(ranks, "free")
        if all(counts[0]):
            missing = [0 if r == 0 else 1 if r % 3 == 0 else 2 for r in range(NRANKS)]
            self.assertEqual([after - before for before, after in zip(*counts)], missing, counts)

    def test_parts(self):
        world = self.world()
        ranks = [world.start(r, "init", f"split:thirds:{r % 3}:{-r}", "use:thirds", CASES, SMALL, "free", CASES, "free")
                 for r in range(NRANKS)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("split", "DDL_OK")
            self.expect_all_well(rank)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            self.expect_all_well(rank)
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_leaves_nothing_behind(self):
        world = self.world()
        ranks = world.start_all("cycle:1", "resources", "init", "alltoall:10:int32", "free", "cycle:3", "resources")
        for rank in ranks:
            self.expect_warm(rank)
            before = rank.expect("resources")
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            while (record := rank.next())["event"] != "resources":
                self.assertEqual(record["status"], "DDL_OK", rank.story())
            self.assert_same_resources(before, record)
            rank.finish(0)


class Failing(Connecting):
    """All ranks hear the same cause, though most of them have no connection to whom it is about."""

    def end_of(self, rank):
        """Of one that waits for a line when it is killed."""
        while (record := rank.next())["event"] == "ready":
            pass
        self.assertEqual(record["event"], "killed", rank.story())
        return record

    def test_who_insists_on_memory_that_it_cannot_have_tells_all(self):
        """Rank 4; where pairs connect late also 1 and 7 hear it, which are not connected to it."""
        no_files = ["sh", "-c", 'ulimit -f 0 && exec "$@"', "sh"]
        if subprocess.run([*no_files, failures.ACTOR], timeout=30).returncode != 0:
            self.skipTest("the thread sanitizer writes files itself")
        for connect in "lazy", "eager":
            world = self.world(DDL_CONNECT=connect)
            ranks = [world.start(r, "init", DDL_TRANSPORT="shm" if r == 4 else "auto", prefix=no_files if r == 4 else ())
                     for r in range(NRANKS)]
            for rank in ranks:
                record = rank.expect("init")
                self.assertIn(record["status"], ("DDL_ERESOURCE", "DDL_EUNSUPPORTED"), record)
                self.assertEqual(record["culprit"], 4, record)
                self.assert_names(record, "rank 4 on ", f"[{ranks[4].pid}]: ")

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_all_name_who_dies_as_neighbours_meet(self):
        """Rank 4, before it has met any; 1 and 7 are not connected to it, and hear it from the usher."""
        world = self.world()
        ranks = [world.start(r, "init", **({"DDL_FAILPOINTS": "api.met"} if r == 4 else {})) for r in range(NRANKS)]
        await_rest(ranks)  # rank 4 for 5 s
        ranks[4].kill()
        for r, rank in enumerate(ranks):
            if r != 4:
                record = rank.expect("init", "DDL_EPEERLOST")
                self.assertEqual(record["culprit"], 4, record)
                self.assertIn("ended while its neighbours met (see its output)", record["text"])

    def test_a_rank_dies(self):
        """1 waits for 4 alone, whom it has never met; the others are in a barrier, of which 4 is a part too. To 0 all are
        connected."""
        for victim, waiter in ((4, 1), (1, 4), (8, 2), (0, 3)):
            with self.subTest(victim=victim, waiter=waiter):
                world = self.world()
                ranks = world.start_all("init", "line", "barrier", SMALL, "free",
                                        others={waiter: ["init", "line", f"recv:4:float32:{victim}", SMALL, "free"],
                                                victim: ["init", "line", "mortal:20000", "line"]})
                self.together(ranks, "init")
                killed = self.end_of(ranks[victim])
                self.expect_all([rank for r, rank in enumerate(ranks) if r != victim], "DDL_EPEERLOST", victim,
                                killed["end_ns"])

    def test_one_that_is_dead_already_is_called(self):
        """Between two that nobody else waits for; the others have nothing to do meanwhile, so it is up to the two."""
        for call in ("send:200000:int32:4", "send:4:int32:4", "recv:4:int32:4"):
            with self.subTest(call=call):
                world = self.world()
                ranks = world.start_all("init", "line", SMALL, SMALL, "free",
                                        others={1: ["init", "line", call, SMALL, "free"]})
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    rank.expect("ready")
                ranks[4].kill()
                ranks[4].finish(-signal.SIGKILL)
                ranks[1].go()
                record = ranks[1].expect("call", "DDL_EPEERLOST")
                self.assertEqual(record["culprit"], 4, record)
                self.assert_within(record, record["begin_ns"], 1.5)
                self.assert_gone_bad(ranks[1])
                others = [rank for r, rank in enumerate(ranks) if r not in (1, 4)]
                for rank in others:
                    rank.go()
                self.expect_all(others, "DDL_EPEERLOST", 4)

    def test_one_that_is_stopped(self):
        for caller in (1, 7):  # 7 calls, 1 knocks
            with self.subTest(caller=caller):
                self.find_stopped(caller, int(QUICK[:-1]), DDL_START_TIMEOUT=QUICK)

    def test_a_call_that_waits_for_one_that_is_stopped_ends_at_its_own_deadline(self):
        world = self.world(DDL_TIMEOUT="1s")
        ranks = world.start_all("init", "line", others={7: ["init", "line", "send:4:float32:4"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        self.stop(ranks[4])
        ranks[7].go()
        ranks[7].expect("call", "DDL_ETIMEDOUT")

    def test_a_rank_that_left(self):
        world = self.world()
        ranks = world.start_all("init", "line", "barrier", SMALL, "free",
                                others={1: ["init", "line", "recv:4:float32:4", SMALL, "free"],
                                        4: ["init", "line", "exit:0"]})
        self.together(ranks, "init")
        left = ranks[4].expect("exit")
        ranks[4].finish(0)
        self.expect_all([rank for r, rank in enumerate(ranks) if r != 4], "DDL_EPEERLOST", 4, left["end_ns"])

    def test_two_odd_ones_name_the_lower(self):
        """Of two odd ones the pair that all are told is 0 and the lower, to whichever of the two a rank is connected."""
        for odd_ranks, culprit in (((6, 8), 6), ((3,), 3), ((0,), 1)):
            with self.subTest(odd=odd_ranks):
                world = self.world()
                odd = ["init", "line", "allreduce:1001:float32:sum", SMALL, "free"]
                ranks = world.start_all("init", "line", "allreduce:1000:float32:sum", SMALL, "free",
                                        others={r: odd for r in odd_ranks})
                self.together(ranks, "init")
                self.expect_all(ranks, "DDL_EMISMATCH", culprit)

    def test_one_that_does_not_come(self):
        """The others tell each other who has, from neighbour to neighbour."""
        for late in (3, 7):
            with self.subTest(late=late):
                world = self.world(DDL_TIMEOUT=f"{bound(1)}s", DDL_ALLREDUCE="ring")
                ranks = world.start_all("init", "line", "allreduce:16:float32:sum", SMALL, "free",
                                        others={late: ["init", "line", "line"]})
                self.together(ranks, "init")
                self.expect_all([rank for r, rank in enumerate(ranks) if r != late], "DDL_ETIMEDOUT", late,
                                seconds=bound(1) + 1.5)

    def test_an_abort_in_a_part(self):
        """Its ranks are at distances at which nothing is connected; nobody outside of it is concerned."""
        world = self.world()

        def commands(r):
            made = ["init", f"split:thirds:{r % 3}:0", "use:thirds", "line"]
            if r == 6:
                return made + ["abort:enough of this", SMALL, SMALL, "use:world", SMALL, "use:thirds", "free", "free"]
            return made + [f"forever={SMALL}" if r % 3 == 0 else f"20={SMALL}", SMALL, "use:world", SMALL, "use:thirds",
                           "free", "free"]

        ranks = [world.start(r, *commands(r)) for r in range(NRANKS)]
        self.together(ranks, "init", "split")
        aborted = ranks[6].expect("abort", "DDL_OK")
        self.assertEqual(ranks[6].expect("call", "DDL_EABORTED")["culprit"], 2)
        for r in (0, 3):
            record = self.next_of_forever(ranks[r])
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EABORTED", 2), ranks[r].story())
            self.assert_names(record, "enough of this")
            self.assert_within(record, aborted["end_ns"], 1.5)
        for r, rank in enumerate(ranks):
            if r % 3 != 0:
                rank.expect("repeated", "DDL_OK")
            rank.expect("call", "DDL_EABORTED" if r % 3 == 0 else "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_those_who_are_left_go_on(self):
        world = self.world()
        victims = (0, 5)
        survive = ["init", SMALL, "line", f"forever={SMALL}", "shrink:rest", "use:rest", CASES, "free", "free"]
        ranks = world.start_all(*survive, others={v: ["init", SMALL, "line", "mortal:3000", f"forever={SMALL}"]
                                                  for v in victims})
        self.together(ranks, "init", "call")
        for rank in self.lose(ranks, victims):
            rank.expect("shrink", "DDL_OK")
            self.expect_all_well(rank)
            rank.expect("free", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)


class Doors(Connecting, Strangers):
    """The doors of ranks stay open, and strangers at them stay harmless."""

    def test_during_start(self):
        self.skipTest("the same as where all connect at the start")

    def test_during_operations(self):
        draw = random.Random(SEED)
        world = self.world()
        ranks = world.start_all("init", "line", "alltoall:100:int32", "line", CASES, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        ports = [port for rank in ranks for port in listening_ports(rank.pid)]
        if not ports:
            self.skipTest("this system does not tell which ports a process listens at")
        self.assertGreaterEqual(len(ports), NRANKS)
        self.storm(ports, draw, 150)
        for rank in ranks:
            rank.go()
        self.storm(ports, draw, 150)
        for rank in ranks:
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
            rank.go()
        for rank in ranks:
            self.expect_all_well(rank)
            rank.expect("free", "DDL_OK")
            rank.finish(0)


class Descriptors(Connecting):
    """They are counted before the first connection."""

    FEW = 200

    def start_with_few(self, rank, **environment):
        world = self.world(512, DDL_START_TIMEOUT=QUICK, **environment)
        return world.start(rank, "init", prefix=("sh", "-c", f'ulimit -n {self.FEW}; exec "$0" "$@"'))

    def test_too_few_are_told_before_any_is_used(self):
        """When the others have been told, or looked for in vain: that takes rank 0 0.9 s, and others 2 s."""
        for rank, environment in ((1, {"DDL_CONNECT": "eager"}), (0, {"DDL_CONNECT": "lazy"})):
            with self.subTest(rank=rank):
                started = self.start_with_few(rank, **environment)
                record = started.expect("init", "DDL_ERESOURCE")
                self.assert_within(record, record["begin_ns"], 2.7 if rank > 0 else 1.5)
                self.assert_names(record, "512 ranks", "ulimit -n", f"hard limit {self.FEW}")
                if rank == 1:
                    self.assert_names(record, "DDL_CONNECT=lazy")

    def test_where_pairs_connect_late_few_are_enough(self):
        started = self.start_with_few(1)
        started.expect("init", "DDL_ETIMEDOUT")  # nobody else is there

    def test_the_soft_limit_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 2000:
            self.skipTest("the hard limit is too low")
        world = self.world(512, DDL_START_TIMEOUT=QUICK, DDL_CONNECT="eager")
        started = world.start(0, "init", prefix=("sh", "-c", f'ulimit -S -n {self.FEW}; exec "$0" "$@"'))
        started.expect("init", "DDL_ETIMEDOUT")


class Patience(Connecting):
    """As long as a rank may be silent, so long may a pair that connects late."""

    def go_on(self, seconds, stopped, **environment):
        """These ranks are stopped, the caller last, and go on together."""
        world = self.world(DDL_START_TIMEOUT="90s", **environment)
        ranks = world.start_all("init", "line", SMALL, "free",
                                others={1: ["init", "line", "send:4:float32:4", SMALL, "free"],
                                        4: ["init", "line", "recv:4:float32:1", SMALL, "free"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        self.stop(ranks[4])
        for rank in ranks:
            rank.go()
        time.sleep(1)
        for rank in stopped:
            self.stop(ranks[rank])
        time.sleep(seconds)
        for rank in (*stopped, 4):
            os.kill(ranks[rank].pid, signal.SIGCONT)
        for r, rank in enumerate(ranks):
            for event in ["call"] * (2 if r in (1, 4) else 1) + ["free"]:
                rank.expect(event, "DDL_OK")
            rank.finish(0)

    def test_one_that_was_stopped_goes_on(self):
        self.go_on(35, (), DDL_UNRESP_TIMEOUT="60s")

    def test_one_that_is_stopped_is_found(self):
        """10 s is the least; as long as the start may take it need not be."""
        self.find_stopped(7, 10, DDL_UNRESP_TIMEOUT="1s")

    def test_who_was_stopped_itself_blames_nobody(self):
        """For longer than one that is called may be silent."""
        self.go_on(12, [r for r in range(NRANKS) if r != 4], DDL_UNRESP_TIMEOUT="1s")


class Many(Connecting):
    """As many ranks as one machine has hardly ever to carry."""

    def test_512_ranks(self):
        world = self.world(512, DDL_CONNECT=None)
        began = time.monotonic()
        ranks = world.start_all("init", "barrier", "allreduce:1000:float32:sum", "free")
        end_well(ranks, "init", "call", "call", "free")
        self.assertLess(time.monotonic() - began, bound(60))

    def test_one_of_256_dies(self):
        world = self.world(256, DDL_CONNECT=None)
        victim = 100
        ranks = world.start_all("init", "line", f"forever={SMALL}", SMALL, "free",
                                others={victim: ["init", "line", "mortal:100000", f"forever={SMALL}"]})
        self.together(ranks, "init")
        killed = self.next_of_forever(ranks[victim])
        self.assertEqual(killed["event"], "killed", ranks[victim].story())
        for r, rank in enumerate(ranks):
            if r == victim:
                continue
            record = self.next_of_forever(rank)
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", victim), rank.story())
            self.assert_within(record, killed["end_ns"], 10)


if __name__ == "__main__":
    main(__doc__)
