"""What a machine can lack when a job starts (descriptors, room on a disk, locks that others see), and who else may be at
its place: ranks of other versions, and one that says what no rank says.

    test_start.py ACTOR [CLASS[.TEST]...] [-v]

Disks needs the right to mount in a namespace of its own; without it these tests are skipped.
"""
import errno
import glob
import os
import pathlib
import queue
import re
import resource
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import peer
from world import (DEADLINE, FolderTest, World, bound, connect, cpu_seconds, end_well, finish_thousands, may_mount,
                   mount_apart, wait_until)

ACTOR = None
CALL = "allreduce:1000:int32:sum"
JOB = ("init", CALL, "free")
HEADER = pathlib.Path(__file__).parents[2] / "include/ddl/ddl.h"
LIBRARY = "ddl " + ".".join(re.findall(r"#define DDL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", HEADER.read_text()))


class Tests(FolderTest):
    def setUp(self):
        super().setUp()
        self.secret = secrets.token_hex(32).encode()
        self.secret_file("secret", self.secret.decode())

    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, DDL_SECRET_FILE=self.path("secret"), **environment)
        self.addCleanup(world.__exit__)
        return world

    def computes(self, ranks):
        end_well(ranks, "init", "call", "free")

    def told(self, record, status, seconds, *words):
        self.assertEqual((record["status"], record["code"]), (status, status), record)
        for word in words:
            self.assertIn(str(word), record["text"])
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(seconds), record)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def limit_descriptors(rank, most):
    """The soft limit alone, and who may raise it again."""
    resource.prlimit(rank.pid, resource.RLIMIT_NOFILE, (most, resource.prlimit(rank.pid, resource.RLIMIT_NOFILE)[1]))


