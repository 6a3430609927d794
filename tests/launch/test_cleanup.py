"""Nothing of a job remains, whatever ends it; and it ends in time."""
import os
import random
import resource
import signal
import subprocess
import time
import unittest

import harness
from harness import LaunchTest, is_alive, linux_only, wait_until

SLEEP = harness.NOTE + "exec sleep 600"
# A child that cannot be asked to end.
STUBBORN = "(trap '' TERM HUP INT; sh -c '%s while :; do sleep 0.05; done') &" % harness.NOTE
# A daemon: forked twice, with a session of its own, whose output goes elsewhere.
DAEMON = ("import os, signal, time\n"
          "if os.fork(): os.wait(); os.execvp('sh', ['sh', '-c', os.environ['THEN']])\n"
          "os.setsid()\n"
          "if os.fork(): os._exit(0)\n"
          "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
          "for fd in (0, 1, 2): os.dup2(os.open('/dev/null', os.O_RDWR), fd)\n"
          "with open(os.environ['NOTED'], 'a') as noted: noted.write('%d\\n' % os.getpid())\n"
          "time.sleep(600)\n")
# Ends the first thread of a process, which is shown as a zombie then, while another one goes on.
HEADLESS = ("import ctypes, threading, time\n"
            "threading.Thread(target=time.sleep, args=(600,)).start()\n"
            "ctypes.CDLL(None).syscall(%d, 0)\n" % harness.SYS_EXIT)


class LauncherKilled(LaunchTest):
    def kill_and_look(self, process, within=2):
        process.kill()
        process.wait()
        self.assert_nothing_left(within + (0.5 if harness.SLOW == 1 else 3))

    def test_ranks_end_with_it_at_any_moment(self):
        for noted in (0, 0, 1, 2, 5, 8):
            with self.subTest(noted=noted):
                if os.path.exists(self.noted):
                    os.unlink(self.noted)
                process = self.start("-n", "8", *self.shell(SLEEP))
                self.wait_noted(noted)
                self.kill_and_look(process)

    def test_ranks_end_with_it_at_20_points_of_its_start(self):
        for point in range(20):
            process = self.start("-n", "4", *self.shell(SLEEP))
            busy_until = time.monotonic() + point * 0.0005
            while time.monotonic() < busy_until:
                pass
            self.kill_and_look(process)

    def test_ranks_that_cannot_be_asked_are_killed(self):
        process = self.start("-n", "2", *self.shell(STUBBORN + "trap '' TERM;" + harness.NOTE + "while :; do sleep 0.05; done"))
        self.wait_noted(4)
        self.kill_and_look(process)

    @linux_only
    def test_daemons_that_ranks_have_started_end_too(self):
        process = self.start("-n", "2", *self.python(DAEMON), env={"THEN": SLEEP})
        self.wait_noted(4)
        self.kill_and_look(process)

    def test_its_whole_process_group_may_be_killed_with_it(self):
        process = self.start("-n", "2", *self.shell(STUBBORN + SLEEP), start_new_session=True)
        self.wait_noted(4)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.assert_nothing_left(2.5 * harness.SLOW)

    @unittest.skipUnless(harness.HAS_PROC, "needs /proc")
    def test_ranks_blocked_in_a_write_end_too(self):
        process = self.start("-n", "2", *self.shell(harness.NOTE + "exec yes"))
        self.wait_noted(2)
        self.wait_blocked(self.guardian_of(process), 2)
        self.kill_and_look(process)  # nobody has read anything

    def test_also_while_a_failed_job_is_ending(self):
        process = self.start("-n", "3", *self.shell(STUBBORN + harness.NOTE + 'while [ ! -e "$DIR/fail" ] || [ $RANK != 1 ]; do sleep 0.02; done; exit 1'))
        self.wait_noted(6)
        self.create("fail")
        rank1_ended = lambda: sum(is_alive(pid) for pid in self.noted_pids()) == 5
        wait_until(rank1_ended, 10 * harness.SLOW, "a failed rank")
        self.kill_and_look(process)


