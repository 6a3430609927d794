"""Signals sent to the launcher, and keys pressed in its terminal."""
import os
import pty
import resource
import shutil
import signal
import subprocess
import time
import unittest

import harness
from harness import LaunchTest, is_alive, is_stopped, process_state, wait_until

# Notes each signal, goes on after it, and ends with `enough`.
TRAPS = ('for s in HUP INT QUIT TERM USR1 USR2; do trap "echo $s >>\\"$DIR/got.$RANK\\"" $s; done;'
         + harness.NOTE + 'while [ ! -e "$DIR/enough" ]; do sleep 0.02; done; exit 0')


class Forwarding(LaunchTest):
    def test_each_signal_reaches_every_rank(self):
        process = self.start("-n", "3", "--grace", "60", *self.shell(TRAPS))
        self.wait_noted(3)
        sent = [("USR1", "USR1"), ("USR2", "USR2"), ("HUP", "HUP"), ("QUIT", "QUIT"), ("TERM", "TERM"), ("INT", "TERM")]
        expected = b""
        for name, arrives in sent:
            process.send_signal(getattr(signal, "SIG" + name))
            expected += arrives.encode() + b"\n"
            for rank in range(3):
                wait_until(lambda: self.read("got.%d" % rank) == expected, 10 * harness.SLOW, "%s at rank %d" % (name, rank))
        self.create("enough")
        result = self.finish(process)
        self.assertEqual(result.code, 0)  # all ended well on being asked

    def test_it_reaches_what_a_rank_has_started_too(self):
        child = "sh -c '%s exec sleep 600'" % harness.NOTE
        process = self.start("-n", "2", *self.shell(harness.NOTE + child + " & wait"))
        self.wait_noted(4)
        process.send_signal(signal.SIGTERM)
        result = self.finish(process)
        self.assertEqual(result.code, -signal.SIGTERM)
        # Where a launcher cannot adopt orphans, they are there until process 1 has noticed their end, which took up to
        # 2 s in a container; they are killed after 2 s at the latest.
        self.assertLess(result.seconds, (4 if harness.PORTABLE else 2) * harness.SLOW)
        self.assertEqual([pid for pid in self.noted_pids() if is_alive(pid)], [])

    def test_exit_codes_after_a_signal(self):
        cases = [  # the signal, what a rank does on it, the launcher's exit code, or less than 0 as it ends by the signal
            ("TERM", "", -signal.SIGTERM),
            ("INT", "", -signal.SIGINT),
            ("HUP", "", -signal.SIGHUP),
            ("QUIT", "", -signal.SIGQUIT),
            ("TERM", "trap 'exit 0' TERM;", 0),
            ("TERM", "trap 'exit 7' TERM;", 7),
            ("INT", "trap '' TERM;", -signal.SIGINT),
            ("INT", "trap 'exit 143' TERM;", -signal.SIGINT),  # as a shell or another launcher says that it was stopped
            ("INT", "trap 'exit 139' TERM;", 139),
        ]
        for name, trap, code in cases:
            with self.subTest(signal=name, trap=trap):
                if os.path.exists(self.noted):
                    os.unlink(self.noted)
                process = self.start("-n", "2", "--grace", "0.3",
                                     *self.shell(trap + harness.NOTE + "while :; do sleep 0.02; done"))
                self.wait_noted(2)
                process.send_signal(getattr(signal, "SIG" + name))
                result = self.finish(process)
                self.assertEqual(result.code, code, result.err)
                self.assertTrue(result.messages[0].startswith("ddl-launch: got SIG%s; the job was stopped" % name))
                self.assert_nothing_left(0.5)

    @unittest.skipUnless(shutil.which("bash"), "needs bash, which goes on unless its child has died of Ctrl-C")
    def test_control_c_stops_the_script_too(self):
        """A terminal sends it to the script's whole process group."""
        ranks = harness.NOTE + "exec sleep 600"
        script = subprocess.Popen(["bash", "-c", 'for i in 1 2 3; do "$0" -n 2 sh -c "$1"; echo next; done', harness.LAUNCH, ranks],
                                  env=self.environment(None), start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.running.append(script)
        self.wait_noted(2)
        os.killpg(script.pid, signal.SIGINT)
        result = self.finish(script)
        self.assertEqual((result.code, result.out), (-signal.SIGINT, b""), result.err)

    def test_no_core_is_left_by_a_quit(self):
        """In a directory of its own, with as large a core as may be."""
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        process = self.start("-n", "1", *self.shell("ulimit -c 0;" + harness.NOTE + "exec sleep 600"), cwd=self.directory,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)))
        self.wait_noted(1)
        process.send_signal(signal.SIGQUIT)
        _, status, _ = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((process.returncode, os.WCOREDUMP(status)), (-signal.SIGQUIT, False))

    def test_a_signal_after_the_end_changes_nothing(self):
        """SIGCONT, to a launcher that was stopped when its job ended: nobody reads what is to be forwarded."""
        if not harness.HAS_PROC:
            self.skipTest("no /proc to find the guardian by")
        for code in 0, 7:
            with self.subTest(code=code):
                for name in self.noted, os.path.join(self.directory, "enough"):
                    if os.path.exists(name):
                        os.unlink(name)
                process = self.start("-n", "2", *self.shell(harness.NOTE + 'while [ ! -e "$DIR/enough" ]; do sleep 0.02; done;'
                                                            + "exit %d" % code))
                self.wait_noted(2)
                with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as children:
                    guardian, = map(int, children.read().split())
                process.send_signal(signal.SIGSTOP)
                self.create("enough")
                wait_until(lambda: process_state(guardian) == "Z", 10 * harness.SLOW, "the end of the guardian")
                process.send_signal(signal.SIGCONT)
                self.assertEqual(self.finish(process).code, code)

    def test_a_hang_up_that_is_ignored_stays_ignored(self):
        process = self.start("-n", "2", *self.shell(harness.NOTE + 'while [ ! -e "$DIR/enough" ]; do sleep 0.02; done'),
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        ranks = self.wait_noted(2)
        process.send_signal(signal.SIGHUP)
        for rank in ranks:
            os.kill(rank, signal.SIGHUP)
        self.create("enough")
        self.assertEqual(self.finish(process).code, 0)

    def test_signals_that_were_held_back_reach_the_ranks(self):
        """By whoever started the launcher: ranks are to be asked before they are killed."""
        process = self.start("-n", "2", "--grace", "60", *self.shell(harness.NOTE + "while :; do sleep 0.02; done"),
                             preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
        self.wait_noted(2)
        process.send_signal(signal.SIGTERM)
        result = self.finish(process)
        self.assertEqual(result.code, -signal.SIGTERM)
        self.assertNotIn("SIGKILL", result.err.decode())

    def test_a_second_interrupt_kills(self):
        process = self.start("-n", "2", "--grace", "60", *self.shell(TRAPS))
        self.wait_noted(2)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: self.read("got.0") and self.read("got.1"), 10 * harness.SLOW, "SIGTERM at both ranks")
        time.sleep(harness.OTHER_KEY_S)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assertEqual(result.code, -signal.SIGINT)
        self.assertIn("got SIGINT; the job was stopped by SIGKILL, at the second Ctrl-C", result.err.decode())
        self.assertLess(time.monotonic() - begun, 1 * harness.SLOW)
        self.assert_nothing_left(0.5)


    def test_who_failed_before_that_is_told_and_not_whom_it_ended(self):
        """Rank 1 ends within a tenth of a second, and in another way than all others, but by the launcher's signal."""
        for name in ("INT", "TERM"):
            with self.subTest(name):
                process = self.start("-n", "3", *self.shell(
                    harness.NOTE + '[ $RANK != 1 ] || exec sleep 9; until [ -e "$DIR/go.' + name + '" ]; do sleep 0.005; done; exit 7'))
                ranks = self.wait_noted(3)
                self.create("go." + name)
                wait_until(lambda: sum(not is_alive(pid) for pid in ranks) >= 2, 10 * harness.SLOW, "two ends")
                process.send_signal(getattr(signal, "SIG" + name))
                result = self.finish(process)
                self.assertEqual(result.code, 7, result.err)
                self.assertRegex(result.err.decode(), r"rank [02] on .* failed first: exit code 7")
                os.remove(self.noted)

    def test_who_signals_all_processes_at_once_has_stopped_the_job(self):
        """As schedulers may; the guardian sees it all together, as it is late."""
        process = self.start("-n", "3", *self.shell(harness.NOTE + "exec sleep 9"))
        ranks = self.wait_noted(3)
        self.signal_all(process, ranks, signal.SIGTERM)
        result = self.finish(process)
        self.assertEqual(result.code, -signal.SIGTERM)
        self.assertIn("ddl-launch: got SIGTERM; the job was stopped\n", result.err.decode())

    def test_an_interrupt_that_comes_twice_at_once_is_one(self):
        """As from a terminal and from a wrapper that forwards it."""
        process = self.start("-n", "2", "--grace", "60", *self.shell(
            "trap 'sleep 0.3; exit 0' TERM;" + harness.NOTE + "while :; do sleep 0.02; done"))
        self.wait_noted(2)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            self.wait_taken(process)
        result = self.finish(process)
        self.assertEqual(result.code, 0)  # nobody was killed
        self.assertIn("ddl-launch: got SIGINT; the job was stopped\nddl-launch: ranks 0-1 ended with 0\n", result.err.decode())


class Terminal(LaunchTest):
    def start_in_terminal(self, *arguments, beneath_shell=False):
        """Its process, with a terminal of its own whose other end is self.terminal. It leads the session, unless
        beneath what does as a shell would: then that is the process, with the same exit code."""
        self.terminal, inner = pty.openpty()
        self.addCleanup(os.close, self.terminal)

        def become_leader():
            os.setsid()
            os.close(os.open(os.ttyname(inner), os.O_RDWR))  # makes it the controlling terminal
            if beneath_shell:
                child = os.fork()
                if child > 0:
                    os.closerange(3, 1024)  # one of them tells whether the program was started
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                os.setpgid(0, 0)
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            if os.tcgetpgrp(inner) != os.getpgrp():
                os.tcsetpgrp(inner, os.getpgrp())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        process = self.start(*arguments, stdin=inner, stdout=inner, stderr=inner, preexec_fn=become_leader)
        os.close(inner)
        return process

    def read_terminal(self, until, seconds=10):
        """What was shown up to and with this text."""
        os.set_blocking(self.terminal, False)
        shown = b""

        def look():
            nonlocal shown
            try:
                shown += os.read(self.terminal, 65536)
            except BlockingIOError:
                pass
            except OSError:  # the last process that had it open has ended
                return True
            return until in shown
        wait_until(look, seconds * harness.SLOW, "%r in the terminal" % until)
        return shown

    def test_control_c_asks_the_ranks_to_end(self):
        process = self.start_in_terminal("-n", "2", *self.shell(
            "trap 'echo asked; exit 1' TERM; trap 'echo interrupted; exit 2' INT; echo ready; while :; do sleep 0.02; done"))
        self.read_both_ready()
        begun = time.monotonic()
        os.write(self.terminal, b"\x03")
        shown = self.read_terminal(b"the job was stopped")
        self.assertEqual(process.wait(10 * harness.SLOW), 1)
        self.assertLess(time.monotonic() - begun, 1 * harness.SLOW)
        self.assertEqual((shown.count(b"asked"), shown.count(b"interrupted")), (2, 0))
        self.assertNotIn(b"SIGKILL", shown)  # they ended soon

    def read_both_ready(self):
        return self.read_from_both(b"ready")

    def read_from_both(self, text):
        shown = b""
        while shown.count(text) < 2:
            shown += self.read_terminal(text)
        return shown

    def test_control_c_twice_kills(self):
        process = self.start_in_terminal("-n", "2", "--grace", "60", *self.shell(
            "trap 'echo no' TERM; trap '' INT; echo ready; " + harness.NOTE + "while :; do sleep 0.02; done"))
        self.read_both_ready()
        os.write(self.terminal, b"\x03")
        self.read_terminal(b" s, or at another Ctrl-C")  # 60, or what is left of them on a busy machine
        begun = time.monotonic()
        os.write(self.terminal, b"\x03")
        self.read_terminal(b"the job was stopped")
        self.assertEqual(process.wait(10 * harness.SLOW), -signal.SIGINT)
        self.assertLess(time.monotonic() - begun, 1 * harness.SLOW)
        self.assert_nothing_left(0.5)

    def test_control_z_stops_the_ranks_and_they_can_go_on(self):
        process = self.start_in_terminal("-n", "2", *self.shell(
            harness.NOTE + 'echo ready; while [ ! -e "$DIR/enough" ]; do sleep 0.02; done'), beneath_shell=True)
        self.read_both_ready()
        ranks = self.wait_noted(2)
        launcher = self.guardian_of(process)  # the only child of the "shell"
        for _ in range(2):
            os.write(self.terminal, b"\x1a")
            wait_until(lambda: process_state(launcher) == "T", 10 * harness.SLOW, "a stopped launcher")
            wait_until(lambda: all(is_stopped(rank) for rank in ranks), 10 * harness.SLOW, "stopped ranks")
            os.kill(launcher, signal.SIGCONT)
            wait_until(lambda: all(not is_stopped(rank) for rank in ranks), 10 * harness.SLOW, "running ranks")
        self.create("enough")
        self.assertEqual(process.wait(10 * harness.SLOW), 0)

    def test_the_time_limit_does_not_run_while_the_job_is_stopped(self):
        """Nor does it start anew: stopped after 2 s of its 3, the job has the last one left."""
        begun = time.monotonic()
        process = self.start_in_terminal("-n", "2", "--timeout", "%gs" % (3 * harness.SLOW), *self.shell(
            harness.NOTE + "echo ready; while :; do sleep 0.02; done"), beneath_shell=True)
        self.read_both_ready()
        ranks = self.wait_noted(2)
        launcher = self.guardian_of(process)
        time.sleep(max(0, begun + 2 * harness.SLOW - time.monotonic()))
        os.write(self.terminal, b"\x1a")
        wait_until(lambda: all(is_stopped(rank) for rank in ranks), 10 * harness.SLOW, "stopped ranks")
        time.sleep(1.5 * harness.SLOW)
        self.assertTrue(all(is_stopped(rank) for rank in ranks))
        os.kill(launcher, signal.SIGCONT)
        begun = time.monotonic()
        self.assertEqual(process.wait(10 * harness.SLOW), 124)
        # What has been killed may take 2 s to go where a launcher cannot adopt orphans, see above.
        self.assertLess(time.monotonic() - begun, (4.5 if harness.PORTABLE else 2.5) * harness.SLOW)

    def test_control_z_does_not_stop_what_no_shell_could_continue(self):
        process = self.start_in_terminal("-n", "2", *self.shell(
            "trap 'echo going on' CONT; echo ready; while [ ! -e \"$DIR/enough\" ]; do sleep 0.02; done"))
        self.read_both_ready()
        for _ in range(2):
            os.write(self.terminal, b"\x1a")
            self.read_from_both(b"going on")
        self.create("enough")
        self.assertEqual(process.wait(10 * harness.SLOW), 0)

    def test_rank_0_reads_the_terminal(self):
        process = self.start_in_terminal("-n", "2", *self.shell('[ $RANK = 0 ] || exit 0; echo ask; read x; echo "<$x>"'))
        self.read_terminal(b"ask")
        os.write(self.terminal, b"answer\n")
        self.read_terminal(b"<answer>")
        self.assertEqual(process.wait(10 * harness.SLOW), 0)

    def test_a_terminal_that_is_closed_ends_the_job(self):
        process = self.start_in_terminal("-n", "2", *self.shell(harness.NOTE + "echo ready; exec sleep 600"))
        self.read_both_ready()
        os.dup2(os.open(os.devnull, os.O_RDWR), self.terminal)
        process.wait(10 * harness.SLOW)
        self.assert_nothing_left(3)


if __name__ == "__main__":
    harness.main()
