"""Ranks of one host that share memory: who does, what it leaves behind, how soon a death is seen, what sleep costs.

    test_shm.py ACTOR [CLASS[.TEST]...] [-v]
"""
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import peer
import test_hosts
from world import (DEADLINE, Rank, World, bound, clean_environment, cpu_seconds, end_well, on_two_cpus, read_link, states,
                   times_asleep, wait_until)

ACTOR = None
SMALL = "allreduce:16:float32:sum"
LARGE = "allreduce:2000000:float32:sum"
NOBODY = 65534  # another user


def shared(pid):
    """How many pieces of the library's shared memory a process has mapped, in however many parts each."""
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:ddl" in line})


def lanes_bytes(pid):
    """Of the process's own piece, which it has in two parts, what lies before its heap."""
    lines = [line.split() for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if "memfd:ddl" in line]
    heaps = {line[4]: int(line[2], 16) for line in lines if int(line[2], 16) > 0}
    spans = [line[0].split("-") for line in lines if int(line[2], 16) == 0 and line[4] in heaps]
    assert {int(end, 16) - int(begin, 16) for begin, end in spans} == set(heaps.values()), lines
    return set(heaps.values())


def resident_bytes(pid):
    """Of the library's shared memory that a process has mapped, its own and that of others, what is there."""
    bytes_there, is_ours = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_ours = "memfd:ddl" in line
        elif is_ours and line.startswith("Rss:"):
            bytes_there += int(line.split()[1]) * 1024
    return bytes_there


class Host(unittest.TestCase):
    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, **environment)
        self.addCleanup(world.__exit__)
        return world

    def started(self, world, *commands, most_seconds=None, **environments):
        """All ranks past a first operation; environments: of rank r as rank_r. most_seconds: of init."""
        ranks = [world.start(r, "init", SMALL, "line", *commands, **environments.get(f"rank_{r}", {}))
                 for r in range(world.nranks)]
        for rank in ranks:
            record = rank.expect("init", "DDL_OK")
            if most_seconds is not None:
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, most_seconds, record)
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        return ranks

    def finish(self, ranks):
        for rank in ranks:
            rank.go()
        end_well(ranks, "free")

    def wait_until_stopped(self, rank):
        wait_until(lambda: states(rank.pid) == {"T"}, bound(20), rank.story)