class GuardianKilled(LaunchTest):
    def test_the_launcher_ends_the_job(self):
        process = self.start("-n", "3", *self.shell(SLEEP))
        self.wait_noted(3)
        os.kill(self.guardian_of(process), signal.SIGKILL)
        result = self.finish(process)
        self.assertEqual(result.code, 137)
        self.assertIn("guardian of this job was killed by SIGKILL", result.err.decode())
        self.assert_nothing_left(1)

    @linux_only
    def test_the_launcher_also_ends_stubborn_children_and_daemons(self):
        process = self.start("-n", "2", *self.python(DAEMON), env={"THEN": STUBBORN + SLEEP})
        self.wait_noted(6)
        os.kill(self.guardian_of(process), signal.SIGKILL)
        self.assertEqual(self.finish(process).code, 137)
        self.assert_nothing_left(1)

    @linux_only
    def test_the_launcher_does_so_also_if_nobody_hears_of_it(self):
        process = self.start("-n", "1", *self.python(DAEMON), env={"THEN": SLEEP})
        self.wait_noted(2)
        process.stderr.close()
        os.kill(self.guardian_of(process), signal.SIGKILL)
        process.wait(10 * harness.SLOW)
        self.assert_nothing_left(0.5)

    @linux_only
    def test_ranks_end_even_if_both_are_killed_at_once(self):
        process = self.start("-n", "3", *self.shell(SLEEP))
        self.wait_noted(3)
        guardian = self.guardian_of(process)
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(guardian, signal.SIGKILL)
        process.kill()
        process.wait()
        self.assert_nothing_left(1)

    @linux_only
    def test_it_is_not_found_by_the_launchers_name(self):
        process = self.start("-n", "1", *self.shell(SLEEP))
        self.wait_noted(1)
        with open("/proc/%d/comm" % self.guardian_of(process)) as comm:
            self.assertEqual(comm.read(), "ddl-guardian\n")
        process.terminate()
        self.finish(process)


class Leftovers(LaunchTest):
    def test_stubborn_children_do_not_outlive_the_job(self):
        for end, code in (("exit 0", 0), ("exit 4", 4)):
            with self.subTest(end):
                result = self.launch("-n", "2", "--grace", "0.5", *self.shell(STUBBORN + 'while [ ! -s "$NOTED" ]; do sleep 0.01; done;' + end))
                self.assertEqual(result.code, code)
                self.assertLess(result.seconds, 6 * harness.SLOW)
                self.assert_nothing_left(0.1)

    @linux_only
    def test_daemons_do_not_outlive_the_job(self):
        for then, code in (("exit 0", 0), ("exit 4", 4), ("kill -9 $$", 137)):
            with self.subTest(then):
                if os.path.exists(self.noted):
                    os.unlink(self.noted)
                result = self.launch("-n", "2", "--grace", "0.5", *self.python(DAEMON),
                                     env={"THEN": 'while [ ! -s "$NOTED" ]; do sleep 0.01; done; ' + then})
                self.assertEqual(result.code, code)
                self.assertLess(result.seconds, 6 * harness.SLOW)
                self.assert_nothing_left(0.1)

    @linux_only
    def test_a_daemon_that_looks_like_a_zombie_does_not_outlive_the_job(self):
        begun = time.monotonic()
        result = self.launch("-n", "2", "--grace", "0.5", *self.python(DAEMON.replace("time.sleep(600)\n", HEADLESS)),
                             env={"THEN": 'while [ ! -s "$NOTED" ]; do sleep 0.01; done; sleep 0.2'})
        self.assertEqual(result.code, 0)
        self.assertLess(time.monotonic() - begun, 6 * harness.SLOW)
        self.assert_nothing_left(0.1)

    @linux_only
    def test_a_killed_rank_takes_its_daemons_along_when_the_job_is_killed(self):
        then = "trap 'echo >\"$DIR/got.$RANK\"' TERM;" + harness.NOTE + "while :; do sleep 0.05; done"
        process = self.start("-n", "2", "--grace", "60", *self.python(DAEMON), env={"THEN": then})
        self.wait_noted(4)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: self.read("got.0") and self.read("got.1"), 10 * harness.SLOW, "SIGTERM at both ranks")
        time.sleep(harness.OTHER_KEY_S)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        self.assertEqual(self.finish(process).code, -signal.SIGINT)
        self.assertLess(time.monotonic() - begun, 1 * harness.SLOW)
        self.assert_nothing_left(0.1)

    @linux_only
    def test_orphans_are_waited_for_while_the_job_runs(self):
        script = ('for i in $(seq 1 50); do (sh -c "exit 0" &) ; done;' + harness.NOTE + 'while [ ! -e "$DIR/enough" ]; do sleep 0.02; done')
        process = self.start("-n", "1", *self.shell(script))
        self.wait_noted(1)
        guardian = self.guardian_of(process)

        def zombies():
            found = 0
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open("/proc/%s/stat" % name) as stat:
                        state, parent = stat.read().rpartition(")")[2].split()[:2]
                    found += state == "Z" and int(parent) == guardian
                except OSError:
                    continue
            return found
        wait_until(lambda: zombies() == 0, 10 * harness.SLOW, "no zombies")
        self.create("enough")
        self.assertEqual(self.finish(process).code, 0)


