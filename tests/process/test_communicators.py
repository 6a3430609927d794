"""What becomes of communicators when ranks die: which break, which go on, who is left.

    test_communicators.py ACTOR [CLASS[.TEST]...] [-v]
"""
import random
import signal
import time

from failures import LARGE, ROUNDS, SEED, SMALL, WARM, Failures, main
from world import bound

CASES = "cases:5:25"


class Communicators(Failures):
    def expect_broken(self, rank, culprit, status="DDL_EPEERLOST", event="call"):
        """The first call on a broken communicator, and the one after it."""
        record = rank.expect(event, status)
        self.assertEqual(record["culprit"], culprit, rank.story())
        rank.expect("call", "DDL_EABORTED")

    def expect_all_well(self, rank):
        record = rank.expect("cases", "DDL_OK")
        self.assertTrue(record["exact"], record["failure"])

    def lose(self, ranks, victims):
        """The end of `forever=` on the world on all ranks: those that die of it, and the others, whom it tells."""
        for victim in victims:
            record = self.next_of_forever(ranks[victim])
            if record["event"] == "forever":  # of another's end, before its own
                record = ranks[victim].next()
            if record["event"] == "ready":
                record = ranks[victim].next()
            self.assertEqual(record["event"], "killed", ranks[victim].story())
            ranks[victim].finish(-signal.SIGKILL)
        left = [rank for r, rank in enumerate(ranks) if r not in victims]
        for rank in left:
            record = self.next_of_forever(rank)
            self.assertEqual((record["event"], record["status"]), ("forever", "DDL_EPEERLOST"), rank.story())
            self.assertIn(record["culprit"], victims, rank.story())
        return left


