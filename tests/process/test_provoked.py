"""What has to be provoked: by failpoints (memory that is not there, a fork in the middle of the start, a thread of ddl's own
that is stuck), or by a library that is preloaded (look-ups that hang, clocks that are set).

    test_provoked.py ACTOR [CLASS[.TEST]...] [-v]
"""
import itertools
import os
import re
import tempfile
import time
import unittest

from failures import LARGE, SMALL, Failures, main
from world import alive, bound, end_well, terminate


class Lacking(Failures):
    def test_no_memory_for_a_call_is_told_to_all(self):
        """Be it for one that blocks, for one that is only started, or for a split; nobody waits for a deadline."""
        for at, calls in (("api.request:2", (SMALL, LARGE)), ("api.request:2", (SMALL, "+" + LARGE, "wait")),
                          ("api.request:1", ("allgather:10:int32",)), ("api.cards", (SMALL, "split:part:0:0"))):
            for transport in ("shm", "tcp"):
                with self.subTest(at=at, calls=calls, transport=transport):
                    world = self.world(3, DDL_TRANSPORT=transport, DDL_TIMEOUT="20s")
                    ranks = [world.start(r, "init", *calls, "barrier", "free", **({"DDL_FAILPOINTS": at} if r == 1 else {}))
                             for r in range(3)]
                    for rank in ranks:
                        rank.expect("init", "DDL_OK")
                        for call in calls[:-1]:
                            rank.expect("started" if call.startswith("+") else "call", "DDL_OK")
                        record = rank.expect({"wait": "wait", "split:part:0:0": "split"}.get(calls[-1], "call"), "DDL_ENOMEM")
                        self.assertEqual(record["culprit"], 1, record)
                        self.assert_names(record, "rank 1", f"pid {ranks[1].pid}", "no memory")
                        self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(1), record)
                        rank.expect("call", "DDL_EABORTED")
                        rank.expect("free", "DDL_OK")
                        rank.finish(0)
                    for r, rank in enumerate(ranks):
                        self.assertRegex("".join(rank.errors), rf"ddl: DDL_ENOMEM \w+#\d comm=world rank {r}@\S+: rank 1 ")


    def test_who_frees_without_knowing_that_it_is_counted_in_is_left_behind(self):
        """It has called shrink, is out of time, and does nothing for 5 s as it frees, while others count it in."""
        world = self.world(4)
        made = ["init", "split:part:0:0", "use:part", SMALL]
        rest = [*made, f"forever={SMALL}", "timeout:20000", "line", "shrink:rest", "use:rest", SMALL, "shrink:again",
                "use:again", SMALL, "free", "use:rest", "free", "use:part", "free", "free"]
        early = [*made, "abort:enough", "timeout:300", "shrink:rest", "free", "line", "free"]
        ranks = [world.start(r, *(early if r == 2 else rest), DDL_FAILPOINTS="api.shrink_free" if r == 2 else None) for r in range(4)]
        for rank in ranks:
            for event in ("init", "split", "call"):
                rank.expect(event, "DDL_OK")
        others = [ranks[0], ranks[1], ranks[3]]
        for rank in others:
            self.assertEqual(self.next_of_forever(rank)["status"], "DDL_EABORTED", rank.story())
            rank.expect("timeout", "DDL_OK")
            rank.expect("ready")
        for event, status in (("abort", "DDL_OK"), ("timeout", "DDL_OK"), ("shrink", "DDL_ETIMEDOUT")):
            ranks[2].expect(event, status)
        for rank in others:
            rank.go()
        for place, rank in enumerate(others):
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual(record["new_size"], 4, rank.story())
            record = rank.expect("call", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 2, record)
            self.assert_names(record, "was counted in by ddl_comm_shrink, but does not go on")
            self.assert_within(record, record["begin_ns"], 1)
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual((record["new_rank"], record["new_size"]), (place, 3), rank.story())
            self.assert_within(record, record["begin_ns"], 1)
            self.assertTrue(rank.expect("call", "DDL_OK")["exact"])
        ranks[2].expect("free", "DDL_OK")
        ranks[2].expect("ready")
        ranks[2].go()
        for rank in others:
            for _ in range(4):
                rank.expect("free", "DDL_OK")
            rank.finish(0)
        ranks[2].expect("free", "DDL_OK")
        ranks[2].finish(0)

    def test_a_connection_that_one_end_gives_up_is_heard_of_at_the_other(self):
        """Though both processes go on, as after an error of the network that one of them sees."""
        world = self.world(2, DDL_TRANSPORT="tcp", DDL_TIMEOUT="20s")
        ranks = [world.start(r, "init", "1000=" + SMALL, "line", **({"DDL_FAILPOINTS": "mesh.recv:30"} if r == 1 else {}))
                 for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
        for rank in ranks[::-1]:
            record = rank.next()
            while record["event"] != "repeated":
                record = rank.next()
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1 - ranks.index(rank)), rank.story())
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(1), record)


