"""Runs ddl-launch as a user would, and sees to it that nothing of a job is left behind.

Every job carries a mark of its own in its environment. Where /proc shows environments, no process with
that mark may remain after a test; elsewhere the process numbers that ranks have noted are looked at.
"""
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from waiting import wait_until  # noqa: E402, F401 (for the tests, too)

LAUNCH = os.environ["DDL_TEST_LAUNCHER"]
SOURCE = os.environ["DDL_TEST_SOURCE"]
PORTABLE = os.environ.get("DDL_TEST_PORTABLE") == "1"
SLOW = float(os.environ.get("DDL_TEST_SLOW", "1"))  # times are this much longer, for sanitizers
OTHER_KEY_S = 0.25  # after this time another interrupt is another Ctrl-C
HAS_PROC = os.path.exists("/proc/self/environ")

# For ranks and what they start: note the own number.
NOTE = 'echo $$ >>"$NOTED";'

# Who started the tests may ignore some signals, as nohup and shells do in the background, and the launcher
# keeps that; the tests want a launcher that starts with none ignored.
for name in ("HUP", "QUIT", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

linux_only = unittest.skipIf(PORTABLE, "needs what only Linux has")


SYS_EXIT = {"x86_64": 60}.get(os.uname().machine, 93)  # of one thread


def is_alive(pid):
    """Whether there is such a process that has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state = process_state(pid)
    if state == "Z":
        try:
            return len(os.listdir("/proc/%d/task" % pid)) > 1  # its first thread alone has ended
        except OSError:
            return False
    return state not in ("", "X")


def process_state(pid):
    """Its letter as ps tells it; empty if there is no such process."""
    if not HAS_PROC:
        return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE).stdout.decode().strip()[:1]
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_stopped(pid):
    """Whether it does not run: also a shell that waits in vfork for a child that is stopped."""
    return process_state(pid) in ("T", "D")


class Result:
    """What a finished run of ddl-launch left: code, out and err (bytes), seconds."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def lines(self):
        return sorted(self.out.decode().splitlines())

    @property
    def messages(self):
        return [line for line in self.err.decode().splitlines() if line.startswith("ddl-launch:")]


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="ddl-launch-test-")
        self.noted = os.path.join(self.directory, "noted")
        self.home_secret = os.path.join(self.directory, ".ddl", "secret")  # HOME is this directory
        os.mkdir(os.path.dirname(self.home_secret), 0o700)
        with open(os.open(self.home_secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        self.mark = "DDL_TEST_MARK=" + uuid.uuid4().hex
        self.running = []

    def tearDown(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        left = self.wait_for_leftovers()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.assertEqual(left, [], "processes of the job remain")

    def path(self, name):
        return os.path.join(self.directory, name)

    def read(self, name):
        """A file of this test's directory; None if it is not there."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def create(self, name):
        with open(self.path(name), "w"):
            pass

    def environment(self, changes):
        environment = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS",)}
        environment["NOTED"] = self.noted
        environment["DIR"] = environment["HOME"] = self.directory
        environment.update([self.mark.split("=")])
        for name, value in (changes or {}).items():
            environment[name] = value
        return environment

    def start(self, *arguments, env=None, **options):
        for stream in ("stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([LAUNCH, *arguments], env=self.environment(env), **options)
        self.running.append(process)
        return process

    def launch(self, *arguments, input=None, limit=30, **options):
        """Run to the end."""
        begun = time.monotonic()
        process = self.start(*arguments, stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL, **options)
        return self.finish(process, input, limit, begun)

    def finish(self, process, input=None, limit=30, begun=None):
        begun = begun or time.monotonic()
        out, err = process.communicate(input, timeout=limit * SLOW)
        return Result(process.returncode, out, err, time.monotonic() - begun)

    def shell(self, script):
        """A program for ranks."""
        return ["sh", "-c", script]

    def python(self, script):
        return [sys.executable, "-S", "-c", script]

    def noted_pids(self):
        return [int(line) for line in (self.read("noted") or b"").split(b"\n")[:-1]]

    def wait_noted(self, count, seconds=10):
        wait_until(lambda: len(self.noted_pids()) >= count, seconds * SLOW, "%d processes noted" % count)
        return self.noted_pids()

    def leftovers(self):
        """Living processes of this test's jobs."""
        if not HAS_PROC:
            return [pid for pid in self.noted_pids() if is_alive(pid)]
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open("/proc/%s/environ" % name, "rb") as environ:
                    if self.mark.encode() in environ.read().split(b"\0") and is_alive(int(name)):
                        found.append(int(name))
            except OSError:
                continue
        # One whose first thread has ended has no environment to be read.
        return found + [pid for pid in self.noted_pids() if process_state(pid) == "Z" and is_alive(pid)]

    def wait_for_leftovers(self, seconds=5):
        """What is still there after that time; usually nothing, and then it does not take it."""
        deadline = time.monotonic() + seconds * SLOW
        while self.leftovers() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.leftovers()

    def assert_nothing_left(self, within):
        begun = time.monotonic()
        left = self.wait_for_leftovers(within)
        self.assertEqual(left, [], "processes remain after %.1f s" % (time.monotonic() - begun))

    def wait_blocked(self, guardian, nranks):
        """Until so many ranks run and none of them, nor the guardian, has used the CPU in some looks."""
        before, looks = None, 0

        def used_cpu():
            used = {}
            for pid in self.leftovers():
                try:
                    with open("/proc/%d/stat" % pid) as stat:
                        fields = stat.read().rpartition(")")[2].split()
                except OSError:
                    return None
                if pid == guardian or int(fields[1]) == guardian:
                    used[pid] = (fields[0], fields[11], fields[12])
            return used

        def blocked():
            nonlocal before, looks
            used = used_cpu()
            same = used is not None and used == before and len(used) == nranks + 1
            before, looks = used, looks + 1 if same else 0
            return looks > 20 and all(state == "S" for state, _, _ in used.values())
        wait_until(blocked, 20 * SLOW, "blocked ranks")

    def wait_taken(self, process):
        """Until this process has taken all signals, and sleeps again."""
        def none_waits():
            try:
                with open("/proc/%d/status" % process.pid) as status:
                    lines = status.read().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                return True
            sleeps = any(line.split()[:2] == ["State:", "S"] for line in lines)
            return sleeps and all(int(line.split()[1], 16) == 0 for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
        wait_until(none_waits, 10 * SLOW, "a signal taken")

    def signal_all(self, process, ranks, number):
        """Ranks, which end by it, and the launcher, before its guardian sees anything."""
        guardian = self.guardian_of(process)
        os.kill(guardian, signal.SIGSTOP)
        for pid in [*ranks, process.pid]:
            os.kill(pid, number)
        wait_until(lambda: not any(is_alive(pid) for pid in ranks), 10 * SLOW, "their ends")
        self.wait_taken(process)  # and has told the guardian
        os.kill(guardian, signal.SIGCONT)

    def guardian_of(self, process):
        """The launcher's only child."""
        def child():
            with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as children:
                return [int(pid) for pid in children.read().split()]
        if os.path.exists("/proc/self/task/%d/children" % os.getpid()):
            return wait_until(child, 5 * SLOW, "a guardian")[0]
        listed = lambda: subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)],
                                        stdout=subprocess.PIPE).stdout.split()
        return int(wait_until(listed, 5 * SLOW, "a guardian")[0])


def main():
    unittest.main(verbosity=2)
