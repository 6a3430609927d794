"""Who gets in and who does not, and where the secret is and where it is not.

    test_security.py LAUNCHER ACTOR [CLASS[.TEST]...] [-v]
"""
import base64
import hashlib
import os
import pty
import re
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import unittest

import peer
from peer import MAGIC
from world import (DEADLINE, FolderTest, Rank, World, bound, clean_environment, connect, end_well, finish_thousands,
                   free_port, listening_ports, wait_until)

LAUNCHER = ACTOR = None
PORTABLE = os.environ.get("DDL_TEST_PORTABLE") == "1"
SANITIZED = os.environ.get("DDL_TEST_PATIENCE", "1") != "1"  # they keep copies of what programs free
CALL = "allreduce:1000:int32:sum"


class Security(FolderTest):
    def world(self, nranks, **environment):
        """Ranks started by hand, in a place where nobody has made a secret yet."""
        environment.setdefault("HOME", self.folder)
        environment.setdefault("XDG_RUNTIME_DIR", self.folder)
        os.chmod(self.folder, 0o700)
        world = World(ACTOR, nranks, **environment)
        self.addCleanup(world.__exit__)
        return world

    def launch(self, *arguments, prefix=(), **environment):
        variables = {**clean_environment(), "HOME": self.folder, **environment}
        launched = Rank(LAUNCHER, [str(a) for a in arguments], variables, "the launcher", prefix)
        self.addCleanup(launched.close)
        return launched

    def all_join(self, ranks):
        end_well(ranks, "init", "call", "free")

    def until_both(self, event, launched):
        """Two ranks of a launcher have come so far, and nothing has failed; one may be ahead of the other."""
        while [record["event"] for record in launched.seen].count(event) < 2:
            record = launched.next()
            self.assertIsNotNone(record, launched.story())
            self.assertIn(record.get("status"), ("DDL_OK", None), launched.story())

    def refused(self, rank, status, *words, seconds=2):
        record = rank.expect("init", status)
        for word in words:
            self.assertIn(word, record["text"])
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(seconds), record)
        return record


def read_exactly(stream, count):
    """As many bytes, or fewer at the end of the stream."""
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            break
        data += more
    return data


