"""GPUs that fail or hang, and libraries that are missing: what all ranks of a small world are told.

    test_gpu_failures.py GPU_RANK DRIVER LIBRARY PLUGIN

DRIVER stands in for the CUDA driver (standin.c). LIBRARY is libddl, which must not know CUDA.
"""
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process"))
from world import World, bound, on_two_cpus  # noqa: E402  (world.py is beside the other tests of processes)

GPU_RANK = DRIVER = LIBRARY = PLUGIN = None
MANY = 2_000_000  # floats: several rooms
SEVERAL = 1_000_000  # where many worlds copy them
SMALL = 50_000  # and many communicators
CALLS = 50


class Worlds(unittest.TestCase):
    def run_world(self, nranks, count=MANY, calls=CALLS, how=(), **environment):
        """All ranks' records of the call that failed, and when they began."""
        began_ns = time.monotonic_ns()
        with World(GPU_RANK, nranks, **environment) as world:
            ranks = world.start_all(DRIVER, calls, count, *how)
            for rank in ranks:
                rank.expect("init", "DDL_OK")
            records = [rank.expect("allreduce") for rank in ranks]
            for rank, record in zip(ranks, records):
                if record["status"] != "DDL_OK":
                    lives_on = nranks == 1 and record["status"] == "DDL_ENOMEM"
                    rank.expect("after", "DDL_OK" if lives_on else "DDL_EABORTED")
                record["alive"] = rank.expect("free")["alive"]
                rank.finish()
        return records, began_ns

    def assert_all(self, records, status, culprit, *words):
        for record in records:
            self.assertEqual((record["status"], record["culprit"]), (status, culprit), record)
            for word in words:
                self.assertIn(word, record["text"])


