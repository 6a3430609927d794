"""What can be read on the wire between two hosts: whole runs as tcpdump records them.

    test_capture.py ACTOR [CLASS[.TEST]...] [-v]

Hosts are network namespaces, as in test_hosts.py. Exits with 77 (skipped), and says why, where they cannot be made or
there is no tcpdump.
"""
import base64
import hashlib
import hmac
import os
import pathlib
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest

import test_hosts
from peer import MAGIC
from test_hosts import PORT, Hosts
from world import DEADLINE, FolderTest, World, end_well, run_unless, wait_until

ACTOR = None
HAS_REDIS = os.environ.get("DDL_TEST_REDIS") == "1"
COUNT = 50000
REDIS_PORT, REDIS_TLS_PORT = 6379, 6380
NAME = "the-host-of-rank-"
PIECE = 16  # bytes of a tensor or of the secret that are too many


def tensor(rank):
    """What the actor sends from this rank as COUNT elements of int8: those of oracle_fill."""
    step, mask, values = 0x9e3779b97f4a7c15, (1 << 64) - 1, bytearray()
    state = 1 ^ ((rank + 1) * step & mask)
    for _ in range(1 + COUNT):
        state = z = (state + step) & mask
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & mask
        z = (z ^ z >> 27) * 0x94d049bb133111eb & mask
        values.append((z ^ z >> 31) & 0xff)
    return bytes(values[1:])


def spellings(secret):
    """Of the content of a secret file, and of the key that follows from it."""
    key = hmac.new(b"ddl job secret 1", secret.encode(), hashlib.sha256).digest()
    for raw in (secret.encode(), bytes.fromhex(secret), key):
        yield from (raw, raw.hex().encode(), base64.b64encode(raw))


class Run:
    """A part of a recording. packets: as they lie in the file; streams: what went over TCP, by both ends' (address, port)."""

    def __init__(self):
        self.packets, self.streams = b"", {}
        self.first, self.segments = {}, {}  # numbers of the first byte; payloads by their numbers

    def add(self, ends, number, is_first, payload):
        if is_first:
            self.first[ends] = number + 1
        elif payload:
            segments = self.segments.setdefault(ends, {})
            segments[number] = max(segments.get(number, b""), payload, key=len)

    def join(self):
        for ends, segments in self.segments.items():
            data = b""
            for offset, number in sorted(((number - self.first[ends]) & 0xffffffff, number) for number in segments):
                assert offset <= len(data), "a segment is missing in what was recorded"
                data += segments[number][len(data) - offset:]
            self.streams[ends] = data

    def shows(self, marker):
        return any(marker in data for data in (self.packets, *self.streams.values()))

    def pieces(self):
        """All that can be seen through a hole of PIECE bytes."""
        return {data[i:i + PIECE] for data in (self.packets, *self.streams.values()) for i in range(len(data) - PIECE + 1)}

    def with_port(self, port):
        """What went over the connections to this port, either way."""
        return b"\0".join(data for ends, data in self.streams.items() if port in (ends[0][1], ends[1][1]))


