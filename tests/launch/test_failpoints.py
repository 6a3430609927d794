"""Each call of ddl-launch that can fail is made to fail: it says so, and leaves nothing behind."""
import signal

import harness
from harness import LaunchTest

# What a run comes to when a site fails, at its first hits: exit code, and a word that is said.
SITES = [
    ("base.alloc", 125, "no memory"),
    ("launch.socket", 125, "socket"),
    ("launch.bind", 125, "port"),
    ("launch.mmap", 125, "no memory"),
    ("launch.socketpair", 125, "socket"),
    ("launch.pipe", 125, "pipe"),
    ("launch.thread", 125, "thread"),
    ("launch.fork", 125, "process"),
    ("io.random", 125, "random"),
    ("io.guarded", 125, "no memory for a secret"),
    ("io.note", 125, "secret"),
    ("launch.mkdir", 2, "--log_dir"),
    ("launch.log", 125, "not complete"),
    # Without these it does as well as it can.
    ("launch.subreaper", 0, ""),
    ("launch.proc", 0, ""),
    ("launch.epoll", 0, ""),
    ("launch.pidfd", 0, ""),
]


class Failpoints(LaunchTest):
    def run_with(self, setting):
        return self.launch("-n", "3", "--log-dir", self.path("logs"), *self.shell(harness.NOTE + "echo x; exit 0"),
                           env={"DDL_FAILPOINTS": setting})

    def test_each_site_is_said_when_it_fails(self):
        for site, code, word in SITES:
            if harness.PORTABLE and site in ("launch.subreaper", "launch.proc", "launch.epoll", "launch.pidfd"):
                continue
            with self.subTest(site):
                result = self.run_with(site + ":1")
                self.assertEqual(result.code, code, result.err)
                self.assertIn(word, result.err.decode())
                self.assert_nothing_left(0.5)

    def test_any_call_may_fail(self):
        """The nth of all, for every n, as long as there is one."""
        succeeded_in_a_row = 0
        for nth in range(1, 400):
            with self.subTest(nth):
                result = self.run_with("*:%d" % nth)
                self.assertIn(result.code, (0, 2, 125), result.err)
                self.assertEqual(result.code in (2, 125), result.code != 0 and result.err != b"", result.err)
                self.assert_nothing_left(0.5)
                succeeded_in_a_row = succeeded_in_a_row + 1 if result.code == 0 else 0
            if succeeded_in_a_row > 60:
                break
        self.assertGreater(nth, 60)

    def test_no_process_for_a_later_rank_ends_those_that_run(self):
        for nth in (2, 3):  # the first is the guardian
            result = self.launch("-n", "4", *self.shell(harness.NOTE + "exec sleep 600"),
                                 env={"DDL_FAILPOINTS": "launch.fork:%d" % nth})
            self.assertEqual(result.code, 125)
            self.assertIn("cannot start a process for rank", result.err.decode())
            self.assertLess(result.seconds, 3 * harness.SLOW)
            self.assert_nothing_left(0.5)

    def test_a_guardian_that_is_kept_from_running_blames_nobody_for_a_signal_to_all(self):
        """It sees the ranks' ends, and what the launcher was told long after."""
        process = self.start("-n", "3", *self.shell(harness.NOTE + "exec sleep 30"), env={"DDL_FAILPOINTS": "launch.ended:1"})
        self.signal_all(process, self.wait_noted(3), signal.SIGTERM)
        result = self.finish(process)
        self.assertEqual(result.code, -signal.SIGTERM)
        self.assertIn("ddl-launch: got SIGTERM; the job was stopped\n", result.err.decode())
        self.assertGreater(result.seconds, 4)


if __name__ == "__main__":
    harness.main()