class SharedMemory(Host):
    def test_it_is_taken_without_being_asked_for(self):
        for nranks in (2, 3, 5):
            world = self.world(nranks)
            ranks = self.started(world, "free")
            for rank in ranks:
                self.assertEqual(shared(rank.pid), nranks)  # its own, and that of each other
                self.assertEqual("".join(rank.errors), "")
            self.finish(ranks)

    def test_how_it_is_used_follows_from_the_profile_of_rank_0(self):
        """Rings of 256 KiB or of 2 MiB; large messages through them, or read where they lie."""
        preloaded = os.environ.get("DDL_TEST_PULLING")
        found = {}
        for profile in ("near", "far"):
            world = self.world(2, **({"LD_PRELOAD": preloaded} if preloaded else {}))
            ranks = self.started(world, "allgather:262144:float32", "free",
                                 rank_0={"DDL_PROFILE": f"{pathlib.Path(__file__).parent}/{profile}.profile"})
            sizes = set.union(*(lanes_bytes(rank.pid) for rank in ranks))
            self.assertEqual(len(sizes), 1, sizes)
            found[profile] = sizes.pop()
            for rank in ranks:
                rank.go()
            for rank in ranks:
                rank.expect("call", "DDL_OK")
                rank.expect("free", "DDL_OK")
                rank.finish()
                if preloaded:
                    self.assertEqual("pulled" in "".join(rank.errors), profile == "far")
        self.assertEqual(found["far"] - found["near"], 2 * (2048 - 256) * 1024)

    def test_a_job_whose_ranks_see_no_proc_computes(self):
        """Who they share a host with is then a guess: a rank alone in this talks TCP, and all of them share, if the
        system has other things by which hosts are told apart."""
        hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
            self.skipTest("nothing may be mounted here")
        if b"__asan_init" in pathlib.Path(ACTOR).read_bytes():
            self.skipTest("the sanitizer of leaks reads /proc")
        library = pathlib.Path(ACTOR).resolve().parents[2]  # which programs look for by /proc/self/exe
        machine, release = pathlib.Path("/etc/machine-id"), re.match(r"(\d+)\.(\d+)", os.uname().release)
        tells = (machine.exists() and len(machine.read_text()) >= 32 and
                 release is not None and [int(n) for n in release.groups()] >= [5, 14])
        for unseeing in ({1}, {0}, {0, 1, 2}):
            world = self.world(3, LD_LIBRARY_PATH=library)
            ranks = [world.start(r, "init", SMALL, "line", "free", prefix=hidden if r in unseeing else ())
                     for r in range(3)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("ready")
            if len(unseeing) == 1:
                self.assertEqual([shared(rank.pid) for rank in ranks], [0 if r in unseeing else 2 for r in range(3)])
            elif tells:
                self.assertEqual([shared(rank.pid) for rank in ranks], [3] * 3)
            self.finish(ranks)

    def test_it_can_be_declined(self):
        world = self.world(3, DDL_TRANSPORT="tcp")
        ranks = self.started(world, "free")
        for rank in ranks:
            self.assertEqual(shared(rank.pid), 0)
        self.finish(ranks)

    def test_one_rank_may_decline_for_its_pairs(self):
        for declines in (0, 1):  # 0 hands on what the others have
            world = self.world(4)
            ranks = self.started(world, "free", **{f"rank_{declines}": {"DDL_TRANSPORT": "tcp"}})
            for r in range(4):
                self.assertEqual(shared(ranks[r].pid), 0 if r == declines else 3)
            self.finish(ranks)

    def test_it_can_be_insisted_on(self):
        world = self.world(2, DDL_TRANSPORT="shm")
        self.finish(self.started(world, "free"))
        world = self.world(2)
        for rank in (world.start(0, "init", DDL_TRANSPORT="shm"), world.start(1, "init", DDL_TRANSPORT="tcp")):
            record = rank.expect("init", "DDL_ECONFIG")
            self.assertEqual(record["culprit"], 1, record)
            for words in ("rank 0 on", "DDL_TRANSPORT=shm", "rank 1 on", "DDL_TRANSPORT=tcp"):
                self.assertIn(words, record["text"])

    def test_who_has_not_come_is_waited_for_however_long_ago_the_last_post_was(self):
        """Calls over the board with many by messages between them, in numbers at which counters wrap."""
        by_messages = "32767=reduce:8193:float32:sum:0"
        world = self.world(2)
        ranks = [world.start(r, "init", SMALL, by_messages, SMALL, by_messages, *["line"] * r, SMALL, "free") for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            for event in ("call", "repeated", "call", "repeated"):
                rank.expect(event, "DDL_OK")
        ranks[1].expect("ready")
        time.sleep(bound(0.2))
        let_go_ns = time.monotonic_ns()
        ranks[1].go()
        for rank in ranks:
            self.assertGreater(rank.expect("call", "DDL_OK")["end_ns"], let_go_ns)
            rank.expect("free", "DDL_OK")
            rank.finish()

    def memory_group(self, limit):
        """The folder of a cgroup with so many bytes, and no swap."""
        found = re.search(r":memory:(.*)", pathlib.Path("/proc/self/cgroup").read_text())
        above, files = (("/sys/fs/cgroup/memory" + found[1], {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit})
                        if found else ("/sys/fs/cgroup", {"memory.max": limit, "memory.swap.max": 0}))
        folder = pathlib.Path(above) / f"ddl-test-{os.getpid()}"
        try:
            folder.mkdir()
            self.addCleanup(folder.rmdir)
            for file, value in files.items():
                (folder / file).write_text(str(value))
        except OSError as error:
            self.skipTest(f"there is no cgroup to be had: {error}")
        return folder

    def test_who_needs_nothing_of_a_small_call_is_64_ahead_of_who_does_not_come(self):
        """As they go over the board, also where ranks share CPUs; by messages it would be some thousands."""
        for call, ahead in (("broadcast:4:int32:0", 0), ("scatter:1:int32:0", 0), ("reduce:4:int32:sum:0", 1), ("gather:1:int32:0", 1)):
            world = self.world(3, DDL_TIMEOUT=f"{bound(1)}s")
            ranks = self.started(world, f"forever={call}")
            for rank in ranks[:2]:
                rank.go()
            ranks[ahead].expect("running")
            record = ranks[ahead].expect("forever", "DDL_ETIMEDOUT")
            self.assertEqual((record["done"], record["culprit"]), (64, 2), ranks[ahead].story())

    def test_where_there_is_not_memory_enough_for_all_there_is_tcp_and_a_warning(self):
        """The ranks would be killed when they come to use it."""
        if b"__asan_init" in pathlib.Path(ACTOR).read_bytes():
            self.skipTest("the sanitizer takes more than what there is")
        nranks, rings, boards = 16, 16 * 15 * (256 + 4 << 10), 16 * 2 * (256 << 10)
        enter = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.memory_group(rings + boards - (1 << 20))]
        world = self.world(nranks, MALLOC_PERTURB_="0")  # which would touch all
        commands = ["init", SMALL, "allreduce:16384:float32:sum", "line", "free"]
        ranks = [world.start(r, *commands, prefix=enter) for r in range(nranks)]
        for rank in ranks:
            for event in ("init", "call", "call"):
                rank.expect(event, "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            self.assertEqual(shared(rank.pid), 0)
            needed = re.findall(r"no shared memory, TCP instead: no memory for (\d+) KiB", "".join(rank.errors))
            self.assertEqual(len(needed), 1, rank.errors)
            self.assertGreaterEqual(int(needed[0]), (rings + boards) // 1024)
        self.finish(ranks)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_what_fails_leaves_tcp_and_a_warning(self):
        for site in ("io.memfd", "io.mmap", "io.seals", "io.unix"):
            world = self.world(3)
            ranks = self.started(world, "free", rank_1={"DDL_FAILPOINTS": site})
            warnings = "".join(ranks[1].errors)
            self.assertIn("TCP instead", warnings, site)
            self.assertLess(shared(ranks[1].pid), 3, site)
            for r in (0, 2):
                self.assertGreaterEqual(shared(ranks[r].pid), 2, site)
            self.finish(ranks)
            world = self.world(2)
            insists = world.start(1, "init", DDL_TRANSPORT="shm", DDL_FAILPOINTS=site)
            other = world.start(0, "init")
            record = insists.next()
            self.assertIn(record["status"], ("DDL_EUNSUPPORTED", "DDL_ERESOURCE", "DDL_ENOMEM"), record)
            if site == "io.memfd":
                for told in (record, other.expect("init", record["status"])):
                    self.assertEqual(told["culprit"], 1, told)
                    self.assertRegex(told["text"], rf"^rank 1 on \S+\[{insists.pid}\]: ")

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_one_warning_of_a_rank_names_all_whom_it_does_not_share_with(self):
        """The memory of no other can be used; that fails on the usher, and on another."""
        cases = (("io.seals", 5, {}, {0: "ranks 1-4", 3: "ranks 0-2, 4"}),
                 ("io.seals", 2, {}, {1: "rank 0"}),
                 ("io.seals", 9, {"DDL_CONNECT": "lazy"}, {8: "ranks 0-1, 3-4, 6-7"}),
                 ("io.unix_connect", 5, {}, {3: ""}),
                 ("io.memfd", 5, {}, {0: "", 3: ""}))
        for site, nranks, environment, words in cases:
            for unable, named in words.items():
                world = self.world(nranks, **environment)
                ranks = self.started(world, "free", **{f"rank_{unable}": {"DDL_FAILPOINTS": site}})
                warnings = [line for line in ranks[unable].errors if "shared memory" in line]
                self.assertEqual(len(warnings), 1, warnings)
                self.assertIn(f"no shared memory{named and ' with ' + named}, TCP instead: ", warnings[0])
                for r in set(range(nranks)) - {unable}:
                    self.assertEqual("".join(ranks[r].errors), "", (site, r))
                self.finish(ranks)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_without_a_heap_there_are_lanes(self):
        for site in ("io.mmap:2", "io.mmap:3"):  # of its own, of another rank
            world = self.world(3)
            ranks = self.started(world, "free", rank_1={"DDL_FAILPOINTS": site})
            for rank in ranks:
                self.assertEqual(shared(rank.pid), 3, site)
                self.assertEqual("".join(rank.errors), "", site)
            self.finish(ranks)

    def stop_while_they_meet(self, nranks, stopped, seconds, place="memory", sent=signal.SIGSTOP):
        """The world, with ranks that have so many seconds for their start; who has the fewest comes last. In files all
        read that they are connected, whoever has stopped."""
        folder = tempfile.TemporaryDirectory(prefix="ddl-shm-")
        self.addCleanup(folder.cleanup)
        world = self.world(nranks, DDL_STORE="file://" + folder.name)
        preloaded = {"LD_PRELOAD": os.environ["DDL_TEST_STOPPING"], "DDL_TEST_STOP": place,
                     "DDL_TEST_SIGNAL": str(int(sent))}
        for r in sorted(range(nranks), key=lambda r: -seconds.get(r, 60)):
            world.start(r, "init", DDL_START_TIMEOUT=f"{seconds.get(r, 60):g}s", **preloaded if r == stopped else {})
        return {int(rank.name.split()[1]): rank for rank in world.ranks}

    @unittest.skipUnless("DDL_TEST_STOPPING" in os.environ, "no program to be preloaded in this build")
    def test_all_blame_the_rank_that_stops_while_they_meet(self):
        """Whatever time each has left: the usher knows who has least. Without it each has only its own."""
        late = self.stop_while_they_meet(4, 2, {1: 4, 3: 6})
        usher = self.stop_while_they_meet(3, 0, {1: 4, 2: 4.2})
        for ranks, stopped in ((late, 2), (usher, 0)):
            for r, rank in ranks.items():
                if r == stopped:
                    continue
                record = rank.expect("init", "DDL_ETIMEDOUT")
                self.assertEqual(record["culprit"], stopped, record)
                self.assertIn(f"rank {stopped} on ", record["text"])
                self.assertIn("has not met its neighbours in time", record["text"])
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(6), record)
        os.kill(late[2].pid, signal.SIGCONT)
        self.assertEqual(late[2].expect("init", "DDL_ETIMEDOUT")["culprit"], 2)

    @unittest.skipUnless("DDL_TEST_STOPPING" in os.environ, "no program to be preloaded in this build")
    def test_all_blame_who_stops_while_ranks_are_introduced(self):
        """The usher, or another that it waits for; who has the fewest seconds tells all."""
        for place, stopped in (("pair", 0), ("door", 2)):
            ranks = self.stop_while_they_meet(4, stopped, {1: 4, 3: 4}, place)
            for r, rank in ranks.items():
                if r == stopped:
                    continue
                record = rank.expect("init", "DDL_ETIMEDOUT")
                self.assertEqual(record["culprit"], stopped, record)
                self.assertIn("not connected to each other", record["text"])
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(6), record)

    @unittest.skipUnless("DDL_TEST_STOPPING" in os.environ, "no program to be preloaded in this build")
    def test_nobody_goes_on_before_the_last_word_of_the_usher(self):
        """Rank 2 calls the others, over TCP. Though it has reached rank 1, that waits to hear so from the usher."""
        folder = tempfile.TemporaryDirectory(prefix="ddl-shm-")
        self.addCleanup(folder.cleanup)

        world = self.world(3, DDL_STORE="file://" + folder.name)
        calls = {"LD_PRELOAD": os.environ["DDL_TEST_STOPPING"], "DDL_TEST_STOP": "call", "DDL_TRANSPORT": "tcp"}
        ranks = [world.start(r, "init", SMALL, "free", **calls if r == 2 else {}) for r in range(3)]
        self.wait_until_stopped(ranks[2])
        time.sleep(bound(0.5))  # the usher has let rank 1 in
        os.kill(ranks[0].pid, signal.SIGSTOP)
        self.wait_until_stopped(ranks[0])
        os.kill(ranks[2].pid, signal.SIGCONT)
        time.sleep(bound(0.5))  # rank 1 has let rank 2 in
        said = {path.name for path in pathlib.Path(folder.name).rglob("=*")}
        self.assertIn("=roster", said)
        self.assertEqual({name for name in said if "meshed" in name}, set())
        os.kill(ranks[0].pid, signal.SIGCONT)
        end_well(ranks, "init", "call", "free")

    @unittest.skipUnless("DDL_TEST_STOPPING" in os.environ, "no program to be preloaded in this build")
    def test_an_usher_that_ends_is_named_at_once(self):
        for nranks in (3, 6):
            ranks = self.stop_while_they_meet(nranks, 0, {}, "pair", signal.SIGKILL)
            for r, rank in ranks.items():
                if r == 0:
                    continue
                record = rank.expect("init", "DDL_EPEERLOST")
                self.assertEqual(record["culprit"], 0, record)
                self.assertIn("rank 0 on ", record["text"])
                self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(5), record)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_who_cannot_be_introduced_is_connected_all_the_same(self):
        """As a rank, or the usher, makes no Unix sockets; or some pairs of them."""
        for unable, site in ((2, "io.connect:1"), (0, "io.unix_pair"), (0, "io.unix_pair:2"), (0, "io.unix_send:3")):
            world = self.world(5)
            ranks = self.started(world, "free", **{f"rank_{unable}": {"DDL_FAILPOINTS": site}})
            for rank in ranks:
                self.assertEqual("".join(rank.errors), "", site)
            self.finish(ranks)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_where_handing_over_is_forbidden_they_are_connected_at_once(self):
        """A security module may let nobody have another process's descriptors."""
        world = self.world(4)
        # It is not tried again for 2 s.
        ranks = self.started(world, "free", most_seconds=1.9, rank_0={"DDL_FAILPOINTS": "io.unix_deny"})
        for rank in ranks:
            self.assertEqual(shared(rank.pid), 1)
        self.finish(ranks)
        self.assertIn("a security module of the system forbids it", "".join(ranks[0].errors))

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_where_it_is_forbidden_in_the_middle_all_hear_why(self):
        """What one of two has can't be taken back: its other end never comes."""
        world = self.world(4)
        began = time.monotonic()
        ranks = [world.start(r, "init", **{"DDL_FAILPOINTS": "io.unix_deny:2+"} if r == 0 else {}) for r in range(4)]
        for rank in ranks:
            record = rank.expect("init", "DDL_EUNSUPPORTED")
            self.assertRegex(record["text"], "rank . cannot be connected .* security module .*DDL_TRANSPORT=tcp")
        self.assertLess(time.monotonic() - began, 5)

    @unittest.skipUnless(os.environ.get("DDL_TEST_FAILPOINTS") == "1", "no failpoints in this build")
    def test_who_is_kept_from_descriptors_is_told_the_way_out(self):
        """Two ranks need no introduction, and talk over TCP; of more all hear why they cannot begin."""
        kept = {"DDL_FAILPOINTS": "io.unix_withhold"}
        ranks = self.started(self.world(2), "free", rank_1=kept)
        self.assertEqual([shared(rank.pid) for rank in ranks], [1, 1])
        self.finish(ranks)
        self.assertIn("withholds descriptors", "".join("".join(rank.errors) for rank in ranks))
        world = self.world(3)
        ranks = [world.start(r, "init", **kept if r == 2 else {}) for r in range(3)]
        for rank in ranks:
            record = rank.expect("init", "DDL_EUNSUPPORTED")
            self.assertIn("DDL_TRANSPORT=tcp", record["text"])

    def test_nothing_is_left_behind(self):
        before = set(os.listdir("/dev/shm"))
        world = self.world(3)
        ranks = self.started(world)
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())
        own = {os.readlink(fd) for rank in ranks for fd in pathlib.Path(f"/proc/{rank.pid}/fd").iterdir()}
        doors = [line for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]
                 if int(line.split()[3], 16) & 0x10000 and f"socket:[{line.split()[6]}]" in own]  # __SO_ACCEPTCON
        self.assertEqual(doors, [])  # they are closed once all have met
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.finish(-9)
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())

    def test_who_waits_sleeps(self):
        """Ranks that wait for a late one use less than 0.1 % of a CPU, and are woken by it, not by a tick."""
        rounds = 9
        for nranks in (2, 4):
            world = self.world(nranks)
            ranks = [world.start(r, "init", SMALL, *(["line", SMALL] if r == 0 else [SMALL]) * rounds, "line", "free")
                     for r in range(nranks)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            ranks[0].expect("ready")
            time.sleep(1.5)
            seen = []
            for _ in range(3):  # as a host that takes its CPU back for a while counts as the ranks' own time
                before = [times_asleep(rank.pid) for rank in ranks]
                used = self.cpu_used(ranks, 4)
                seen.append((used, [times_asleep(rank.pid) - was for rank, was in zip(ranks, before)]))
                if max(used) < bound(0.001) * 4:
                    break
            self.assertLess(max(used), bound(0.001) * 4, f"seconds of CPU in 4 s, and how often asleep: {seen}")
            # Who spins burns seconds, in each window in which it does.
            self.assertLess(max(max(u) for u, _ in seen), bound(0.02) * 4, f"likewise: {seen}")
            self.assertLess(max(max(times) for _, times in seen), 4 * 20, f"ticks of 100 ms, and not more: {seen}")
            late = []
            for turn in range(rounds):
                time.sleep(0.05)
                ranks[0].go()
                began = ranks[0].expect("call", "DDL_OK")["begin_ns"]
                late.append(max(rank.expect("call", "DDL_OK")["end_ns"] - began for rank in ranks[1:]) / 1e6)
                ranks[0].expect("ready")
            self.assertLess(statistics.median(late), bound(5), f"ms after the last came: {late}")
            for rank in ranks[1:]:
                rank.expect("ready")
            self.finish(ranks)

    def test_who_has_nothing_to_do_sleeps(self):
        """Between calls, with a call started for which a late rank has not come, and with a root's call gone ahead."""
        for transport, commands in (("shm", ["line"]), ("shm", ["+" + SMALL, "line"]), ("shm", ["broadcast:16:float32:1", "line"]),
                                    ("tcp", ["+" + SMALL, "line"])):
            world = self.world(3, DDL_TRANSPORT=transport)
            last = ["line", "free"] if commands == ["line"] else ["line", commands[0].lstrip("+"), "free"]
            ranks = [world.start(r, "init", SMALL, *(last if r == 0 else commands + ["free"])) for r in range(3)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
            time.sleep(1.5)
            seen = []
            for _ in range(3):  # as a host that takes its CPU back for a while counts as the ranks' own time
                seen.append(self.cpu_used(ranks, 2))
                if max(seen[-1]) < bound(0.001) * 2:
                    break
            self.assertLess(max(seen[-1]), bound(0.001) * 2, f"{transport}, {commands}: seconds of CPU in 2 s: {seen}")
            self.assertLess(max(map(max, seen)), bound(0.02) * 2, f"likewise: {seen}")
            world.__exit__()

    def cpu_used(self, ranks, seconds):
        before = [cpu_seconds(rank.pid) for rank in ranks]
        time.sleep(seconds)
        return [cpu_seconds(rank.pid) - was for rank, was in zip(ranks, before)]

    def test_ranks_with_cpus_of_their_own_are_not_crowded(self):
        """Bound to one each, as batch systems and MPI's launchers do it, they wait and choose as ranks do that may use
        all; bound to the same one, they do not."""
        def chosen(*cpus):
            world = self.world(len(cpus))
            ranks = [world.start(r, "init", "chosen:allreduce:2", SMALL, "free",
                                 prefix=["taskset", "-c", cpu]) for r, cpu in enumerate(cpus)]
            names = set()
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                names.add(rank.expect("chosen")["name"])
                rank.expect("call", "DDL_OK")
                rank.expect("free", "DDL_OK")
                rank.finish()
            return names

        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is one CPU")
        first, second = (str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2])
        both = f"{first},{second}"
        together, apart, on_one = chosen(both, both), chosen(first, second), chosen(first, first)
        self.assertEqual(apart, together)
        self.assertNotEqual(on_one, together)

    def test_the_first_call_finds_memory_where_no_cpu_is_shared(self):
        """Lanes and board are there once init has returned; where ranks share a CPU, only what has been used."""
        def resident(cpus):
            world = self.world(2)
            ranks = [world.start(r, "init", "line", "free", prefix=["taskset", "-c", cpus]) for r in range(2)]
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("ready")
            least = min(resident_bytes(rank.pid) for rank in ranks)
            for rank in ranks:
                rank.go()
            end_well(ranks, "free")
            return least

        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is one CPU")
        if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14):
            self.skipTest("this Linux does not touch memory for others")
        first, second = (str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2])
        self.assertGreater(resident(f"{first},{second}"), 2 * 256 * 1024, "two lanes at least")
        self.assertLess(resident(first), 256 * 1024)

    def missing_of_who_stops_in_the_middle(self):
        """What ranks 0 and 2 say that rank 1 has not done, which stops in a call that it has said to be in."""
        with World(ACTOR, 3, DDL_TIMEOUT=f"{bound(4)}s") as world:
            with on_two_cpus():
                ranks = self.started(world, "forever=allreduce:8000000:float32:sum")
            for rank in ranks:
                rank.go()
            for rank in ranks:
                rank.expect("running")
            time.sleep(bound(0.3))
            ranks[0].process.send_signal(signal.SIGSTOP)
            time.sleep(bound(0.3))  # which is long, so the others say where they are
            ranks[1].process.send_signal(signal.SIGSTOP)
            ranks[0].process.send_signal(signal.SIGCONT)
            missing = []
            for rank in (ranks[0], ranks[2]):
                record = rank.next()
                self.assertEqual((record["status"], record["culprit"]), ("DDL_ETIMEDOUT", 1), record)
                missing.append(re.search(r"has not (gone on in|entered) it", record["text"])[0])
            ranks[1].process.send_signal(signal.SIGCONT)
            return missing

    def test_who_stops_in_the_middle_is_named(self):
        """Rank 0 may have stopped when only rank 1 still lacked something of it: then that does not come to the next
        call, as is told."""
        for _ in range(4):
            if self.missing_of_who_stops_in_the_middle() == 2 * ["has not gone on in it"]:
                return
        self.fail("nobody was told of as being in the middle of a call")

    def culprits_of_a_short_deadline(self):
        """Whom ranks 0 and 1 blame when they enter together, without rank 2, and mostly give up before either could
        have told the other that it is there."""
        with World(ACTOR, 3) as world:
            early = ["init", SMALL, "timeout:15", "line"]
            ranks = world.start_all(*early, SMALL, others={2: early})
            for rank in ranks:
                for event in ("init", "call", "timeout"):
                    rank.expect(event, "DDL_OK")
                rank.expect("ready")
            for rank in ranks[:2]:
                rank.go()
            return {rank.expect("call", "DDL_ETIMEDOUT")["culprit"] for rank in ranks[:2]}

    def test_who_has_come_is_not_blamed(self):
        """On a busy machine one of the two may come more than 15 ms after the other, and be blamed with reason."""
        blamed = [self.culprits_of_a_short_deadline() for _ in range(6)]
        self.assertGreaterEqual(blamed.count({2}), 4, blamed)