class Recording:
    """tcpdump at every interface of a host. Runs are told apart by packets of our own between them, of which the last also
    shows that nothing before it is still on its way to the file."""

    def __init__(self, inside, path):
        self.inside, self.path, self.names = inside, path, []
        with open(path, "wb") as file:
            self.tcpdump = subprocess.Popen([*inside, "tcpdump", "-i", "any", "-y", "LINUX_SLL", "-n", "-s", "0", "-B",
                                             "32768", "-U", "-w", "-"], stdout=file, stderr=subprocess.PIPE, text=True)
        said = ""
        while "listening on" not in said:
            line = self.tcpdump.stderr.readline()
            assert line, said
            said += line

    def mark(self, name):
        self.names.append(name)
        subprocess.run([*self.inside, "bash", "-c", f"echo -n '{self.begin(name).decode()}' >/dev/udp/10.77.0.1/9"], check=True,
                       timeout=DEADLINE)

    def begin(self, name):
        return f"here begins {name}.".encode()

    def read(self):
        with open(self.path, "rb") as file:
            return file.read()

    def end(self):
        """The runs by their names."""
        self.mark("nothing")
        wait_until(lambda: self.begin("nothing") in self.read(), DEADLINE, "tcpdump has written all")
        self.tcpdump.send_signal(signal.SIGINT)
        said = self.tcpdump.communicate(timeout=DEADLINE)[1]
        assert "\n0 packets dropped by kernel" in "\n" + said, said
        return self.take_apart(self.read())

    def close(self):
        if self.tcpdump.poll() is None:
            self.tcpdump.kill()
        self.tcpdump.communicate()

    def take_apart(self, data):
        runs, run, at, begun = {}, Run(), 24, 24
        assert struct.unpack_from("=I", data) == (0xa1b2c3d4,) and struct.unpack_from("=I", data, 20) == (113,)
        while at < len(data):
            kept, bytes_in_all = struct.unpack_from("=II", data, at + 8)
            assert kept == bytes_in_all
            packet = data[at + 32:at + 16 + kept]  # behind the header that every link has here
            kind = data[at + 30:at + 32]
            at += 16 + kept
            assert kind != b"\x86\xdd" or packet[6] != socket.IPPROTO_TCP, "IPv6 is not taken apart"
            if kind != b"\x08\x00":
                continue
            packet = packet[:struct.unpack_from("!H", packet, 2)[0]]
            inner = packet[4 * (packet[0] & 15):]
            ports = struct.unpack_from("!HH", inner)
            ends = tuple((socket.inet_ntoa(packet[12 + 4 * i:16 + 4 * i]), ports[i]) for i in range(2))
            if packet[9] == socket.IPPROTO_TCP:
                run.add(ends, struct.unpack_from("!I", inner, 4)[0], inner[13] & 2 != 0, inner[4 * (inner[12] >> 4):])
            elif packet[9] == socket.IPPROTO_UDP:
                for name in self.names:
                    if name not in runs and inner[8:] == self.begin(name):
                        run.packets, run, begun = data[begun:at], runs.setdefault(name, Run()), at
        for run in runs.values():
            run.join()
        return runs


