"""Somebody in the middle of every connection: handshakes and frames that were changed, played again or cut off.

    test_middle.py ACTOR [CLASS[.TEST]...] [-v]

Needs the right to make a network namespace with rules of nft; exits with 77 (skipped) where it is not given.
"""
import os
import random
import socket
import struct
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from middle import CALLED, CALLER, MARK, SO_MARK, Middle, into_own_namespace
from peer import CLIENT_BYTES, FINISH_BYTES, MESH, RANK_AT, SERVER_BYTES, STORE, read_exactly
from world import DEADLINE, World, bound, end_well, run_unless

ACTOR = None
SEED = int(os.environ.get("DDL_TEST_SEED", "1"))
LONG = int(os.environ.get("DDL_TEST_ROUNDS", "1")) > 1
CALL = "allreduce:1000:int32:sum"
JOB = ("init", CALL, CALL, "free")
FRAME = b"\x1f\xdd"


class Tests(unittest.TestCase):
    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, DDL_TRANSPORT="tcp", **environment)
        self.addCleanup(world.__exit__)
        return world

    def computes(self, ranks):
        end_well(ranks, "init", "call", "call", "free")

    def took(self, record):
        return (record["end_ns"] - record["begin_ns"]) / 1e9


class Once:
    """Changes the first connection of rank 1 for this purpose, and leaves all others alone."""

    def __init__(self, channel, change):
        self.channel, self.change, self.chosen = channel, change, None

    def __call__(self, connection, sender, data):
        if self.chosen is None and (connection.channel, connection.rank) == (self.channel, 1):
            self.chosen = connection
        return self.change(connection, sender, data) if connection is self.chosen else data


def flip(sender, offset, bit):
    """Change a bit of what one end says."""
    def change(connection, from_end, data):
        at = offset - (len(connection.said[from_end]) - len(data))
        if from_end != sender or not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]
    return change


class Altered(Tests):
    # sender, first and last byte of each field of the three messages
    FIELDS = [(CALLER, 0, 7), (CALLER, 8, 9), (CALLER, 10, 10), (CALLER, 11, 11), (CALLER, 12, 15), (CALLER, 16, 31),
              (CALLER, 32, 47), (CALLER, 48, 51), (CALLER, 52, 55), (CALLER, 56, 59), (CALLER, 60, 63), (CALLER, 64, 127),
              (CALLER, 128, 131), (CALLER, 132, 163), (CALLER, 164, 164), (CALLER, 165, 167), (CALLED, 0, 7), (CALLED, 8, 9),
              (CALLED, 10, 10), (CALLED, 11, 11), (CALLED, 12, 15), (CALLED, 16, 31), (CALLED, 32, 47), (CALLED, 48, 51), (CALLED, 52, 55),
              (CALLED, 56, 56), (CALLED, 57, 59), (CALLED, 60, 63), (CALLED, 64, 127),
              (CALLED, 128, 131), (CALLED, 132, 163)]

    def test_no_altered_handshake_gets_in(self):
        draw = random.Random(SEED)
        for channel in (STORE, MESH):
            for sender, first, last in self.FIELDS:
                for offset in range(first, last + 1) if LONG else [draw.randint(first, last)]:
                    bit = draw.randrange(8)
                    with self.subTest(channel=channel, sender=sender, offset=offset, bit=bit):
                        if channel == STORE:
                            self.check_store(sender, offset, bit)
                        else:
                            self.check_mesh(sender, offset, bit)

    def is_last_word(self, sender, offset):
        return sender == CALLER and offset >= CLIENT_BYTES

    def unspoken(self, sender, offset):
        """Of what does not begin like ddl there is nothing to say: the caller tries again."""
        return sender == CALLER and offset < 8

    def fits(self, record, sender, offset):
        status = "DDL_EPROTO" if sender == CALLED and offset < 10 else "DDL_EAUTH"
        self.assertEqual(record["status"], status, record)
        self.assertLess(self.took(record), bound(5), record)

    def check_store(self, sender, offset, bit):
        """Who was changed is refused, or tries again; the job goes on with who comes unchanged."""
        once = Once(STORE, flip(sender, offset, bit))
        with Middle(once):
            world = self.world(2)
            first, second = world.start(0, *JOB), world.start(1, *JOB)
            if not self.unspoken(sender, offset) and not self.is_last_word(sender, offset):
                self.fits(second.expect("init"), sender, offset)
                second = world.start(1, *JOB)
            self.computes([first, second])
            self.assertEqual(len(once.chosen.said[CALLED]) <= SERVER_BYTES, True)
            world.__exit__()

    def check_mesh(self, sender, offset, bit):
        """Nobody goes on with a link of which one end is not sure: who was not confirmed calls again."""
        once = Once(MESH, flip(sender, offset, bit))
        with Middle(once):
            world = self.world(2)
            ranks = world.start_all(*JOB)
            if self.unspoken(sender, offset) or self.is_last_word(sender, offset):
                self.computes(ranks)
            else:
                for rank in ranks:
                    self.fits(rank.expect("init"), sender, offset)
            self.assertEqual(len(once.chosen.said[CALLED]) <= SERVER_BYTES, True)
            world.__exit__()

    def test_bytes_may_come_one_by_one(self):
        def dribble(connection, sender, data):
            try:
                for byte in data:
                    connection.ends[1 - sender].sendall(bytes([byte]))
            except OSError:
                pass  # who has left hears no more; what it said is passed on all the same
            return b""
        with Middle(dribble):
            self.computes(self.world(3).start_all(*JOB))


