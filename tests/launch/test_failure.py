"""When ranks fail: what becomes of the others, the exit code, and what is said about it."""
import os
import re
import socket
import time

import harness
from harness import LaunchTest, linux_only, wait_until

# Ranks other than the one told in FAILED wait for it to be gone, as one blocked in a collective does.
WAIT_FOR_FAILED = 'while [ ! -s "$DIR/failed" ] || kill -0 $(cat "$DIR/failed") 2>&-; do sleep 0.01; done;'
FAIL = 'echo $$ >"$DIR/failed.new"; mv "$DIR/failed.new" "$DIR/failed";'


class ExitCode(LaunchTest):
    def test_the_failing_ranks_code_is_the_launchers(self):
        cases = [("exit 0", 0), ("exit 1", 1), ("exit 3", 3), ("exit 139", 139), ("exit 255", 255),
                 ("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("kill -ABRT $$", 134)]
        for script, code in cases:
            for ranks in (1, 3):
                with self.subTest(script=script, ranks=ranks):
                    result = self.launch("-n", str(ranks), *self.shell('[ $RANK = %d ] || exit 0; %s' % (ranks - 1, script)))
                    self.assertEqual(result.code, code)
                    self.assertEqual(result.messages == [], code == 0, result.err)

    def test_the_time_limit_gives_124(self):
        result = self.launch("-n", "2", "--timeout", "300ms", *self.shell(harness.NOTE + "sleep 600"))
        self.assertEqual(result.code, 124)
        self.assertEqual(result.messages, ["ddl-launch: time limit of 0.3 s reached (--timeout); the job was stopped",
                                           "ddl-launch: ranks 0-1 ended by SIGTERM"])
        self.assertGreaterEqual(result.seconds, 0.3)
        self.assertLess(result.seconds, 3 * harness.SLOW)

    def test_a_job_that_ends_in_time_is_not_touched_by_the_limit(self):
        result = self.launch("--timeout", "5min", *self.shell("exit 0"))
        self.assertEqual((result.code, result.err), (0, b""))
        self.assertLess(result.seconds, 2 * harness.SLOW)


class FirstFailure(LaunchTest):
    def test_the_first_failure_is_told_and_its_last_lines_come_last(self):
        script = ('case $RANK in 2) for i in $(seq 1 15); do echo line $i; done; echo bad thing >&2;' + FAIL + ' exit 7;; esac;'
                  + WAIT_FOR_FAILED + 'echo "rank $RANK lost rank 2" >&2; exit 1')
        result = self.launch("-n", "4", *self.shell(script))
        self.assertEqual(result.code, 7)
        err = result.err.decode().splitlines()
        for rank in (0, 1, 3):
            self.assertIn("[%d] rank %d lost rank 2" % (rank, rank), err)
        summary = err[-13:]
        self.assertRegex(summary[0], r"^ddl-launch: rank 2 on %s \(pid \d+\) failed first: exit code 7$"
                         % re.escape(socket.gethostname()))
        self.assertEqual(summary[1], "ddl-launch: ranks 0-1,3 ended with 1 after it")
        self.assertEqual(summary[2], "ddl-launch: the last lines of rank 2:")
        self.assertEqual(sorted(summary[3:]), sorted(["[2] line %d" % i for i in range(7, 16)] + ["[2] bad thing"]))
        self.assertEqual(result.lines, sorted("[2] line %d" % i for i in range(1, 16)))

    def test_ranks_that_had_ended_well_before_it_are_told(self):
        result = self.launch("-n", "3", *self.shell("[ $RANK = 1 ] && { sleep 0.5; exit 4; }; exit 0"))
        self.assertEqual(result.code, 4)
        self.assertIn("ddl-launch: ranks 0,2 ended with 0 before it", result.messages)

    def test_ranks_that_ended_in_other_ways_after_it_are_told_apart(self):
        script = "case $RANK in 3) %s exit 7;; esac; %s exit $((1 + RANK / 2))" % (FAIL, WAIT_FOR_FAILED)
        result = self.launch("-n", "4", *self.shell(script))
        self.assertIn("ddl-launch: ranks 0-1 ended with 1, rank 2 ended with 2 after it", result.messages)

    def test_signals_are_told_by_name(self):
        result = self.launch("-n", "2", *self.shell("[ $RANK = 1 ] && kill -SEGV $$; exit 0"))
        self.assertRegex(result.messages[0], r"rank 1 on .* failed first: killed by SIGSEGV")
        self.assertIn("ddl-launch: rank 1 wrote nothing", result.messages)

    def test_where_the_first_wrote_nothing_one_that_ended_like_it_speaks(self):
        script = 'case $RANK in 0) %s exit 3;; 1) %s echo why >&2; exit 3;; 2) %s echo not this; exit 4;; esac'
        result = self.launch("-n", "3", *self.shell(script % (FAIL, WAIT_FOR_FAILED, WAIT_FOR_FAILED + "sleep 0.3;")))
        self.assertEqual(result.code, 3)
        self.assertIn("ddl-launch: rank 0 wrote nothing; the last lines of rank 1, which ended as it did:", result.messages)
        self.assertEqual(result.err.splitlines()[-1], b"[1] why")

    def test_one_that_the_launcher_has_killed_does_not_speak_for_it(self):
        script = "[ $RANK = 1 ] && { %s kill -9 $$; }; trap '' TERM; echo innocent; while :; do sleep 0.05; done" % harness.NOTE
        result = self.launch("-n", "2", "--grace", "0.1", *self.shell(script))
        self.assertEqual(result.messages[-1], "ddl-launch: rank 1 wrote nothing")

    @linux_only
    def test_the_rank_that_failed_first_is_found_among_those_that_follow_at_once(self):
        # The last rank is hit; the others fail within microseconds of its end, while everything is busy.
        script = ("import os, socket\n"
                  "rank, path = int(os.environ['RANK']), os.environ['DIR'] + '/socket'\n"
                  "if rank == 7:\n"
                  "    s = socket.socket(socket.AF_UNIX); s.bind(path + '.new'); s.listen(9); os.rename(path + '.new', path)\n"
                  "    peers = [s.accept()[0] for _ in range(7)]\n"
                  "    os._exit(9)\n"
                  "s = socket.socket(socket.AF_UNIX)\n"
                  "while True:\n"
                  "    try: s.connect(path); break\n"
                  "    except OSError: pass\n"
                  "s.recv(1)\n"
                  "os._exit(1)\n")
        for _ in range(10):
            result = self.launch("-n", "8", *self.python(script))
            self.assertEqual(result.code, 9, result.err)
            os.unlink(self.path("socket"))

    @linux_only
    def test_a_rank_whose_end_takes_long_is_found_all_the_same(self):
        """As with much memory, or a GPU: its connections are closed long before its end can be seen."""
        # The kernel takes some ms for each of these to go. Where it begins with the newest, or the oldest, is its choice.
        slow = "[(f := libc.inotify_init(), libc.inotify_add_watch(f, b'/', 256)) for _ in range(50)]\n"
        script = ("import ctypes, os, socket\n"
                  "rank, path = int(os.environ['RANK']), os.environ['DIR'] + '/socket'\n"
                  "libc = ctypes.CDLL(None)\n"
                  "if rank == 3:\n"
                  "    s = socket.socket(socket.AF_UNIX); s.bind(path + '.new'); s.listen(9); os.rename(path + '.new', path)\n"
                  "    " + slow +
                  "    peers = [s.accept()[0] for _ in range(3)]\n"
                  "    " + slow +
                  "    os._exit(9)\n"
                  "s = socket.socket(socket.AF_UNIX)\n"
                  "while not os.path.exists(path): pass\n"
                  "s.connect(path)\n"
                  "s.recv(1)\n"
                  "os._exit(1)\n")
        for _ in range(3):
            result = self.launch("-n", "4", *self.python(script))
            self.assertEqual(result.code, 9, result.err)
            os.unlink(self.path("socket"))

    @linux_only
    def test_a_rank_whose_first_thread_alone_has_ended_is_not_found_for_that(self):
        script = ("import ctypes, os, signal, threading, time\n"
                  "if os.environ['RANK'] == '0': time.sleep(0.5); os._exit(3)\n"
                  "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  "threading.Thread(target=time.sleep, args=(600,)).start()\n"
                  "ctypes.CDLL(None).syscall(%d, 0)\n" % harness.SYS_EXIT)
        result = self.launch("-n", "2", "--grace", "0.1", *self.python(script))
        self.assertEqual(result.code, 3, result.err)
        self.assertIn("ddl-launch: rank 1 ended by SIGKILL after it", result.messages)

    def test_long_last_lines_are_cut(self):
        result = self.launch("-n", "2", *self.python("import os; print('y' * 100000 + 'end'); os._exit(int(os.environ['RANK']))"))
        last = result.err.decode().splitlines()[-1]
        self.assertTrue(last.startswith("[1] yyyy"), last[:20])
        self.assertLess(len(last), 3000)

    def test_a_job_that_succeeds_needs_no_words(self):
        result = self.launch("-n", "3", *self.shell("echo fine"))
        self.assertEqual((result.code, result.err), (0, b""))


class TheOthers(LaunchTest):
    def fail_beside(self, others, *flags, limit=30):
        script = '%s case $RANK in 1) %s exit 5;; esac; %s' % (harness.NOTE, FAIL, others)
        return self.launch("-n", "3", *flags, *self.shell(script), limit=limit)

    def test_they_have_a_second_to_report_what_they_see(self):
        result = self.fail_beside(WAIT_FOR_FAILED + "sleep 0.2; echo I saw it; exit 1")
        self.assertEqual((result.code, result.lines), (5, ["[0] I saw it", "[2] I saw it"]))
        self.assertLess(result.seconds, 2.9)

    def test_then_they_are_asked_to_end(self):
        result = self.fail_beside("trap 'echo asked; exit 9' TERM; while :; do sleep 0.05; done")
        self.assertEqual((result.code, result.lines), (5, ["[0] asked", "[2] asked"]))
        self.assertGreater(result.seconds, 0.9)
        self.assertLess(result.seconds, 2.9 * harness.SLOW)
        self.assertIn("ddl-launch: ranks 0,2 ended with 9 after it", result.messages)

    def test_whoever_is_writing_then_may_finish(self):
        """For three seconds at most, so a speech is as long by the clock on a busy machine as on an idle one.

        All have started when rank 1 ends: an interpreter that starts is silent, for longer than a second at times."""
        speech = ("import os, sys, time\n"
                  "here, rank = os.environ['DIR'] + '/', os.environ['RANK']\n"
                  "def note(name): open(here + name, 'w').close()\n"
                  "def wait(name):\n"
                  "    while not os.path.exists(here + name): time.sleep(0.01)\n"
                  "if rank == '1': wait('0'); wait('2'); note('failed'); os._exit(5)\n"
                  "note(rank); wait('failed')\n"
                  "end = time.monotonic() + 1.6\n"
                  "while time.monotonic() < end:\n"
                  "    print(end, flush=True)\n"
                  "    time.sleep(0.02)\n"
                  "sys.exit('that was all')\n")
        result = self.launch("-n", "3", *self.python(speech))
        self.assertEqual(result.code, 5)
        for rank in (0, 2):
            self.assertIn("[%d] that was all" % rank, result.err.decode().splitlines())
        self.assertIn("ddl-launch: ranks 0,2 ended with 1 after it", result.messages)

    def test_whose_output_is_not_read_is_not_taken_for_silent(self):
        """The launcher cannot tell while its own reader is slow, so it waits for as long as for a speech."""
        flood = ('import os, signal\n'
                 'def asked(*_):\n'
                 '    open(os.environ["DIR"] + "/asked", "w").close()\n'
                 '    os._exit(9)\n'
                 'signal.signal(signal.SIGTERM, asked)\n'
                 'while True:\n'
                 '    os.write(1, b"x" * 999 + bytes([10]))\n')
        process = self.start("-n", "2", *self.shell("case $RANK in 1) sleep 0.5; %s exit 5;; esac; exec %s -S -c '%s'"
                                                    % (FAIL, harness.sys.executable, flood)))
        wait_until(lambda: os.path.exists(self.path("failed")), 10, "the failure")
        time.sleep(1.8)
        self.assertFalse(os.path.exists(self.path("asked")))
        self.assertEqual(self.finish(process).code, 5)
        self.assertTrue(os.path.exists(self.path("asked")))

    def test_what_they_wrote_before_they_were_killed_is_not_lost_to_a_slow_reader(self):
        """Who looks again when all that was killed should have ended, 5 s later. It has."""
        flood = ("import os, signal, time\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
                 "if os.environ['RANK'] == '1': time.sleep(0.2); os._exit(5)\n"
                 "signal.sigwait([signal.SIGTERM])\n"
                 "noted = os.open(os.environ['DIR'] + '/noted', os.O_WRONLY | os.O_CREAT)\n"
                 "n = 0\n"
                 "while True:\n"
                 "    os.write(1, b'%d %s\\n' % (n, b'x' * 999)); os.pwrite(noted, b'%9d\\n' % n, 0); n += 1\n")
        process = self.start("-n", "2", "--grace", "500ms", *self.python(flood))
        time.sleep(8)  # 1 s to report, the grace, and those 5
        result = self.finish(process)
        self.assertEqual(result.code, 5)
        self.assertGreaterEqual(int(result.out.splitlines()[-1].split()[1]), int(self.noted_pids()[0]))

    def test_but_not_for_ever_and_then_they_are_killed(self):
        result = self.fail_beside("trap '' TERM; while :; do echo more; sleep 0.05; done", "--grace=0.5")
        self.assertEqual(result.code, 5)
        self.assertGreater(result.seconds, 3.4)
        self.assertLess(result.seconds, 6 * harness.SLOW)
        self.assertIn("ddl-launch: ranks 0,2 ended by SIGKILL after it", result.messages)
        self.assert_nothing_left(0.1)

    def test_they_go_on_if_the_user_wants_that(self):
        result = self.fail_beside(WAIT_FOR_FAILED + "sleep 1.5; echo done", "--on-failure", "continue")
        self.assertEqual((result.code, result.lines), (5, ["[0] done", "[2] done"]))
        self.assertIn("ddl-launch: ranks 0,2 ended with 0 after it", result.messages)

    def test_a_stopped_rank_is_woken_to_end(self):
        result = self.fail_beside("kill -STOP $$", "--grace=20")
        self.assertEqual(result.code, 5)
        self.assertLess(result.seconds, 8 * harness.SLOW)
        self.assertIn("ddl-launch: ranks 0,2 ended by SIGTERM after it", result.messages)


if __name__ == "__main__":
    harness.main()
