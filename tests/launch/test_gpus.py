"""How ddl-launch counts GPUs and gives them to ranks, over what stands in for the CUDA driver (DDL_TEST_DRIVER)."""
import json
import os
import unittest

import harness  # noqa: F401  (sets signals as the tests want them)
from harness import LaunchTest

DRIVER = os.environ["DDL_TEST_DRIVER"]
RANK = os.environ["DDL_TEST_GPU_RANK"]


class Gpus(LaunchTest):
    def on(self, gpus, *arguments, visible=None, **options):
        env = {"LD_LIBRARY_PATH": os.path.dirname(DRIVER), "DDL_STANDIN": "gpus=%d" % gpus}
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
        for arguments, words in ((["-n", "gpu"], "this node has no GPU"), (["--gpu_policy", "exclusive"], "1 processes on this node for 0 GPUs")):
            with self.subTest(arguments=arguments):
                result = self.on(0, *arguments, "true")
                self.assertEqual(result.code, 2)
                self.assertIn(words, result.err.decode())
        result = self.on(2, "-n", "3", "--gpu-policy", "exclusive", "true")
        self.assertEqual(result.code, 2)
        self.assertIn("3 processes on this node for 2 GPUs", result.err.decode())
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


if __name__ == "__main__":
    unittest.main()