class Joining(Security):
    def test_ranks_started_by_hand_need_no_setup(self):
        """Also not the first time, with all of them at once."""
        self.all_join(self.world(4).start_all("init", CALL, "free"))
        made = self.path("ddl/secret")
        self.assertEqual(stat.S_IMODE(os.stat(made).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("ddl")).st_mode), 0o700)
        self.assertEqual(os.listdir(self.path("ddl")), ["secret"])
        with open(made) as file:
            self.assertRegex(file.read(), "^[0-9a-f]{64}\n$")

    def test_the_home_directory_serves_where_the_place_is_not_loopback(self):
        shared = self.path("shared")
        os.mkdir(shared)
        world = self.world(3, DDL_STORE="file://" + shared, XDG_RUNTIME_DIR=None)
        self.all_join(world.start_all("init", CALL, "free"))
        self.assertEqual(os.listdir(self.path(".ddl")), ["secret"])
        self.assertEqual(stat.S_IMODE(os.stat(self.path(".ddl/secret")).st_mode), 0o600)
        self.assertEqual(os.listdir(shared), [])

    def test_another_secret_or_level_is_refused_and_harms_nobody(self):
        ours, theirs = self.secret_file("ours"), self.secret_file("theirs")
        shared = self.path("shared")
        os.mkdir(shared)
        for store in (None, "file://" + shared):
            with self.subTest(store):
                world = self.world(3, DDL_SECRET_FILE=ours, DDL_STORE=store)
                ranks = [world.start(0, "init", CALL, "free"), world.start(1, "init", CALL, "free")]
                other = world.start(2, "init", DDL_SECRET_FILE=theirs)
                self.refused(other, "DDL_EAUTH", "does not know the secret that rank 2 has, read from " + theirs,
                             "DDL_SECRET_FILE", "rank 0" if store else str(world.port))
                self.refused(world.start(2, "init", DDL_SECURITY="off"), "DDL_EAUTH",
                             "has security level off", "has auth", "DDL_SECURITY")
                ranks.append(world.start(2, "init", CALL, "free"))
                self.all_join(ranks)
                if store is None:  # rank 0 has told of the first, and not of each
                    turned_away = [line for line in ranks[0].errors if "turned away 127.0.0.1" in line]
                    self.assertEqual(len(turned_away), 1, ranks[0].story())
                    self.assertIn("rank 2 on ", turned_away[0])

    def test_a_world_without_proofs_has_to_be_asked_for(self):
        world = self.world(2, DDL_SECURITY="off")
        ranks = world.start_all("init", CALL, "free")
        self.all_join(ranks)
        self.assertEqual([line for rank in ranks for line in rank.errors], [])
        self.assertEqual(os.listdir(self.folder), [])  # nobody made a secret
        self.refused(world.start(0, "init", DDL_SECURITY="of"), "DDL_ECONFIG", "auth, tls, off")

    def test_a_world_without_proofs_on_a_network_is_warned_of_once(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # sends nothing
                address = probe.getsockname()[0]
            except OSError:
                address = "127.0.0.1"
        if address.startswith("127."):
            self.skipTest("this machine has no other address than loopback")
        world = self.world(3, MASTER_ADDR=address, DDL_SECURITY="off")
        ranks = world.start_all("init", CALL, "free")
        self.all_join(ranks)
        warnings = [[line for line in rank.errors if "DDL_SECURITY=off" in line] for rank in ranks]
        self.assertEqual([len(lines) for lines in warnings], [1, 0, 0])
        self.assertIn(address, warnings[0][0])

    def test_whose_port_it_is_is_told(self):
        """By the run of the job that has it, whether it has the same secret or another, and that job does not care."""
        world = self.world(2)
        ranks = [world.start(0, "init", CALL, "free", DDL_LOG="debug")]
        with connect(world.port) as stranger:
            stranger.sendall(peer.client_hello())
            run = read_exactly(stranger, peer.SERVER_BYTES)[16:32].hex()
        for secret in (None, self.secret_file("another")):
            second = self.world(3)
            second.port = world.port
            record = second.start(0, "init", DDL_SECRET_FILE=secret).expect("init", "DDL_ENETWORK")
            self.assertIn(f"port {world.port} on 127.0.0.1 is in use by rank 0 of run {run[:8]} of ddl (2 ranks)"
                          "; was rank 0 (--node_rank 0) started twice?", record["text"])
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(1), record)
        third = self.world(3, DDL_SECURITY="off")  # has no business at a door of level auth
        third.port = world.port
        self.assertIn("in use by another run of ddl, of security level auth; choose another",
                      third.start(0, "init").expect("init", "DDL_ENETWORK")["text"])
        ranks.append(world.start(1, "init", CALL, "free"))
        self.all_join(ranks)
        said = "".join(ranks[0].errors)
        self.assertIn(f"rank 0 of run {run} listens at 127.0.0.1:{world.port}", said)
        self.assertNotIn("turned away", said)

    def test_two_jobs_on_one_port(self):
        """The second is told so, and of a thousand calls of the first meanwhile each is exact."""
        world = self.world(2)
        thousand = "1000=" + CALL
        ranks = world.start_all("init", "line", thousand, "line", thousand, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        second = self.launch("-n", "3", "--master_port", world.port, "--no-prefix", "--on_failure", "continue", ACTOR,
                             "init")
        records = sorted((second.next() for _ in range(3)), key=lambda record: record["rank"])
        self.assertEqual([r["status"] for r in records], ["DDL_ENETWORK", "DDL_EAUTH", "DDL_EAUTH"], second.story())
        self.assertIn(f"port {world.port}", records[0]["text"])
        for record in records[1:]:
            self.assertIn(f"127.0.0.1:{world.port}", record["text"])
            self.assertIn("handed over by ddl-launch", record["text"])
        for record in records:
            self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(2), record)
        finish_thousands(self, ranks)
        for rank in ranks:
            rank.finish(0)

    def test_two_jobs_with_one_secret_on_one_port(self):
        """Started by hand, with as many ranks. Nothing tells them apart, so a rank may come to the other job; but of two
        with one number the second hears of the first."""
        first, second = self.world(2), self.world(2)
        second.port = first.port
        commands = ("init", CALL, "line", CALL, "free")
        ranks = [first.start(0, *commands)]
        connect(first.port).close()
        self.refused(second.start(0, "init"), "DDL_ENETWORK", f"port {first.port}", "in use by rank 0 of run ",
                     "of ddl (2 ranks)", "choose another", seconds=1)
        apart = second.start(1, "init", DDL_SECRET_FILE=self.secret_file("of the second job"))
        self.refused(apart, "DDL_EAUTH", f"127.0.0.1:{first.port}", "does not know the secret that rank 1 has", seconds=1)
        ranks.append(second.start(1, *commands))
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        late = first.start(1, "init")
        self.refused(late, "DDL_ECONFIG", "rank 1 is here already", f"[{ranks[1].pid}]", f"[{late.pid}]", "two jobs share",
                     seconds=1)
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")