@unittest.skipUnless(sys.platform == "linux", "needs prlimit and /proc")
class Descriptors(Tests):
    def start_with(self, world, rank, most):
        """A rank that is about to begin, and may have so many descriptors from now on."""
        started = world.start(rank, "line", *JOB)
        started.expect("ready")
        resource.prlimit(started.pid, resource.RLIMIT_NOFILE, (most, most))
        return started

    def test_too_few_are_told_before_any_is_used(self):
        """Whatever there is between none and a few more than a process has already, and what it takes to tell the others."""
        world = self.world(2)
        probe = world.start(0, "line")
        probe.expect("ready")
        used = descriptors(probe.pid)
        probe.go()
        ranks = [(k, self.start_with(world, k % 2, used + k)) for k in range(21)]
        ranks += [(k, self.start_with(self.world(2), k % 2, used + k)) for k in [*range(29, 37), 60]]
        for _, rank in ranks:
            rank.go()
        for k, rank in ranks:
            with self.subTest(k=k):
                record = rank.expect("init")
                self.told(record, "DDL_ERESOURCE", 1 if k < 21 else 3, "2 ranks", f"{used} are in use", f"hard limit {used + k}", "ulimit -n")
                rank.expect("call", "DDL_EINVAL")
                rank.expect("free", "DDL_OK")
                rank.finish(0 if bound(1) == 1 else None)  # sanitizers want some at the end

    def test_as_many_as_it_says_are_enough(self):
        for nranks in (2, 8):
            world = self.world(nranks)
            needed = []
            for r in (0, 1):
                rank = self.start_with(world, r, 10)
                rank.go()
                needed.append(int(re.search(r"ulimit -n (\d+)", rank.expect("init")["text"]).group(1)))
            poor = self.start_with(world, 1, needed[1] - 1)
            poor.go()
            self.told(poor.expect("init"), "DDL_ERESOURCE", 3, f"ulimit -n {needed[1]}")  # it waits 2 s for whom to tell
            ranks = [self.start_with(world, r, needed[min(r, 1)]) for r in range(nranks)]
            for rank in ranks:
                rank.go()
            self.computes(ranks)

    def test_a_shared_directory_that_stays_for_want_of_descriptors_is_told(self):
        """With which rank 0 would have looked whether it is still its own."""
        shared = os.path.join(self.folder, "shared")
        os.mkdir(shared)
        world = self.world(2, DDL_STORE="file://" + shared)
        ranks = world.start_all("init", "line", "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        limit_descriptors(ranks[0], 3)
        for rank in ranks:
            rank.go()
        for rank in ranks:
            rank.expect("free", "DDL_OK")
            rank.finish(0 if bound(1) == 1 else None)  # sanitizers want some at the end
        left = f"{shared}/ddl-127.0.0.1_{world.port}"
        self.assertTrue(os.path.exists(left))
        self.assertIn(f"{left} stays, as this process may open no more files", "".join(ranks[0].errors))

    def test_accepting_without_descriptors_rests_and_recovers(self):
        """They ran out after the start had begun: whoever calls waits, and nobody spins meanwhile."""
        world = self.world(3)
        first = world.start(0, *JOB)
        first.await_ports(2)
        hard = resource.prlimit(first.pid, resource.RLIMIT_NOFILE)[1]
        used = descriptors(first.pid)
        limit_descriptors(first, used)
        limited = time.monotonic()
        # Its own client may just have been coming in; from now on nobody is accepted.
        ranks = [first, world.start(1, *JOB), world.start(2, *JOB)]
        with socket.create_connection(("127.0.0.1", world.port), timeout=DEADLINE) as caller:
            before, begun = cpu_seconds(first.pid), time.monotonic()
            caller.settimeout(1.5)
            with self.assertRaises(TimeoutError):  # neither heard nor sent away
                caller.sendall(peer.client_hello())
                caller.recv(1)
            share = (cpu_seconds(first.pid) - before) / (time.monotonic() - begun)
        self.assertLess(share, 0.05)
        self.assertLessEqual(descriptors(first.pid), used)
        self.assertTrue(all(rank.records.empty() for rank in ranks))
        self.assertIn("rank 0 cannot let anybody in for now: Too many open files", "".join(first.errors))
        resource.prlimit(first.pid, resource.RLIMIT_NOFILE, (hard, hard))
        begun = time.monotonic_ns()
        for rank in ranks:
            record = rank.expect("init", "DDL_OK")
            self.assertLess((record["end_ns"] - begun) / 1e9, bound(5), record)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)
        told = "".join(first.errors).count("cannot let anybody in")
        self.assertLessEqual(told, 1 + (time.monotonic() - limited) // 10)  # though it tried every 100 ms

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_a_rank_that_lacked_descriptors_lets_in_who_waited(self):
        """At its own door, to which higher ranks come where no usher introduces them; nobody fails, and it is said once,
        where it happened."""
        world = self.world(3, DDL_TRANSPORT="tcp")
        poor = {"DDL_FAILPOINTS": "io.accept:1"}
        ranks = [world.start(r, *JOB, **poor if r == 1 else {}) for r in range(3)]
        self.computes(ranks)
        said = "".join(ranks[1].errors)
        self.assertEqual(said.count("rank 1 cannot let anybody in for now: Too many open files"), 1, said)
        self.assertEqual("".join(ranks[0].errors + ranks[2].errors), "")

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_interfaces_that_cannot_be_listed_are_not_needed(self):
        """As where AF_NETLINK is refused: the address that leads to rank 0 will do; a choice among them cannot be had."""
        world = self.world(2, DDL_FAILPOINTS="io.getifaddrs:1+")
        self.computes([world.start(r, *JOB) for r in range(2)])
        chosen = self.world(2, DDL_FAILPOINTS="io.getifaddrs:1+", DDL_IFACE="lo").start(0, "init")
        self.told(chosen.expect("init"), "DDL_ERESOURCE", 4, "cannot list the network interfaces", "AF_NETLINK")

    @unittest.skipUnless("DDL_TEST_REFUSING" in os.environ, "no program to be preloaded in this build")
    def test_a_system_that_lets_nobody_in_makes_nobody_spin(self):
        world = self.world(2, DDL_START_TIMEOUT=f"{bound(6):g}s")
        first = world.start(0, "init", LD_PRELOAD=os.environ["DDL_TEST_REFUSING"])
        first.await_ports()
        before, begun = cpu_seconds(first.pid), time.monotonic()  # its own client is calling, for one
        with self.assertRaises(queue.Empty):
            first.records.get(timeout=1)
        self.assertLess((cpu_seconds(first.pid) - before) / (time.monotonic() - begun), 0.05)
        self.told(first.expect("init"), "DDL_ERESOURCE", 7, "cannot let others in", "Operation not permitted")
        first.finish(0)
        self.assertIn("rank 0 cannot let anybody in for now: Operation not permitted", "".join(first.errors))


@unittest.skipUnless(may_mount(), "no right to mount a small disk")
class Disks(Tests):
    BLOCK = 4096

    def disk(self, options="size=1m"):
        place = tempfile.mkdtemp(dir=self.folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True, timeout=30)
        self.addCleanup(subprocess.run, ["umount", place], check=True, timeout=30)
        return place

    def fill(self, place, free_blocks):
        try:
            os.unlink(os.path.join(place, "fill"))
        except FileNotFoundError:
            pass
        room = os.statvfs(place)
        with open(os.path.join(place, "fill"), "wb") as file:
            file.write(bytes(room.f_bavail * room.f_frsize - free_blocks * self.BLOCK))

    def test_a_full_disk_is_an_error_and_never_half_a_value(self):
        """With room for a few small files, and one more in the next job, until there is enough. What fails late is told
        to all: rank 0's last words take the place of what it need not leave any more."""
        jobs = []
        for free in range(14):
            place = self.disk()
            self.fill(place, free)
            world = self.world(2, DDL_STORE="file://" + place, DDL_START_TIMEOUT="4s")
            jobs.append((free, place, world.start_all(*JOB)))
        outcomes, told_to_all = [], 0
        for free, place, ranks in jobs:
            with self.subTest(free_blocks=free):
                records = [rank.expect("init") for rank in ranks]
                failed = [record for record in records if record["status"] != "DDL_OK"]
                outcomes.append(not failed)
                for rank in ranks:
                    rank.expect("call", "DDL_EINVAL" if failed else "DDL_OK")
                    rank.expect("free", "DDL_OK")
                    rank.finish(0)
                full = [record for record in failed if record["status"] == "DDL_ESTORE"]
                self.assertEqual(bool(full), bool(failed), records)  # the other may only have waited
                for record in full:
                    # Within a second, of which the other's coming is no part.
                    self.told(record, "DDL_ESTORE", 3, "file store: writing " + place, "No space left on device")
                    self.assertIn(record["culprit"], [records.index(each) for each in full])
                if free == 0:  # rank 0 finds no room to say so, the other finds none either
                    self.assertEqual(len(full), 2, records)
                told_to_all += len(full) == 2 and all("roster" in record["text"] for record in full)
                for record in failed:
                    if record not in full and record["status"] != "DDL_ETIMEDOUT":
                        # Who finds no room for why it fails is missed, as one that died.
                        self.told(record, "DDL_EPEERLOST", 4, "rank")
                        self.assertEqual(record["culprit"], records.index(full[0]))
                self.assertEqual(os.listdir(place), ["fill"])
        self.assertIn(False, outcomes)
        self.assertGreaterEqual(told_to_all, 1)
        self.assertTrue(outcomes[-1], outcomes)

    def free_at(self, name):
        """How long rank 0 takes to leave a place at which a file of this name was left; and what is there then."""
        shared = tempfile.mkdtemp(dir=self.folder)
        world = self.world(2, DDL_STORE="file://" + shared)
        at = f"{shared}/ddl-127.0.0.1_{world.port}"
        os.mkdir(at, 0o700)
        open(f"{at}/{name}", "x").close()
        ranks = world.start_all("init", "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
        frees = [rank.expect("free", "DDL_OK") for rank in ranks]
        for rank in ranks:
            rank.finish(0)
        return (frees[0]["end_ns"] - frees[0]["begin_ns"]) / 1e9, os.listdir(at) if os.path.exists(at) else None

    def test_what_a_killed_rank_0_left_is_removed_and_what_is_no_ranks_is_not_waited_for(self):
        """But for what network file systems remove a moment later, for which they have names of their own."""
        names = ("meet.new-0123456789abcdef", ".nfs000000000012", ".fuse_hidden0000000400000001", "notes")
        outcomes = {name: self.free_at(name) for name in names}
        for name, left in zip(names, (None, [names[1]], [names[2]], [names[3]])):
            self.assertEqual(outcomes[name][1], left, name)
        for name in ("meet.new-0123456789abcdef", "notes"):
            self.assertLess(outcomes[name][0], bound(0.4), name)
        for name in names[1:3]:
            self.assertGreater(outcomes[name][0], 0.4, name)

    def test_shared_memory_needs_no_room_in_dev_shm(self):
        """As in a container, where that has 64 MiB or nothing."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,ro", "tmpfs", "/dev/shm"], check=True, timeout=30)
        self.addCleanup(subprocess.run, ["umount", "/dev/shm"], check=True, timeout=30)
        ranks = self.world(2, DDL_TRANSPORT="shm").start_all("init", "3=allreduce:2000000:float32:sum", "free")
        end_well(ranks, "init", "repeated", "free")

    def test_a_disk_that_cannot_be_written(self):
        place = self.disk()
        subprocess.run(["mount", "-o", "remount,ro", place], check=True, timeout=30)
        for r, rank in enumerate(self.world(2, DDL_STORE="file://" + place).start_all("init")):
            record = rank.expect("init")
            self.told(record, "DDL_ESTORE", 1, "making directory " + place, "Read-only file system")
            self.assertEqual((record["os_errno"], record["culprit"]), (errno.EROFS, r))

    def test_a_directory_that_is_not_there(self):
        for rank in self.world(2, DDL_STORE=f"file://{self.folder}/no/such").start_all("init"):
            self.told(rank.expect("init"), "DDL_ESTORE", 1, self.folder + "/no/such", "No such file")

    def test_a_directory_that_is_taken_away(self):
        """From a rank that waits for rank 0, and from two that wait for a third. Nobody is blamed for it."""
        for present in [1], [0, 1]:
            with self.subTest(present=present):
                directory = tempfile.mkdtemp(dir=self.folder)
                world = self.world(3, DDL_STORE="file://" + directory)
                ranks = [world.start(rank, "init") for rank in present]
                signs = [f"{directory}/ddl-*" + (f"/*/key/=member.{rank}" if 0 in present else "") for rank in present]
                wait_until(lambda: all(glob.glob(sign) for sign in signs), DEADLINE, ranks[0].story)
                gone_ns = time.monotonic_ns()
                os.rename(directory, directory + ".away")
                for rank in ranks:
                    record = rank.expect("init")
                    self.told(record, "DDL_ESTORE", DEADLINE,
                              f"the directory {directory} has been removed; make it again")
                    self.assertEqual(record["culprit"], -1)
                    self.assertLess((record["end_ns"] - gone_ns) / 1e9, bound(1))
                    rank.finish(0)

    def test_a_limit_on_the_size_of_files_ends_no_process(self):
        """The system kills who writes beyond it."""
        place = tempfile.mkdtemp(dir=self.folder)
        limited = ["prlimit", "--fsize=20"]
        ranks = [self.world(2, DDL_STORE="file://" + place).start(0, "init", prefix=limited)]
        record = ranks[0].expect("init")
        self.told(record, "DDL_ESTORE", 1, "file store: writing " + place, "File too large")
        self.assertEqual(record["os_errno"], errno.EFBIG)
        ranks[0].finish(0)
        self.assertEqual(os.listdir(place), [])
        # Enough for the store's small files, and not for shared memory, which is a file to the system.
        world = self.world(2, DDL_STORE="file://" + place)
        ranks = [world.start(r, *JOB, prefix=["prlimit", "--fsize=100000"]) for r in range(2)]
        self.computes(ranks)
        warnings = [line for rank in ranks for line in rank.errors]
        self.assertEqual([("no shared memory, TCP instead" in line) for line in warnings],
                         [True, True] if warnings else [])  # a build that shares none need not warn


@unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
class Places(Tests):
    """A directory in which nobody sees the locks of others."""
    UNSEEN = {"DDL_FAILPOINTS": "rendezvous.flock"}

    def setUp(self):
        super().setUp()
        self.shared = os.path.join(self.folder, "shared")
        os.mkdir(self.shared)

    def job(self, nranks, first=None, **environment):
        world = self.world(nranks, DDL_STORE="file://" + self.shared, **environment)
        if first:
            world.port = first.port
        return world

    def refused(self, first, nranks):
        second = self.job(nranks, first, **self.UNSEEN)
        rank = second.start(0, "init")
        self.told(rank.expect("init"), "DDL_ECONFIG", 2, "two jobs share the place", f"[{first.ranks[0].pid}]",
                  f"[{rank.pid}]")
        rank.finish(0)

    def test_a_second_job_is_told_and_the_first_goes_on(self):
        """While that waits for a rank, and while it computes: of a thousand calls meanwhile each is exact."""
        calls = ("init", "line", "1000=" + CALL, "line", "1000=" + CALL, "free")
        first = self.job(3, **self.UNSEEN)
        ranks = [first.start(r, *calls) for r in (0, 1)]
        first.await_record(self.shared)
        self.refused(first, 3)
        ranks.append(first.start(2, *calls))
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        self.refused(first, 5)
        finish_thousands(self, ranks)
        for rank in ranks:
            rank.finish(0)
            self.assertNotIn("replaces", "".join(rank.errors))
        self.assertEqual(os.listdir(self.shared), [])

    def test_a_run_whose_folder_is_there_already_takes_nothing_from_it(self):
        """But what is empty, as after a network file system has made it twice, is as good as new."""
        for is_empty in (False, True):
            job = self.job(2, DDL_FAILPOINTS="rendezvous.run_id", DDL_START_TIMEOUT=f"{bound(5):g}s")
            run = f"{self.shared}/ddl-127.0.0.1_{job.port}/{'01' * 16}"
            os.makedirs(run if is_empty else run + "/key")
            ranks = [job.start(0, *JOB)]
            if not is_empty:
                self.told(ranks[0].expect("init"), "DDL_ESTORE", 1, run + ", named after a random number", "File exists")
                self.assertEqual(os.listdir(run), ["key"])
                continue
            self.computes([*ranks, job.start(1, *JOB)])

    def test_a_second_job_is_told_though_the_machine_stood_still(self):
        """What one could not answer, as nothing ran, is not held against him."""
        first = self.job(2, **self.UNSEEN)
        holder = first.start(0, "init", CALL, "free")
        first.await_record(self.shared)
        holder.process.send_signal(signal.SIGSTOP)
        second = self.job(2, first, **self.UNSEEN)
        asks = second.start(0, "init")
        wait_until(lambda: glob.glob(f"{self.shared}/ddl-127.0.0.1_{first.port}/*/ask/0.*"), DEADLINE, asks.story)
        asks.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        for rank in (asks, holder):
            rank.process.send_signal(signal.SIGCONT)
        self.told(asks.expect("init"), "DDL_ECONFIG", 5, "two jobs share the place", f"[{holder.pid}]")
        asks.finish(0)
        self.computes([holder, first.start(1, "init", CALL, "free")])

    def test_what_a_killed_run_left_holds_nobody_up(self):
        """For a second where its lock does not tell, and not at all where it does."""
        seconds = []
        for unseen in (self.UNSEEN, {}, {}, {}):
            dead = self.job(2, **unseen)
            dead.start(0, "init")
            dead.await_record(self.shared)
            dead.ranks[0].kill()
            dead.ranks[0].finish(None)
            job = self.job(2, dead, **unseen)
            ranks = [job.start(r, "init", CALL, "free") for r in (1, 0)]
            record = ranks[1].expect("init", "DDL_OK")
            seconds.append((record["end_ns"] - record["begin_ns"]) / 1e9)
            ranks[0].expect("init", "DDL_OK")
            end_well(ranks, "call", "free")
            self.assertIn(f"rank 0 replaces {self.shared}", "".join(ranks[1].errors))
            self.assertEqual(os.listdir(self.shared), [])
        self.assertLess(seconds[0], bound(2))
        self.assertLess(min(seconds[1:]), 0.9)


class Versions(Tests):
    """Of the protocol, or of the algorithms: told to both sides, with both numbers. What is proved ends the run;
    of a version whose proof nobody here could check rank 0 warns, and goes on."""

    def serve(self, answer):
        """A rank 0 of another kind; answer(stream, hello) says what it says."""
        world = self.world(2)
        with socket.create_server(("127.0.0.1", world.port)) as listener:
            listener.settimeout(DEADLINE)
            rank = world.start(1, "init")
            stream, _ = listener.accept()
            with stream:
                stream.settimeout(DEADLINE)
                answer(stream, peer.read_exactly(stream, peer.CLIENT_BYTES))
                return rank.expect("init")

    def call(self, world, hello, secret=None):
        """What rank 0 says to this caller, who then proves that it knows the job's secret, or this one."""
        with connect(world.port) as stream:
            stream.sendall(hello)
            reply = peer.read_exactly(stream, peer.SERVER_BYTES)
            if reply[10] != OTHER_VERSION:
                stream.sendall(peer.finish(secret or self.secret, hello, reply))
                self.assertEqual(peer.read_exactly(stream, 1), b"")
            return reply

    def test_another_protocol(self):
        newer = peer.VERSION + 1
        record = self.serve(lambda stream, hello: stream.sendall(peer.server_reply(self.secret, hello, newer)))
        self.told(record, "DDL_EPROTO", 1, "127.0.0.1:", "rank 1 on ",
                  f"] has version {peer.VERSION} of the protocol ({LIBRARY}), but what answers there has version {newer};")
        world = self.world(2)
        ranks = [world.start(0, *JOB)]
        for version in (0, peer.VERSION - 1, newer, 0xffff):
            begun = time.monotonic()
            reply = self.call(world, peer.client_hello(version=version))
            self.assertEqual((reply[:8], reply[8:10], reply[10]),
                             (peer.MAGIC, peer.VERSION.to_bytes(2, "little"), OTHER_VERSION))
            self.assertLess(time.monotonic() - begun, bound(1))
        ranks.append(world.start(1, *JOB))
        self.computes(ranks)
        told = [line for line in ranks[0].errors if "turned away" in line]
        self.assertEqual(len(told), 2, told)  # the first at once, the others when the door closes; a question is none
        self.assertRegex(told[0], rf"rank 0 turned away 127\.0\.0\.1:\d+: rank 0 on \S+\[\d+\] has version "
                         rf"{peer.VERSION} of the protocol \({re.escape(LIBRARY)}\), but what calls has version {peer.VERSION - 1};")
        self.assertIn("turned away 2 more", told[1])

    def test_another_protocol_of_who_is_missing(self):
        world = self.world(2, DDL_START_TIMEOUT="1s")
        rank = world.start(0, "init")
        self.call(world, peer.client_hello(version=peer.VERSION + 1))
        record = rank.expect("init")
        self.told(record, "DDL_ETIMEDOUT", 2, "rank 1 of 2", f"but what calls has version {peer.VERSION + 1};")
        self.assertRegex(record["text"], r"; rank 0 turned away 127\.0\.0\.1:\d+: rank 0 on ")

    def test_another_secret_of_who_is_missing(self):
        """It is told of, and not blamed: nobody knows who it is."""
        world = self.world(3, DDL_START_TIMEOUT="1s")
        rank = world.start(0, "init")
        self.call(world, peer.client_hello(rank=2, size=3), b"another secret")
        record = rank.expect("init")
        self.told(record, "DDL_ETIMEDOUT", 2, "ranks 1-2 of 3",
                  ": what says it is rank 2 on a peer[0] does not know this job's secret")
        self.assertRegex(record["text"], r"; rank 0 turned away 127\.0\.0\.1:\d+: ")
        self.assertEqual(record["culprit"], 1, record)

    def test_another_secret_where_another_rank_gives_up_first(self):
        """Which knows nothing of it, and whose words stand."""
        world = self.world(3, DDL_START_TIMEOUT="5s")
        rank = world.start(0, "init")
        self.call(world, peer.client_hello(rank=2, size=3), b"another secret")
        other = world.start(1, "init", DDL_START_TIMEOUT="500ms")
        self.told(rank.expect("init"), "DDL_ETIMEDOUT", 4, "rank 2 of 3 (joined: 0-1 on ", "; rank 0 turned away 127.0.0.1:")
        self.assertNotIn("turned away", other.expect("init", "DDL_ETIMEDOUT")["text"])

    def test_other_algorithms(self):
        world = self.world(2)
        ranks = [world.start(0, *JOB)]
        ours = peer.generator_of(self.call(world, peer.client_hello(generator=0), b"another secret"))
        ranks.append(world.start(1, *JOB))
        self.computes(ranks)  # whoever proves nothing harms nobody
        world = self.world(2)
        rank = world.start(0, "init")
        begun = time.monotonic_ns()
        reply = self.call(world, peer.client_hello(generator=ours + 1))
        self.assertEqual((reply[10], peer.generator_of(reply)), (OTHER_GENERATOR, ours))
        record = rank.expect("init")
        self.told({**record, "begin_ns": begun}, "DDL_EPROTO", 1, f"rank 1 on a peer[0] has version {ours + 1} of ddl's algorithms (ddl 7.8.9),",
                  f"rank 0 on {socket.gethostname()}[{rank.pid}] has version {ours} ({LIBRARY});")
        self.assertEqual(record["culprit"], 1)
        record = self.serve(lambda stream, hello: stream.sendall(
            peer.server_reply(self.secret, hello, generator=ours + 1)))
        self.told(record, "DDL_EPROTO", 1, f"version {ours} of ddl's algorithms ({LIBRARY}),", f"version {ours + 1} (ddl 7.8.9);")


class Rogue(Tests):
    """A rank of the job, with its will and its record in the store, that says what no rank says."""
    SET_NEW, GET, WILL, DONE, HEAD_BYTES = 1, 2, 4, 16, 16
    WAIT = 1

    def say(self, stream, kind, body_bytes, key_bytes=0, flags=0, body=b""):
        stream.sendall(struct.pack("<IIBBHI", body_bytes, 1, kind, flags, key_bytes, 0) + body)

    def ask(self, stream, kind, key, value):
        self.say(stream, kind, len(key + value), len(key), body=key + value)
        self.assertEqual(peer.read_exactly(stream, self.HEAD_BYTES)[8], self.DONE)

    def test_who_takes_no_part_harms_nobody_and_is_told_of_once(self):
        world = self.world(2, DDL_SECURITY="off")
        ranks = [world.start(0, "init", "free")]
        with connect(world.port) as stream:
            stream.sendall(peer.client_hello(size=2, level=0))
            generator = peer.generator_of(peer.read_exactly(stream, peer.SERVER_BYTES))
        for _ in range(3):
            with connect(world.port) as stream:
                stream.sendall(peer.client_hello(size=2, level=0, generator=generator))
                peer.read_exactly(stream, peer.SERVER_BYTES)
                stream.sendall(bytes(36))
                self.say(stream, 99, 0)
                self.assertEqual(peer.read_exactly(stream, 1), b"")
        ranks.append(world.start(1, "init", "free"))
        end_well(ranks, "init", "free")
        self.assertEqual("".join(ranks[0].errors).count("no message of kind 99"), 1, ranks[0].story())

    def test_every_rank_hears_what_it_sent(self):
        generator = 0
        for sent, words in (((99, 0), "no message of kind 99"),
                            ((self.SET_NEW, 2**31, 3), f"kind 1 has a value of {2**31 - 3} bytes, the limit is 65572"),
                            ((self.SET_NEW, 300, 257), "kind 1 has a key of 257 bytes in a body of 300, the limit is 256"),
                            ((self.SET_NEW, 6, 3, 0x80), "kind 1 has flags 128, the limit is 1")):
            with self.subTest(words):
                world = self.world(4)
                ranks = [world.start(r, "init") for r in (0, 2)]
                if generator == 0:
                    with connect(world.port) as stream:
                        stream.sendall(peer.client_hello(size=4))
                        generator = peer.generator_of(peer.read_exactly(stream, peer.SERVER_BYTES))
                with connect(world.port) as stream:
                    hello = peer.client_hello(size=4, generator=generator)
                    stream.sendall(hello)
                    stream.sendall(peer.finish(self.secret, hello, peer.read_exactly(stream, peer.SERVER_BYTES)))
                    self.ask(stream, self.WILL, b"", struct.pack("<iii", -3, 1, 0) + b"rank 1 ended")
                    self.ask(stream, self.SET_NEW, b"member.1", b"not read before all have come")
                    self.say(stream, self.GET, len(b"member.2"), len(b"member.2"), self.WAIT, b"member.2")
                    there = peer.read_exactly(stream, self.HEAD_BYTES)  # and so hears of it
                    peer.read_exactly(stream, struct.unpack("<I", there[:4])[0])
                    begun = time.monotonic_ns()
                    self.say(stream, *sent)
                    for rank in ranks:
                        record = rank.expect("init")
                        self.told({**record, "begin_ns": begun}, "DDL_EPROTO", 1, "rank 1 at the meeting place: ", words)
                        self.assertEqual(record["culprit"], 1, record)
                    self.assertEqual(peer.read_exactly(stream, 1), b"")
                ranks[0].process.wait(DEADLINE)
                told = [line for line in ranks[0].errors if "ended the connection of rank 1 on a peer[0]" in line]
                self.assertEqual(len(told), 1, ranks[0].story())
                self.assertIn(words, told[0])


OTHER_VERSION, OTHER_GENERATOR = 2, 3  # verdicts of src/protocol/hello.h


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    mount_apart()
    ACTOR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