FREEZER = "/sys/fs/cgroup/freezer"  # of version 1: what is frozen there does not even die


class Unkillable(LaunchTest):
    @linux_only
    @unittest.skipUnless(os.access(FREEZER + "/tasks", os.W_OK), "needs root and a freezer")
    def test_what_cannot_be_killed_is_named_and_not_waited_for(self):
        group = "%s/ddl-test-%d" % (FREEZER, os.getpid())
        os.mkdir(group)

        def write(name, text):
            with open(os.path.join(group, name), "w") as file:
                file.write(text)
        try:
            process = self.start("-n", "2", "--grace", "0.1", *self.shell(SLEEP))
            ranks = self.wait_noted(2)
            write("tasks", str(ranks[0]))
            write("freezer.state", "FROZEN")
            process.terminate()
            result = self.finish(process)
        finally:
            write("freezer.state", "THAWED")
            wait_until(lambda: not is_alive(ranks[0]), 10, "a thawed process")
            wait_until(lambda: self.remove(group), 10, "an empty group")
        self.assertEqual(result.code, -signal.SIGTERM)
        self.assertGreater(result.seconds, 5)
        self.assertLess(result.seconds, 7 * harness.SLOW)
        self.assertIn("ddl-launch: these processes could not be killed: %d" % ranks[0], result.messages)

    def remove(self, group):
        try:
            os.rmdir(group)
        except OSError:  # still busy
            return False
        return True