def door_of(rank, pattern):
    """The name of the abstract Unix socket at which a rank listens, once it does."""
    def find():
        own = {read_link(fd) for fd in pathlib.Path(f"/proc/{rank.pid}/fd").iterdir()}
        for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
            *_, flags, _, _, inode, name = [*line.split(), ""][:8]
            if int(flags, 16) & 0x10000 and f"socket:[{inode}]" in own and re.fullmatch("@" + pattern, name):
                return name[1:].replace("@", "\0").encode()
        return None
    return wait_until(find, DEADLINE, lambda: f"{pattern}; {rank.story()}")


@unittest.skipUnless(os.geteuid() == 0, "only root can be another user")


class Deaths(Host):
    def last_words_behind_a_full_lane(self, ends):
        """Rank 1 sends to rank 0, which stands still, until there is no more room; then rank 2 dies, and rank 1 goes."""
        world = self.world(4, DDL_TIMEOUT="20s")
        gather = "gather:6640:float32:0"
        ranks = world.start_all("init", gather, "line", gather, others={
            1: ["init", gather, "line", f"forever={gather}", *ends],
            2: ["init", gather, "line", "mortal:200000", f"forever={gather}"], 3: ["init", gather, "line", f"forever={gather}", *ends]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        os.kill(ranks[0].pid, signal.SIGSTOP)
        for rank in ranks[1:]:
            rank.go()
        for r in (1, 3):
            record = ranks[r].next()
            record = ranks[r].next() if record["event"] == "running" else record
            self.assertEqual((record["status"], record["culprit"]), ("DDL_EPEERLOST", 2), ranks[r].story())
        time.sleep(0.2)
        os.kill(ranks[0].pid, signal.SIGCONT)
        for r in (1, 3):
            ranks[r].expect("free", "DDL_OK") if ends == ["free"] else None
            ranks[r].finish(0)
        ranks[0].go()
        record = ranks[0].expect("call", "DDL_EPEERLOST")
        world.__exit__()
        return record["culprit"]

    def test_why_a_rank_goes_is_told_behind_a_full_lane(self):
        """What it says last waits until there is room: else it would be taken for the one that died."""
        self.assertEqual([self.last_words_behind_a_full_lane(ends) for ends in (["free"], []) for _ in range(2)], [2] * 4)

    def seconds_until_a_death_is_seen(self, nranks, victim, call):
        """By all others, which call it over and over meanwhile."""
        world = self.world(nranks)
        loop = ["init", "line", f"forever={call}"]
        ranks = world.start_all(*loop, others={victim: ["init", "line", "mortal:30000", f"forever={call}"]})
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        ends = []
        for r, rank in enumerate(ranks):
            record = rank.next()
            while record["event"] == "running":
                record = rank.next()
            if r == victim:
                self.assertEqual(record["event"], "killed", record)
                killed = record["end_ns"]
            else:
                self.assertEqual(record["status"], "DDL_EPEERLOST", record)
                self.assertEqual(record["culprit"], victim, record)
                ends.append(record["end_ns"])
        world.__exit__()
        return (max(ends) - killed) / 1e9

    def test_a_death_is_seen_at_once(self):
        """Within 100 ms, though the others spin on memory that nobody writes; mostly, as other processes may have the
        CPU meanwhile."""
        for nranks in (2, 4, 8):
            took = [self.seconds_until_a_death_is_seen(nranks, 1, SMALL) for _ in range(5)]
            self.assertLess(statistics.median(took), bound(0.1), f"{nranks} ranks: {took}")

    def test_a_death_in_a_large_call_is_seen_at_once(self):
        """Over the board in pieces, through lanes, and where the lowest rank, the usher of the host, has died; by its
        connections, not by how long it has said nothing. It takes 65 to 130 ms, but where others use the CPUs."""
        for nranks, victim, call in ((2, 0, LARGE), (4, 0, LARGE), (4, 3, "alltoall:500000:float32"),
                                     (4, 2, "broadcast:2000000:float32:1")):
            took = [self.seconds_until_a_death_is_seen(nranks, victim, call) for _ in range(3)]
            self.assertLess(statistics.median(took), bound(1), f"{nranks} ranks, {call}: {took}")


class OtherUsers(Host):
    """Processes of another user on the same host, beside which root's own get what they ask for."""

    def stranger(self, user, *arguments, prefix=()):
        program = pathlib.Path(__file__).parent / "stranger.py"
        started = Rank(sys.executable, ["-I", "-S", str(program), str(user), *arguments], clean_environment(), "a stranger",
                       prefix)
        self.addCleanup(started.close)
        return started

    def call(self, user, name, message):
        """Somebody who has called there and said this."""
        caller = self.stranger(user, "call", name.hex(), message.hex())
        caller.expect("called")
        return caller

    def heard(self, stranger):
        record = stranger.expect("heard")
        return record["bytes"], record["descriptors"]

    def test_an_usher_says_nothing_to_them(self):
        world = self.world(3)
        world.start(0, "init", SMALL, "line", "free")
        name = door_of(world.ranks[0], "ddl-0-[0-9a-f]{32}")
        hello = peer.client_hello(channel=peer.MESH, size=3)
        self.assertEqual(self.heard(self.call(NOBODY, name, hello)), (0, 0))
        self.assertEqual(self.heard(self.call(os.getuid(), name, hello)), (peer.SERVER_BYTES, 0))
        for r in (1, 2):
            world.start(r, "init", SMALL, "line", "free")
        self.finish_sharing(world.ranks, [3] * 3)

    @unittest.skipUnless("DDL_TEST_STOPPING" in os.environ, "no program to be preloaded in this build")
    def test_they_are_handed_nobodys_memory(self):
        """Though they call before the rank as which they come, which is stopped as the others await it. One of the same
        user does not know the token. Where pairs connect late there is no other door of an usher to stop at."""
        for user in (NOBODY, os.getuid()):
            world = self.world(6, DDL_CONNECT="lazy")
            stopping = {"LD_PRELOAD": os.environ["DDL_TEST_STOPPING"], "DDL_TEST_STOP": "door"}
            ranks = [world.start(r, "init", SMALL, "line", "free", **stopping if r == 5 else {}) for r in range(6)]
            self.wait_until_stopped(ranks[5])
            caller = self.call(user, door_of(ranks[0], "ddl-[0-9a-f]{24}@*"), (5).to_bytes(4, sys.byteorder) + bytes(16))
            self.assertEqual(self.heard(caller), (0, 0))
            os.kill(ranks[5].pid, signal.SIGCONT)
            self.finish_sharing(ranks, [6, 5, 5, 6, 5, 5])

    def test_who_has_an_ushers_name_hears_nothing(self):
        """It has it before the usher of that host; so those whom this is to introduce call each other."""
        if refused := test_hosts.permitted():
            self.skipTest(f"no network namespaces here: {refused}")
        hosts = test_hosts.Hosts(2)
        hosts.__enter__()
        self.addCleanup(hosts.__exit__)
        world = self.world(4, MASTER_ADDR="10.77.0.1", MASTER_PORT=test_hosts.PORT)
        world.start(0, "init", SMALL, "line", "free", prefix=hosts.on(0), DDL_LOG="debug")
        run = self.run_of(world.ranks[0])
        holder = self.stranger(NOBODY, "hold", f"ddl-1-{run}".encode().hex(), prefix=hosts.on(1))
        holder.expect("holds")
        for r in (1, 2, 3):
            world.start(r, "init", SMALL, "line", "free", prefix=hosts.on(1))
        for _ in (2, 3):
            self.assertEqual(self.heard(holder), (0, 0))
        self.finish_sharing(world.ranks, [0, 3, 3, 3])

    def run_of(self, rank):
        said = re.compile(r"rank 0 of run ([0-9a-f]{32}) listens")
        return wait_until(lambda: said.search("".join(rank.errors)), DEADLINE, rank.story).group(1)

    def finish_sharing(self, ranks, pieces):
        """All compute; each has so many pieces of shared memory."""
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        self.assertEqual([shared(rank.pid) for rank in ranks], pieces)
        self.finish(ranks)


if __name__ == "__main__":
    ACTOR = sys.argv.pop(1)
    unittest.main()
