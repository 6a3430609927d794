"""Freeing, starting again, exiting, forking.

    test_life_cycle.py ACTOR [CLASS[.TEST]...] [-v]
"""
import os
import tempfile
import time

from failures import LARGE, SMALL, WARM, Failures, main
from world import DEADLINE, bound, end_well, listening_ports


class LifeCycle(Failures):
    """Freeing, starting again, forking: nothing is left behind and nothing is disturbed."""

    def test_init_and_free_many_times_on_one_address(self):
        world = self.world(3)
        ranks = world.start_all("cycle:1", "resources", "cycle:20", "resources")
        for rank in ranks:
            rank.expect("allreduce", "DDL_OK")
            rank.expect("cycle", "DDL_OK")
            before = rank.expect("resources")
            for _ in range(20):
                rank.expect("allreduce", "DDL_OK")
                rank.expect("cycle", "DDL_OK")
            after = rank.expect("resources")
            self.assert_same_resources(before, after)
            if bound(1) == 1 and before["rss_kib"] >= 0:
                self.assertLess(after["rss_kib"] - before["rss_kib"], 2048, (before, after))
            rank.finish(0)

    def test_closed_standard_descriptors(self):
        """Nothing of ours gets their numbers, which libuv would end the process for."""
        world = self.world(2)
        closing = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]  # stdout tells what happens
        end_well([world.start(r, "init", SMALL, "free", "init", SMALL, "free", prefix=closing) for r in range(2)],
                 *("init", "call", "free") * 2)

    def test_everything_is_given_back(self):
        world = self.world(4)
        ranks = world.start_all(*WARM, "resources", "init", SMALL, LARGE, "+" + LARGE, "wait", "alltoall:1000:int32",
                                "free", "resources")
        for rank in ranks:
            self.expect_warm(rank)
            before = rank.expect("resources")
            rank.expect("init", "DDL_OK")
            for event in ("call", "call", "started", "wait", "call", "free"):
                rank.expect(event, "DDL_OK")
            self.assert_same_resources(before, rank.expect("resources"))
            rank.finish(0)

    def test_freeing_in_an_exit_handler_after_the_goodbye_is_quick(self):
        """The library has said goodbye for this process by then: there is nobody to meet any more."""
        world = self.world(2)
        ranks = [world.start(0, "free_at_exit", "init", SMALL), world.start(1, "init", SMALL, "line", "free")]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[1].expect("ready")
        freed = ranks[0].expect("free", "DDL_OK")
        self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1))
        ranks[0].finish(0)
        ranks[1].go()
        freed = ranks[1].expect("free")
        self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1))
        ranks[1].finish(0)

    def start_to_exit(self, *commands):
        """Rank 0 of two is about to exit with a call in flight, for which rank 1 does not come."""
        world = self.world(2, DDL_TIMEOUT="20s")
        ranks = [world.start(0, *commands, "line"), world.start(1, "init", SMALL, "line", "free")]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[0].expect("started", "DDL_OK")
        ranks[0].expect("ready")
        ranks[1].expect("ready")
        return ranks

    def end_after_exit(self, ranks):
        ranks[0].expect("free", "DDL_OK")
        ranks[0].finish(0)
        ranks[1].go()
        ranks[1].expect("free")
        ranks[1].finish(0)

    def test_calls_in_an_exit_handler_after_the_goodbye_are_refused_at_once(self):
        """As destructors make them in C++; so is the wait for what was in flight."""
        ranks = self.start_to_exit("calls_at_exit", "init", SMALL, "+" + LARGE)
        ranks[0].go()
        for event in ("call", "wait", "split", "abort"):
            record = ranks[0].expect(event, "DDL_EABORTED")
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(0.2), record)
            self.assert_names(record, "exiting")
        self.end_after_exit(ranks)

    def test_a_call_that_another_thread_is_in_ends_with_the_exit_handler(self):
        """Who sleeps there, and also who had to be asked out: a later handler may join that thread."""
        for waits in (0, 0.05):
            with self.subTest(waits=waits):
                ranks = self.start_to_exit("init", SMALL, "+" + LARGE, "joins_at_exit")
                time.sleep(waits)
                exits_ns = time.monotonic_ns()
                ranks[0].go()
                record = ranks[0].expect("wait", "DDL_EABORTED")
                self.assertLess(self.seconds(exits_ns, record["end_ns"]), bound(1), record)
                self.assert_names(record, "exiting")
                self.end_after_exit(ranks)

    def test_a_process_may_exit_while_another_thread_frees_the_world(self):
        for usec in range(0, 1000, 60):
            world = self.world(2)
            ranks = [world.start(0, "init", SMALL, f"exit_in_free:{usec}"), world.start(1, "init", SMALL, "free")]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            ranks[0].finish(0)
            ranks[1].expect("free")
            ranks[1].finish(0)

    def test_everything_is_given_back_after_a_failed_init(self):
        for number, environment in ((0, {"DDL_TRANSPORT": "pigeon"}), (0, {"DDL_START_TIMEOUT": "1s"}),
                                    (0, {"DDL_IFACE": "nosuch0"}), (1, {"DDL_IFACE": "nosuch0"})):
            with self.subTest(rank=number, **environment):
                world = self.world(2)
                rank = world.start(number, "init", "resources", "init", "resources", **environment)
                self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
                before = rank.expect("resources")
                self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
                self.assert_same_resources(before, rank.expect("resources"))
                rank.finish(0)

    def test_nothing_is_left_of_many_inits_that_failed(self):
        """Also not in a process that tries again and again, nor with those who refuse it."""
        world = self.world(2)
        first = world.start(0, "init", SMALL, "free")
        if os.path.isdir(f"/proc/{first.pid}/fd"):
            first.await_ports(2)
        cases = [(1, {"DDL_SECRET": "a secret of another job"}, "DDL_EAUTH"), (1, {"DDL_SECURITY": "off"}, "DDL_EAUTH"),
                 (1, {"DDL_STORE": "file:///no/such"}, "DDL_ESTORE"), (0, {}, "DDL_ENETWORK")]
        times = 20
        commands = ["init", "resources", *["init"] * times, "resources", "line"]
        for rank, environment, status in cases:
            with self.subTest(**environment):
                poor = world.start(rank, *commands, **environment)
                poor.expect("init", status)
                before = poor.expect("resources")
                for _ in range(times):
                    poor.expect("init", status)
                after = poor.expect("resources")
                self.assert_same_resources(before, after)
                if bound(1) == 1 and before["rss_kib"] >= 0:
                    self.assertLess(after["rss_kib"] - before["rss_kib"], 256, (before, after))
                poor.expect("ready")
                self.assertEqual(listening_ports(poor.pid), [])
                if os.path.exists(f"/proc/{poor.pid}/maps"):
                    with open(f"/proc/{poor.pid}/maps") as maps:
                        self.assertNotIn("memfd:ddl", maps.read())
                poor.go()
                poor.finish(0)
        second = world.start(1, "init", SMALL, "free")
        end_well((first, second), "init", "call", "free")

    def check_late_ones(self, nranks, late, **environment):
        """One after the other, long after the rest: none of them has missed anything."""
        world = self.world(nranks, **environment)
        ranks = world.start_all("init", SMALL, "free", others={r: ["init", SMALL, "line", "free"] for r in late})
        for r, rank in enumerate(ranks):
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            if r not in late:
                rank.expect("free", "DDL_ETIMEDOUT")
                rank.finish(0)
        for r in late:
            ranks[r].expect("ready")
            ranks[r].go()
            ranks[r].expect("free", "DDL_OK")
            ranks[r].finish(0)

    def check_unended(self):
        """Receives that nobody has waited for, and that no send of the peer fits."""
        world = self.world(2)
        ranks = [world.start(r, "init", SMALL, f"+recv:10:int32:{1 - r}", "free") for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("started", "DDL_OK")
        ends = sorted(((rank, rank.expect("free")) for rank in ranks), key=lambda end: end[1]["end_ns"])
        for rank, record in ends:
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(5), record)
            if record["status"] == "DDL_OK" and record is not ends[0][1]:
                continue  # the other one has given up, and gone, before this one looked again
            self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 1 - ranks.index(rank)), rank.story())
            self.assert_names(record, "recv#1", "had not ended", "waits for rank")
            self.assertEqual(rank.expect("wait", "DDL_EABORTED")["culprit"], 1 - ranks.index(rank))

    def test_who_has_set_a_limit_is_told(self):
        """By a call, here or where a communicator was split from; comm_free has one of its own."""
        def check(*commands):
            world = self.world(2, DDL_WARN_AFTER="1s")
            waits = world.start(0, "init", SMALL, *commands, SMALL, "free")
            late = world.start(1, "init", SMALL, *[c for c in commands if not c.startswith("timeout")], "line", "free")
            for rank in (waits, late):
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            while (record := waits.next())["event"] != "call":
                self.assertEqual(record.get("status", "DDL_OK"), "DDL_OK", record)
            self.assertEqual(record["status"], "DDL_ETIMEDOUT", record)
            self.assert_names(record, "within 1500 ms (ddl_comm_set_timeout)")
            self.assertIn("s left (ddl_comm_set_timeout)", "".join(waits.errors))

        self.at_once((check, "timeout:1500"), (check, "timeout:1500", "split:part:0:0", "use:part"))

    def test_who_left_in_another_call_has_not_freed(self):
        def check(call):
            world = self.world(2)
            late = world.start(1, "init", SMALL, "line", "free")
            other = world.start(0, "init", SMALL, "+" + call, "exit:0")
            for rank in (late, other):
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            other.expect("started", "DDL_OK")
            late.expect("ready")
            self.assertEqual(other.process.wait(DEADLINE), 0)
            late.go()
            record = late.next()
            self.assertIn(record["status"], ("DDL_EPEERLOST", "DDL_EMISMATCH"), late.story())

        self.at_once((check, SMALL), (check, LARGE))

    def test_who_or_what_frees_wait_for_is_named(self):
        def check(nranks):
            world = self.world(nranks)
            ranks = world.start_all("init", SMALL, "free", others={nranks - 1: ["init", SMALL, "line", "free"]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            for rank in ranks[:-1]:
                record = rank.expect("free", "DDL_ETIMEDOUT")
                self.assertEqual(record["culprit"], nranks - 1, record)
                self.assert_names(record, f"rank {nranks - 1} (pid ", "did not free")
                self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(6), record)
            for rank in ranks[:-1]:
                rank.finish(0)
            ranks[-1].expect("ready")
            ranks[-1].go()  # after all others have gone, which it need not wait for, and which is no failure
            record = ranks[-1].expect("free", "DDL_OK")
            ranks[-1].finish(0)
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(2), record)

        self.at_once((check, 2), (check, 4), (self.check_unended,), (self.check_late_ones, 4, (1, 3)),
                     (lambda: self.check_late_ones(3, (1, 2), DDL_TRANSPORT="tcp"),))

    def test_free_completes_what_is_in_flight(self):
        world = self.world(3)
        ranks = world.start_all("init", "+" + LARGE, "+allgather:1000:int32", "+" + SMALL, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            for _ in range(3):
                rank.expect("started", "DDL_OK")
            rank.expect("free", "DDL_OK")
            for _ in range(3):
                rank.expect("wait", "DDL_OK")
            rank.finish(0)

    def test_a_forked_child_may_not_call_and_does_not_disturb(self):
        for how in ("exit", "_exit"):
            with self.subTest(how=how):
                world = self.world(3)
                ranks = world.start_all("init", SMALL, "free",
                                        others={1: ["init", f"fork:{how}", SMALL, "free"]})
                ranks[1].expect("init", "DDL_OK")
                record = ranks[1].expect("child", "DDL_EUNSUPPORTED")
                self.assert_names(record, "fork")
                self.assertEqual(ranks[1].expect("fork")["ended"], 0)
                for r, rank in enumerate(ranks):
                    if r != 1:
                        rank.expect("init", "DDL_OK")
                    rank.expect("call", "DDL_OK")
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)

    def test_ranks_may_start_in_any_order(self):
        for order in ((2, 1, 0), (1, 0, 2), (0, 2, 1)):
            with self.subTest(order=order):
                world = self.world(3)
                for r in order:
                    # Each has surely begun before the next: it is told so by its first line.
                    rank = world.start(r, "line", "init", SMALL, "facts", "free")
                    rank.expect("ready")
                    rank.go()
                for rank, r in zip(world.ranks, order):
                    rank.expect("init", "DDL_OK")
                    rank.expect("call", "DDL_OK")
                    facts = rank.expect("facts")
                    self.assertEqual((facts["rank"], facts["local_rank"], facts["local_size"]), (r, r, 3))
                    self.assertEqual((facts["node_rank"], facts["node_count"]), (0, 1))
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)

    def test_two_worlds_meet_at_a_file_store(self):
        with tempfile.TemporaryDirectory() as directory:
            world = self.world(3, DDL_STORE=f"file://{directory}")
            for rank in world.start_all("cycle:3"):
                for _ in range(3):
                    rank.expect("allreduce", "DDL_OK")
                    rank.expect("cycle", "DDL_OK")
                rank.finish(0)


if __name__ == "__main__":
    main(__doc__)
