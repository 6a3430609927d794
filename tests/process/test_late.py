"""Ranks that are stopped, or do not come in time: who is waited for is named, and nobody else.

    test_late.py ACTOR [CLASS[.TEST]...] [-v]
"""
import os
import re
import signal
import time

from failures import LARGE, SMALL, Failures, main
from world import bound, end_well


class Silent(Failures):
    """A rank that is waited for gives no sign of life: its process stands still. Nobody waits for the deadline then."""
    LIMIT = min(bound(2), 4)  # s

    def start(self, nranks, *calls, others=None, **environment):
        """Ranks that have met; rank 1 stands before the calls."""
        world = self.world(nranks, DDL_UNRESP_TIMEOUT=f"{self.LIMIT}s", DDL_TIMEOUT=f"{bound(40)}s", **environment)
        ranks = world.start_all("init", SMALL, *calls, SMALL, "free", others={1: ["init", SMALL, "line", *calls, SMALL, "free"],
                                                                             **(others or {})})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[1].expect("ready")
        return ranks

    def stop(self, rank):
        os.kill(rank.pid, signal.SIGSTOP)

    def go_on(self, rank):
        os.kill(rank.pid, signal.SIGCONT)

    def all_is_well(self, ranks, ncalls):
        for rank in ranks:
            for _ in range(ncalls):
                self.assertTrue(rank.expect("call", "DDL_OK")["exact"])
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def stopped(self, call):
        ranks = self.start(3, call)
        self.stop(ranks[1])
        stopped = time.monotonic_ns()
        for r in (0, 2):
            record = ranks[r].expect("call", "DDL_EUNRESPONSIVE")
            self.assertEqual((record["culprit"], record["code"]), (1, "DDL_EUNRESPONSIVE"), record)
            self.assert_names(record, "rank 1", "no sign of life", "DDL_UNRESP_TIMEOUT")
            self.assertGreater(self.seconds(stopped, record["end_ns"]), self.LIMIT, record)
            self.assertLess(self.seconds(stopped, record["end_ns"]), self.LIMIT + bound(3), record)
            self.assert_gone_bad(ranks[r])
            ranks[r].finish(0)
        self.go_on(ranks[1])
        ranks[1].go()
        record = ranks[1].expect("call")
        was_complete = record["status"] == "DDL_OK"  # by what the others had posted; then the next call tells
        if was_complete:
            record = ranks[1].expect("call")
        self.assertEqual((record["status"], record["culprit"]), ("DDL_EUNRESPONSIVE", 1), ranks[1].story())
        if was_complete:
            ranks[1].expect("free", "DDL_OK")
        else:
            self.assert_gone_bad(ranks[1])
        ranks[1].finish(0)

    def stopped_sender(self):
        ranks = self.start(2, others={0: ["init", SMALL, "recv:300000:int32:1", SMALL, "free"]})
        self.stop(ranks[1])
        record = ranks[0].expect("call", "DDL_EUNRESPONSIVE")
        self.assertEqual((record["culprit"], record["operation"]), (1, "recv"), record)
        self.assert_gone_bad(ranks[0])
        self.go_on(ranks[1])

    def stopped_in_the_middle(self):
        ranks = self.world(3, DDL_UNRESP_TIMEOUT=f"{self.LIMIT}s").start_all("init", "line", f"forever={LARGE}", SMALL, "free")
        self.together(ranks, "init")
        for rank in ranks:
            rank.expect("running")
        time.sleep(0.1)
        self.stop(ranks[1])
        for r in (0, 2):
            record = ranks[r].expect("forever", "DDL_EUNRESPONSIVE")
            self.assertEqual(record["culprit"], 1, record)
            self.assertTrue(record["exact"], record)
            self.assert_gone_bad(ranks[r])
        self.go_on(ranks[1])
        self.assertEqual(ranks[1].expect("forever", "DDL_EUNRESPONSIVE")["culprit"], 1)

    def stopped_before(self):
        """Silence counts from the call on, not from when the rank was asked for a sign first."""
        limit = 8
        ranks = self.world(2, DDL_UNRESP_TIMEOUT=f"{limit}s").start_all("init", SMALL, "line", SMALL, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        self.stop(ranks[1])
        ranks[0].go()
        record = ranks[0].expect("call", "DDL_EUNRESPONSIVE")
        took = self.seconds(record["begin_ns"], record["end_ns"])
        self.assertGreater(took, limit, record)
        self.assertLess(took, limit + bound(1.5), record)
        self.go_on(ranks[1])

    def test_a_stopped_process_is_named(self):
        self.at_once(*((self.stopped, call) for call in (SMALL, LARGE, "broadcast:300000:int32:1", "barrier", "allgather:20:int32")),
                     (self.stopped_sender,), (self.stopped_in_the_middle,), (self.stopped_before,))

    def is_left_behind(self, stops_late):
        """The others go on without who is found so, before they call ddl_comm_shrink or in it."""
        world = self.world(5, DDL_UNRESP_TIMEOUT=f"{self.LIMIT}s", DDL_TIMEOUT=f"{bound(40)}s")
        ranks = world.start_all("init", "line", f"forever={SMALL}", "line", "shrink:rest", "use:rest", SMALL, LARGE, "line", "free", "free")
        self.together(ranks, "init")
        left = [ranks[r] for r in ((0, 2, 4) if stops_late else (0, 2, 3, 4))]
        for rank in ranks:
            rank.expect("running")
        if stops_late:
            os.kill(ranks[3].pid, signal.SIGKILL)
        else:
            self.stop(ranks[1])
        for rank in left:
            rank.expect("forever", "DDL_EPEERLOST" if stops_late else "DDL_EUNRESPONSIVE")
            rank.expect("ready")
        if stops_late:
            ranks[1].expect("forever", "DDL_EPEERLOST")
            ranks[1].expect("ready")
            self.stop(ranks[1])
        for rank in left:
            rank.go()
        for place, rank in enumerate(left):
            record = rank.expect("shrink", "DDL_OK")
            self.assertEqual((record["new_rank"], record["new_size"]), (place, len(left)), rank.story())
            took = self.seconds(record["begin_ns"], record["end_ns"])
            self.assertLess(took, (self.LIMIT if stops_late else 0) + bound(3), record)
        for rank in left:
            for call in ("call", "call"):
                self.assertTrue(rank.expect(call, "DDL_OK")["exact"])
            rank.expect("ready")
        self.go_on(ranks[1])
        if not stops_late:
            ranks[1].expect("forever", "DDL_EUNRESPONSIVE")
            ranks[1].expect("ready")
        ranks[1].go()
        self.assert_names(ranks[1].expect("shrink", "DDL_EABORTED"), "do not go on with it")
        for rank in left:
            rank.go()
        end_well(left, "free", "free")

    def test_the_others_go_on_without_it(self):
        self.at_once((self.is_left_behind, False), (self.is_left_behind, True))

    def goes_on_in_time(self):
        ranks = self.start(3, LARGE, SMALL)
        for _ in range(3):
            self.stop(ranks[1])
            time.sleep(0.5 * self.LIMIT)
            self.go_on(ranks[1])
            time.sleep(0.5)
        ranks[1].go()
        self.all_is_well(ranks, 3)

    def does_something_else(self, **environment):
        """Nor is who waits for it in turn silent."""
        ranks = self.start(4, "broadcast:10:int32:0", LARGE, **environment)
        time.sleep(2.5 * self.LIMIT)
        ranks[1].go()
        self.all_is_well(ranks, 3)

    def stood_still_itself(self):
        ranks = self.start(3, LARGE)
        time.sleep(1.5)  # it looks at rank 1, which lives
        for r in (0, 2):
            self.stop(ranks[r])
        time.sleep(2 * self.LIMIT)
        for r in (0, 2):
            self.go_on(ranks[r])
        time.sleep(1)
        ranks[1].go()
        self.all_is_well(ranks, 2)

    def test_who_lives_is_not_blamed(self):
        binomial = lambda: self.does_something_else(DDL_BROADCAST="binomial")  # noqa: E731
        self.at_once((self.goes_on_in_time,), (self.does_something_else,), (binomial,), (self.stood_still_itself,))


class Late(Failures):
    """A rank does not enter an operation."""

    LIMIT = 2

    def test_a_function_for_the_log_that_hangs_keeps_nobody_from_the_deadline(self):
        """Nor do those others wait for whom it was set."""
        world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s", DDL_WARN_AFTER="0.2s")
        ranks = world.start_all("init", SMALL, LARGE, others={1: ["stuck_log", "init", SMALL, LARGE],
                                                              2: ["init", SMALL, "line"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for rank in ranks[:2]:
            record = rank.expect("call", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 2, record)
            self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), self.LIMIT + bound(1), record)

    def check(self, nranks, late, call):
        world = self.world(nranks, DDL_TIMEOUT=f"{self.LIMIT}s")
        ranks = world.start_all("init", SMALL, call, SMALL, "free",
                                others={r: ["init", SMALL, "line", call, SMALL, SMALL, "free"] for r in late})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for r in late:
            ranks[r].expect("ready")
        for r, rank in enumerate(ranks):
            if r in late:
                continue
            record = rank.next()
            self.assertEqual(record["status"], "DDL_ETIMEDOUT", rank.story())
            took = self.seconds(record["begin_ns"], record["end_ns"])
            self.assertGreater(took, self.LIMIT - 1.1, record)  # another rank may have entered earlier
            self.assertLess(took, self.LIMIT + bound(1), record)
            self.assertEqual(record["culprit"], min(late), record)
            self.assert_names(record, f"rank {min(late)}", "DDL_TIMEOUT")
            self.assert_gone_bad(rank)
        for r in late:
            ranks[r].go()
            # What the others sent before they gave up may complete it here; then the next call tells.
            record = ranks[r].expect("call")
            completed = record["status"] == "DDL_OK"
            if completed:
                record = ranks[r].next()
            self.assertEqual((record["status"], record.get("culprit")), ("DDL_ETIMEDOUT", min(late)),
                             ranks[r].story())
            if not completed:
                ranks[r].expect("call", "DDL_EABORTED")
            self.assert_gone_bad(ranks[r])
        for rank in ranks:
            rank.finish(0)

    def test_allreduce(self):
        self.at_once((self.check, 3, [2], SMALL), (self.check, 4, [1, 3], SMALL), (self.check, 3, [1], LARGE))

    def test_others(self):
        self.at_once(*((self.check, 3, [0], call) for call in (
            "barrier", "broadcast:10:int32:0", "reduce:1000000:float32:sum:1", "allgather:10:int32",
            "alltoall:50000:int32")))

    def test_who_comes_once_all_have_given_up_is_not_let_through(self):
        """A repeated call that could be done at once, by what the others have left on the board."""
        def check(call):
            world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s")
            ranks = world.start_all("init", call, call, call, "line",
                                    others={1: ["init", call, call, "line", call]})
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("call", "DDL_OK")
            ranks[1].expect("ready")
            for rank in (ranks[0], ranks[2]):
                record = rank.expect("call", "DDL_ETIMEDOUT")
                self.assertEqual(record["culprit"], 1, record)
            time.sleep(bound(0.5))  # it is told, but runs nothing that would read it
            ranks[1].go()
            record = ranks[1].expect("call", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 1, record)

        self.at_once((check, SMALL), (check, "barrier"), (check, "allgather:10:int32"))

    def check_innocent(self, call, root):
        """The root is in the call, and waits; for the others, who are through, it is late for the next one."""
        world = self.world(4, DDL_TIMEOUT=f"{self.LIMIT}s")
        ranks = world.start_all("init", SMALL, call, "barrier", others={2: ["init", SMALL, "line", call]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for r in (0, 1, 3):
            record = ranks[r].next()
            if r != root and record["status"] == "DDL_OK":
                record = ranks[r].next()
            self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 2), ranks[r].story())
            self.assert_names(record, "rank 2", "DDL_TIMEOUT")

    def test_who_waits_for_another_is_not_to_blame(self):
        self.at_once(*((self.check_innocent, call, root) for call, root in (
            ("reduce:1000:float32:sum:1", 1), ("gather:1000:int32:0", 0), ("reduce:10:float32:sum:3", 3))))

    def check_warned(self, call, late, speaker, **environment):
        """Long before the deadline one of those who wait says for whom, and again after twice as long."""
        world = self.world(4, DDL_WARN_AFTER=f"{bound(1):g}s", **environment)
        ranks = world.start_all("init", SMALL, call, "barrier", "free",
                                others={r: ["init", SMALL, "line", call, "barrier", "free"] for r in late})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        time.sleep(bound(3.2))
        for r in late:
            ranks[r].expect("ready")
            ranks[r].go()
        end_well(ranks, "call", "call", "free")
        for r, rank in enumerate(ranks):
            said = [line for line in "".join(rank.errors).splitlines() if "waiting for" in line and "#2 " in line]
            if r == speaker:
                self.assertGreaterEqual(len(said), 2, rank.story())
                self.assertRegex(said[0], rf"ddl: {call.split(':')[0]}#2 comm=world rank {r}@\S+: waiting for \d+\.\d s: "
                                 rf"rank {late[0]} \(pid \d+ on \S+\) has not entered it(, nor ha.*)?"
                                 r"; \d+ s left \(DDL_TIMEOUT\)$")
                others = ["", ", nor has another", ", nor have 2 others"][len(late) - 1]
                self.assertIn(f" has not entered it{others}; ", said[-1], rank.story())
            elif r not in late and r != 0:  # the lowest and a root may both wait
                self.assertEqual(said, [], rank.story())

    def check_warned_of_silence(self):
        """Whoever stands still may have entered it for all that is known."""
        world = self.world(2, DDL_WARN_AFTER="7s", DDL_UNREACH_TIMEOUT="2s")  # of which a quarter passes before it looks for signs
        ranks = world.start_all("init", SMALL, SMALL, others={1: ["init", SMALL, "line", SMALL]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[1].expect("ready")
        os.kill(ranks[1].pid, signal.SIGSTOP)
        told = r"rank 1 \(.*\) has not entered it, as far as is known: it is not heard for \d+ s; "
        deadline = time.monotonic() + bound(15)
        while not re.search(told, "".join(ranks[0].errors)):
            self.assertLess(time.monotonic(), deadline, ranks[0].story())
            time.sleep(0.05)

    def test_who_is_waited_for_is_told_in_time(self):
        self.at_once((self.check_warned, SMALL, [2], 0), (self.check_warned, SMALL, [0, 2], 1),
                     (self.check_warned, SMALL, [0, 1, 2], 3), (self.check_warned, "broadcast:300000:int32:0", [0], 1),
                     (self.check_warned, "gather:300000:int32:3", [1], 3), (self.check_warned_of_silence,))
        # Of these only 3, which the late one is to pass it on to, waits for it.
        self.check_warned("broadcast:10:int32:0", [2], 3, DDL_BROADCAST="binomial", DDL_TRANSPORT="tcp")

    def test_of_several_the_lowest_is_named(self):
        """Also by those that wait for another one of them, or for none."""
        self.at_once(*((self.check, 4, [0, 3], call) for call in (
            "broadcast:10:int32:3", "broadcast:300000:int32:3", "scatter:300000:int32:3")))

    def check_stopped(self, in_a_wait):
        """Whose process stands still when its time is over, be it in the call or before it waits, hears why it
        ended all the same, and when it hears of it the library is done with the buffers."""
        world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s")
        stopped = ["init", SMALL, "+" + SMALL, "line", "wait"] if in_a_wait else ["init", SMALL, SMALL]
        ranks = world.start_all("init", SMALL, SMALL, "free",
                                others={0: ["init", SMALL, "line"], 1: [*stopped, SMALL, "free"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        if in_a_wait:
            ranks[1].expect("started", "DDL_OK")
            ranks[1].expect("ready")
        time.sleep(self.LIMIT / 2)  # it waits, and has told so
        os.kill(ranks[1].pid, signal.SIGSTOP)
        record = ranks[2].expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 0, record)
        time.sleep(self.LIMIT)
        if in_a_wait:
            ranks[1].go()
        os.kill(ranks[1].pid, signal.SIGCONT)
        continued = time.monotonic_ns()
        record = ranks[1].expect("wait" if in_a_wait else "call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 0, record)
        self.assert_names(record, "rank 0", "DDL_TIMEOUT")
        self.assert_within(record, continued, 1)
        self.assert_gone_bad(ranks[1])

    def test_whose_process_stood_still_meanwhile(self):
        self.at_once((self.check_stopped, False), (self.check_stopped, True))

    def begin_all_but_rank_0(self, **environment):
        """1 is in a call and 2 has started it; the others' limit is reached in it unless 0 comes."""
        world = self.world(3, DDL_TIMEOUT=f"{self.LIMIT}s", **environment)
        ranks = world.start_all("init", SMALL, SMALL, "free", others={
            0: ["init", SMALL, "line", SMALL, "free"], 2: ["init", SMALL, "+" + SMALL, "line", "wait", "free"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        ranks[2].expect("started", "DDL_OK")
        for r in 0, 2:
            ranks[r].expect("ready")
        return ranks

    def stop_all(self, ranks, seconds):
        for number in signal.SIGSTOP, signal.SIGCONT:
            for rank in ranks:
                os.kill(rank.pid, number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)

    def check_all_stopped(self, transport):
        """As by Ctrl-Z: for longer than the limit, and then they have the rest of their time."""
        ranks = self.begin_all_but_rank_0(DDL_TRANSPORT=transport)
        time.sleep(self.LIMIT / 2)
        self.stop_all(ranks, 1.5 * self.LIMIT)
        time.sleep(self.LIMIT / 8)
        ranks[0].go()
        ranks[2].go()
        for rank, event in zip(ranks, ("call", "call", "wait")):
            rank.expect(event, "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def check_limit_after_stop(self):
        ranks = self.begin_all_but_rank_0()
        time.sleep(self.LIMIT / 2)
        self.stop_all(ranks, 1.5 * self.LIMIT)
        continued = time.monotonic_ns()
        record = ranks[1].expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 0, record)
        self.assertGreater(self.seconds(continued, record["end_ns"]), self.LIMIT / 4)
        self.assert_within(record, continued, self.LIMIT / 2 + 1)

    def check_seldom_run(self):
        """Who gets no CPU most of the time has no more time than others for that."""
        ranks = self.begin_all_but_rank_0()
        begun = time.monotonic()
        while time.monotonic() - begun < 4 * self.LIMIT:
            self.stop_all(ranks, 1.2)
            time.sleep(0.05)
        record = ranks[1].expect("call", "DDL_ETIMEDOUT")
        # They run, and find it out and settle it, for 50 ms in each 1.25 s.
        self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), 2 * self.LIMIT + bound(2) + 1.25, record)

    def test_time_in_which_all_were_stopped_does_not_count(self):
        self.at_once((self.check_all_stopped, "auto"), (self.check_all_stopped, "tcp"), (self.check_limit_after_stop,),
                     (self.check_seldom_run,))

    def test_a_receive_without_a_send(self):
        world = self.world(2, DDL_TIMEOUT="1s")
        ranks = [world.start(0, "init", SMALL, "recv:10:int32:1", SMALL, "free"),
                 world.start(1, "init", SMALL, "line")]
        ranks[0].expect("init", "DDL_OK")
        ranks[0].expect("call", "DDL_OK")
        record = ranks[0].expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 1, record)
        self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), 1 + bound(1))
        self.assert_gone_bad(ranks[0])

    def check_elsewhere(self, call, words):
        """All are told whose message it is that did not end, also those that are in something else."""
        world = self.world(3, DDL_TIMEOUT="60s")
        ranks = [world.start(0, "init", SMALL, "barrier"), world.start(1, "init", SMALL, "line", "barrier"),
                 world.start(2, "init", SMALL, call, DDL_TIMEOUT="1s")]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
        for r in (0, 2):
            record = ranks[r].expect("call", "DDL_ETIMEDOUT")
            self.assertEqual(record["culprit"], 1, record)
            self.assertRegex(record["text"], rf"{'barrier#2' if r == 0 else call.split(':')[0] + '#1'} comm=world rank {r}@\S+: "
                                             rf"rank 1 \(pid \d+ on \S+\) has not {words} within")

    def test_a_message_that_does_not_end_is_told_as_such_by_all(self):
        self.at_once((self.check_elsewhere, "recv:10:int32:1", r"sent all of what rank 2 receives \(recv#1\)"),
                     (self.check_elsewhere, "send:2000000:int32:1", r"taken all of what rank 2 sends \(send#1\)"))

    def test_started_and_never_waited_for(self):
        """The deadline holds without anybody waiting: a later wait returns at once."""
        world = self.world(2, DDL_TIMEOUT="1s")
        late = world.start(1, "init", SMALL, "line")
        rank = world.start(0, "init", SMALL, "+" + SMALL, "line", "wait", SMALL, "free")
        rank.expect("init", "DDL_OK")
        rank.expect("call", "DDL_OK")
        started = rank.expect("started", "DDL_OK")
        rank.expect("ready")
        late.expect("init", "DDL_OK")
        late.expect("call", "DDL_OK")
        late.expect("ready")
        rank.go()
        record = rank.expect("wait", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 1, record)
        self.assertLess(self.seconds(started["begin_ns"], record["end_ns"]), 1 + bound(1))
        self.assert_gone_bad(rank)

    def test_an_argument_error_changes_nothing(self):
        """The peers entered, wait, and time out naming the rank whose call was refused."""
        world = self.world(2, DDL_TIMEOUT="1s")
        good = world.start(0, "init", "allreduce:8:float32:sum", SMALL, "free")
        bad = world.start(1, "init", "allreduce:8:float32:band", "line", SMALL)
        bad.expect("init", "DDL_OK")
        bad.expect("call", "DDL_EINVAL")
        bad.expect("ready")
        good.expect("init", "DDL_OK")
        record = good.expect("call", "DDL_ETIMEDOUT")
        self.assertEqual(record["culprit"], 1, record)
        self.assert_gone_bad(good)


if __name__ == "__main__":
    main(__doc__)