class Strangers(Security):
    def hello(self, channel=1, rank=1, size=2, generator=bytes(4), run=bytes(16)):
        return (MAGIC + peer.VERSION_BYTES + bytes([channel, 1]) + generator + run + os.urandom(16)
                + rank.to_bytes(4, "little") + bytes(4) + size.to_bytes(4, "little") + bytes(4)
                + b"stranger".ljust(64, b"\0") + peer.LIBRARY)

    def expect_nothing_more(self, stream):
        """The server has closed, and said nothing but its first message."""
        stream.settimeout(bound(7))
        try:
            self.assertEqual(stream.recv(1), b"")
        except ConnectionResetError:
            pass

    def test_whoever_has_no_secret_stays_out(self):
        world = self.world(2)
        first = world.start(0, "init", CALL, "free")
        answers = []
        with connect(world.port) as stranger:  # all that there is to know, it is told
            stranger.sendall(self.hello())
            reply = read_exactly(stranger, peer.SERVER_BYTES)
            known = {"generator": reply[12:16], "run": reply[16:32]}
        for finish in (bytes(36), os.urandom(32) + bytes(4), None):
            with connect(world.port) as stranger:
                stranger.sendall(self.hello(generator=known["generator"]))
                reply = read_exactly(stranger, peer.SERVER_BYTES)
                self.assertEqual((len(reply), reply[:8]), (peer.SERVER_BYTES, MAGIC))
                self.assertEqual(reply[10], 0, "nothing but the proof is missing")
                answers.append(reply)
                proof = reply[-32:] + bytes(4) if finish is None else finish  # None: its own, sent back
                self.assertEqual(len(proof), peer.FINISH_BYTES)
                stranger.sendall(proof + b"\x08\0\0\0\x01\0\0\0\x01\0\x08\0\0\0\0\0member.1")  # as one who is in
                self.expect_nothing_more(stranger)
        self.assertEqual(len({reply[32:48] for reply in answers}), 3, "nonces are fresh")
        # At the door for ranks as well.
        ports, limit = [], time.monotonic() + bound(5)
        while not ports and time.monotonic() < limit and os.path.isdir("/proc/self/fd"):  # it may not be open yet
            ports = [port for port in listening_ports(first.pid) if port != world.port]
        for port in ports:
            with connect(port) as stranger:
                stranger.sendall(self.hello(channel=2, **known) + bytes(36))
                self.assertEqual(read_exactly(stranger, peer.SERVER_BYTES)[10], 0)
                self.expect_nothing_more(stranger)
        self.assertTrue(ports or not os.path.isdir("/proc/self/fd"))
        # A wrong size from nobody fails no run.
        with connect(world.port) as stranger:
            stranger.sendall(self.hello(size=7, **known))
            read_exactly(stranger, peer.SERVER_BYTES)
            stranger.sendall(bytes(36))
            self.expect_nothing_more(stranger)
        self.all_join([first, world.start(1, "init", CALL, "free")])

    def test_what_was_recorded_opens_nothing(self):
        """The hello of a rank, recorded on its way, played again: to its own job and to the next on that port."""
        world = self.world(2)
        proxy = socket.create_server(("127.0.0.1", 0))
        recorded = []

        def pump(source, sink, keep):
            try:
                while data := source.recv(4096):
                    if keep is not None:
                        keep.append(data)
                    sink.sendall(data)
            except OSError:
                pass
            try:
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def carry():
            client, _ = proxy.accept()
            server = connect(world.port)
            self.addCleanup(client.close)
            self.addCleanup(server.close)
            back = threading.Thread(target=pump, args=(server, client, None))
            back.start()
            pump(client, server, recorded)
            back.join()
        carrier = threading.Thread(target=carry)
        carrier.start()
        store = f"tcp://127.0.0.1:{proxy.getsockname()[1]}"
        ranks = [world.start(0, "init", CALL, "line", CALL, "free"),
                 world.start(1, "init", CALL, "line", CALL, "free", DDL_STORE=store)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        said = b"".join(recorded)
        self.assertGreater(len(said), 164)
        for _ in range(3):
            with connect(world.port) as stranger:
                stranger.sendall(said)
                self.assertEqual(len(read_exactly(stranger, peer.SERVER_BYTES)), peer.SERVER_BYTES)
                self.expect_nothing_more(stranger)
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")
        carrier.join(DEADLINE)
        proxy.close()
        # The next run on that port has the same secret, and another id.
        first = world.start(0, "init", CALL, "free")
        with connect(world.port) as stranger:
            stranger.sendall(said)
            self.assertEqual(len(read_exactly(stranger, peer.SERVER_BYTES)), peer.SERVER_BYTES)
            self.expect_nothing_more(stranger)
        self.all_join([first, world.start(1, "init", CALL, "free")])

    def test_an_impostor_of_rank_0_is_found_out(self):
        """Whoever answers on the port of rank 0 and mirrors what he hears is not taken for it."""
        world = self.world(2)
        with socket.create_server(("127.0.0.1", world.port)) as impostor:
            victim = world.start(1, "init")
            stream, _ = impostor.accept()
            with stream:
                hello = read_exactly(stream, peer.CLIENT_BYTES)
                # The form of an answer, with the victim's own nonce and no proof.
                stream.sendall(MAGIC + peer.VERSION_BYTES + b"\0\1" + hello[12:16] + bytes(16) + hello[32:48] + bytes(4) + hello[56:60]
                               + b"\1" + bytes(7) + bytes(peer.SERVER_BYTES - 64))
                finish = read_exactly(stream, 36)
                self.assertEqual(finish[:32], bytes(32))  # it proves nothing to him
            self.refused(victim, "DDL_EAUTH", "does not know the secret")


class Files(Security):
    """What is wrong with a file is told at once, and by whom it can be mended."""

    def test_files_that_are_not_the_users_alone(self):
        world = self.world(2)
        good = self.secret_file("good")
        link, pipe = self.path("link"), self.path("pipe")
        os.symlink(good, link)
        os.mkfifo(pipe, 0o600)
        cases = [(self.secret_file("read by others", mode=0o644), "mode 0644"),
                 (self.secret_file("written by its group", mode=0o620), "mode 0620"),
                 (link, "is a link"), (pipe, "no regular file"), (self.folder, "no regular file"),
                 (self.path("nothing"), "No such file"), (self.secret_file("empty", ""), "less than 16 bytes"),
                 (self.secret_file("short", "fifteen bytes..\n"), "less than 16 bytes"),
                 (self.secret_file("long", "x" * 4002), "more than 4000 bytes")]
        if os.geteuid() == 0:
            foreign = self.secret_file("of another")
            os.chown(foreign, 12345, 12345)
            cases.append((foreign, "belongs to user 12345"))
        started = [(path, word, world.start(1, "init", DDL_SECRET_FILE=path)) for path, word in cases]
        for path, word, rank in started:
            with self.subTest(path):
                self.refused(rank, "DDL_ECONFIG", word, path)
        for path, word in cases[:3]:
            launched = self.launch("-n", "1", "--secret_file", path, "true")
            launched.finish(2)
            self.assertIn(word, "".join(launched.errors))

    def test_folders_that_are_not_the_users_alone(self):
        world = self.world(2)
        os.mkdir(self.path(".ddl"))
        os.chmod(self.path(".ddl"), 0o777)
        self.refused(world.start(1, "init", DDL_STORE="file://" + self.folder), "DDL_ECONFIG", ".ddl", "belongs to you")
        os.rmdir(self.path(".ddl"))
        os.symlink(self.folder, self.path(".ddl"))
        self.refused(world.start(1, "init", DDL_STORE="file://" + self.folder), "DDL_ECONFIG", ".ddl", "belongs to you")


    def test_a_meeting_place_that_is_not_the_users_alone(self):
        """Whoever could write there could keep a job from starting, or lead its files elsewhere."""
        shared = self.path("shared")
        os.mkdir(shared)
        cases = [("open", lambda place: (os.mkdir(place), os.chmod(place, 0o777))),
                 ("link", lambda place: os.symlink(self.path("elsewhere"), place))]
        if os.geteuid() == 0:
            cases.append(("foreign", lambda place: (os.mkdir(place, 0o700), os.chown(place, 12345, 12345))))
        os.mkdir(self.path("elsewhere"), 0o700)
        for name, make in cases:
            with self.subTest(name):
                world = self.world(2, DDL_STORE="file://" + shared)
                place = f"{shared}/ddl-127.0.0.1_{world.port}"
                make(place)
                self.refused(world.start(0, "init"), "DDL_ESTORE", place, "belongs to you")
                self.assertTrue(os.path.lexists(place))  # it is not ours to remove
        self.assertEqual(os.listdir(self.path("elsewhere")), [])

    def test_what_others_put_in_the_stead_of_a_meeting_place_stays(self):
        """Whoever may write to the directory of the places can rename them: a job ends, and removes nothing of his choice."""
        shared = self.path("shared")
        os.mkdir(shared)
        for case in ["link", "open"] + ["foreign"] * (os.geteuid() == 0):
            with self.subTest(case):
                world = self.world(2, DDL_STORE="file://" + shared)
                place, other = f"{shared}/ddl-127.0.0.1_{world.port}", self.path("other " + case)
                ranks = world.start_all("init", "line", "free")
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                    rank.expect("ready")
                run = next(name for name in os.listdir(place) if len(name) == 32)
                os.rename(place, self.path("aside " + case))
                os.makedirs(f"{other}/{run}/key", 0o700)
                self.fill(f"{other}/{run}/key/precious", "precious")
                os.chmod(other, 0o777 if case == "open" else 0o700)
                if case == "link":
                    os.symlink(other, place)
                else:
                    os.rename(other, place)
                if case == "foreign":
                    os.chown(place, 12345, 12345)
                for rank in ranks:
                    rank.go()
                end_well(ranks, "free")
                self.assertEqual(os.listdir(f"{place}/{run}/key"), ["precious"])

    def test_what_is_no_meeting_record_is_replaced_whoever_comes_first(self):
        shared = self.path("shared")
        os.mkdir(shared)
        whole = self.left_record(shared)
        cases = [lambda meet: os.symlink(whole, meet), lambda meet: self.fill(meet, "garbage"),
                 lambda meet: self.fill(meet, "x" * 1000000), lambda meet: os.mkfifo(meet, 0o600)]
        for first in (0, 1):
            for number, make in enumerate(cases):
                with self.subTest(case=number, first=first):
                    world = self.world(2, DDL_STORE="file://" + shared)
                    place = f"{shared}/ddl-127.0.0.1_{world.port}"
                    os.mkdir(place, 0o700)
                    make(place + "/meet")
                    ranks = [world.start(first, "init", CALL, "free")]
                    time.sleep(0.3 * (first == 1))  # until it has looked there
                    ranks.append(world.start(1 - first, "init", CALL, "free"))
                    self.all_join(ranks)

    def test_a_record_that_is_reached_by_a_link_is_none(self):
        """Though it is whole, and of a job of the same secret: whoever waits says what is in the record's stead."""
        shared = self.path("shared")
        os.mkdir(shared)
        whole = self.left_record(shared)
        world = self.world(2, DDL_STORE="file://" + shared, DDL_START_TIMEOUT="1s")
        place = f"{shared}/ddl-127.0.0.1_{world.port}"
        for make, linked in ((os.symlink, True), (shutil.copy, False)):
            with self.subTest(make):
                os.mkdir(place, 0o700)
                make(whole, place + "/meet")
                record = world.start(1, "init").expect("init", "DDL_ETIMEDOUT")
                self.assertEqual("symbolic link" in record["text"], linked, record)
                self.assertTrue(os.path.exists(whole))
                shutil.rmtree(place)

    def left_record(self, shared):
        """Of a rank 0 that was killed, at a place of its own."""
        world = self.world(2, DDL_STORE="file://" + shared)
        meet = f"{shared}/ddl-127.0.0.1_{world.port}/meet"
        rank = world.start(0, "init")
        wait_until(lambda: os.path.exists(meet), DEADLINE, rank.story)
        rank.kill()
        rank.finish(-signal.SIGKILL)
        return meet

    def fill(self, path, content):
        with open(path, "w") as file:
            file.write(content)


class Hiding(Security):
    """Where the secret cannot be read."""

    def spellings(self, content):
        raw = content.encode()
        return [raw, raw.hex().encode(), base64.b64encode(raw)[:40], bytes.fromhex(content),
                base64.b64encode(bytes.fromhex(content))[:40]]

    def key(self, content):
        import hmac
        return hmac.new(b"ddl job secret 1", content.encode(), hashlib.sha256).digest()

    def unseen(self, text, content, where):
        for spelling in [*self.spellings(content), self.key(content)]:
            self.assertNotIn(spelling, text, where)

    def look_at(self, pid, content):
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                self.unseen(file.read(), content, f"{name} of {pid}")

    def memory_outside_guards(self, pid, needles):
        """Where a process has any of these in memory that would go into a core; None if it may not be looked at."""
        found, mappings = [], []
        with open(f"/proc/{pid}/smaps") as smaps:
            for line in smaps:
                if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) .* (.*)$", line):
                    mappings.append([int(match.group(1), 16), int(match.group(2), 16), match.group(3), ""])
                elif line.startswith("VmFlags:"):
                    mappings[-1][3] = line
        try:
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for begin, end, rights, flags in mappings:
                    if not rights.startswith("rw") or " dd" in flags or end - begin > 1 << 28:
                        continue
                    memory.seek(begin)
                    try:
                        content = memory.read(end - begin)
                    except OSError:
                        continue
                    found += [(hex(begin), i) for i, needle in enumerate(needles) if needle in content]
        except PermissionError:
            return None
        return found

    def processes_below(self, pid):
        children = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat") as file:
                        if int(file.read().rpartition(")")[2].split()[1]) == pid:
                            children.append(int(name))
                except OSError:
                    pass
        return [pid, *(p for child in children for p in self.processes_below(child))]

    @unittest.skipUnless(os.path.exists("/proc/self/environ"), "needs /proc")
    def test_the_secret_is_in_no_place_where_others_look(self):
        content = secrets.token_hex(32)
        path = self.secret_file("secret", content + "\n")
        launched = self.launch("-n", "2", "--secret_file", path, "--log_dir", self.path("logs"), "--no-prefix",
                               "sh", "-c", f"'{ACTOR}' init {CALL} free; exec '{ACTOR}' init {CALL} forever={CALL}",
                               DDL_LOG="trace")
        self.until_both("running", launched)
        pids = self.processes_below(launched.pid)
        self.assertGreaterEqual(len(pids), 4)
        for pid in pids:
            self.look_at(pid, content)
        if not SANITIZED:
            needles = [content.encode(), bytes.fromhex(content), self.key(content)]
            for pid in pids:
                found = self.memory_outside_guards(pid, needles)
                if found is not None:
                    self.assertEqual(found, [], f"in memory of {pid}, the launcher is {launched.pid}")
        os.kill(launched.pid, signal.SIGTERM)
        launched.process.wait(DEADLINE)
        for thread in launched.threads:
            thread.join(DEADLINE)
        self.unseen("".join(launched.errors).encode(), content, "stderr")
        self.assertGreater("".join(launched.errors).count("ddl"), 0)  # there was something to look at
        for folder, _, names in os.walk(self.path("logs")):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.unseen(file.read(), content, name)

    @unittest.skipUnless(os.path.exists("/proc/self/environ"), "needs /proc")
    def test_a_secret_in_the_environment_does_not_stay_there(self):
        content = secrets.token_hex(32)
        world = self.world(2, DDL_SECRET=content)
        ranks = world.start_all("init", CALL, "free", "init", "line", "free")  # it is kept for the second world
        for rank in ranks:
            for event in ("init", "call", "free", "init"):
                rank.expect(event, "DDL_OK")
            rank.expect("ready")
        for rank in ranks:
            self.look_at(rank.pid, content)
            if not SANITIZED:
                found = self.memory_outside_guards(rank.pid, [content.encode(), self.key(content)])
                if found is not None:
                    self.assertEqual(found, [], rank.name)
        for rank in ranks:
            rank.go()
        end_well(ranks, "free")
        warnings = [[line for line in rank.errors if "DDL_SECRET was in the environment" in line] for rank in ranks]
        self.assertEqual([len(lines) for lines in warnings], [1, 0])
        # And it counts: another one is refused.
        world = self.world(2, DDL_SECRET=content)
        first = world.start(0, "init", CALL, "free")
        self.refused(world.start(1, "init", DDL_SECRET=content[::-1]), "DDL_EAUTH", "from DDL_SECRET")
        self.all_join([first, world.start(1, "init", CALL, "free")])