class Forked(Failures):
    """A child that was forked in the middle of the start does not keep what dies with its parent; needs failpoints."""

    def test_once_all_are_connected(self):
        """Rank 0 takes 5 s then, before it says so, or before it begins to make the mesh; no pair is whole without it."""
        for transport, nranks, at in itertools.product(("shm", "tcp"), (2, 3), ("rendezvous.settle", "api.met")):
            with self.subTest(transport=transport, nranks=nranks, at=at):
                world = self.world(nranks, DDL_TRANSPORT=transport, DDL_TIMEOUT=f"{bound(5)}s")
                dying = nranks - 1
                ranks = [world.start(r, *(["forking:2500"] if r == dying else []), "init", SMALL, "line", LARGE,
                                     **({"DDL_FAILPOINTS": at} if r == 0 or at == "api.met" else {})) for r in range(nranks)]
                child = ranks[dying].expect("fork")["child"]
                self.addCleanup(terminate, child)
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    rank.expect("call", "DDL_OK")
                    rank.expect("ready")
                for rank in ranks[:-1]:
                    rank.go()
                time.sleep(bound(0.1))
                ranks[dying].kill()
                killed_ns = time.monotonic_ns()
                for rank in ranks[:-1]:
                    record = rank.expect("call", "DDL_EPEERLOST")
                    self.assertEqual(record["culprit"], dying, record)
                    self.assert_within(record, killed_ns, 1)
                self.assertTrue(alive(child), "the child is to outlive its parent here")
                terminate(child)


class Stuck(Failures):
    """A thread of the library's own does nothing for 5 s, as if a debugger had stopped it: no call waits for it longer
    than it may wait for others, and no harm is done when it goes on."""

    def check(self, stuck, at, call, seconds, *words, others=("init", SMALL, "free")):
        """Rank `stuck` is, where `at` says; what it says of `call`, and what the other rank says after it."""
        world = self.world(2)
        other = world.start(1 - stuck, "line", *others) if others else None
        rank = world.start(stuck, "line", "init", *((SMALL, "free") if call == "free" else ()), "fork:_exit", "line",
                           DDL_FAILPOINTS=at, **({"DDL_START_TIMEOUT": "2s"} if call == "init" else {}))
        self.together([rank, other] if others else [rank])
        if call == "free":
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        record = rank.expect(call, "DDL_ETIMEDOUT")
        self.assertEqual((record["code"], record["rank"]), ("DDL_ETIMEDOUT", stuck), record)
        self.assert_names(record, *words)
        self.assert_within(record, record["begin_ns"], seconds)
        rank.expect("child")  # nothing is left for it that it could close
        self.assertEqual(rank.expect("fork")["ended"], 0)
        rank.expect("ready")
        time.sleep(max(0, 5.5 - self.seconds(record["begin_ns"], time.monotonic_ns())))
        rank.go()
        rank.finish(0)
        if other is not None:
            return other.next()
        return None

    def at_the_start(self, stuck, at, where, others=()):
        return self.check(stuck, at, "init", 3, f"rank {stuck} on ", f" in {where}", "DDL_START_TIMEOUT", others=others)

    def told(self, at, where):
        record = self.at_the_start(1, at, where, others=("init",))
        self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 1), record)
        self.assert_names(record, "rank 1 on ", f" in {where}")

    def left(self, at, where):
        """All others are connected: they see that it has gone."""
        record = self.at_the_start(1, at, where, others=("init",))
        self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 1), record)

    def at_the_end(self, at, *words):
        record = self.check(1, at, "free", 6, *words)
        self.assertEqual((record["event"], record["status"]), ("init", "DDL_OK"), record)

    def waited_for(self):
        """Rank 0 looks at the store now and then; a thread that is slow has as long as the start."""
        world = self.world(2)
        for rank in [world.start(stuck, "init", SMALL, "free", DDL_FAILPOINTS=at)
                     for stuck, at in ((0, "io.call:3"), (1, "none"))]:
            record = rank.expect("init", "DDL_OK")
            self.assertGreater(self.seconds(record["begin_ns"], record["end_ns"]), 4)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_service_thread_and_engine(self):
        self.at_once((self.waited_for,), (self.at_the_start, 0, "io.call:1", "opening the store's door;"),
                     (self.at_the_start, 0, "io.event:1", "what came over a connection, and did not come to closing the store's"),
                     (self.told, "io.call:2", "calling other ranks;"),
                     (self.told, "io.event:1", "what came over a connection, and did not come to answering;"),
                     (self.left, "io.call:3", "closing its door to other ranks;"),
                     (self.at_the_end, "io.call:4", "in answering;"),
                     (self.at_the_end, "io.background", "the engine's thread is stuck"))