class Breaking(Communicators):
    """A death breaks every communicator that contains the rank, and no other."""

    def check(self, victim, moment_us, call):
        world = self.world(4)
        before = ["init"]
        after = [f"forever={call}", SMALL, "use:reversed", SMALL, SMALL, "use:half", SMALL, SMALL]

        def commands(r):
            made = before + [f"split:half:{r // 2}:0", "use:world", f"split:reversed:0:{-r}", "line"]
            if r == victim:
                return made + [f"mortal:{moment_us}", f"forever={call}"]
            if r // 2 != victim // 2:  # its half goes on
                return made + after + [CASES, "free", SMALL, "use:reversed", "free", "free"]
            return made + after + ["free", "use:reversed", "free", "free"]

        ranks = [world.start(r, *commands(r)) for r in range(4)]
        self.together(ranks, "init", "split", "split")
        left = self.lose(ranks, [victim])
        for rank in left:
            r = ranks.index(rank)
            rank.expect("call", "DDL_EABORTED")
            self.expect_broken(rank, 3 - victim)
            if r // 2 == victim // 2:
                self.expect_broken(rank, victim % 2)
            else:
                rank.expect("call", "DDL_OK")
                rank.expect("call", "DDL_OK")
                self.expect_all_well(rank)
        for rank in left:
            rank.expect("free", "DDL_OK")
            if ranks.index(rank) // 2 != victim // 2:
                rank.expect("call", "DDL_EABORTED")  # that was on the world
            rank.expect("free", "DDL_OK")
            freed = rank.expect("free", "DDL_OK")
            self.assertLess(self.seconds(freed["begin_ns"], freed["end_ns"]), bound(1))
            rank.finish(0)

    def test_those_with_the_rank_and_no_other(self):
        draw = random.Random(SEED)
        for _ in range(ROUNDS):
            for victim in (0, 1, 3):
                moment = draw.randrange(1, 40000)
                call = draw.choice([SMALL, LARGE])
                with self.subTest(victim=victim, moment_us=moment, call=call):
                    self.check(victim, moment, call)

    def test_with_requests_in_flight_on_several(self):
        """Each names the rank by its number in its own communicator."""
        world = self.world(3)

        def commands(r):
            made = ["init", f"split:reversed:0:{-r}", f"split:pair:{0 if r < 2 else -1}:0", "line"]
            if r == 2:
                return made + ["mortal:1", "line"]
            return made + ["+" + LARGE, "use:reversed", "+" + LARGE, "+" + SMALL, "use:pair", "+" + LARGE, "+" + SMALL,
                           "wait", SMALL, "free", "free"]

        ranks = [world.start(r, *commands(r)) for r in range(3)]
        self.together(ranks, "init", "split", "split")
        for rank in ranks[:2]:
            for _ in range(5):
                rank.expect("started", "DDL_OK")
            waits = [rank.expect("wait") for _ in range(5)]
            for first, culprit in ((waits[0], 2), (waits[1], 0)):
                self.assertEqual((first["status"], first["culprit"]), ("DDL_EPEERLOST", culprit), rank.story())
            # The second on the same: in flight too, or issued when all had been told already.
            self.assertIn(waits[2]["status"], ("DDL_EPEERLOST", "DDL_EABORTED"), rank.story())
            self.assertEqual(waits[2]["culprit"], 0, rank.story())
            for whole in waits[3:]:
                self.assertEqual((whole["status"], whole["exact"]), ("DDL_OK", True), rank.story())
            record = rank.next()
            self.assertEqual((record["event"], record["status"]), ("call", "DDL_OK"), rank.story())
            rank.expect("free", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_an_abort_is_told_to_processes(self):
        """Whoever is blocked on it is told who and why, within a second; other communicators go on."""
        world = self.world(3)
        rest = ["init", "split:part:0:0", "use:part", SMALL, "line", f"forever={SMALL}", SMALL, "use:world", CASES,
                "use:part", "free", "free"]
        aborter = ["init", "split:part:0:0", "use:part", SMALL, "line", "line", "abort:enough of this", SMALL,
                   SMALL, "use:world", CASES, "use:part", "free", "free"]
        ranks = world.start_all(*rest, others={1: aborter})
        self.together(ranks, "init", "split", "call")
        ranks[1].expect("ready")
        ranks[1].go()
        aborted = ranks[1].expect("abort", "DDL_OK")
        for rank in ranks:
            record = rank.expect("call", "DDL_EABORTED") if rank is ranks[1] else self.next_of_forever(rank)
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EABORTED", 1), rank.story())
            self.assert_names(record, "enough of this")
            self.assert_within(record, max(aborted["end_ns"], record["begin_ns"]), 1)
            rank.expect("call", "DDL_EABORTED")
            self.expect_all_well(rank)
            rank.expect("free", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)


class Shrinking(Communicators):
    """Survivors agree on who is gone and go on over the connections that they have."""

    # Freeing the old communicator before the new one, and after it.
    BEFORE = ["use:world", "free", "use:rest", SMALL, "free"]
    AFTER = ["use:rest", SMALL, "free", "use:world", "free"]

    def start(self, nranks, survivor, victims, **environment):
        """All make an allreduce for ever; victims (rank to microseconds) die of a timer."""
        world = self.world(nranks, **environment)
        others = {v: [*WARM, "init", "line", f"mortal:{moment}", f"forever={SMALL}", "line"]
                  for v, moment in victims.items()}
        ranks = world.start_all(*WARM, "init", "line", f"forever={SMALL}", *survivor, others=others)
        for rank in ranks:
            self.expect_warm(rank)
        self.together(ranks, "init")
        return ranks

    def expect_shrunk(self, left, size=None):
        """All are numbered in the order that they had."""
        for place, rank in enumerate(left):
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual((record["new_rank"], record["new_size"]), (place, size or len(left)), rank.story())

    def check(self, nranks, victims, frees):
        survivor = ["resources", "shrink:rest", "use:rest", "resources", "facts", CASES, "use:world", SMALL, *frees]
        ranks = self.start(nranks, survivor, victims)
        left = self.lose(ranks, victims)
        before = {rank: rank.expect("resources")["descriptors"] for rank in left}
        self.expect_shrunk(left)
        for place, rank in enumerate(left):
            self.assertLessEqual(rank.expect("resources")["descriptors"], before[rank], "no new connections")
            facts = rank.expect("facts")
            self.assertEqual((facts["rank"], facts["size"]), (place, len(left)))
            self.assertEqual((facts["local_rank"], facts["local_size"]), (place, len(left)))
            self.expect_all_well(rank)
            rank.expect("call", "DDL_EABORTED")
            for command in frees:
                if command == "free":
                    rank.expect("free", "DDL_OK")
                elif not command.startswith("use:"):
                    rank.expect("call", "DDL_OK")
            rank.finish(0)

    MADE = ["init", "split:part:0:0", "use:part", SMALL, "line"]
    REST = [*MADE, f"forever={SMALL}", "line", "shrink:rest", "use:rest", SMALL, "free", "use:part", "free", SMALL, "free"]

    def go_on(self, ranks, left, since_ns):
        """Those that are left of a part shrink it, within a second of this moment or of their calls, and free all of it;
        then all compute once more in the world."""
        for place, rank in enumerate(left):
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual((record["new_rank"], record["new_size"]), (place, len(left)), rank.story())
            self.assert_within(record, max(since_ns, record["begin_ns"]), 1)
            self.assertTrue(rank.expect("call", "DDL_OK")["exact"])
            rank.expect("free", "DDL_OK")
            rank.expect("free", "DDL_OK")
        self.finish_all(ranks)

    def finish_all(self, ranks):
        for rank in ranks:
            self.assertTrue(rank.expect("call", "DDL_OK")["exact"])
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_who_has_freed_it_is_not_waited_for(self):
        """Of a part that was aborted: who frees it, before the others shrink it or while they do, has gone on its way."""
        for frees_first in (True, False):
            with self.subTest(frees_first=frees_first):
                world = self.world(3)
                ranks = world.start_all(*self.REST, others={1: [*self.MADE, "line", "abort:enough", "line", "free", SMALL, "free"]})
                self.together(ranks, "init", "split", "call")
                ranks[1].expect("ready")
                ranks[1].go()
                ranks[1].expect("abort", "DDL_OK")
                for rank in (ranks[0], ranks[2]):
                    self.assertEqual(self.next_of_forever(rank)["status"], "DDL_EABORTED", rank.story())
                for rank in ranks:
                    rank.expect("ready")
                first, then = ([ranks[1]], [ranks[0], ranks[2]]) if frees_first else ([ranks[0], ranks[2]], [ranks[1]])
                for rank in first:
                    rank.go()
                time.sleep(0.3)
                for rank in then:
                    rank.go()
                freed = ranks[1].expect("free", "DDL_OK")
                self.go_on(ranks, [ranks[0], ranks[2]], freed["end_ns"])

    def test_who_was_out_of_time_and_has_freed_it_is_not_waited_for(self):
        """One that has called shrink before, and of which some have heard."""
        world = self.world(4)
        early = [*self.MADE, "abort:enough", "timeout:1000", "line", "shrink:rest", "free", SMALL, "free"]
        ranks = world.start_all(*self.REST, others={2: early})
        others = [ranks[0], ranks[1], ranks[3]]
        self.together(ranks, "init", "split", "call")
        ranks[2].expect("abort", "DDL_OK")
        ranks[2].expect("timeout", "DDL_OK")
        for rank in others:
            self.assertEqual(self.next_of_forever(rank)["status"], "DDL_EABORTED", rank.story())
        for rank in ranks:
            rank.expect("ready")
        ranks[2].go()
        time.sleep(0.3)
        ranks[0].go()
        ranks[2].expect("shrink", "DDL_ETIMEDOUT")
        ranks[2].expect("free", "DDL_OK")
        let_go_ns = time.monotonic_ns()
        ranks[1].go()
        ranks[3].go()
        self.go_on(ranks, others, let_go_ns)

    def test_who_never_comes_is_named_to_all_that_gave_up_one_after_the_other(self):
        world = self.world(4)
        waits = [*self.MADE, f"forever={SMALL}", "timeout:3000", "line", "shrink:rest", "free", "line", SMALL, "free"]
        ranks = world.start_all(*waits, others={3: [*self.MADE, "abort:enough", "line", "free", SMALL, "free"]})
        self.together(ranks, "init", "split", "call")
        ranks[3].expect("abort", "DDL_OK")
        ranks[3].expect("ready")
        for rank in ranks[:3]:
            self.assertEqual(self.next_of_forever(rank)["status"], "DDL_EABORTED", rank.story())
            rank.expect("timeout", "DDL_OK")
            rank.expect("ready")
        for rank in ranks[:3]:
            rank.go()
            time.sleep(0.5)
        for rank in ranks[:3]:
            record = rank.expect("shrink", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 3, record)
            self.assertRegex(record["text"], r"^rank 3 \(pid \d+ on \S+\) has not called ddl_comm_shrink", record)
            rank.expect("free", "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        ranks[3].expect("free", "DDL_OK")
        self.finish_all(ranks)

    def test_after_one_death(self):
        draw = random.Random(SEED)
        for _ in range(ROUNDS):
            for nranks, victim in ((2, 1), (3, 0), (5, 0), (5, 2), (5, 4)):
                with self.subTest(nranks=nranks, victim=victim):
                    self.check(nranks, {victim: draw.randrange(1, 30000)}, self.AFTER)

    def test_after_two_deaths_at_about_the_same_time(self):
        draw = random.Random(SEED + 1)
        for _ in range(ROUNDS):
            for victims in ((0, 1), (1, 3), (3, 4)):
                moment = draw.randrange(1, 30000)
                with self.subTest(victims=victims):
                    ranks = self.start(5, ["line", "shrink:rest", "use:rest", CASES, "free", "free"],
                                       {v: moment + draw.randrange(200) for v in victims})
                    left = self.lose(ranks, victims)
                    for rank in left:
                        rank.expect("ready")
                        rank.go()
                    self.expect_shrunk(left)
                    for rank in left:
                        self.expect_all_well(rank)
                        rank.expect("free", "DDL_OK")
                        rank.expect("free", "DDL_OK")
                        rank.finish(0)

    def test_the_old_communicator_is_freed_before_or_after(self):
        for name, frees in (("before", self.BEFORE), ("after", self.AFTER)):
            with self.subTest(old=name):
                self.check(4, {1: 5000}, frees)

    def test_a_death_while_the_others_shrink(self):
        """The second one never calls it: the others wait for that rank until it is killed."""
        for second in (0, 3, 4):
            with self.subTest(second=second):
                world = self.world(5)
                survivor = ["init", "line", f"forever={SMALL}", "shrink:rest", "use:rest", CASES, "free", "free"]
                ranks = world.start_all(*survivor, others={
                    1: ["init", "line", "mortal:5000", f"forever={SMALL}"],
                    second: ["init", "line", f"forever={SMALL}", "line"]})
                self.together(ranks, "init")
                left = self.lose(ranks, [1])
                ranks[second].expect("ready")
                ranks[second].kill()
                ranks[second].finish(-signal.SIGKILL)
                left.remove(ranks[second])
                self.expect_shrunk(left)
                for rank in left:
                    self.expect_all_well(rank)
                    rank.expect("free", "DDL_OK")
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)

    def test_a_death_at_any_moment_of_it(self):
        """If the agreement still counts the second one in, its end is a failure like any other."""
        draw = random.Random(SEED + 2)
        for _ in range(4 * ROUNDS):
            moment = draw.randrange(1, 3000)
            with self.subTest(moment_us=moment):
                world = self.world(5)
                survivor = ["init", "line", f"forever={SMALL}", "shrink:rest", "use:rest", f"forever={SMALL}"]
                ranks = world.start_all(*survivor, others={
                    1: ["init", "line", "mortal:5000", f"forever={SMALL}"],
                    3: ["init", "line", f"forever={SMALL}", f"mortal:{moment}", "shrink:rest", "line"]})
                self.together(ranks, "init")
                left = self.lose(ranks, [1])
                left.remove(ranks[3])
                sizes = []
                for place, rank in enumerate(left):
                    record = rank.expect("shrink", "DDL_OK")
                    sizes.append(record["new_size"])
                    self.assertEqual(record["new_rank"], place if record["new_size"] == 3 or place < 2 else 3)
                self.assertIn(sizes, ([3, 3, 3], [4, 4, 4]))
                for rank in left:
                    record = rank.next()
                    if sizes[0] == 3:
                        self.assertEqual(record["event"], "running", rank.story())
                    else:
                        self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 2), rank.story())

    def test_at_least_half_and_of_two_halves_the_one_with_the_lowest_rank(self):
        for nranks, victims in ((4, (2, 3)), (4, (1, 3)), (2, (1,))):
            with self.subTest(nranks=nranks, victims=victims):
                ranks = self.start(nranks, ["shrink:rest", "use:rest", CASES], {v: 3000 for v in victims})
                left = self.lose(ranks, victims)
                self.expect_shrunk(left)
                for rank in left:
                    self.expect_all_well(rank)
        for nranks, victims in ((4, (0, 3)), (2, (0,)), (5, (1, 2, 4)), (3, (1, 2))):
            with self.subTest(nranks=nranks, victims=victims):
                ranks = self.start(nranks, ["shrink:rest", "free"], {v: 3000 for v in victims})
                for rank in self.lose(ranks, victims):
                    record = rank.expect("shrink", "DDL_EABORTED")
                    self.assertEqual(record["new_size"], -1, record)
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)

    def test_who_does_not_call_it_is_named_in_time(self):
        world = self.world(4)
        rest = ["init", "timeout:2000", "line", f"forever={SMALL}", "shrink:rest", "free"]
        ranks = world.start_all(*rest, others={3: ["init", "timeout:2000", "line", "mortal:3000", f"forever={SMALL}"],
                                               2: ["init", "timeout:2000", "line", f"forever={SMALL}", "line"]})
        self.together(ranks, "init", "timeout")
        left = self.lose(ranks, [3])
        ranks[2].expect("ready")
        for rank in left[:2]:
            record = rank.expect("shrink", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 2, record)
            self.assert_names(record, "rank 2")
            self.assert_within(record, record["begin_ns"], 2.5)
            self.assertEqual(record["new_size"], -1, record)
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_of_a_part(self):
        """A part shrinks by itself, in its own order; the world stays broken."""
        world = self.world(5)

        def commands(r):
            made = ["init", f"split:part:{0 if r > 0 else -1}:{-r}", "line"]
            if r == 2:
                return made + ["mortal:4000", f"forever={SMALL}"]
            if r == 0:
                return made + [f"forever={SMALL}", "free"]
            return made + [f"forever={SMALL}", "use:part", SMALL, "shrink:rest", "use:rest", CASES, "use:world", SMALL,
                           "use:part", "free", "use:rest", SMALL, "free", "free"]

        ranks = [world.start(r, *commands(r)) for r in range(5)]
        self.together(ranks, "init", "split")
        left = self.lose(ranks, [2])
        for r in (1, 3, 4):
            record = ranks[r].expect("call", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 2, record)  # of 4, 3, 2, 1
        self.expect_shrunk([ranks[4], ranks[3], ranks[1]])
        for r in (1, 3, 4):
            self.expect_all_well(ranks[r])
            ranks[r].expect("call", "DDL_EABORTED")
            ranks[r].expect("free", "DDL_OK")
            ranks[r].expect("call", "DDL_OK")
        for rank in left:
            rank.expect("free", "DDL_OK")
            if rank is not ranks[0]:
                rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_again_and_again(self):
        """One rank after the other dies, until one is left."""
        world = self.world(4)
        ranks = world.start_all("init", "line", f"forever={SMALL}", "shrink:a", "use:a", "line",
                                f"forever={SMALL}", "shrink:b", "use:b", "line", f"forever={SMALL}", "shrink:c",
                                "use:c", CASES, "free", "use:b", "free", "use:a", "free", "free")
        self.together(ranks, "init")
        left = list(ranks)
        for _ in range(3):
            for rank in left:
                rank.expect("running")
            left[-1].kill()
            left.pop().finish(-signal.SIGKILL)
            for rank in left:
                record = rank.expect("forever", "DDL_EPEERLOST")
                self.assertEqual(record["culprit"], len(left), record)
            self.expect_shrunk(left)
            if len(left) > 1:
                self.together(left)
        self.expect_all_well(left[0])
        for _ in range(4):
            left[0].expect("free", "DDL_OK")
        left[0].finish(0)

    def test_where_nobody_was_lost_all_go_on(self):
        world = self.world(3)
        rest = ["init", SMALL, "line", f"forever={SMALL}", "shrink:all", "use:all", CASES, "free", "free"]
        ranks = world.start_all(*rest, others={
            1: ["init", SMALL, "line", "abort:start over", SMALL, "shrink:all", "use:all", CASES, "free", "free"]})
        self.together(ranks, "init", "call")
        ranks[1].expect("abort", "DDL_OK")
        ranks[1].expect("call", "DDL_EABORTED")
        for rank in (ranks[0], ranks[2]):
            self.assertEqual(self.next_of_forever(rank)["status"], "DDL_EABORTED", rank.story())
        self.expect_shrunk(ranks)
        for rank in ranks:
            self.expect_all_well(rank)
            rank.expect("free", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)


if __name__ == "__main__":
    main(__doc__)
