"""Calls that go to NCCL: which do, what ranks are told when NCCL cannot be used, and when it fails in a call.

    test_nccl.py GPU_RANK NCCL_RANK DRIVER OLD_DRIVER NCCL

DRIVER and NCCL stand in for the CUDA driver (standin.c) and for libnccl.so.2 (standin_nccl.c); OLD_DRIVER lacks what
is not needed without NCCL.
"""
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process"))
from world import World, bound  # noqa: E402  (world.py is beside the other tests of processes)

GPU_RANK = NCCL_RANK = DRIVER = OLD_DRIVER = NCCL = None
# For files of the stand-in for NCCL; in memory where there is such a place, as a busy disk may hold up those who write.
FOLDER = tempfile.TemporaryDirectory(prefix="ddl-test-nccl-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
COUNT = 50_000  # floats: too many for a board
CALLS = 6
HAS_GPU = any(os.path.exists(place) for place in ("/dev/nvidiactl", "/dev/dxg"))
LIMIT_MS = int(1000 * bound(3))  # of calls that hang


class Calls(unittest.TestCase):
    def run_world(self, nranks, calls=CALLS, gpus=None, own=None, dies=None, driver=None, **environment):
        """All ranks' records of the call that failed (None: it died), and what they wrote. gpus: of each rank; own: more
        variables of one rank; driver: of rank 0."""
        began_ns = time.monotonic_ns()
        variables = {"DDL_TEST_STANDIN": "gpus=4", "DDL_LOG": "debug", "DDL_GPU": "nccl", "LD_LIBRARY_PATH": os.path.dirname(NCCL),
                     **environment}
        records, lines = [], []
        with World(GPU_RANK, nranks, TMPDIR=FOLDER.name, **variables) as world:
            ranks = [world.start(r, driver if driver and r == 0 else DRIVER, calls, COUNT, LOCAL_RANK=r if gpus is None else gpus[r], **(own or {}).get(r, {}))
                     for r in range(nranks)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
            for r, rank in enumerate(ranks):
                records.append(rank.next() if r == dies else rank.expect("allreduce"))
            for r, (rank, record) in enumerate(zip(ranks, records)):
                if r == dies:
                    rank.finish(-9)
                    continue
                if record["status"] != "DDL_OK":
                    rank.expect("after", "DDL_EABORTED")
                    self.assertLess((record["end_ns"] - began_ns) / 1e9, LIMIT_MS / 1000 + bound(10), record)
                record["alive"] = rank.expect("free", "DDL_OK")["alive"]
                rank.finish()
            lines = ["".join(rank.errors) for rank in ranks]
        return records, lines

    def assert_all(self, records, status, culprit, *words):
        for record in records:
            self.assertEqual((record["status"], record["culprit"]), (status, culprit), record)
            for word in words:
                self.assertIn(word, record["text"])

    def assert_uses(self, lines, uses):
        for line in lines:
            self.assertEqual("calls on buffers of GPUs go to NCCL 22703" in line, uses, line)


class Choice(Calls):
    def test_who_asks_for_nccl_gets_it(self):
        records, lines = self.run_world(3)
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, True)

    def test_a_rank_alone_gets_it_too(self):
        records, lines = self.run_world(1)
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, True)

    def test_nobody_else_does(self):
        # At the start of the latter no rank has a driver, unless this machine has one.
        for choice in ("staged", *(() if HAS_GPU else ("auto", None))):
            with self.subTest(choice=choice):
                records, lines = self.run_world(2, DDL_GPU=choice)
                self.assert_all(records, "DDL_OK", -1)
                self.assert_uses(lines, False)

    def test_all_ranks_ask_for_it_or_none(self):
        for odd in "staged", "nccl":
            world = World(GPU_RANK, 3, DDL_GPU="nccl" if odd == "staged" else None)
            self.addCleanup(world.__exit__)
            began = time.monotonic()
            ranks = [world.start(r, DRIVER, 1, 10, **({"DDL_GPU": odd} if r == 1 else {})) for r in range(3)]
            has, has_not = (0, 1) if odd == "staged" else (1, 0)
            for rank in ranks:
                record = rank.expect("init", "DDL_ECONFIG")
                self.assertEqual(record["culprit"], 1)
                self.assertRegex(record["text"], rf"rank {has} on .*\[{ranks[has].pid}\] has DDL_GPU=nccl, and "
                                                 rf"rank {has_not} on .*\[{ranks[has_not].pid}\] has not")
            self.assertLess(time.monotonic() - began, bound(5))

    def test_a_wrong_choice_is_told(self):
        with World(GPU_RANK, 1, DDL_GPU="cuda") as world:
            record = world.start(0, DRIVER, 1, 10).expect("init", "DDL_ECONFIG")
            self.assertIn("DDL_GPU=cuda", record["text"])

    def test_not_where_ranks_connect_late(self):
        with World(GPU_RANK, 8, DDL_GPU="nccl", DDL_CONNECT="lazy") as world:
            for rank in [world.start(r, DRIVER, 1, 10) for r in range(8)]:
                record = rank.expect("init", "DDL_ECONFIG")
                self.assertIn("DDL_GPU=nccl, but not all pairs", record["text"])
                self.assertEqual(record["culprit"], 0, record)  # what all have set alike is told of the first

    def refused(self, reason, culprit, nranks=2, **environment):
        records, lines = self.run_world(nranks, **environment)
        self.assert_uses(lines, False)
        self.assert_all(records, "DDL_EDEVICE", culprit, "DDL_GPU=nccl, but NCCL cannot be used", "DDL_GPU=staged")
        for record in records:
            self.assertRegex(record["text"], reason)

    def test_a_driver_that_does_not_tell_gpus_apart(self):
        old = pathlib.Path(FOLDER.name, "libcuda.so.1")  # it is known by its name
        old.symlink_to(OLD_DRIVER)
        records, _ = self.run_world(2, driver=old, DDL_GPU="staged")
        self.assert_all(records, "DDL_OK", -1)
        self.refused(r"rank 0 \(.*\): the CUDA driver, libcuda.so.1, has no cuDeviceGetUuid_v2", 0, driver=old)

    def test_no_id_is_made_that_ranks_will_not_meet_by(self):
        self.refused("use the same GPU", 1, gpus=[1, 1], DDL_TEST_STANDIN_NCCL="init=id")

    def test_two_ranks_on_one_gpu_where_nccl_is_told_to_take_them(self):
        told = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
        records, lines = self.run_world(3, gpus=[1, 0, 1], DDL_TEST_STANDIN_NCCL="version=23003", **told)
        self.assert_all(records, "DDL_OK", -1)
        self.assertTrue(all("go to NCCL 23003" in line for line in lines), lines)
        self.refused("use the same GPU, without NCCL_MULTI_RANK_GPU_ENABLE=1", 1, gpus=[1, 1], own={0: told})
        for record in self.run_world(2, gpus=[1, 1], **told)[0]:  # an older one; which rank says so first is open
            self.assertEqual(record["status"], "DDL_EDEVICE", record)
            self.assertIn("GPU 1: NCCL 2.27.3: ncclCommInitRankConfig: invalid usage", record["text"])

    def test_versions_differ(self):
        self.refused(r"rank 0 \(.*\) has NCCL 22703, but rank 2 \(.*\) has 22805", 2, nranks=3,
                     DDL_TEST_STANDIN_NCCL_2="version=22805")

    def test_two_ranks_on_one_gpu(self):
        self.refused(r"rank 0 \(.*\) and rank 2 \(.*\) use the same GPU", 2, nranks=3, gpus=[1, 0, 1])

    def test_a_version_that_is_too_old(self):
        self.refused(r"rank 1 \(.*\): NCCL has version 22606; it must be 2.27.3 or later", 1,
                     DDL_TEST_STANDIN_NCCL_1="version=22606")

    def test_a_rank_without_nccl(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libnccl.so.2").touch()  # so that none is found elsewhere
            self.refused(r"rank 1 \(.*\): NCCL is not loaded, and not where the system looks: .*libnccl\.so\.2", 1,
                         own={1: {"LD_LIBRARY_PATH": folder}})

    def test_a_rank_alone_is_told_why_there_is_none(self):
        for how, reason in (("version=22606", r"NCCL has version 22606; it must be 2.27.3 or later"),
                            ("init=id", r"GPU 0: NCCL 2\.27\.3: ncclGetUniqueId: unhandled system error"),
                            ("init=fail", r"GPU 0: NCCL 2\.27\.3: ncclCommInitRankConfig: unhandled system error")):
            with self.subTest(how):
                self.refused(reason, 0, nranks=1, DDL_TEST_STANDIN_NCCL=how)

    def test_meeting_fails_on_one_rank(self):
        # The other one is in the middle of it, and is stopped.
        self.refused(r"rank 1 \(.*\): GPU 1: NCCL 2\.27\.3: ncclCommInitRankConfig: unhandled system error: the stand-in "
                     r"was told\?to fail", 1, DDL_TEST_STANDIN_NCCL_1="init=fail")

    def test_the_environment_says_that_nccl_blocks(self):
        self.refused(r"rank 1 \(.*\): NCCL_COMM_BLOCKING=1 ", 1, own={1: {"NCCL_COMM_BLOCKING": "1"}, 0: {"NCCL_COMM_BLOCKING": "0"}})

    def test_the_environment_says_by_which_id_ranks_meet(self):
        self.refused(r"rank 0 \(.*\): NCCL_COMM_ID=127.0.0.1:29400 would give all", 0, own={0: {"NCCL_COMM_ID": "127.0.0.1:29400"}})

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "built without failpoints")
    def test_no_thread_for_what_takes_long(self):
        records, lines = self.run_world(2, own={0: {"DDL_FAILPOINTS": "api.thread"}})
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, True)

    def test_there_is_no_id(self):
        self.refused(r"rank 0 \(.*\): GPU 0: NCCL 2\.27\.3: ncclGetUniqueId: unhandled system error", 0,
                     DDL_TEST_STANDIN_NCCL_0="init=id")