class Captured(FolderTest):
    """The first host has all ranks but one, so whatever goes over TCP is seen there."""

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(2)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.secret = secrets.token_hex(32)
        self.secret_file("secret", self.secret)
        self.recording = Recording(self.inside(0), self.path("record"))
        self.addCleanup(self.recording.close)

    def inside(self, host):
        return ["ip", "netns", "exec", self.hosts.names[host]]

    def run_ranks(self, name, calls, away, **environment):
        self.recording.mark(name)
        world = World(ACTOR, len(calls), MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT, DDL_TRANSPORT="tcp",
                      DDL_SECRET_FILE=self.path("secret"), **environment)
        self.addCleanup(world.__exit__)
        for rank, call in enumerate(calls):
            named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"{NAME}{rank}"]
            world.start(rank, "init", call, "free", prefix=[*self.inside(int(rank == away)), *named])
        end_well(world.ranks, "init", "call", "free")

    def check(self, stores):
        """Level auth shows what level tls hides, so it would be found; neither shows the secret. stores: their ports."""
        runs = self.recording.end()
        clear, encrypted = runs["auth"], runs["tls"]
        tensors = tensor(0), tensor(1)
        for data in tensors:
            self.assertTrue(any(data in stream for stream in clear.streams.values()))
        # A name and an address side by side are in no hello, but in the record that a rank leaves in the store.
        for marker in (f"{NAME}1".encode() + b"10.77.0.", b"member.1"):
            self.assertIn(marker, clear.with_port(stores["auth"]))
        self.assertTrue(clear.shows(MAGIC))
        for marker in (MAGIC, NAME.encode(), b"10.77.0.", b"member.", b"meshed.", b"settled", b"\r\nXADD\r\n"):
            self.assertFalse(encrypted.shows(marker), marker)
        self.assertGreater(len(encrypted.with_port(stores["tls"])), 1000)  # so much has been said
        self.assertGreater(sum(len(stream) for stream in encrypted.streams.values()), 2 * COUNT)
        seen = encrypted.pieces()
        for data in tensors:
            self.assertTrue(seen.isdisjoint(data[i:i + PIECE] for i in range(COUNT - PIECE + 1)))
        for run in (clear, encrypted):
            seen = run.pieces()
            for spelling in spellings(self.secret):
                self.assertTrue(seen.isdisjoint(spelling[i:i + PIECE] for i in range(len(spelling) - PIECE + 1)))

    def test_with_tls_nothing_can_be_read_on_the_wire(self):
        """Pairs that connect at the start, and one that connects late: of 6 ranks, 0 and 3 do."""
        calls = [f"send:{COUNT}:int8:3", f"send:{COUNT}:int8:2", f"recv:{COUNT}:int8:1", f"recv:{COUNT}:int8:0", "send:9:int8:5",
                 "recv:9:int8:4"]
        for level in ("auth", "tls"):
            self.run_ranks(level, calls, 3, DDL_SECURITY=level, DDL_CONNECT="lazy")
        self.check({"auth": PORT, "tls": PORT})

    @unittest.skipUnless(HAS_REDIS and shutil.which("redis-server") and shutil.which("openssl"),
                         "needs a build with Redis, a redis-server and the openssl command")
    def test_with_tls_to_redis_too_nothing_can_be_read_on_the_wire(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=redis", "-addext", "subjectAltName=IP:10.77.0.1", "-keyout", self.path("redis.key"),
                        "-out", self.path("redis.pem")], check=True, capture_output=True, timeout=DEADLINE)
        log = self.path("redis.log")
        redis = subprocess.Popen([*self.inside(0), "redis-server", "--port", str(REDIS_PORT), "--tls-port", str(REDIS_TLS_PORT),
                                  "--bind", "10.77.0.1", "--protected-mode", "no", "--save", "", "--dir", self.folder,
                                  "--logfile", log, "--tls-cert-file", self.path("redis.pem"), "--tls-key-file",
                                  self.path("redis.key"), "--tls-auth-clients", "no", "--tls-ca-cert-file",
                                  self.path("redis.pem")])
        self.addCleanup(redis.wait)
        self.addCleanup(redis.kill)
        wait_until(lambda: os.path.exists(log) and "Ready to accept connections" in pathlib.Path(log).read_text(), DEADLINE,
                   "Redis is ready")
        calls = 2 * [f"allgather:{COUNT}:int8"]
        self.run_ranks("auth", calls, 1, DDL_STORE=f"redis://10.77.0.1:{REDIS_PORT}")
        self.run_ranks("tls", calls, 1, DDL_SECURITY="tls",
                       DDL_STORE=f"rediss://10.77.0.1:{REDIS_TLS_PORT}?cacert={self.path('redis.pem')}")
        world = World(ACTOR, 2, MASTER_ADDR="10.77.0.1", MASTER_PORT=PORT, DDL_SECRET_FILE=self.path("secret"), DDL_SECURITY="tls",
                      DDL_STORE=f"redis://10.77.0.1:{REDIS_PORT}")
        self.addCleanup(world.__exit__)
        for rank in range(2):
            record = world.start(rank, "init", prefix=self.inside(rank)).expect("init", "DDL_ECONFIG")
            self.assertRegex(record["text"], f"redis://10.77.0.1:{REDIS_PORT}/0 could be read on its way; say rediss://")
        self.check({"auth": REDIS_PORT, "tls": REDIS_TLS_PORT})


def permitted():
    if shutil.which("tcpdump") is None:
        return "there is no `tcpdump` program (tools/install_deps check installs it)"
    return test_hosts.permitted()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ACTOR = os.path.abspath(sys.argv.pop(1))
    run_unless(permitted())