@unittest.skipUnless("DDL_TEST_NAMING" in os.environ, "nothing can be preloaded here")
class Names(Failures):
    """The system's look-up of a name takes half a minute (naming.c), and is waited for by none: not by its rank beyond ten
    seconds, nor by the end of the process, nor by those who wait for that rank. Addresses are never asked for their names."""

    def world(self, nranks, **environment):
        return super().world(nranks, LD_PRELOAD=os.environ["DDL_TEST_NAMING"], **environment)

    def gives_up(self, number, seconds, **environment):
        rank = self.world(2, DDL_START_TIMEOUT="60s" if seconds == 10 else f"{seconds}s").start(number, "init", **environment)
        self.has_given_up(rank, seconds)

    def has_given_up(self, rank, seconds):
        record = rank.expect("init", "DDL_ENETWORK", bound(20))
        self.assert_names(record, " s to the lookup of host slow.test", "name server")
        tried = float(re.search(r"no answer within (\d+\.\d) s", record["text"]).group(1))
        self.assertLess(abs(tried - seconds), bound(0.5), record)  # a busy machine comes to it a little later
        took = self.seconds(record["begin_ns"], record["end_ns"])
        self.assertGreaterEqual(took, seconds, record)
        self.assertLess(took, seconds + bound(2), record)  # rank 0 stays for 0.85 s, so that who comes just then hears it
        began = time.monotonic()
        rank.finish(0)
        self.assertLess(time.monotonic() - began, bound(1))

    def others_go_on(self):
        """Who hangs has not joined: another may come in its place."""
        world = self.world(3)
        ranks = [world.start(0, "init", SMALL, "free")]
        hangs = world.start(2, "init", DDL_ADVERTISE="slow.test")
        time.sleep(2 * bound(1))  # until it has found rank 0
        began = time.monotonic()
        ranks += [world.start(r, "init", SMALL, "free") for r in (1, 2)]
        end_well(ranks, "init", "call", "free")
        self.assertLess(time.monotonic() - began, bound(5))
        self.has_given_up(hangs, 10)

    def test_a_look_up_that_hangs_holds_nobody(self):
        self.at_once((self.others_go_on,), *((lambda number=number, seconds=seconds, name=name: self.gives_up(
            number, seconds, **{name: "slow.test"}),) for number, seconds, name in (
                (0, 10, "MASTER_ADDR"), (1, 10, "MASTER_ADDR"), (1, 2, "MASTER_ADDR"), (0, 10, "DDL_ADVERTISE"))))


@unittest.skipUnless("DDL_TEST_JUMPING" in os.environ, "nothing can be preloaded here")
class Clocks(Failures):
    """The clock on the wall jumps by an hour, to and fro, all the time (jumping.c): nobody notices."""

    def world(self, nranks, **environment):
        return super().world(nranks, LD_PRELOAD=os.environ["DDL_TEST_JUMPING"], **environment)

    def computes(self, **environment):
        world = self.world(3, **environment)
        for rank in world.start_all("init", f"2000={SMALL}", f"3={LARGE}", "free"):
            rank.expect("init", "DDL_OK", 30 * bound(1))
            self.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 2000)
            self.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 3)
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def meets_at_files(self):
        with tempfile.TemporaryDirectory(prefix="ddl-clock-") as folder:
            self.computes(DDL_STORE=f"file://{folder}")

    def ends_in_time(self, record, status):
        """Neither early nor late: after one second."""
        self.assertEqual(record["status"], status, record)
        took = self.seconds(record["begin_ns"], record["end_ns"])
        self.assertGreaterEqual(took, 1, record)
        self.assertLess(took, bound(2), record)

    def waits_for_a_rank(self):
        self.ends_in_time(self.world(2).start(0, "init", DDL_START_TIMEOUT="1s").next(), "DDL_ETIMEDOUT")

    def waits_for_a_call(self):
        world = self.world(2)
        ranks = world.start_all("init", "timeout:1000", SMALL, others={1: ["init", "line", "free"]})
        for event in ("init", "timeout"):
            ranks[0].expect(event, "DDL_OK")
        self.ends_in_time(ranks[0].next(), "DDL_ETIMEDOUT")

    def test_nobody_goes_by_the_wall(self):
        self.at_once((self.computes,), (self.meets_at_files,), (self.waits_for_a_rank,), (self.waits_for_a_call,))


if __name__ == "__main__":
    main(__doc__)