class Failing(Worlds):
    def test_what_does_not_fail_goes_well(self):
        records, _ = self.run_world(3, calls=2, DDL_TEST_STANDIN="delay=100")
        self.assert_all(records, "DDL_OK", -1)

    def test_a_copy_that_is_refused(self):
        for transport in ("auto", "tcp"):
            with self.subTest(transport=transport):
                records, _ = self.run_world(3, DDL_TEST_STANDIN_1="fail=20", DDL_TRANSPORT=transport)
                self.assert_all(records, "DDL_EDEVICE", 1, "rank 1", "GPU 0", "cuMemcpyAsync",
                                "CUDA_ERROR_ILLEGAL_ADDRESS", "the stand-in was told to fail")

    def test_the_first_copy_is_refused(self):
        records, _ = self.run_world(2, DDL_TEST_STANDIN_0="fail=1")
        self.assert_all(records, "DDL_EDEVICE", 0, "rank 0", "GPU 0", "cuMemcpyAsync")

    def test_a_copy_that_fails_while_it_runs(self):
        records, _ = self.run_world(3, DDL_TEST_STANDIN_2="break=21")
        self.assert_all(records, "DDL_EDEVICE", 2, "rank 2", "GPU 0", "CUDA_ERROR_ILLEGAL_ADDRESS")

    def test_a_small_copy_that_fails_while_it_runs(self):
        records, _ = self.run_world(2, count=10, DDL_TEST_STANDIN_1="break=9")
        self.assert_all(records, "DDL_EDEVICE", 1, "rank 1", "GPU 0")

    def test_a_gpu_that_hangs_is_told_at_the_deadline(self):
        limit_ms = int(1000 * bound(3))
        for count, copy in ((MANY, 21), (10, 9)):
            with self.subTest(count=count):
                records, began_ns = self.run_world(3, count=count, DDL_TEST_STANDIN_1=f"hang={copy}", DDL_TIMEOUT=f"{limit_ms}ms")
                self.assert_all(records, "DDL_EDEVICE", 1, "rank 1",
                                f"GPU 0 has not copied its buffers within {limit_ms} ms")
                for rank, record in enumerate(records):  # whose buffers are not to be used
                    self.assertEqual(rank == 1, "may still write to the buffers" in record["text"], record)
                for record in records:
                    self.assertLess((record["end_ns"] - began_ns) / 1e9, bound(10), record)

    def run_many(self, how, **environment):
        """Of ranks 0 and 1, whose GPU hangs in calls of 24 communicators: what came of the calls, and all that is told after that."""
        with World(GPU_RANK, 2, DDL_TEST_STANDIN_1="hangs=1", DDL_GPU="staged", **environment) as world:
            ranks = world.start_all(DRIVER, 0, SMALL, how)
            began_ns = max(rank.expect("init", "DDL_OK")["end_ns"] for rank in ranks)
            records = [[rank.expect("allreduce"), rank.next(), *([rank.expect("waited")] if how == "leaving" else [])] for rank in ranks]
        return records, began_ns

    def test_a_gpu_that_hangs_is_waited_for_once_whatever_hangs_there(self):
        limit_ms = int(1000 * bound(1))
        told, began_ns = self.run_many("many", DDL_TIMEOUT=f"{limit_ms}ms")
        self.assert_all([record for record, _ in told], "DDL_EDEVICE", 1, "GPU 0 has not copied its buffers")
        for record, _ in told:
            self.assertLess((record["end_ns"] - began_ns) / 1e9, limit_ms / 1000 + bound(1.5), record)

    def test_a_gpu_that_hangs_is_waited_for_once_at_the_end(self):
        for rank, (begun, ended, waited) in enumerate(self.run_many("leaving")[0]):
            self.assertEqual((ended["status"], waited["status"]), ("DDL_ETIMEDOUT", "DDL_EABORTED"), (ended, waited))
            self.assertLess((ended["end_ns"] - begun["end_ns"]) / 1e9, 4 + bound(1), ended)
            for record in ended, waited:  # whose buffers are not to be used, nor freed
                self.assertEqual(rank == 1, "GPU 0 does not end what it had begun here, and may still write to the buffers" in record["text"], record)

    def test_whoever_is_late_because_of_his_gpu_says_so(self):
        # Rank 1 has all that it needs for the first call, but cannot bring it to its GPU; the others are in the second
        # one, and the first to run out of time is one of them.
        short_ms, long_ms = int(1000 * bound(1)), int(1000 * bound(30))
        with World(GPU_RANK, 3, DDL_TEST_STANDIN_1="hang=21") as world:
            with on_two_cpus():
                ranks = [world.start(r, DRIVER, CALLS, MANY, DDL_TIMEOUT=f"{short_ms if r == 0 else long_ms}ms")
                         for r in range(3)]
            records = []
            for rank in ranks:
                began_ns = rank.expect("init", "DDL_OK")["end_ns"]
                records.append(rank.expect("allreduce"))
        self.assertIn("allreduce#2", records[0]["text"])
        self.assertIn("allreduce#1", records[1]["text"])
        self.assert_all(records, "DDL_EDEVICE", 1, "rank 1", "GPU 0 has not copied its buffers within",
                        "as DDL_TIMEOUT of another rank ended")
        for record in records:
            self.assertLess((record["end_ns"] - began_ns) / 1e9, bound(8), record)

    def test_a_driver_that_failed_for_good_does_not_make_device_memory_the_hosts(self):
        # Of two communicators of one rank: the second one knows of no failure.
        with World(GPU_RANK, 1, DDL_TEST_STANDIN="break=1") as world:
            rank = world.start(0, DRIVER, 1, 10, "again")
            rank.expect("init", "DDL_OK")
            rank.expect("allreduce", "DDL_EDEVICE")
            rank.expect("after", "DDL_EABORTED")
            rank.expect("free", "DDL_OK")
            record = rank.expect("again", "DDL_EDEVICE")
            self.assertIn("the CUDA driver has failed (error 700)", record["text"])
            rank.finish()

    def test_a_driver_that_never_came_up_leaves_host_memory_alone(self):
        # 34: a stub that only links; 100: no GPU; 803: of another version than the kernel's. 700: a GPU that has failed.
        for answers, status in ((34, "DDL_OK"), (100, "DDL_OK"), (803, "DDL_OK"), (700, "DDL_EDEVICE")):
            with self.subTest(answers=answers), World(GPU_RANK, 1, DDL_TEST_STANDIN=f"answers={answers}") as world:
                rank = world.start(0, DRIVER, 1, 10, "host")
                rank.expect("init", "DDL_OK")
                rank.expect("allreduce", status)

    def test_a_rank_alone(self):
        limit_ms = int(1000 * bound(1.5))
        for words, expected in (("fail=3", "cuMemcpyAsync"), ("break=3", "CUDA_ERROR_ILLEGAL_ADDRESS"),
                                ("hang=3", f"GPU 0 has not copied its buffers within {limit_ms} ms")):
            with self.subTest(words=words):
                records, _ = self.run_world(1, DDL_TEST_STANDIN=words, DDL_TIMEOUT=f"{limit_ms}ms")
                self.assertEqual(records[0]["status"], "DDL_EDEVICE", records)
                self.assertIn(expected, records[0]["text"])
                self.assertEqual(words == "hang=3", "may still write to the buffers" in records[0]["text"], records)
        records, _ = self.run_world(1, calls=1, DDL_TEST_STANDIN="fail=2")  # there is one copy, on the GPU itself
        self.assert_all(records, "DDL_OK", -1)

    def test_a_call_of_a_rank_alone_fails_behind_one_that_nobody_has_waited_for(self):
        with World(GPU_RANK, 1, DDL_TEST_STANDIN="fail=1") as world:
            rank = world.start(0, DRIVER, 0, 10, "pair")
            rank.expect("init", "DDL_OK")
            rank.expect("first", "DDL_EDEVICE")
            rank.expect("allreduce", "DDL_EDEVICE")

    def test_a_rank_alone_waits_for_stream_and_copy_until_one_deadline(self):
        # The stream is busy for 450 ms, and then the copy hangs. On a busy machine it may take longer, but not each time
        # as long as if the copy had a deadline of its own.
        for tried in range(1, 6):
            with World(GPU_RANK, 1, DDL_TEST_STANDIN="hang=1", DDL_TIMEOUT="600ms") as world:
                rank = world.start(0, DRIVER, 1, 1000, "stream")
                began = rank.expect("init", "DDL_OK")
                ended = rank.expect("allreduce", "DDL_EDEVICE")
                if "has not copied its buffers within 600 ms" in ended["text"] and ended["end_ns"] - began["end_ns"] < 1e9:
                    return
        self.fail(f"it has waited for too long, or for something else, {tried} times; at last: {ended}")

    def test_a_driver_that_waits_for_streams_with_everybody_shut_out(self):
        # As CUDA may while it loads a kernel, which nobody can end but by opening the stream without it.
        limit_ms = int(1000 * bound(0.3))
        for words in ("lazy=1", "lazy=1,functions=1"):
            with self.subTest(words=words):
                records, began_ns = self.run_world(2, calls=0, how=["loading"], DDL_TEST_STANDIN=words, DDL_TIMEOUT=f"{limit_ms}ms")
                for record in records:
                    self.assertEqual(record["status"], "DDL_EDEVICE", record)
                    self.assertIn("the driver of GPU 0 did not return", record["text"])
                    self.assertIn("load kernels", record["text"])
                    self.assertLess((record["end_ns"] - began_ns) / 1e9, bound(6), record)

    def test_a_driver_that_shuts_out_one_rank(self):
        # Which nobody hears of.
        records, began_ns = self.run_world(2, calls=0, how=["loading"], DDL_TEST_STANDIN_0="lazy=1", DDL_TIMEOUT=f"{int(1000 * bound(0.7))}ms")
        self.assert_all(records, "DDL_ETIMEDOUT", 0, "rank 0")
        for record in records:
            self.assertLess((record["end_ns"] - began_ns) / 1e9, bound(6), record)

    def test_pinned_memory_that_waits_for_streams(self):
        for count in (10, MANY):
            for how, calls in (("ordered", 3), ("parts", 0)):
                with self.subTest(count=count, how=how):
                    records, _ = self.run_world(2, calls=calls, count=count, how=[how], DDL_TEST_STANDIN="pinning=1", DDL_TIMEOUT=f"{bound(5)}s")
                    self.assert_all(records, "DDL_OK", -1)

    def test_a_process_ends_though_the_driver_is_shut_or_gone(self):
        for words in ("lazy=1", "gone=1"):
            # Leaks are not looked for, as that does not bear threads that go on.
            options = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))
            with self.subTest(words=words), World(GPU_RANK, 2, DDL_TEST_STANDIN_0=words, ASAN_OPTIONS=options) as world:
                ranks = [world.start(0, DRIVER, 0, MANY, "exiting"), world.start(1, DRIVER, 0, MANY, "away")]
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                ranks[0].expect("exit")
                began = time.monotonic()
                ranks[0].finish()
                self.assertLess(time.monotonic() - began, bound(2))
                self.assertEqual("".join(ranks[0].errors), "")  # nothing has ended its operation before

    def test_an_abort_ends_what_the_driver_keeps_everybody_from(self):
        # Others' aborts are not heard then: each calls for itself.
        with World(GPU_RANK, 2, DDL_TEST_STANDIN="lazy=1") as world:
            ranks = world.start_all(DRIVER, 0, MANY, "aborting")
            for rank in ranks:
                rank.expect("init", "DDL_OK")
            for rank in ranks:
                aborted = rank.expect("abort", "DDL_OK")
                record = rank.expect("allreduce", "DDL_EABORTED")
                self.assertIn("enough", record["text"])
                self.assertLess((record["end_ns"] - aborted["end_ns"]) / 1e9, bound(2), record)

    def test_a_rank_without_the_plugin_is_named_by_all(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(LIBRARY, os.path.join(folder, "libddl.so.0"))
            with World(GPU_RANK, 3) as world:
                ranks = [world.start(r, DRIVER, 1, 10, **({"LD_LIBRARY_PATH": folder} if r == 1 else {}))
                         for r in range(3)]
                records = []
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    records.append(rank.expect("allreduce"))
        self.assert_all(records, "DDL_EUNSUPPORTED", 1, "rank 1", "libddl-cuda.so")


class Refusals(Worlds):
    def refused(self, call, status, nranks, how, stock):
        """Each call of the driver's function that one rank makes is refused, one in each run, until another rank, or this one, is done
        with its second call before that. Nothing is amiss where it is one of the first, of which so many are made in stock."""
        culprit = nranks - 1
        for number in itertools.count(1):
            for _ in range(3):  # the stand-in's own thread may not run for 250 ms on a busy machine, and then seems to hang
                began_ns = time.monotonic_ns()
                records, _ = self.run_world(nranks, count=SEVERAL, calls=2, how=how, **{f"DDL_TEST_STANDIN_{culprit}": f"refuse={call}:{number}"})
                if not any("does not end what it had begun" in record.get("text", "") for record in records):
                    break
            # Latches are kept, of which each has two events, and so is the program's own stream.
            self.assertEqual([record["alive"] % 2 if how else record["alive"] for record in records], [1 if how else 0] * nranks, records)
            self.assertLess((records[culprit]["end_ns"] - began_ns) / 1e9, bound(10), records)
            if number <= stock:
                self.assert_all(records, "DDL_OK", -1)
                continue
            if any(record["status"] == "DDL_OK" for record in records):
                return number - 1 - stock
            self.assert_all(records, status, culprit, f"rank {culprit}", "GPU 0", "the stand-in was told to fail")

    def test_what_the_driver_refuses_is_told_by_all(self):
        # Rooms, words and marks; the rank alone copies on its GPU.
        for nranks, how, counts, stock in ((2, (), (4, 2, 4, 8), 0), (2, ("ordered",), (1, 2, 2, 12), 6),
                                           (1, (), (0, 2, 1, 2), 0), (1, ("ordered",), (1, 2, 3, 6), 0)):
            for (call, status), least in zip((("cuMemHostAlloc", "DDL_ENOMEM"), ("cuStreamCreateWithPriority", "DDL_ENOMEM"),
                                              ("cuEventCreate", "DDL_ENOMEM"), ("cuEventRecord", "DDL_EDEVICE")), counts):
                with self.subTest(nranks=nranks, how=how, call=call):
                    is_in_stock = call in ("cuMemHostAlloc", "cuEventCreate")
                    self.assertGreaterEqual(self.refused(call, status, nranks, how, stock if is_in_stock else 0), least)


class Devices(unittest.TestCase):
    def devices(self, nranks, own, name="LOCAL_RANK", **ranks):
        """What ddl_local_device tells each rank; own: LOCAL_RANK of each, or what that is called."""
        with World(GPU_RANK, nranks, DDL_TEST_STANDIN="gpus=4", LD_LIBRARY_PATH=os.path.dirname(DRIVER)) as world:
            told = {"RANK": None, "WORLD_SIZE": None} if ranks else {}
            ranks = [world.start(r, DRIVER, "device", **{name: own[r], **told, **{k: v[r] for k, v in ranks.items()}})
                     for r in range(nranks)]
            records = [rank.next() for rank in ranks]
            for rank in ranks:
                rank.finish()
        return [record["device"] for record in records]

    def test_local_rank_of_the_launcher_counts_more_than_the_order_of_ranks(self):
        self.assertEqual(self.devices(2, [1, 0]), [1, 0])
        self.assertEqual(self.devices(1, [6]), [2])

    def test_it_is_of_the_launcher_that_tells_the_rank(self):
        self.assertEqual(self.devices(2, [1, 0], "SLURM_LOCALID", SLURM_PROCID=[0, 1], SLURM_STEP_NUM_TASKS=[2, 2]), [1, 0])
        self.assertEqual(self.devices(2, [0, 0], "SLURM_LOCALID"), [0, 1])  # of the script that has started both

    def test_where_local_rank_makes_no_sense_the_order_of_ranks_counts(self):
        for own in (None, "", "-1", "1x", "99999999999"):
            with self.subTest(own=own):
                self.assertEqual(self.devices(2, [own, own]), [0, 1])


class Libraries(unittest.TestCase):
    def test_the_library_does_not_know_cuda(self):
        listed = subprocess.run(["ldd", LIBRARY, PLUGIN], check=True, capture_output=True, text=True).stdout
        self.assertIn("libuv", listed)
        self.assertIsNone(re.search(r"\b(libcuda|libcudart|libnccl)\b", listed), listed)
        symbols = subprocess.run(["nm", "-D", "--undefined-only", LIBRARY, PLUGIN], check=True, capture_output=True,
                                 text=True).stdout
        self.assertNotRegex(symbols, r"\bU (cu[A-Z]|cuda|nccl)")

    def test_without_the_plugin_the_text_says_where_it_was_looked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(LIBRARY, os.path.join(folder, "libddl.so.0"))
            with World(GPU_RANK, 1, LD_LIBRARY_PATH=folder) as world:
                rank = world.start(0, DRIVER, 1, 10)
                rank.expect("init", "DDL_OK")
                record = rank.expect("allreduce", "DDL_EUNSUPPORTED")
                rank.expect("after", "DDL_EABORTED")
                for word in ("send is device memory of GPU 0", f"{folder}/libddl-cuda.so", "-Dcuda=enabled"):
                    self.assertIn(word, record["text"])


if __name__ == "__main__":
    GPU_RANK, DRIVER, LIBRARY, PLUGIN = (os.path.abspath(sys.argv.pop(1)) for _ in range(4))
    unittest.main()