class Replayed(Tests):
    """What was said on one connection serves on no other: not in the same run and not in the next, at no door."""

    def offer(self, port, said):
        """Say all that at once, and hear how it ends."""
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)  # past the middle
            stranger.settimeout(DEADLINE)
            begun = time.monotonic()
            stranger.connect(("127.0.0.1", port))
            try:
                stranger.sendall(said)
            except OSError:
                pass
            answer = read_exactly(stranger, SERVER_BYTES + 1)
            self.assertLess(time.monotonic() - begun, bound(6))
            return answer

    def with_rank(self, said, rank):
        return said[:RANK_AT] + struct.pack("<i", rank) + said[RANK_AT + 4:]

    def mirror(self, port, hello):
        """Whoever gives back what he hears is nobody either."""
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
            stranger.settimeout(DEADLINE)
            stranger.connect(("127.0.0.1", port))
            stranger.sendall(hello)
            answer = read_exactly(stranger, SERVER_BYTES)
            stranger.sendall(answer[-32:] + bytes(4))
            self.assertEqual(read_exactly(stranger, 1), b"")

    def test_recorded_mirrored_and_swapped(self):
        with Middle() as middle:
            world = self.world(3)
            self.computes(world.start_all(*JOB))
            handshake = CLIENT_BYTES + FINISH_BYTES
            recorded = [c.said[CALLER][:handshake] for c in middle.connections]
            self.assertEqual(sorted((c.channel, c.rank) for c in middle.connections),
                             [(STORE, 0), (STORE, 1), (STORE, 2), (MESH, 1), (MESH, 2), (MESH, 2)])
            answers = [c.said[CALLED][:SERVER_BYTES] for c in middle.connections]
            # The next run of the same job, which waits for its last rank; and later that one's own words.
            ranks = [world.start(0, *JOB), world.start(1, *JOB)]
            ports = ranks[0].await_ports(2) + ranks[1].await_ports()
            own = [c.said[CALLER][:handshake] for c in middle.connections[len(recorded):]]
            said = [self.with_rank(words, rank) for words in recorded + own for rank in (0, 1, 2)]
            said += recorded + own + answers
            with ThreadPoolExecutor(16) as pool:  # what is cut short is waited for, 5 s
                for answer in pool.map(lambda offer: self.offer(*offer), [(p, words) for p in ports for words in said]):
                    self.assertLessEqual(len(answer), SERVER_BYTES, answer)
            for port in ports:
                self.mirror(port, recorded[-1][:CLIENT_BYTES])
            ranks.append(world.start(2, *JOB))
            self.computes(ranks)

    def test_a_caller_hears_his_own_words_and_believes_nothing(self):
        def mirror(connection, sender, data):
            if sender == CALLER:
                connection.ends[CALLER].sendall((connection.said[CALLER][-len(data):] * 2)[:SERVER_BYTES])
            return b""
        for channel in (STORE, MESH):
            with self.subTest(channel=channel), Middle(Once(channel, mirror)):
                world = self.world(2, DDL_START_TIMEOUT=f"{bound(2):g}s")
                ranks = world.start_all(*JOB)
                record = ranks[1].expect("init")
                self.assertIn(record["status"], ("DDL_EAUTH", "DDL_EPROTO"), record)
                self.assertLess(self.took(record), bound(1))
                record = ranks[0].expect("init")
                self.assertNotEqual(record["status"], "DDL_OK", record)


