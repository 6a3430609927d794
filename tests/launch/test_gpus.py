"""How ddl-launch counts GPUs and gives them to ranks, over what stands in for the CUDA driver (DDL_TEST_DRIVER)."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import unittest

import harness
from harness import LaunchTest

DRIVER = os.environ["DDL_TEST_DRIVER"]
RANK = os.environ["DDL_TEST_GPU_RANK"]
GPU_CHECK = os.path.join(harness.SOURCE, "tools", "gpu_check")


def load_gpu_check():
    loader = importlib.machinery.SourceFileLoader("gpu_check", GPU_CHECK)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class GpuTest(LaunchTest):
    def environment(self, changes):
        """Whoever runs the tests may have GPUs, and may have chosen among them."""
        environment = super().environment(None)
        for name in ("CUDA_VISIBLE_DEVICES", "DDL_GPU_POLICY", "DDL_TEST_STANDIN"):
            environment.pop(name, None)
        environment.update(changes or {})
        return environment

    def over(self, driver, **more):
        """The environment in which the driver does so."""
        return {"LD_LIBRARY_PATH": os.path.dirname(DRIVER), "DDL_TEST_STANDIN": driver, **more}


class Gpus(GpuTest):
    def on(self, gpus, *arguments, visible=None, **options):
        env = self.over("gpus=%d" % gpus)
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        return self.launch(*arguments, env=env, **options)

    def dry(self, gpus, *flags, visible=None):
        result = self.on(gpus, "--dry_run", *flags, "true", visible=visible)
        self.assertEqual(result.code, 0, result.err)
        return result.out.decode().splitlines()

    def shown(self, ranks):
        """CUDA_VISIBLE_DEVICES of each rank; None: not set by ddl-launch."""
        values = []
        for rank in ranks:
            words = [word for word in rank.replace("'", "").split(" ") if word.startswith("CUDA_VISIBLE_DEVICES=")]
            values.append(words[0].split("=", 1)[1] if words else None)
        return values

    def test_auto_counts_gpus_or_else_cpus(self):
        cpus = len(self.dry(0, "-n", "cpu"))
        for gpus, visible, expected in ((1, None, 1), (4, None, 4), (4, "1,3", 2), (4, "2", 1), (4, "1,-1,2", 1),
                                        (0, None, cpus), (4, "", cpus)):
            with self.subTest(gpus=gpus, visible=visible):
                self.assertEqual(len(self.dry(gpus, "-n", "auto", visible=visible)), expected)
        self.assertEqual(len(self.dry(4, "-n", "auto", "--gloo")), cpus)
        self.assertEqual(len(self.dry(4, "-n", "gpu")), 4)

    def test_asking_for_gpus_that_are_not_there_is_an_error(self):
        for arguments, words in ((["-n", "gpu"], "this node has no GPU"), (["--gpu_policy", "exclusive"], "a GPU for each process (1), and CUDA shows 0")):
            with self.subTest(arguments=arguments):
                result = self.on(0, *arguments, "true")
                self.assertEqual(result.code, 2)
                self.assertIn(words, result.err.decode())
        result = self.on(2, "-n", "3", "--gpu-policy", "exclusive", "true")
        self.assertEqual(result.code, 2)
        self.assertIn("a GPU for each process (3), and CUDA shows 2", result.err.decode())
        result = self.on(2, "--gpu-policy", "exclusive", "--gloo", "true")
        self.assertEqual(result.code, 2)
        self.assertIn("contradict", result.err.decode())
        result = self.on(2, "--gpu-policy", "all", "true")
        self.assertIn("accepted is local_rank, exclusive or none", result.err.decode())

    def test_exclusive_shows_each_rank_its_own(self):
        self.assertEqual(self.shown(self.dry(4, "-n", "3", "--gpu-policy", "exclusive")), ["0", "1", "2"])
        self.assertEqual(self.shown(self.dry(4, "-n", "auto", "--gpu-policy", "exclusive", visible="3,1")), ["3", "1"])
        self.assertEqual(self.shown(self.dry(4, "-n", "2", "--gpu-policy", "exclusive", visible="GPU-8f,GPU-1c".replace("GPU-", "7"))),
                         ["78f", "71c"])
        for policy in ("local_rank", "none"):
            self.assertEqual(self.shown(self.dry(4, "-n", "2", "--gpu-policy", policy, visible="3,1")), [None, None])

    def test_each_rank_knows_its_device(self):
        for gpus, flags, expected in ((2, [], [0, 1, 0]), (4, [], [0, 1, 2]), (4, ["--gpu-policy", "local_rank"], [0, 1, 2]),
                                      (4, ["--gpu-policy", "exclusive"], [0, 0, 0]), (4, ["--gpu-policy", "none"], [-1, -1, -1]),
                                      (4, ["--gloo"], [-1, -1, -1]), (0, [], [-1, -1, -1])):
            with self.subTest(gpus=gpus, flags=flags):
                result = self.on(gpus, "-n", "3", "--no-prefix", *flags, RANK, DRIVER, "device")
                self.assertEqual(result.code, 0, result.err)
                records = [json.loads(line) for line in result.out.decode().splitlines()]
                self.assertEqual([r["device"] for r in sorted(records, key=lambda r: r["rank"])], expected)
                if expected[0] < 0:
                    self.assertIn("DDL_GPU_POLICY=none" if "none" in flags else "sees no GPU", records[0]["text"])


class BrokenDriver(GpuTest):
    def asked(self, env, *arguments):
        return self.launch("--dry_run", *arguments, "true", env=env)

    def check_not_counted(self, env, words):
        """auto takes the CPUs; who asks for GPUs hears why there are none."""
        auto, cpus = self.asked(env, "-n", "auto"), self.asked(env, "-n", "cpu")
        self.assertEqual(auto.code, 0, auto.err)
        self.assertEqual(len(auto.lines), len(cpus.lines))
        for arguments in (["-n", "gpu"], ["-n", "1", "--gpu_policy", "exclusive"], ["-n", "auto", "--gpu_policy", "exclusive"]):
            result = self.asked(env, *arguments)
            self.assertEqual(result.code, 2, result.err)
            self.assertIn(words, result.err.decode())

    def test_gpus_of_a_driver_that_fails_do_not_count(self):
        for driver, words in (("init=803", "the CUDA driver failed (cuInit: error 803, CUDA_ERROR_STANDIN)"),
                              ("killed=9", "the CUDA driver failed (its process was killed by SIGKILL)"),
                              ("killed=15", "the CUDA driver failed (its process was killed by SIGTERM)")):
            with self.subTest(driver=driver):
                self.check_not_counted(self.over("gpus=7," + driver), words)

    def test_a_library_that_is_no_driver_is_told(self):
        with open(self.path("libcuda.so.1"), "w") as library:
            library.write("nothing of the kind")
        self.check_not_counted({"LD_LIBRARY_PATH": self.directory}, "there is no CUDA driver (")

    def test_what_hangs_in_the_driver_ends_with_the_launcher(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            process = self.start("-n", "gpu", "true", env=self.over("stuck=1"))
            self.assertEqual(process.stderr.readline(), b"standin: stuck\n")
            self.assertEqual(len(self.leftovers()), 2)
            process.send_signal(number)
            self.assertEqual(process.wait(10 * harness.SLOW), -number)
            self.assert_nothing_left(10)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "in real time it takes 20 s")
    def test_a_driver_that_hangs_is_waited_for_aloud_and_not_for_ever(self):
        for failpoint in ("launch.gpus_late", "launch.gpus_unkillable"):
            with self.subTest(failpoint):
                result = self.asked(self.over("stuck=1", DDL_FAILPOINTS=failpoint), "-n", "gpu")
                self.assertEqual(result.code, 2, result.err)
                waits, fails = result.messages
                self.assertEqual(waits, "ddl-launch: waiting for the CUDA driver to count GPUs, 20 s at most")
                self.assertIn("the CUDA driver failed (no answer within 20 s)", fails)
                self.assert_nothing_left(10)


@unittest.skipIf(harness.SLOW > 1, "python cannot load the stand-in with a sanitizer in it")
class GpuCheck(GpuTest):
    def test_a_broken_driver_is_no_missing_gpu(self):
        for driver, code, words in (("gpus=0", 77, "shows no GPU"), ("init=100", 77, "shows no GPU"), ("init=803", 1, "cuInit: error 803"),
                                    ("init=999", 1, "cuInit: error 999"), ("killed=15", 1, "killed by SIGTERM"),
                                    ("stuck=1", 1, "no answer within 0.2 s")):
            with self.subTest(driver=driver):
                done = subprocess.run([sys.executable, GPU_CHECK, "--build", self.directory, "--driver-s", "0.2" if "stuck" in driver else "60"],
                                      env=self.environment(self.over(driver)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90)
                self.assertEqual(done.returncode, code, done.stdout)
                self.assertIn(words, done.stdout.decode())
                self.assertNotIn("Traceback", done.stdout.decode())

    def test_the_driver_is_found_for_the_linker_where_the_loader_has_it(self):
        gpu_check = load_gpu_check()
        gpus, status, path = gpu_check.ask_driver(60, self.environment(self.over("gpus=3")))
        self.assertEqual((gpus, status, path), (3, 0, os.path.realpath(DRIVER)))
        self.assertEqual(gpu_check.find_driver_for_linking(path)["LIBRARY_PATH"].split(os.pathsep)[0], os.path.dirname(path))
        self.assertEqual(gpu_check.find_driver_for_linking(os.path.join(self.directory, "libcuda.so.550")), {})

    def check(self, code, *arguments, **environment):
        """What it says over the stand-ins, in lines."""
        build = os.path.dirname(os.path.dirname(os.path.dirname(DRIVER)))
        done = subprocess.run([sys.executable, GPU_CHECK, "--stand-in", "--build", build, *arguments], env=self.environment(environment),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150)
        said = done.stdout.decode()
        self.assertEqual(done.returncode, code, said)
        return said.splitlines()

    def rows(self, said, result):
        return [line[:44].strip() for line in said if line[44:53].strip() == result]

    def test_all_its_rows_run_where_there_are_gpus(self):
        said = self.check(0, "--log", self.path("log"), DDL_TEST_STANDIN="gpus=2")
        with open(self.path("log/figures.json")) as log:
            told = json.load(log)
        self.assertEqual(told["figures"]["measure, 4 ranks, one GPU"]["ranks"], 4)
        self.assertIn("collectives, 4 ranks, one GPU, auto", [row["name"] for row in told["rows"]])
        with open(self.path("log/measure_2_ranks_one_GPU.log")) as log:
            self.assertIn('"ranks": 2', log.read())
        rows = self.rows(said, "ok")
        self.assertIn("  they wait for operations                            at words in memory (cuStreamWaitValue32)", said)
        for row in ("probe", "probe, one connection", "collectives, 4 ranks, one GPU, auto", "streams", "streams, one connection",
                    "streams, waiting in functions of the host", "kinds of memory, 2 ranks, one GPU", "common memory", "managed memory",
                    "pool memory", "mapped memory", "measure, 2 ranks, one GPU, one connection", "measure, 2 ranks, one GPU",
                    "example gradients_gpu, 2 processes", "NCCL alone", "NCCL alone, by ddl", "collectives by NCCL, 1 rank",
                    "NCCL, 2 ranks, 2 GPUs", "collectives by NCCL, 2 ranks, 2 GPUs", "collectives by default, 2 ranks, 2 GPUs"):
            self.assertIn(row, rows, said)
        judged = self.rows(said, "met") + self.rows(said, "MISSED")
        for goal in ("allreduce of 4 MiB, device memory", "host time of a call in a stream", "a small allreduce by a rank alone",
                     "the same begun in a stream", "the same left to NCCL by ddl"):
            self.assertIn(goal, judged, said)
        self.assertEqual(self.rows(said, "skipped"),
                         ["compute-sanitizer, " + what for what in ("streams", "collectives", "example")], said)
        self.assertIn("0 failed, 3 could not be run", said[-1])

    def test_what_waits_for_a_stream_that_waits_is_told(self):
        gpu_check = load_gpu_check()
        for driver, waiting, word in (("delay=0", [], "cuStreamWaitValue32"), ("lazy=1", ["the first launch of a kernel"], "cuStreamWaitValue32"),
                                      ("pinning=1,functions=1", ["more pinned memory"], "cuLaunchHostFunc")):
            with self.subTest(driver), contextlib.redirect_stdout(io.StringIO()):
                gpu_check.rows.clear()
                gpu_check.probe("probe", os.path.join(os.path.dirname(DRIVER), "gpu_probe"), DRIVER, {"DDL_TEST_STANDIN": driver})
                self.assertEqual([name.strip() for name, _, remark in gpu_check.rows if "it waits for the stream" in remark], waiting)
                self.assertEqual([name for name, result, _ in gpu_check.rows if result == "MISSED"], [name for name in ["  more pinned memory"] if name.strip() in waiting])
                self.assertIn(word, gpu_check.rows[1][2])

    def test_of_the_tests_of_streams_one_that_hangs_hides_no_other(self):
        with open(self.path("tests"), "w") as program:
            program.write("""#!/bin/sh
                case $1 in hangs) exec sleep 9;; fails) echo a line; exit 3;; esac\n""")
        os.chmod(self.path("tests"), 0o755)
        gpu_check = load_gpu_check()
        gpu_check.TEST_S = 1
        with contextlib.redirect_stdout(io.StringIO()) as said:
            gpu_check.run_tests("streams", self.path("tests"), ["well", "hangs", "fails", "too"], 90, None)
            gpu_check.run_tests("other", self.path("tests"), ["well", "hangs", "too"], 1.9, None)
        self.assertEqual(gpu_check.rows, [("streams", "FAILED", "hangs (not done after 1 s), fails (exit status 3)"),
                                          ("other", "FAILED", "hangs (not done after 1 s), 1 not begun")])
        self.assertIn("    fails: exit status 3\n    a line\n", said.getvalue())

    def test_nccl_that_does_not_take_two_ranks_on_a_gpu_is_told(self):
        for own, words in (({}, "invalid usage"), ({"DDL_TEST_STANDIN_NCCL_1": "init=hang"}, "it has not connected them after 1 s")):
            with self.subTest(words):
                said = self.check(0, "--nccl-only", "--nccl-s", "1", DDL_TEST_STANDIN="gpus=1", **own)
                self.assertEqual(self.rows(said, "skipped"), ["NCCL, 2 ranks, one GPU", "collectives by NCCL, 2 ranks, one GPU"], said)
                self.assertEqual(self.rows(said, "ok").count("both ranks are told"), 2, said)
                self.assertIn("NCCL 2.27.3 does not take several ranks on one GPU (%s)" % words, "".join(said))

    def test_nccl_that_is_too_old_is_skipped(self):
        for gpus, sharing, rows in ((1, ("DDL_GPU=nccl, 2 ranks, one GPU", "DDL_GPU=nccl, NCCL told to share"), ()),
                                    (2, (), ("collectives by default, 2 ranks, 2 GPUs",))):
            where = "one GPU" if gpus == 1 else "2 GPUs"
            said = self.check(0, "--nccl-only", DDL_TEST_STANDIN="gpus=%d" % gpus, DDL_TEST_STANDIN_NCCL="version=22304")
            self.assertEqual(self.rows(said, "skipped"), ["NCCL alone, by ddl", "NCCL, 2 ranks, " + where, *sharing, "collectives by NCCL, 1 rank",
                                                          "collectives by NCCL, 2 ranks, " + where, *rows], said)
            self.assertIn("NCCL is 2.23.4, and ddl takes 2.27.3 or later", "".join(said))

    def test_what_else_goes_wrong_with_two_ranks_on_a_gpu_has_failed(self):
        # NCCL fails; what hangs is not NCCL.
        for own, failed, words in (({"DDL_TEST_STANDIN_NCCL_1": "init=fail"}, [], "ncclCommInitRank: unhandled system error"),
                                   ({"DDL_TEST_STANDIN_1": "stuck=1"}, ["DDL_GPU=nccl, 2 ranks, one GPU"], "not done after 1 s")):
            with self.subTest(words):
                said = self.check(1, "--nccl-only", "--nccl-s", "1", DDL_TEST_STANDIN="gpus=1", **own)
                self.assertEqual(self.rows(said, "FAILED"), ["NCCL, 2 ranks, one GPU", *failed], said)
                self.assertIn(words, "".join(said))
                self.assertNotIn("does not take", "".join(said))


if __name__ == "__main__":
    unittest.main()