class Launched(Security):
    def run_ranks(self, *command, arguments=("-n", "2"), **environment):
        launched = self.launch(*arguments, "--no-prefix", *command, **environment)
        launched.process.wait(DEADLINE)
        for thread in launched.threads:
            thread.join(DEADLINE)
        records = []
        while (record := launched.next()) is not None:
            records.append(record)
        return launched, records

    def test_the_secret_goes_through_wrappers(self):
        python = (f"import subprocess, sys; sys.exit(subprocess.run(['{ACTOR}', 'init', '{CALL}', 'free'],"
                  f" close_fds={not PORTABLE}).returncode)")
        wrappers = [["bash", "-c", f"exec 3>/dev/null 4</dev/null; exec '{ACTOR}' init {CALL} free"],
                    ["sh", "-c", f"'{ACTOR}' init {CALL} free"],
                    [sys.executable, "-S", "-c", f"import os; os.execv('{ACTOR}', ['actor', 'init', '{CALL}', 'free'])"],
                    [sys.executable, "-S", "-c", python]]
        for wrapper in wrappers:
            with self.subTest(wrapper):
                launched, records = self.run_ranks(*wrapper)
                self.assertEqual(launched.process.returncode, 0, launched.story())
                self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 6)

    def test_a_descriptor_that_is_gone_or_something_else_is_told(self):
        for damage in ("DDL_SECRET_FD=77", "DDL_SECRET_FD=x", "DDL_SECRET_FD=1", "DDL_SECRET_FD=-1"):
            with self.subTest(damage):
                launched, records = self.run_ranks("env", damage, ACTOR, "init")
                for record in records:
                    self.assertEqual(record["status"], "DDL_ECONFIG", launched.story())
                    self.assertIn("that a program in between has closed", record["text"])

    def test_the_launchers_word_is_final(self):
        for variable in ("DDL_SECRET_FILE", "DDL_SECRET"):
            with self.subTest(variable):
                launched, records = self.run_ranks("env", f"{variable}={secrets.token_hex(20)}", ACTOR, "init")
                for record in records:
                    self.assertEqual(record["status"], "DDL_ECONFIG", launched.story())
                    self.assertIn(variable + " is set", record["text"])
        launched, records = self.run_ranks("env", "RANK=1", ACTOR, "init", DDL_START_TIMEOUT="2s")
        refused = [record for record in records if record["status"] == "DDL_ECONFIG"]
        self.assertTrue(refused, launched.story())
        for record in refused:
            self.assertRegex(record["text"], "RANK=1 and WORLD_SIZE=2, but ddl-launch has started this process as 0/2; .*unset DDL_LAUNCH")

    def test_ranks_are_not_shown_how_the_launcher_came_by_it(self):
        path = self.secret_file("secret")
        show = "env | grep -c -e DDL_SECRET_FILE -e DDL_SECRET= >&2; exec '%s' init %s free" % (ACTOR, CALL)
        for given in ({"DDL_SECRET_FILE": path}, {"DDL_SECRET": secrets.token_hex(32)}):
            launched, records = self.run_ranks("sh", "-c", show, **given)
            self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 6, launched.story())
            self.assertEqual(launched.errors.count("0\n"), 2, launched.story())
            self.assertEqual(sum("DDL_SECRET was in the environment" in line for line in launched.errors),
                             "DDL_SECRET" in given)

    def test_without_proofs_there_is_no_secret(self):
        for arguments, more in ((["-n", "2", "--security", "off"], {}), (["-n", "2"], {"DDL_SECURITY": "off"})):
            launched, records = self.run_ranks(
                "sh", "-c", f"env | grep -c DDL_SECRET >&2; exec '{ACTOR}' init {CALL} free", arguments=arguments, **more)
            self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 6, launched.story())
            self.assertEqual(launched.errors.count("0\n"), 2, launched.story())

    @unittest.skipIf(PORTABLE, "a secret in a socket does not tell whether it was read")
    def test_who_ends_without_joining_ends_the_job(self):
        # With a sleep, so that who hears of another's end before its own SIGTERM does not end by itself.
        absent = self.launch("-n", "3", "--no-prefix", "sh", "-c", f"[ $RANK = 1 ] && exit 0; '{ACTOR}' init; sleep 60")
        late = self.launch("-n", "2", "--no-prefix", "sh", "-c",
                           f"[ $RANK = 1 ] && exit 0; sleep 1; '{ACTOR}' init; sleep 60")
        alone = self.launch("-n", "3", "--on_failure", "continue", "--no-prefix", "sh", "-c",
                            f"[ $RANK = 1 ] && exit 0; exec '{ACTOR}' init", DDL_START_TIMEOUT="2s")
        failing = self.launch("-n", "3", "--no-prefix", "sh", "-c", f"[ $RANK = 1 ] && exit 3; '{ACTOR}' init; sleep 60")
        failing.finish(3, seconds=bound(2))
        self.assertRegex("".join(failing.errors), r"rank 1 on \S+ \(pid \d+\) failed first: exit code 3")
        for launched, rank, seconds in ((absent, "ranks 0,2", 3), (late, "rank 0", 4)):
            launched.finish(1, seconds=bound(seconds))
            said = "".join(launched.errors)
            self.assertRegex(said, r"rank 1 on \S+ \(pid \d+\) failed first: it ended with 0 before ddl_init, where others wait")
            self.assertIn(f"{rank} ended by SIGTERM after it", said)
        for _ in range(2):
            alone.expect("init", "DDL_ETIMEDOUT")
        alone.finish(0)

    def test_who_has_joined_may_end_before_the_others(self):
        """Also behind a program that closes what it has inherited, where it is found in the launcher's descendants then."""
        closes = f"import subprocess, sys; sys.exit(subprocess.run(['{ACTOR}', 'init']).returncode)"
        starts = [f"exec '{ACTOR}' init", f'exec {sys.executable} -S -c "{closes}"']
        for early in starts[:1 if PORTABLE else 2]:
            launched, records = self.run_ranks("sh", "-c", f"if [ $RANK = 1 ]; then {early}; fi; '{ACTOR}' init && sleep 1.5",
                                               arguments=("-n", "3"))
            self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 3, launched.story())
            launched.finish(0)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "root alone can become another user")
    def test_so_may_one_that_has_become_another_user(self):
        become = ["setpriv", "--reuid", "65534", "--clear-groups"]
        if subprocess.run([*become, "test", "-x", ACTOR]).returncode != 0:
            self.skipTest("another user cannot run what lies here")
        other = f"exec {' '.join(become)} '{ACTOR}' init"
        launched, records = self.run_ranks("sh", "-c", f"if [ $RANK = 1 ]; then {other}; fi; '{ACTOR}' init && sleep 1.5",
                                           arguments=("-n", "2"))
        self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 2, launched.story())
        launched.finish(0)

    def test_a_world_of_ones_own_is_none_in_which_others_are_waited_for(self):
        own = f"env -u DDL_LAUNCH RANK=0 WORLD_SIZE=1 '{ACTOR}' init free"
        launched, records = self.run_ranks("sh", "-c", f"[ $RANK = 1 ] || {{ {own}; sleep 1; }}", arguments=("-n", "3"))
        self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 4, launched.story())
        launched.finish(0)

    def test_who_joins_after_a_world_of_his_own_has_joined(self):
        later = (f"exec env -u DDL_LAUNCH RANK=0 WORLD_SIZE=1 '{ACTOR}' init free set:RANK=1 set:WORLD_SIZE=2 set:DDL_LAUNCH=1/2"
                 " init")
        launched, records = self.run_ranks("sh", "-c", f"if [ $RANK = 1 ]; then {later}; fi; '{ACTOR}' init && sleep 1",
                                           arguments=("-n", "2"))
        self.assertEqual([r["status"] for r in records], ["DDL_OK"] * 4, launched.story())
        launched.finish(0)

    # ---- several nodes ----

    # Tells which secret it was handed, but not the secret.
    SHOW = ("import hashlib, os\n"
            "fd = int(os.environ['DDL_SECRET_FD'])\n"
            "try: data = os.pread(fd, 4096, 0)\n"
            "except OSError:\n"
            "    import socket; data = socket.socket(fileno=fd).recv(4096)\n"
            "print('{\"event\": \"digest\", \"digest\": \"%s\"}' % hashlib.sha256(data.split(bytes([10]), 2)[2]).hexdigest())")

    def node(self, rank, *more, home=None, prefix=(), command=None, master="127.0.0.1"):
        command = command or [sys.executable, "-S", "-c", self.SHOW]
        return self.launch("--nnodes", "2", "--node_rank", rank, "--master_addr", master, "--master_port",
                           free_port(), "--no-prefix", *more, *command, prefix=prefix, HOME=home or self.folder)

    def digest(self, content):
        return hashlib.sha256(content.encode()).hexdigest()

    def test_nodes_that_share_a_home_have_the_same_secret(self):
        second = self.node(1)  # comes first, and finds nothing yet
        first = self.node(0)
        digests = {node.expect("digest")["digest"] for node in (first, second)}
        with open(self.path(".ddl/secret")) as file:
            self.assertEqual(digests, {self.digest(file.read().strip())})
        first.finish(0)
        second.finish(0)
        said = "".join(first.errors)
        self.assertIn("made " + self.path(".ddl/secret"), said)
        self.assertIn(f"scp {socket.gethostname()}:{self.path('.ddl/secret')} ~/.ddl/secret", said)
        again = self.node(0)  # it is told once only, unless ranks are waited for
        again.finish(0)
        self.assertEqual(again.errors, [])
        elsewhere = self.carry(said)
        third = self.node(1, home=elsewhere)
        self.assertEqual({third.expect("digest")["digest"]}, digests)
        third.finish(0)

    def test_jobs_of_one_user_at_one_address_are_told_apart_by_their_names(self):
        port = free_port()

        def node(rank, job):
            return self.launch("--nnodes", "2", "--node_rank", rank, "--master_addr", "127.0.0.1", "--master_port", port,
                               "--rdzv_id", job, "--no-prefix", ACTOR, "init", CALL, "free", HOME=self.folder)

        first = node(0, "red")
        stranger = node(1, "blue")
        record = stranger.expect("init", "DDL_EAUTH")
        self.assertRegex(record["text"], "does not know the secret that rank 1 has.* for --rdzv_id blue")
        self.assertRegex(record["text"], "one --rdzv_id")
        stranger.finish(0)
        second = node(1, "red")
        end_well((first, second), "init", "call", "free")

    def test_who_reads_the_secret_by_himself_puts_the_jobs_name_behind_it(self):
        """As behind a program that closes what it has inherited, and says where the secret is instead."""
        port = free_port()
        self.secret_file("given")
        closes = (f"import os, subprocess, sys; os.closerange(3, 1000); os.environ['DDL_SECRET_FILE'] = {self.path('given')!r}; "
                  f"sys.exit(subprocess.run([{ACTOR!r}, 'init', {CALL!r}, 'free']).returncode)")
        ranks = [self.launch("--nnodes", "2", "--node_rank", rank, "--master_addr", "127.0.0.1", "--master_port", port,
                             "--rdzv_id", "a-job-with-a-name-as-long-as-those-of-clusters", "--secret_file", self.path("given"),
                             "--no-prefix", *command)
                 for rank, command in ((0, [ACTOR, "init", CALL, "free"]), (1, [sys.executable, "-S", "-c", closes]))]
        end_well(ranks, "init", "call", "free")

    def carry(self, said):
        """Run the line of node 0 where the home directory is another, with a network that is none."""
        elsewhere, programs = self.path("elsewhere"), self.path("bin")
        for folder in (elsewhere, programs):
            os.mkdir(folder)
        with open(os.open(os.path.join(programs, "scp"), os.O_WRONLY | os.O_CREAT, 0o700), "w") as file:
            file.write('#!/bin/sh\nexec cp "${1#*:}" "$2"\n')
        line = re.search(r"^ +(\(umask .*\))$", said, re.MULTILINE)[1]
        subprocess.run(["sh", "-ec", line], check=True, timeout=DEADLINE,
                       env={**clean_environment(), "HOME": elsewhere, "PATH": programs + ":" + os.environ["PATH"]})
        return elsewhere

    def test_a_node_without_the_secret_names_the_ways_to_it(self):
        """Without a terminal, and where node 0 is elsewhere and cannot make the file here."""
        lonely = self.node(1, prefix=["setsid", "-w"], master="192.0.2.1")
        lonely.finish(2, seconds=bound(15))
        said = "".join(lonely.errors)
        self.assertRegex(said, "within 5 s" if PORTABLE else "within [15] s")  # 5: nothing tells whose disk it is
        for word in ("node 1", "(umask 077; mkdir -p ~/.ddl && scp 192.0.2.1:.ddl/secret ~/.ddl/secret)", "--secret_file", "at a terminal", "--security off"):
            self.assertIn(word, said)
        self.assertFalse(os.path.exists(self.path(".ddl")))  # which is node 0's to make

    def asked(self, typed, until, ignored=None, program=SHOW):
        """Type this at the question for the secret; the exit code, and what was shown to its end. A signal that is
        ignored comes first."""
        pid, terminal = pty.fork()
        if pid == 0:
            if ignored is not None:
                signal.signal(ignored, signal.SIG_IGN)
            os.execve(LAUNCHER, ["ddl-launch", "--nnodes", "2", "--node_rank", "1", "--master_addr", "10.9.8.7",
                                 "--no-prefix", sys.executable, "-S", "-c", program],
                      {**clean_environment(), "HOME": self.folder, "LAUNCHER": str(os.getpid())})
        shown = b""

        def read_until(word):
            nonlocal shown
            deadline = time.monotonic() + DEADLINE
            while word not in shown and time.monotonic() < deadline:
                if select.select([terminal], [], [], 1)[0]:
                    try:
                        shown += os.read(terminal, 4096)
                    except OSError:  # the other side has closed
                        break
            self.assertIn(word, shown)
        try:
            read_until(b"at 10.9.8.7: ")
            if ignored is not None:
                os.kill(pid, ignored)
            os.write(terminal, typed)
            read_until(until)
            # Closed before the launcher has ended, the terminal would be an error to it.
            deadline = time.monotonic() + DEADLINE
            while time.monotonic() < deadline:
                try:
                    if select.select([terminal], [], [], 1)[0]:
                        more = os.read(terminal, 4096)
                        shown += more
                        if more == b"":
                            break
                except OSError:
                    break
        finally:
            os.close(terminal)
            _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), shown

    def test_a_person_is_asked_and_what_he_types_is_not_shown(self):
        typed = secrets.token_hex(32)
        code, shown = self.asked(b"wro\x7f\x7f\x7f" + typed.encode() + b"\n", self.digest(typed).encode())
        self.assertEqual(code, 0)
        self.assertNotIn(typed.encode(), shown)
        self.assertFalse(os.path.exists(self.path(".ddl")))

    def test_a_person_who_is_asked_may_decline(self):
        code, shown = self.asked(b"\x03", b"")
        self.assertEqual((code, shown.partition(b"10.9.8.7: ")[2]), (-signal.SIGINT, b"\r\n"))
        for typed in (b"\x04", b"\n"):
            code, shown = self.asked(typed, b"none was typed")
            self.assertEqual(code, 2)
            self.assertIn(b"--secret_file", shown)
            self.assertNotIn(b"start at a terminal", shown)

    def test_what_is_ignored_stays_so_at_the_question_and_after_it(self):
        again = "import os, signal; os.kill(int(os.environ['LAUNCHER']), signal.SIGHUP)\n" + self.SHOW
        typed = secrets.token_hex(32)
        code, _ = self.asked(typed.encode() + b"\n", self.digest(typed).encode(), signal.SIGHUP, again)
        self.assertEqual(code, 0)

    def test_levels_and_files_are_checked_on_the_command_line(self):
        for arguments, word in ((["--security", "none"], "auth, tls or off"),
                                (["--secret_file", self.path("x"), "--security", "off"], "of no use"),
                                (["--secret_file", self.path("x")], "No such file")):
            launched = self.launch(*arguments, "true")
            launched.finish(2)
            self.assertIn(word, "".join(launched.errors))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    LAUNCHER, ACTOR = [os.path.abspath(a) for a in sys.argv[1:3]]
    del sys.argv[1:3]
    unittest.main()