class Frames(Tests):
    """Frames of a rank that has proved itself, with fields that cannot be: they end the job, and say what was wrong."""

    LIMIT = 65536
    # offset, form, value, code, patterns of what is said
    CASES = [
        (0, "<H", 7, "DDL_EPROTO", ["no frame"]),
        (2, "B", 0, "DDL_EPROTO", ["type 0"]),
        (2, "B", 255, "DDL_EPROTO", ["type 255"]),
        (2, "B", 4, "DDL_EPROTO", ["one of 4000 is due in another way|for which nobody had asked"]),  # as if granted
        (3, "B", 1, "DDL_EPROTO", ["no frame"]),
        *((4, "<I", n, "DDL_EPROTO", words) for n, words in (
            # What came early is looked at when it is due; what follows the one byte of it may be before.
            (0, ["without payload"]), (1, ["of 1 bytes where one of 4000|no frame"]),
            (LIMIT - 1, ["65535 bytes", "4000"]), (LIMIT, ["65536 bytes", "4000"]),
            (LIMIT + 1, ["65537 bytes", "limit is 65536"]), (1 << 31, ["2147483648 bytes", "limit is 65536"]),
            ((1 << 32) - 1, ["4294967295 bytes", "limit is 65536"]))),
        (8, "<I", 1 << 31, "DDL_EPROTO", ["credit for 2147483648"]),
        (12, "<I", 77, "DDL_ETIMEDOUT", []),
        (16, "<Q", (1 << 62) - 1, "DDL_ETIMEDOUT", []),
        *((16, "<Q", n, "DDL_EPROTO", [f"operation {n}; the limit is {1 << 62}"]) for n in (1 << 62, 1 << 63, (1 << 64) - 1)),
        (28, "<I", (1 << 31) - 1, "DDL_ETIMEDOUT", []),
        *((28, "<I", n, "DDL_EPROTO", [f"message {n}; the limit is {1 << 31}"]) for n in (1 << 31, (1 << 32) - 1)),
        (32, "B", 77, "DDL_EMISMATCH", ["1000"]),
        (33, "B", 99, "DDL_EMISMATCH", ["1000"]),
        (36, "<i", 77, "DDL_EMISMATCH", ["root 77"]),
        (40, "<Q", 0, "DDL_EMISMATCH", ["count 0"]),
        (40, "<Q", (1 << 64) - 1, "DDL_EMISMATCH", ["18446744073709551615"]),
        (48, "<Q", 1, "DDL_EPROTO", ["does not end in zeros"]),
        (63, "B", 128, "DDL_EPROTO", ["does not end in zeros"]),
    ]

    def check(self, offset, form, value, code, words, nranks=2):
        """How long rank 0 took from when that came until its call returned, in s."""
        def change(connection, sender, data):
            # What looks like a frame in the random bytes of the handshake is none.
            handshake = CLIENT_BYTES + FINISH_BYTES - (len(connection.said[sender]) - len(data))
            at = data.find(FRAME, max(0, handshake))
            if sender != CALLER or at < 0 or getattr(connection, "changed", False):
                return data
            damaged = bytearray(data)
            struct.pack_into(form, damaged, at + offset, value)
            connection.changed = time.monotonic()
            return bytes(damaged)
        with Middle(Once(MESH, change)) as middle:
            limit = 1 if code == "DDL_ETIMEDOUT" else 60
            world = self.world(nranks, DDL_TIMEOUT=f"{limit}s")
            ranks = world.start_all(*JOB)
            for rank in ranks:
                rank.expect("init", "DDL_OK")
            record = ranks[0].expect("call", code)
            after = record["end_ns"] / 1e9 - middle.change.chosen.changed
            for word in words:
                self.assertRegex(record["text"], word)
            if code != "DDL_ETIMEDOUT":
                self.assertEqual(record["culprit"], 1, record)
                self.assertLess(self.took(record), bound(1), record)
            else:
                self.assertLess(self.took(record), limit + bound(1), record)
            # The other had what it needed, or hears of it; nothing is left of either.
            for rank in ranks:
                while (record := rank.next()) is not None:
                    self.assertIn(record["status"] == "DDL_OK", (record.get("exact", True), False), rank.story())
                    self.assertTrue(code != "DDL_EPROTO" or record["status"] != "DDL_EPEERLOST", rank.story())
                if nranks > 2:  # in the call that it cut off, whichever that was
                    first = next(record for record in rank.seen if record["status"] != "DDL_OK")
                    self.assertEqual((first["status"], first["culprit"]), (code, 1), rank.story())
                    self.assertLess(self.took(first), bound(1), first)
                rank.finish(0)
            world.__exit__()
            return after

    def test_each_field_at_its_limits(self):
        """Who reads what cannot be waits for nobody: the best of many such has to show it, also on a busy machine."""
        after = {}
        for case in self.CASES:
            with self.subTest(case=case):
                after[case[:3]] = case[3], self.check(*case)
        self.assertLess(min(seconds for code, seconds in after.values() if code == "DDL_EPROTO"), bound(0.01), after)

    def test_all_hear_of_it(self):
        self.check(*self.CASES[1], nranks=3)