def may_unshare():
    return not harness.PORTABLE and os.getuid() == 0 and subprocess.run(
        ["unshare", "-m", "-p", "-f", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


@unittest.skipUnless(may_unshare(), "needs root, and namespaces")
class Sandboxed(LaunchTest):
    DAEMON = "setsid sh -c '%s exec sleep 600' >/dev/null 2>&1 & sleep 0.3" % harness.NOTE

    def run_in(self, *sandbox):
        begun = time.monotonic()
        process = subprocess.Popen([*sandbox, harness.LAUNCH, "-n", "1", *self.shell(self.DAEMON)],
                                   env=self.environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL)
        self.running.append(process)
        return self.finish(process, begun=begun)

    def end_leftovers(self):
        for pid in self.leftovers():
            os.kill(pid, signal.SIGKILL)

    def test_what_cannot_be_found_is_told_of(self):
        """Neither without /proc, nor with that of other processes."""
        for sandbox in (("unshare", "-m", "sh", "-c", 'umount -l /proc; exec "$@"', "sh"),
                        ("unshare", "-p", "-f", "sh", "-c", '"$@"; exit $?', "sh")):
            with self.subTest(sandbox):
                result = self.run_in(*sandbox)
                self.assertEqual(result.code, 125, result.err)
                self.assertIn("are still there; they cannot be found", "\n".join(result.messages))
                self.assertLess(result.seconds, 4 * harness.SLOW)
                self.end_leftovers()

    def test_numbers_of_another_namespace_are_not_believed(self):
        """The guardian gets the number of a process outside, whose child has the number of one inside."""
        outside = subprocess.Popen(["sh", "-c", "sleep 60; true"])
        self.addCleanup(outside.wait)
        self.addCleanup(outside.kill)
        child = wait_until(lambda: subprocess.run(["pgrep", "-P", str(outside.pid)], capture_output=True, text=True,
                                                  check=False).stdout.strip(), 10, "a child")
        self.addCleanup(os.kill, int(child), signal.SIGKILL)
        script = ('next() { echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid; }\n'
                  'next %s; sleep 60 & innocent=$!\n'
                  'next %d; "$@"\n'
                  'kill $innocent && [ $innocent = %s ] && echo lives' % (child, outside.pid - 1, child))
        result = self.run_in("unshare", "-p", "-f", "sh", "-c", script, "sh")
        self.assertIn("lives", result.lines, result.err)


class BackToBack(LaunchTest):
    def test_runs_one_after_the_other_half_of_them_killed(self):
        """The same port each time: what a killed run held must be free at once."""
        port = random.randrange(16384, 20480)  # none that a connection, or world.free_port, gets by itself
        script = ("import os, socket, time\n"
                  "where = ('127.0.0.1', int(os.environ['MASTER_PORT']))\n"
                  "if os.environ['RANK'] == '0':\n"
                  "    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(where); s.listen(); s.accept()\n"
                  "else:\n"
                  "    end = time.monotonic() + 20\n"
                  "    while time.monotonic() < end:\n"
                  "        try: c = socket.create_connection(where); break\n"
                  "        except OSError: time.sleep(0.005)\n"
                  "with open(os.environ['NOTED'], 'a') as noted: noted.write('%d\\n' % os.getpid())\n"
                  "if os.environ['STAY'] == '1': time.sleep(600)\n")
        for run in range(30):
            killed = run % 2 == 0
            if os.path.exists(self.noted):
                os.unlink(self.noted)
            process = self.start("-n", "2", "--master_port", str(port), *self.python(script), env={"STAY": "1" if killed else "0"})
            if killed:
                self.wait_noted(2)
                process.kill()
                process.wait()
                self.assert_nothing_left(2.5 * harness.SLOW)
            else:
                result = self.finish(process)
                self.assertEqual((result.code, result.err), (0, b""), "run %d" % run)


class InTime(LaunchTest):
    """Least of several runs, as the machine may be busy with something else."""

    def least(self, runs, *arguments):
        return min(self.launch(*arguments).seconds for _ in range(runs))

    def test_the_launcher_ends_with_the_last_rank(self):
        self.assertLess(self.least(8, "-n", "2", "true"), 0.05 * harness.SLOW ** 3)

    def test_64_ranks_start_in_half_a_second(self):
        self.assertLess(self.least(4, "-n", "64", "true"), 0.5 * harness.SLOW ** 3)

    def test_300_ranks_fit_into_few_descriptors(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 2000:
            self.skipTest("the hard limit of descriptors is %d" % hard)
        result = self.launch("-n", "300", "--no-prefix", *self.shell("ulimit -n"), limit=60,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)))
        self.assertEqual((result.code, result.lines), (0, ["256"] * 300))

    def test_too_few_descriptors_are_told_before_anything_starts(self):
        for flags, nranks, code in (([], 100, 125), ([], 48, 0), (["--log_dir", self.path("logs")], 48, 125)):
            with self.subTest(flags, nranks=nranks):
                result = self.launch("-n", str(nranks), *flags, *self.shell('echo x >>"$DIR/started"; exit 0'), limit=60,
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
                self.assertEqual(result.code, code, result.err)
                self.assertEqual(os.path.exists(self.path("started")), code == 0)
                if code == 0:
                    os.unlink(self.path("started"))
                else:
                    self.assertRegex(result.err.decode(), r"\Addl-launch: %d processes need \d+ more descriptors, .*"
                                     r"\(hard limit 256\); raise it with ulimit -n \d+\n\Z" % nranks)


if __name__ == "__main__":
    harness.main()
