"""A directory that two hosts share over a network: sshfs, with a server of its own for each of them.

    test_shares.py ACTOR [CLASS[.TEST]...] [-v]

Locks do not cross from one mount to the other. Needs sshfs, and the right to mount in a namespace of its own; exits
with 77 (skipped) without.
"""
import errno
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from world import DEADLINE, Unexpected, World, bound, end_well, may_mount, mount_apart, run_unless, wait_until

ACTOR = None
CALL = "allreduce:1000:int32:sum"
SFTP_SERVERS = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server",
                "/usr/libexec/sftp-server"]
SFTP_SERVER = next((path for path in SFTP_SERVERS if os.path.exists(path)), None)
HAS_REDIS = os.environ.get("DDL_TEST_REDIS") == "1"


SLOWLY = f"""
import os, subprocess, sys, time
server = subprocess.Popen(["{SFTP_SERVER}"], stdin=subprocess.PIPE)
while data := os.read(0, 1 << 16):
    time.sleep(float(sys.argv[1]))
    server.stdin.write(data)
    server.stdin.flush()
"""


class Mount:
    """The directory as one host sees it; with its cache sshfs would show what others do up to 20 s later. Its server
    takes so many seconds more for each request."""

    def __init__(self, served, delay=0):
        self.path = tempfile.mkdtemp(prefix="ddl-mount-")
        pid_file = os.path.join(self.path + ".pid")
        reach = self.path + ".sh"
        server = SFTP_SERVER if delay == 0 else f"{shlex.quote(sys.executable)} -c {shlex.quote(SLOWLY)} {delay}"
        with open(os.open(reach, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w") as file:
            file.write(f"#!/bin/sh\necho $$ > {pid_file}.new && mv {pid_file}.new {pid_file}\nexec {server}\n")
        self.files = [pid_file, reach]
        self.process = subprocess.Popen(["sshfs", "-f", "-o", f"ssh_command={reach},dir_cache=no", f"host:{served}", self.path])
        wait_until(lambda: os.path.ismount(self.path) or self.process.poll() is not None, DEADLINE,
                   f"sshfs mounts {self.path}")
        if self.process.poll() is not None:
            raise Unexpected(f"sshfs does not mount {self.path}; code {self.process.poll()}")
        with open(pid_file) as file:
            self.server = int(file.read())
        self.path = self.path + "/shared"

    def signal(self, number):
        try:
            os.kill(self.server, number)
        except ProcessLookupError:
            pass  # a test has ended it

    def close(self):
        self.signal(signal.SIGKILL)  # sshfs notices, and says so
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        mounted = os.path.dirname(self.path)
        subprocess.run(["umount", "-l", mounted], capture_output=True, timeout=30)
        os.rmdir(mounted)
        for path in self.files:
            os.unlink(path)


class Tests(unittest.TestCase):
    def setUp(self):
        self.served = tempfile.mkdtemp(prefix="ddl-served-")
        self.addCleanup(shutil.rmtree, self.served)
        os.mkdir(self.served + "/shared", 0o700)
        self.secret_file = os.path.join(self.served, "secret")
        with open(os.open(self.secret_file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        self.mounts = [self.mount(), self.mount()]

    def mount(self, delay=0):
        mount = Mount(self.served, delay)
        self.addCleanup(mount.close)
        return mount

    def job(self, nranks, port=None, **environment):
        environment = {"DDL_START_TIMEOUT": "20s", **environment}
        world = World(ACTOR, nranks, **{"DDL_SECRET_FILE": self.secret_file, **environment})
        self.addCleanup(world.__exit__)
        self.addCleanup(self.resume)  # before that: whoever hangs in FUSE cannot even be killed
        world.port = port or world.port
        return world

    def start(self, world, rank, host, *commands, **environment):
        return world.start(rank, *commands, DDL_STORE="file://" + self.mounts[host].path, **environment)

    def resume(self):
        for mount in self.mounts:
            mount.signal(signal.SIGCONT)

    def told(self, record, status, least, most, *words):
        """Between so many seconds."""
        self.assertEqual(record["status"], status, record)
        for word in words:
            self.assertRegex(record["text"], word)
        seconds = (record["end_ns"] - record["begin_ns"]) / 1e9
        self.assertTrue(least <= seconds <= bound(most), record)

    def left(self):
        """But what FUSE hid when it was removed while open: now and then it forgets such a file for good."""
        left = [os.path.join(folder, name) for folder, folders, names in os.walk(self.served + "/shared") for name in folders + names]
        hidden = [path for path in left if "/.fuse_hidden" in path]
        return [path for path in left if not any(at.startswith(path) for at in hidden)]

    def assert_nothing_is_left(self):
        self.assertEqual(self.left(), [])


class Shared(Tests):
    def test_ranks_of_two_hosts_meet_and_a_second_job_is_told(self):
        calls = ("init", "line", CALL, "free")
        first = self.job(3)
        ranks = [self.start(first, r, r, *calls) for r in (0, 1)]
        first.await_record(self.served + "/shared")
        second = self.job(2, first.port)
        intruder = self.start(second, 0, 1, "init")
        self.told(intruder.expect("init"), "DDL_ECONFIG", 0, 2, "two jobs share the place", rf"\[{ranks[0].pid}\]")
        intruder.finish(0)
        ranks.append(self.start(first, 2, 1, *calls))
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        intruder = self.start(second, 0, 1, "init")
        self.told(intruder.expect("init"), "DDL_ECONFIG", 0, 2, "two jobs share the place", rf"\[{ranks[0].pid}\]")
        for rank in ranks:
            rank.go()
        for rank in ranks:
            rank.expect("call", "DDL_OK")
        end_well(ranks, "free")
        self.assert_nothing_is_left()

    def test_what_a_dead_host_left_holds_nobody_up(self):
        dead = self.job(2)
        rank = self.start(dead, 0, 0, "init")
        dead.await_record(self.served + "/shared")
        rank.kill()
        rank.finish(None)
        job = self.job(2, dead.port)
        ranks = [self.start(job, r, 1, "init", CALL, "free") for r in (1, 0)]
        self.told(ranks[1].expect("init"), "DDL_OK", 0, 2)
        ranks[0].expect("init", "DDL_OK")
        end_well(ranks, "call", "free")
        self.assert_nothing_is_left()


class Slow(Tests):
    """A server that answers, but late."""

    def test_a_deadline_is_kept_however_long_each_request_takes(self):
        """Before it and beyond it; who has no time left for what is to be done says so."""
        for host, delay in enumerate((0.05, 0.2, 0.4)):
            self.mounts.append(self.mount(delay))
        for alone in range(2):
            ranks = [self.start(self.job(2, DDL_START_TIMEOUT="3s"), alone, host, "init") for host in (2, 3, 4)]
            for rank in ranks:
                record = rank.expect("init")
                self.told(record, record["status"], 2.9, 4)
                self.assertIn(record["status"], ("DDL_ESTORE", "DDL_ETIMEDOUT"))
                self.assertRegex(record["text"], "no time was left for|has not returned for|did not come", record)
                rank.finish(0)

    def test_a_job_meets_and_leaves_nothing(self):
        """It has 0.6 s for that, which a busy machine may take away."""
        self.mounts[0] = self.mount(0.01)
        for _ in range(5):
            world = self.job(2)
            ranks = [self.start(world, r, r, "init", CALL, "free") for r in range(2)]
            end_well(ranks, "init", "call", "free")
            if not self.left():
                return
            for name in os.listdir(self.served + "/shared"):
                shutil.rmtree(f"{self.served}/shared/{name}")
        self.fail("there is always something left")


class Hanging(Tests):
    """A server that answers no more, or is gone."""

    def test_nobody_waits_for_it_beyond_the_deadline(self):
        world = self.job(2, DDL_START_TIMEOUT="6s")
        rank = self.start(world, 1, 1, "init")
        time.sleep(0.3)
        self.mounts[1].signal(signal.SIGSTOP)
        hung = rf"file store: \w+( \w+)* {self.mounts[1].path}(/ddl-127.0.0.1_{world.port}\S*)? has not returned for \d\.\d s; does the server"
        self.told(rank.expect("init"), "DDL_ESTORE", 6, 7, hung)
        self.resume()
        rank.finish(0)
        self.assertRegex("".join(rank.errors), r"ddl: \w+( \w+)* /\S+ has not returned for 5 s; does the server of that file system answer\?")

    def test_what_else_a_rank_reads_there_keeps_the_deadline(self):
        """Its secret, a profile, what certifies it, a password; then the same process starts where they can be read."""
        home = os.path.dirname(self.mounts[1].path)
        there = {"DDL_SECRET_FILE": home + "/secret"}
        shutil.copy(self.secret_file, self.served + "/profile")
        self.mounts[1].signal(signal.SIGSTOP)
        for files, least, most, what in (
                (there, 2, 3, f"reading DDL_SECRET_FILE={home}/secret"),
                ({"DDL_PROFILE": home + "/profile"}, 2, 3, f"reading DDL_PROFILE={home}/profile"),
                ({"DDL_SECURITY": "tls", "DDL_TLS_CA": home + "/a", "DDL_TLS_CERT": home + "/b", "DDL_TLS_KEY": home + "/c"}, 2, 3,
                 f"reading what certifies this rank, DDL_TLS_CERT={home}/b"),
                *([({"DDL_STORE": f"redis://:{home}/password@127.0.0.1:9"}, 2, 3,
                    f"reading the password file {home}/password")] if HAS_REDIS else []),
                ({**there, "DDL_TRANSPORT": "pigeon"}, 1.9, 3, "DDL_TRANSPORT=pigeon")):
            with self.subTest(files=files):
                world = self.job(2, DDL_START_TIMEOUT="2s", **files)
                rank = world.start(0, "init", "line", "free")
                record = rank.expect("init")
                late = " has not returned for [12]\\.\\d s" # of the two, what was left when it began
                if "pigeon" in what:
                    self.told(record, "DDL_ECONFIG", least, most, re.escape(what))
                else:
                    self.told(record, "DDL_ETIMEDOUT", least, most, re.escape(what) + late)
                self.assertEqual(record["culprit"], 0, record)
                self.resume()
                rank.go()
                rank.expect("ready")
                rank.finish(0)
                self.mounts[1].signal(signal.SIGSTOP)

    def test_who_has_given_up_a_secret_starts_with_another_or_without(self):
        """Though the first is still being read."""
        home = os.path.dirname(self.mounts[1].path)
        world = self.job(2, DDL_START_TIMEOUT="3s")
        self.mounts[1].signal(signal.SIGSTOP)
        for again, others in ((["set:DDL_SECRET_FILE=" + self.secret_file], 1), (["set:WORLD_SIZE=1"], 0),
                              (["set:DDL_SECRET_FILE=" + self.secret_file, "set:DDL_SECURITY=off"], 1)):
            with self.subTest(again=again):
                first = world.start(0, "init", *again, "line", "init", CALL, "free", DDL_SECRET_FILE=home + "/secret")
                self.told(first.expect("init"), "DDL_ETIMEDOUT", 3, 4)
                first.expect("ready")
                ranks = [first, *(world.start(1, "init", CALL, "free", DDL_SECURITY="off" if len(again) > 1 else None)
                                  for _ in range(others))]
                first.go()
                for rank in ranks:
                    self.told(rank.expect("init"), "DDL_OK", 0, 2)
                for rank in ranks:
                    rank.expect("call", "DDL_OK")
                    rank.expect("free", "DDL_OK")
        self.resume()
        for rank in world.ranks:
            rank.finish(0)

    def test_what_reading_took_is_not_there_for_meeting(self):
        shutil.copy(os.path.join(os.path.dirname(__file__), "far.profile"), self.served + "/profile")
        world = self.job(2, DDL_START_TIMEOUT="3s", DDL_PROFILE=os.path.dirname(self.mounts[1].path) + "/profile")
        self.mounts[1].signal(signal.SIGSTOP)
        rank = world.start(0, "init")
        time.sleep(2)
        self.resume()
        self.told(rank.expect("init"), "DDL_ETIMEDOUT", 3, 3.8, "rank 1 did not come|did not come")
        rank.finish(0)

    def test_a_secret_that_comes_back_in_time_is_waited_for(self):
        home = os.path.dirname(self.mounts[1].path)
        world = self.job(2)
        self.mounts[1].signal(signal.SIGSTOP)
        ranks = [world.start(r, "init", CALL, "free", DDL_SECRET_FILE=home + "/secret") for r in range(2)]
        time.sleep(5.5)
        self.mounts[1].signal(signal.SIGCONT)
        self.told(ranks[1].expect("init"), "DDL_OK", 5, 7)
        ranks[0].expect("init", "DDL_OK")
        for rank in ranks:
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)
            self.assertRegex("".join(rank.errors), "reading DDL_SECRET_FILE=\\S+ has not returned for 5 s; does the server of that file system answer")

    def test_one_that_comes_back_in_time_is_waited_for(self):
        world = self.job(2)
        ranks = [self.start(world, 0, 0, "init", "free")]
        world.await_record(self.served + "/shared")
        self.mounts[0].signal(signal.SIGSTOP)
        ranks.append(self.start(world, 1, 1, "init", "free"))
        time.sleep(3.5)
        self.mounts[0].signal(signal.SIGCONT)
        for rank in ranks:
            self.told(rank.expect("init"), "DDL_OK", 3, 6)
        end_well(ranks, "free")

    def test_a_job_computes_on_and_ends_and_gives_up_what_it_held(self):
        world = self.job(2)
        ranks = [self.start(world, r, r, "init", "line", CALL, "free", "line", "init", CALL, "free") for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        self.mounts[0].signal(signal.SIGSTOP)
        time.sleep(0.5)  # rank 0 looks who asks every 0.3 s
        for rank in ranks:
            rank.go()
        for rank in ranks:
            rank.expect("call", "DDL_OK")
        self.told(ranks[1].expect("free"), "DDL_OK", 0, 3)
        self.told(ranks[0].expect("free"), "DDL_OK", 0.9, 3)
        for rank in ranks:
            rank.expect("ready")
        self.mounts[0].signal(signal.SIGCONT)
        time.sleep(0.5)
        for rank in ranks:
            rank.go()
        end_well(ranks, "init", "call", "free")
        self.assert_nothing_is_left()

    def test_a_mount_that_breaks_is_told_at_once(self):
        world = self.job(2)
        rank = self.start(world, 1, 1, "init")
        time.sleep(0.3)
        self.mounts[1].process.kill()
        broken = "|".join(os.strerror(e) for e in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED))
        self.told(rank.expect("init"), "DDL_ESTORE", 0, 2, f"file store: .*({broken})")
        rank.finish(0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    mount_apart()
    is_possible = may_mount() and SFTP_SERVER is not None and shutil.which("sshfs") and os.path.exists("/dev/fuse")
    ACTOR = os.path.abspath(sys.argv.pop(1))
    run_unless(None if is_possible else "no sshfs here, or no right to mount")
