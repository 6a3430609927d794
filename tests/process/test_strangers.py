"""Bytes from outside at the ports of a job, as it starts and while it computes.

    test_strangers.py ACTOR [CLASS[.TEST]...] [-v]
"""
import os
import random
import socket
import struct

from failures import LARGE, SEED, Failures, main
from world import DEADLINE, bound, end_well, listening_ports


class Strangers(Failures):
    """Bytes from outside at any port leave results exact and memory flat."""

    def attack(self, port, draw):
        """One connection of a kind that real networks bring."""
        kinds = [
            draw.randbytes(draw.randrange(1, 2000)),
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(300),
            b"SSH-2.0-OpenSSH_9.2p1\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\xff" * 4096,
            b"\x00" * 64,
            b"",
        ]
        payload = draw.choice(kinds)
        stranger = socket.socket()
        stranger.settimeout(DEADLINE)
        try:
            stranger.connect(("127.0.0.1", port))
            stranger.sendall(payload)
            if draw.random() < 0.3:  # a reset instead of an end
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # closed on us: as it should be
        return stranger

    def storm(self, ports, draw, connections):
        """Some stay half open until the end, at most 50 at a time."""
        kept = []
        for _ in range(connections):
            stranger = self.attack(draw.choice(ports), draw)
            if draw.random() < 0.3:
                kept.append(stranger)
                self.addCleanup(stranger.close)
            else:
                stranger.close()
            while len(kept) > 50:
                kept.pop(0).close()
        return kept

    def test_during_start(self):
        draw = random.Random(SEED)
        world = self.world(3)
        first = world.start(0, "line", "init", LARGE, "free")
        first.expect("ready")
        first.go()
        if not os.path.isdir(f"/proc/{first.pid}/fd"):
            self.skipTest("this system does not tell which ports a process listens at")
        ports = first.await_ports()
        self.storm(ports, draw, 150)
        ranks = [first, world.start(1, "init", LARGE, "free")]
        self.storm(ports, draw, 150)
        ranks.append(world.start(2, "init", LARGE, "free"))
        end_well(ranks, "init", "call", "free")

    def test_during_operations(self):
        draw = random.Random(SEED + 1)
        world = self.world(3)
        # So many that every page of the buffers has been touched before the first measurement.
        ranks = world.start_all("init", "3000=allreduce:20000:int32:sum", "resources", "line",
                                "300=allreduce:20000:int32:sum", "resources", "line", "free")
        before = []
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("repeated", "DDL_OK")
            before.append(rank.expect("resources"))
            rank.expect("ready")
        targets = {rank.pid: listening_ports(rank.pid) for rank in ranks}
        ports = sorted({port for list_ in targets.values() for port in list_})
        if not ports:
            self.skipTest("no rank listens any more, or this system does not tell")
        self.storm(ports, draw, 100)
        for rank in ranks:
            rank.go()
        for stranger in self.storm(ports, draw, 400):
            stranger.close()
        for rank, earlier in zip(ranks, before):
            self.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 300)
            later = rank.expect("resources")
            if bound(1) == 1 and earlier["rss_kib"] >= 0:
                self.assertLess(later["rss_kib"] - earlier["rss_kib"], 2048, (earlier, later))
        self.together(ranks)
        end_well(ranks, "free")


if __name__ == "__main__":
    main(__doc__)