class Cut(Tests):
    """A connection that ends after any number of bytes: the job goes on in another way, or ends soon, as a whole."""

    LENGTHS = {STORE: 600, MESH: CLIENT_BYTES + FINISH_BYTES + 38}
    LET_IN = MESH, CALLER, CLIENT_BYTES + FINISH_BYTES  # and not told so: the caller calls again, and all goes well

    def check(self, channel, sender, count, hidden=False):
        """hidden: its receiver goes on holding the connection, and does not see that it has ended."""
        held = []

        def change(connection, from_end, data):
            before = len(connection.said[from_end]) - len(data)
            if from_end != sender or before + len(data) < count:
                return data
            if count > before:
                connection.ends[1 - sender].sendall(data[:count - before])
            if hidden:
                held.append(connection.ends[1 - sender].dup())
                self.addCleanup(held[-1].close)
            return None
        limit = bound(3)
        with Middle(Once(channel, change)):
            world = self.world(3, DDL_START_TIMEOUT=f"{limit:g}s")
            ranks = world.start_all(*JOB)
            records = [rank.expect("init") for rank in ranks]
            whole = all(record["status"] == "DDL_OK" for record in records)
            for rank, record in zip(ranks, records):
                self.assertLess(self.took(record), limit + bound(1), record)
                self.assertIn(record["status"], ("DDL_OK", "DDL_EPEERLOST", "DDL_ETIMEDOUT"), record)
                if (channel, sender, count) == self.LET_IN:
                    self.assertEqual(record["status"], "DDL_OK", record)
                    self.assertLess(self.took(record), limit / 2, record)
            self.assertEqual(len(held), hidden)
            joined = [rank for rank, record in zip(ranks, records) if record["status"] == "DDL_OK"]
            said = {rank.expect("call")["status"] for rank in joined}
            if not whole:  # of the last bytes a third rank hears in its first call
                self.assertLessEqual(said, {"DDL_EPEERLOST"})
            elif channel == STORE or count <= self.LET_IN[2]:
                self.assertEqual(said, {"DDL_OK"})
            else:  # bytes of the start, which are made up for, or of a call that some may have done by then
                self.assertLessEqual(said, {"DDL_OK", "DDL_EPEERLOST"})
            world.__exit__()

    def test_after_any_number_of_bytes(self):
        draw = random.Random(SEED)
        for channel in (STORE, MESH):
            for sender in (CALLER, CALLED):
                most = self.LENGTHS[channel]
                counts = range(1, most) if LONG else draw.sample(range(1, most), 4)
                for count in counts:
                    with self.subTest(channel=channel, sender=sender, count=count):
                        self.check(channel, sender, count)

    def test_who_was_let_in_and_not_told_so_calls_again(self):
        for hidden in (False, True):
            with self.subTest(hidden=hidden):
                self.check(*self.LET_IN, hidden=hidden)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    refused = into_own_namespace()
    ACTOR = os.path.abspath(sys.argv.pop(1))
    run_unless(refused)