class Default(Calls):
    """Where nobody says whether to use it, and there is a driver from the start."""

    def run_world(self, nranks, **environment):
        return super().run_world(nranks, **{"DDL_GPU": None, "DDL_TEST_DRIVER_FIRST": "1", **environment})

    def falls_back(self, reason, nranks=2, told_by=0, **environment):
        records, lines = self.run_world(nranks, **environment)
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, False)
        self.assertRegex("".join(lines) if told_by is None else lines[told_by], f"calls on buffers of GPUs go through the hosts, as NCCL cannot be used: {reason}")

    def test_it_is_used_where_it_can_be(self):
        for choice in (None, "auto"):
            with self.subTest(choice=choice):
                records, lines = self.run_world(3, DDL_GPU=choice)
                self.assert_all(records, "DDL_OK", -1)
                self.assert_uses(lines, True)

    def test_not_where_a_rank_declines(self):
        records, lines = self.run_world(3, own={1: {"DDL_GPU": "staged"}})
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, False)

    @unittest.skipIf(HAS_GPU, "each rank has one here")
    def test_not_where_a_rank_has_no_driver_at_the_start(self):
        records, lines = self.run_world(3, own={1: {"DDL_TEST_DRIVER_FIRST": None}})
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, False)

    def test_not_where_ranks_connect_late(self):
        records, lines = self.run_world(8, DDL_CONNECT="lazy", DDL_TEST_STANDIN="gpus=8")
        self.assert_all(records, "DDL_OK", -1)
        self.assert_uses(lines, False)

    def test_ranks_that_share_a_gpu(self):
        self.falls_back(r"rank 0 \(.*\) and rank 2 \(.*\) use the same GPU", nranks=3, gpus=[1, 0, 1])

    def test_versions_differ(self):
        self.falls_back(r"rank 0 \(.*\) has NCCL 22703, but rank 2 \(.*\) has 22805", nranks=3, DDL_TEST_STANDIN_NCCL_2="version=22805")

    def test_a_rank_whose_nccl_is_too_old(self):
        self.falls_back("NCCL has version 22606; it must be 2.27.3 or later", told_by=1, DDL_TEST_STANDIN_NCCL_1="version=22606")

    def test_a_rank_without_nccl(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libnccl.so.2").touch()
            self.falls_back("NCCL is not loaded, and not where the system looks", told_by=1, own={1: {"LD_LIBRARY_PATH": folder}})

    def test_the_environment_says_that_nccl_blocks(self):
        self.falls_back("NCCL_COMM_BLOCKING=1 ", told_by=1, own={1: {"NCCL_COMM_BLOCKING": "1"}})

    def test_the_environment_says_by_which_id_ranks_meet(self):
        self.falls_back("NCCL_COMM_ID=127.0.0.1:29400 ", told_by=0, own={0: {"NCCL_COMM_ID": "127.0.0.1:29400"}})

    def test_there_is_no_id(self):
        self.falls_back("GPU 0: NCCL 2.27.3: ncclGetUniqueId: unhandled system error", nranks=3, DDL_TEST_STANDIN_NCCL_0="init=id")

    def test_meeting_fails_on_one_rank(self):
        failed = "GPU 1: NCCL 2.27.3: ncclCommInitRankConfig: unhandled system error"
        self.falls_back(failed, nranks=3, told_by=1, DDL_TEST_STANDIN_NCCL_1="init=fail")
        self.falls_back("another rank tells why", nranks=3, told_by=2, DDL_TEST_STANDIN_NCCL_1="init=fail")

    def test_what_does_not_come_up_is_not_waited_for_until_the_deadline(self):
        for rank, how in ((1, "init=hang"), (0, "init=name"), (1, "init=block")):
            with self.subTest(how):  # all ranks wait for it, and one of them gives up first
                self.falls_back("it has not come up in time", told_by=None, DDL_TIMEOUT=f"{bound(2)}s",
                                **{f"DDL_TEST_STANDIN_NCCL_{rank}": how})

    def test_what_is_not_loaded_is_not_waited_for_until_the_deadline(self):
        self.falls_back("it is still being loaded", told_by=1, DDL_TIMEOUT=f"{bound(2)}s", DDL_TEST_STANDIN_NCCL_1="gate")

    def test_what_fails_later_is_told(self):
        records, _ = self.run_world(3, DDL_TEST_STANDIN_NCCL_1="fail=3")
        self.assert_all(records, "DDL_EDEVICE", 1, "rank 1", "GPU 1", "NCCL 2.27.3: ncclAllReduce: unhandled system error")


class Failures(Calls):
    def test_a_call_is_refused(self):
        records, lines = self.run_world(3, DDL_TEST_STANDIN_NCCL_1="fail=3")
        self.assert_uses(lines, True)
        self.assert_all(records, "DDL_EDEVICE", 1, "rank 1", "GPU 1", "NCCL 2.27.3: ncclAllReduce: unhandled system error",
                        "the stand-in was told?to fail")

    def test_a_call_fails_while_it_runs(self):
        records, _ = self.run_world(3, DDL_TEST_STANDIN_NCCL_2="break=4")
        self.assert_all(records, "DDL_EDEVICE", 2, "rank 2", "GPU 2", "ncclAllReduce")

    def test_a_call_of_a_rank_alone_fails(self):
        for how in ("fail=3", "break=3", "fail=1"):
            with self.subTest(how):
                records, _ = self.run_world(1, DDL_TEST_STANDIN_NCCL=how)
                self.assert_all(records, "DDL_EDEVICE", 0, "rank 0", "GPU 0", "NCCL 2.27.3: ncclAllReduce: unhandled system error")

    def test_what_the_driver_refuses_is_told_by_all(self):
        # The first two streams are those of copies.
        for call, numbers, words in (("cuStreamCreateWithPriority", (3,), "DDL_GPU=nccl, but NCCL cannot be used"),
                                     ("cuEventCreate", (1, 16), "DDL_GPU=nccl, but NCCL cannot be used"), ("cuEventRecord", (1, 2, 5), "cuEventRecord")):
            for nranks in (1, 2):
                for number in numbers:
                    with self.subTest(call=call, nranks=nranks, number=number):
                        culprit = nranks - 1
                        records, _ = self.run_world(nranks, **{f"DDL_TEST_STANDIN_{culprit}": f"gpus=4,refuse={call}:{number}"})
                        self.assert_all(records, "DDL_EDEVICE", culprit, f"rank {culprit}", f"GPU {culprit}", words, "the stand-in was told to fail")
                        self.assertEqual([record["alive"] for record in records], [0] * nranks)

    def test_the_failure_of_another_is_not_this_ranks(self):
        records, _ = self.run_world(2, DDL_TEST_STANDIN_NCCL_0="remote=3")
        self.assert_all(records, "DDL_EDEVICE", -1, "rank 0", "remote process exited")

    def test_a_rank_that_dies_in_a_call_is_named(self):
        for call in (1, 4):
            with self.subTest(call=call):
                records, _ = self.run_world(3, dies=1, DDL_TEST_STANDIN_NCCL_1=f"die={call}")
                self.assert_all([records[0], records[2]], "DDL_EPEERLOST", 1, "rank 1")

    def test_a_rank_that_does_something_else_is_named(self):
        with World(GPU_RANK, 2, DDL_TEST_STANDIN="gpus=4", DDL_GPU="nccl", TMPDIR=FOLDER.name, LD_LIBRARY_PATH=os.path.dirname(NCCL)) as world:
            ranks = [world.start(r, DRIVER, CALLS + 2 * r, COUNT, LOCAL_RANK=r) for r in range(2)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
            ranks[0].expect("allreduce", "DDL_OK")
            ranks[0].expect("free", "DDL_EMISMATCH")
            record = ranks[1].expect("allreduce", "DDL_EMISMATCH")
            self.assertRegex(record["text"], r"rank 0 .* called comm_free\(\).*rank 1 .* called allreduce\(count 50000")


class Situations(unittest.TestCase):
    """What nccl_rank.c has rows for."""

    def play(self, what, nranks, own=None, **environment):
        variables = {"DDL_TEST_STANDIN": "gpus=4", "DDL_LOG": "debug", "LD_LIBRARY_PATH": os.path.dirname(NCCL), "DDL_GPU": "nccl",
                     **environment}
        world = World(NCCL_RANK, nranks, TMPDIR=FOLDER.name, **variables)
        world.__enter__()
        self.addCleanup(world.__exit__)
        ranks = [world.start(r, DRIVER, what, LOCAL_RANK=r, **(own or {}).get(r, {})) for r in range(nranks)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
        return ranks

    def assert_exact(self, rank, event):
        self.assertIs(rank.expect(event, "DDL_OK")["exact"], True)

    def end(self, ranks, uses=None):
        """uses: how many communicators of NCCL each rank has had."""
        for rank in ranks:
            rank.expect("free", "DDL_OK")
        self.ended(ranks, uses)

    def ended(self, ranks, uses=None):
        for rank in ranks:
            rank.finish()
            if uses is not None:
                self.assertEqual("".join(rank.errors).count("calls on buffers of GPUs go to NCCL"), uses, rank.story())

    def free_without_rank_1(self, ranks):
        """Which has left the world without freeing it."""
        for rank in ranks:
            if rank is not ranks[1]:
                rank.go()
                rank.next()
        self.ended(ranks, uses=1)

    def test_more_calls_in_flight_than_there_are_words_for(self):
        ranks = self.play("many", 3)
        for rank in ranks:
            self.assert_exact(rank, "many")
        self.end(ranks, uses=1)

    def test_more_calls_in_flight_where_nobody_asks_for_it(self):
        for what in ("many", "mixed"):
            ranks = self.play(what, 3, DDL_GPU=None, DDL_TEST_DRIVER_FIRST="1")
            for rank in ranks:
                self.assert_exact(rank, what)
            self.end(ranks, uses=1)

    def test_calls_on_hosts_that_are_like_each_other(self):
        # On one CPU, where they go over the board; and what only some ranks can repeat is counted by all.
        ranks = self.play("again", 3, DDL_GPU=None, DDL_TEST_DRIVER_FIRST="1", DDL_TIMEOUT=f"{bound(10)}s")
        for rank in ranks:
            self.assert_exact(rank, "again")
        self.end(ranks, uses=0)

    def test_many_calls_of_which_some_go_by_hosts(self):
        ranks = self.play("mixed", 3)
        for rank in ranks:
            self.assert_exact(rank, "mixed")
        self.end(ranks, uses=1)

    def test_survivors_have_a_communicator_of_their_own(self):
        ranks = self.play("shrink", 3)[:2]
        for rank in ranks:
            rank.expect("shrink", "DDL_OK")
            for _ in range(3):
                self.assert_exact(rank, "reduce")
        self.ended(ranks, uses=1)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "built without failpoints")
    def test_words_that_come_too_early_are_asked_for(self):
        # What each rank hears first is lost.
        ranks = self.play("leave-after", 3, DDL_FAILPOINTS="votes.word:1", DDL_TEST_STANDIN_NCCL_2="late=5000")
        for rank in ranks:
            self.assert_exact(rank, "first")
            self.assert_exact(rank, "second")
        self.free_without_rank_1(ranks)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "built without failpoints")
    def test_a_first_word_that_came_too_early_is_asked_for_soon(self):
        # Rank 1 loses the first one that it hears, which is of the part that is left. On a busy machine it may be asked
        # for later than after 20 ms, but not always so late as later words, after 200.
        for tried in range(1, 6):
            ranks = self.play("shrink", 3, own={1: {"DDL_FAILPOINTS": "votes.word:1"}}, DDL_TIMEOUT=f"{bound(10)}s")[:2]
            for rank in ranks:
                rank.expect("shrink", "DDL_OK")
            first = ranks[1].expect("reduce", "DDL_OK")
            self.assertGreaterEqual(first["ms"], 20, "no word was lost")
            if first["ms"] < 180:
                return
        self.fail(f"it was asked for late {tried} times")

    def test_a_rank_that_leaves_inside_a_call_is_named(self):
        ranks = self.play("leave-inside", 3, DDL_TEST_STANDIN_NCCL_1="hang=2")
        for rank in ranks:
            self.assert_exact(rank, "first")
        ranks[1].expect("left", "DDL_OK")
        for rank in (ranks[0], ranks[2]):
            record = rank.expect("second", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assertIn("its process ended", record["text"])  # whether it has left, or its connection was lost first
        self.end([ranks[0], ranks[2]])

    def test_what_is_stopped_at_exit_does_not_call_a_driver_that_goes(self):
        # Before the driver's own handler it is waited for; behind that nothing is stopped any more.
        for what in "end-inside", "end-behind-the-driver":
            with self.subTest(what):
                ranks = self.play(what, 2, DDL_TEST_STANDIN="gpus=4,gone=1", DDL_TEST_STANDIN_NCCL_1="hang=2,stop=200")
                for rank in ranks:
                    self.assert_exact(rank, "first")
                ranks[1].finish()
                self.assertEqual(ranks[0].expect("second", "DDL_EPEERLOST")["culprit"], 1)
                self.end([ranks[0]])
        for nranks in (1, 2):
            with self.subTest(nranks=nranks):
                ranks = self.play("end-alone", nranks, DDL_TEST_STANDIN="gpus=4,gone=1", DDL_TEST_STANDIN_NCCL="hang=2,stop=200")
                for rank in ranks:
                    self.assert_exact(rank, "first")
                self.ended(ranks, uses=1)

    def test_what_does_not_stop_at_exit_is_not_waited_for_for_long(self):
        ranks = self.play("end-inside", 2, DDL_TEST_STANDIN_NCCL_1="hang=2,stuck")
        for rank in ranks:
            self.assert_exact(rank, "first")
        began = time.monotonic()
        ranks[1].finish()
        self.assertLess(time.monotonic() - began, bound(3))
        ranks[0].expect("second", "DDL_EPEERLOST")
        self.end([ranks[0]])

    def test_nobody_waits_at_exit_for_what_has_no_end(self):
        ranks = self.play("exit-inside", 2, DDL_TEST_STANDIN_NCCL_1="hang=2")
        for rank in ranks:
            self.assert_exact(rank, "first")
        ranks[1].finish()
        self.assertEqual(ranks[0].expect("second", "DDL_EPEERLOST")["culprit"], 1)
        self.end([ranks[0]])

    def test_nobody_waits_at_exit_for_what_a_rank_alone_has_without_end(self):
        for nranks in (1, 2):  # in the world, and in a part of it
            with self.subTest(nranks=nranks):
                began = time.monotonic()
                ranks = self.play("exit-alone", nranks, DDL_TEST_STANDIN_NCCL="hang=2", DDL_TIMEOUT=f"{bound(10)}s")
                for rank in ranks:
                    self.assert_exact(rank, "first")
                self.ended(ranks, uses=1)
                self.assertLess(time.monotonic() - began, bound(5))

    def test_a_rank_alone_does_not_go_to_nccl_after_the_exit(self):
        for nranks in (1, 2):
            with self.subTest(nranks=nranks):
                ranks = self.play("exit-before-a-call", nranks, DDL_TEST_STANDIN_NCCL="hang=2", DDL_TIMEOUT=f"{bound(10)}s")
                for rank in ranks:
                    self.assert_exact(rank, "first")
                for rank in ranks:
                    record = rank.expect("late", "DDL_EABORTED")
                    self.assertIn("this process is exiting; call before main returns", record["text"])
                    self.assertLess(record["ms"], 1000 * bound(3), record)
                self.ended(ranks, uses=1)

    def test_who_dies_as_it_frees_is_not_waited_for_for_ever(self):
        ranks = self.play("part-with-the-dead", 2, DDL_TEST_STANDIN_NCCL_1="dies_parting")
        for rank in ranks:
            self.assert_exact(rank, "first")
        ranks[1].finish(-9)
        self.assert_exact(ranks[0], "told")
        ranks[0].finish()

    def test_what_nccl_does_not_end_for_a_rank_alone_is_nobody_elses(self):
        rank, = self.play("free-early", 1, DDL_TEST_STANDIN_NCCL="endless")
        self.assert_exact(rank, "first")
        self.ended([rank], uses=1)
        told = "".join(rank.errors)
        self.assertIn("GPU 0: NCCL has not ended its communicator of one rank within 5 s; it is aborted here", told)
        self.assertNotIn("other ranks", told)

    def leave_the_dead(self, own=None):
        ranks = self.play("idle-with-the-dead", 3, own=own)
        for rank in ranks:
            self.assert_exact(rank, "first")
        ranks[1].finish(-9)
        for rank in (ranks[0], ranks[2]):
            self.assertEqual(rank.expect("second", "DDL_EPEERLOST")["culprit"], 1)
        for rank in (ranks[0], ranks[2]):
            self.assert_exact(rank, "quiet")
            rank.finish()

    def test_nobody_tries_to_part_from_one_who_has_died(self):
        self.leave_the_dead()

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "built without failpoints")
    def test_nor_where_there_was_no_thread_to_abort_it_when_that_was_heard(self):
        self.leave_the_dead(own={r: {"DDL_FAILPOINTS": "nccl.part:1"} for r in (0, 2)})

    def test_who_has_made_other_calls_before_is_named(self):
        # Without boards, on which ranks would wait for each other.
        ranks = self.play("apart", 2, DDL_TRANSPORT="tcp")
        for rank in ranks:
            record = rank.expect("reduce", "DDL_EMISMATCH")
            self.assertEqual(record["culprit"], 1, record)
            self.assertRegex(record["text"], r"call 301 of rank 0 \(.*\) meets call 1 of rank 1 \(.*something else before")
        self.end(ranks)

    def test_a_rank_that_leaves_when_it_is_done_disturbs_nobody(self):
        ranks = self.play("leave-after", 2, DDL_TEST_STANDIN_NCCL_0="late=60000")
        for rank in ranks:
            self.assert_exact(rank, "first")
            self.assert_exact(rank, "second")
        self.free_without_rank_1(ranks)

    def test_two_communicators_do_not_wait_for_each_other(self):
        ranks = self.play("two", 2, DDL_TEST_STANDIN_NCCL="exclusive")
        for rank in ranks:
            self.assert_exact(rank, "alone")
            self.assert_exact(rank, "alone")
            self.assert_exact(rank, "both")
            self.assert_exact(rank, "again")
            self.assert_exact(rank, "again")
        self.end(ranks, uses=2)

    def test_communicators_of_nccl_end_at_a_time(self):
        for what in "parts", "parts-alone":
            with self.subTest(what=what):
                ranks = self.play(what, 2, DDL_TEST_STANDIN_NCCL="part=600")
                for rank in ranks:
                    for _ in range(6):
                        self.assert_exact(rank, "part")
                for rank in ranks:
                    self.assertLess(rank.expect("free", "DDL_OK")["ms"], 1000 * (0.6 + bound(1.2)))
                self.ended(ranks, uses=6)

    def test_a_part_goes_on_while_nccl_comes_up(self):
        ranks = self.play("beside", 2, DDL_TEST_STANDIN_NCCL="gate")
        for event in ("beside", "beside", "reduce"):
            for rank in ranks:
                self.assert_exact(rank, event)
        self.end(ranks, uses=1)

    def test_streams_are_ordered_on_both_sides(self):
        """Their calls go by hosts, as all vote; the call behind them goes to NCCL."""
        for nranks in (2, 3):
            with self.subTest(nranks=nranks):
                ranks = self.play("streams", nranks, DDL_TEST_STANDIN="gpus=4,delay=100")
                for rank in ranks:
                    for event in ("begun", "behind", "streams"):
                        self.assert_exact(rank, event)
                self.end(ranks, uses=1)

    def test_a_call_beside_a_stream_that_waits_goes_by_hosts_where_nobody_asks_for_nccl(self):
        ranks = self.play("stream-beside", 2, DDL_GPU=None, DDL_TEST_DRIVER_FIRST="1")
        for rank in ranks:
            for event in ("by hosts", "in the stream", "by NCCL", "made"):
                self.assert_exact(rank, event)
        self.end(ranks)

    def test_a_stream_that_does_not_come_to_a_call_is_named(self):
        ranks = self.play("stuck-stream", 3, DDL_TIMEOUT=f"{LIMIT_MS}ms")
        for rank in ranks:
            self.assert_exact(rank, "first")
        for rank in ranks:
            record = rank.expect("stuck", "DDL_EDEVICE")
            self.assertEqual(record["culprit"], 2, record)
            self.assertIn("the stream of GPU 2 has not come to it within ", record["text"])
            for event in ("kept", "goes on"):
                self.assert_exact(rank, event)

    def test_a_group_of_another_thread_disturbs_nobody(self):
        ranks = self.play("group-beside", 2)
        for rank in ranks:
            for event in ("first", "beside", "exchange", "after"):
                self.assert_exact(rank, event)
        self.end(ranks, uses=1)

    def test_what_is_called_inside_a_group_of_the_programs_is_left_to_it(self):
        # As cuda.h says, for want of a way to ask NCCL.
        ranks = self.play("group-around", 2)
        for rank in ranks:
            for event in ("first", "inside", "ended"):
                self.assert_exact(rank, event)
        self.end(ranks, uses=1)

    def test_a_capture_is_spoilt_where_nccl_comes_up_or_ends_meanwhile(self):
        # By threads of NCCL; what ddl calls lets it alone.
        ranks = self.play("capture-before-nccl", 2)
        for rank in ranks:
            rank.expect("first", "DDL_EDEVICE")
        for rank in ranks:
            self.assert_exact(rank, "spoilt")
        ranks = self.play("capture-behind-nccl", 2)
        for rank in ranks:
            for event in ("first", "second", "kept"):
                self.assert_exact(rank, event)
        for rank in ranks:
            rank.expect("free", "DDL_OK")
            self.assert_exact(rank, "spoilt")
            rank.finish()

    def test_managed_memory_is_copied(self):
        ranks = self.play("managed", 2)
        for rank in ranks:
            self.assert_exact(rank, "managed")
        self.end(ranks, uses=0)

    def test_buffers_are_free_when_a_call_has_failed(self):
        ranks = self.play("fail", 2, DDL_TEST_STANDIN_NCCL_0="hang=2,stop=300", DDL_TEST_STANDIN_NCCL_1="fail=2")
        for rank in ranks:
            self.assert_exact(rank, "first")
            rank.expect("failed", "DDL_EDEVICE")
            self.assert_exact(rank, "kept")
        self.ended(ranks, uses=1)


    def test_an_abort_does_not_wait_for_a_stream_that_waits_for_it(self):
        # Else for 10 s, and then says that NCCL does not stop.
        ranks = self.play("aborted-before-a-stream", 2, DDL_TEST_STANDIN_NCCL="hang=2,frees")
        for rank in ranks:
            self.assert_exact(rank, "first")
            self.assert_exact(rank, "began")
        for r, rank in enumerate(ranks):
            for event in ("behind", "aborted")[r:]:
                record = rank.expect(event, "DDL_EABORTED")
                self.assertNotIn("may still write", record["text"])
                self.assertLess(record["ms"], 1000 * bound(3), record)
            rank.expect("free", "DDL_OK")
            rank.finish()

    def test_an_abort_ends_what_hangs_for_a_rank_alone(self):
        for how in ("init=hang", "hang=1"):
            with self.subTest(how):
                rank, = self.play("aborted", 1, DDL_TEST_STANDIN_NCCL=how)
                rank.expect("began", "DDL_OK")
                record = rank.expect("aborted", "DDL_EABORTED")
                self.assertIn("enough", record["text"])
                self.assertLess(record["ms"], 1000 * bound(2))
                rank.expect("free", "DDL_OK")
                rank.finish()


class Deadlines(Calls):
    def test_what_hangs_ends_at_the_deadline(self):
        # At the same time, as each takes as long as its deadline. The third: what is aborted does not stop. The last three:
        # NCCL does not come up; the second of them: it is another rank whose deadline comes first; the third: the other
        # ranks know of nobody who has not begun to meet them.
        late_ms = 2 * LIMIT_MS
        cases = [({"DDL_TEST_STANDIN_NCCL_1": "hang=3"}, "NCCL has not finished within"),
                 ({"DDL_TEST_STANDIN_NCCL_1": "init=hang"}, "NCCL has not connected all ranks within"),
                 ({"DDL_TEST_STANDIN_NCCL_1": "hang=4", "DDL_TEST_STANDIN_NCCL_0": "stuck"}, "NCCL has not finished within"),
                 ({"DDL_TEST_STANDIN_NCCL_1": "gate"}, "NCCL has not come up within"),
                 ({"DDL_TEST_STANDIN_NCCL_0": "init=name", "own": {0: {"DDL_TIMEOUT": f"{late_ms}ms"}}}, "NCCL has not come up within"),
                 ({"DDL_TEST_STANDIN_NCCL_1": "init=block"}, "NCCL has not come up within")]
        culprits = [-1, -1, -1, 1, 0, 1]
        ended = {}

        def run(case):
            ended[case] = self.run_world(2, DDL_TIMEOUT=f"{LIMIT_MS}ms", **cases[case][0])

        threads = [threading.Thread(target=run, args=(case,)) for case in range(len(cases))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(ended), list(range(len(cases))))  # others have raised, and were printed
        for case, (records, lines) in ended.items():
            limit_ms = late_ms if case == 4 else LIMIT_MS
            self.assert_all(records, "DDL_EDEVICE", culprits[case], f"{cases[case][1]} {limit_ms} ms", "GPU")
            self.assertEqual("NCCL does not stop" in lines[0], case == 2, lines[0])
            self.assertEqual("may still write to the buffers" in records[0]["text"], case == 2, records[0])

    def leave_what_does_not_stop(self):
        """How the ranks freed the world, and how what was in flight ended."""
        with World(GPU_RANK, 2, TMPDIR=FOLDER.name, DDL_GPU="nccl", LD_LIBRARY_PATH=os.path.dirname(NCCL), DDL_TEST_STANDIN="gpus=4",
                   DDL_TEST_STANDIN_NCCL_1="hang=1,stuck") as world:
            ranks = [world.start(r, DRIVER, 0, COUNT, "leaving", LOCAL_RANK=r) for r in range(2)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("allreduce", "DDL_OK")
            return [(rank.expect("free"), rank.expect("waited")) for rank in ranks]

    def test_what_does_not_stop_when_the_world_is_freed_is_told(self):
        # Each rank gives the turn at NCCL to the first of many communicators that asks for it. Where these differ, no call
        # is at NCCL, so that none hangs: then it is tried again.
        for _ in range(5):
            ended = self.leave_what_does_not_stop()
            statuses = [record["status"] for records in ended for record in records]
            if statuses != ["DDL_OK"] * 4:
                break
        self.assertEqual(statuses, ["DDL_ETIMEDOUT", "DDL_EABORTED"] * 2, ended)
        for r, records in enumerate(ended):
            for record in records:
                self.assertEqual(r == 1, "NCCL does not stop here, and may still write to the buffers" in record["text"], record)

    def test_a_gpu_that_hangs_in_calls_at_nccl_and_in_copies_is_waited_for_once(self):
        # One communicator has its turn at NCCL, and those of the others that go by hosts copy on the same GPU. On a busy
        # machine it may take longer, but not each time.
        for tried in range(1, 6):
            with World(GPU_RANK, 3, TMPDIR=FOLDER.name, DDL_GPU="nccl", LD_LIBRARY_PATH=os.path.dirname(NCCL), DDL_TEST_STANDIN="gpus=4",
                       DDL_TEST_STANDIN_NCCL_1="hang=1,stuck", DDL_TEST_STANDIN_1="gpus=4,hangs=1") as world:
                ranks = [world.start(r, DRIVER, 0, COUNT, "leaving", LOCAL_RANK=r) for r in range(3)]
                began_ns, ended = [], []
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    began_ns.append(rank.expect("allreduce", "DDL_OK")["end_ns"])
                for rank in ranks:
                    ended.append(rank.expect("free", "DDL_ETIMEDOUT"))
                    rank.expect("waited", "DDL_EABORTED")
            for r, record in enumerate(ended):
                self.assertEqual(r == 1, "may still write to the buffers" in record["text"], record)
            took = [(record["end_ns"] - began) / 1e9 for record, began in zip(ended, began_ns)]
            if max(took) < 5:
                return
        self.fail(f"it was waited for longer than ddl_comm_free may take {tried} times; at last: {took}")

    def test_what_hangs_for_a_rank_alone_ends_at_the_deadline(self):
        cases = [("hang=3", "NCCL has not finished within"), ("hang=4,stuck", "NCCL has not finished within"),
                 ("init=hang", "NCCL has not come up within"), ("init=name", "NCCL has not come up within"),
                 ("init=block", "NCCL has not come up within")]
        ended = {}

        def run(how):
            ended[how] = self.run_world(1, DDL_TIMEOUT=f"{LIMIT_MS}ms", DDL_TEST_STANDIN_NCCL=how)

        threads = [threading.Thread(target=run, args=(how,)) for how, _ in cases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(ended), len(cases))  # others have raised, and were printed
        for how, words in cases:
            records, lines = ended[how]
            self.assert_all(records, "DDL_EDEVICE", 0, f"{words} {LIMIT_MS} ms", "GPU 0")
            self.assertEqual("NCCL does not stop" in lines[0], "stuck" in how, lines[0])
            self.assertEqual("may still write to the buffers" in records[0]["text"], "stuck" in how, records[0])


if __name__ == "__main__":
    GPU_RANK, NCCL_RANK, DRIVER, OLD_DRIVER, NCCL = (os.path.abspath(sys.argv.pop(1)) for _ in range(5))
    unittest.main()
