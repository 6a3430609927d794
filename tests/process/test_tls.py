"""Level tls: what goes between ranks is encrypted, whoever cannot prove himself stays out, and nothing that was altered
is taken in.

    test_tls.py ACTOR MAKE_CERTIFICATES [CLASS[.TEST]...] [-v]

Level tls is DDL_SECURITY=tls; ranks of one host talk over TCP here, but for one test, as between hosts.
"""
import os
import shutil
import socket
import subprocess
import sys
import unittest

import peer
from peer import MAGIC
from world import DEADLINE, PATIENCE, SKIPPED, FolderTest, World, bound, connect, wait_until

ACTOR = MAKE_CERTIFICATES = None
HAS_TLS = os.environ.get("DDL_TEST_TLS") == "1"
CALL = "allreduce:1000:int32:sum"
LARGE = "allreduce:1000000:float32:sum"
TAP_PORT = 4000  # in a namespace of its own


class Tls(FolderTest):
    def world(self, nranks, **environment):
        world = World(ACTOR, nranks, **{"DDL_SECURITY": "tls", "DDL_TRANSPORT": "tcp", **environment})
        self.addCleanup(world.__exit__)
        return world

    def all_do(self, ranks, *events):
        for rank in ranks:
            for event in events:
                record = rank.expect(event, "DDL_OK")
                self.assertIsNot(record.get("exact"), False, rank.story())
        for rank in ranks:
            rank.finish(0)

    def refused(self, rank, status, *words, seconds=4):
        record = rank.expect("init", status)
        for word in words:
            self.assertIn(word, record["text"])
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(seconds), record)
        return record

    def connect(self, port):
        stream = connect(port, bound(4))
        self.addCleanup(stream.close)
        return stream


@unittest.skipIf(HAS_TLS, "this build has TLS")
class Without(Tls):
    def test_the_level_is_refused_in_a_sentence(self):
        self.refused(self.world(2).start(0, "init"), "DDL_EUNSUPPORTED", "DDL_SECURITY=tls", "libssl-dev")


@unittest.skipUnless(HAS_TLS, "this build is without TLS")
class Computing(Tls):
    def test_results_are_exact(self):
        for nranks in (2, 3) if PATIENCE > 1 else (2, 3, 5):
            with self.subTest(nranks):
                ranks = self.world(nranks).start_all("init", "cases:7:60", LARGE, "alltoall:100000:int8", "free")
                self.all_do(ranks, "init", "cases", "call", "call", "free")

    def test_whoever_computes_aes_is_understood(self):
        """By another library where that is there and faster (tests/io shows where), unless OpenSSL is asked for or
        somebody has decided who computes what."""
        configured = self.path("openssl.cnf")
        with open(configured, "w") as file:
            file.write("openssl_conf = all\n[all]\nproviders = used\n[used]\nbase = on\ndefault = on\n[on]\nactivate = 1\n")
        others = ({}, {"DDL_TLS_AES": "auto"}, {"DDL_TLS_AES": "openssl"}, {"OPENSSL_CONF": configured})
        words = ("(libIPSec_MB|OpenSSL, as .*)", "(libIPSec_MB|OpenSSL, as .*)", "OpenSSL, as is wanted.*",
                 "OpenSSL, as (it is configured|the processor|libIPSec_MB is not|ddl was built|it is as fast).*")
        world = self.world(4, DDL_LOG="debug")
        ranks = [world.start(r, "init", "cases:9:40", LARGE, "free", **others[r]) for r in range(4)]
        self.all_do(ranks, "init", "cases", "call", "free")
        for rank, by in zip(ranks, words):
            who = [line for line in rank.errors if "AES is computed by" in line]
            self.assertEqual(len(who), 1, rank.story())
            self.assertRegex(who[0], f"AES is computed by {by}$")
        wrong = self.world(2).start(1, "init", DDL_TLS_AES="fast")
        self.refused(wrong, "DDL_ECONFIG", "DDL_TLS_AES=fast", "auto, openssl")

    def test_ranks_that_share_memory_meet_in_tls(self):
        ranks = self.world(3, DDL_TRANSPORT="auto").start_all("init", "cases:8:40", "free")
        self.all_do(ranks, "init", "cases", "free")

    def test_worlds_come_and_go(self):
        ranks = self.world(2).start_all("cycle:4")
        for rank in ranks:
            for _ in range(4):
                rank.expect("allreduce", "DDL_OK")
                rank.expect("cycle", "DDL_OK")
            rank.finish(0)

    def test_a_rank_that_is_killed_is_found_at_once(self):
        world = self.world(3)
        ranks = world.start_all("init", "forever=" + LARGE)
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("running")
        ended = ranks[1].kill()
        for rank in (ranks[0], ranks[2]):
            record = rank.expect("forever", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assertIs(record["exact"], True, record)
            self.assertLess((record["end_ns"] - ended) / 1e9, bound(2), record)


@unittest.skipUnless(HAS_TLS, "this build is without TLS")
class Refusing(Tls):
    def test_who_has_another_secret_or_level_is_refused_and_harms_nobody(self):
        ours, theirs = self.secret_file("ours"), self.secret_file("theirs")
        world = self.world(2, DDL_SECRET_FILE=ours)
        first = world.start(0, "init", CALL, "free")
        self.refused(world.start(1, "init", DDL_SECRET_FILE=theirs), "DDL_EAUTH", f"127.0.0.1:{world.port}",
                     "does not know the secret that rank 1 has, read from " + theirs)
        self.refused(world.start(1, "init", DDL_SECURITY="auth"), "DDL_EAUTH", f"127.0.0.1:{world.port}",
                     "has security level auth", "has tls", "DDL_SECURITY")
        self.refused(world.start(1, "init", DDL_SECURITY="off"), "DDL_EAUTH", "has security level off", "has tls")
        self.all_do([first, world.start(1, "init", CALL, "free")], "init", "call", "free")
        turned_away = [line for line in first.errors if "turned away 127.0.0.1" in line]
        self.assertEqual(len(turned_away), 1, first.story())  # not of each
        self.assertIn("does not know this job's secret", turned_away[0])

    def test_who_encrypts_is_told_where_nobody_else_does(self):
        for level in ("auth", "off"):
            world = self.world(2, DDL_SECURITY=level)
            first = world.start(0, "init", CALL, "free")
            self.refused(world.start(1, "init", DDL_SECURITY="tls"), "DDL_EAUTH", f"127.0.0.1:{world.port}",
                         "rank 1 has security level tls", f"has {level}", "DDL_SECURITY")
            self.all_do([first, world.start(1, "init", CALL, "free")], "init", "call", "free")

    def test_whose_port_it_is_is_told(self):
        """In clear, and that run is not alarmed."""
        world = self.world(2)
        first = world.start(0, "init", CALL, "free")
        self.connect(world.port).close()  # it listens
        for level in ("auth", "tls"):
            second = self.world(2, DDL_SECURITY=level)
            second.port = world.port
            self.refused(second.start(0, "init"), "DDL_ENETWORK", "in use by another run of ddl, of security level tls;")
        self.all_do([first, world.start(1, "init", CALL, "free")], "init", "call", "free")
        self.assertNotIn("turned away", "".join(first.errors))

    def test_a_program_that_does_not_speak_tls_is_told_of(self):
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n" * 9):
            world = self.world(2)
            with socket.create_server(("127.0.0.1", world.port)) as server:
                rank = world.start(1, "init")
                stream, _ = server.accept()
                with stream:
                    stream.recv(4096)
                    stream.sendall(answer)
                    self.refused(rank, "DDL_EPROTO", f"127.0.0.1:{world.port}", "does not speak TLS on that port")

    def test_an_impostor_with_a_certificate_is_not_believed(self):
        """Keys are what ranks trust here: whoever answers with TLS of another kind gets nothing."""
        subprocess.run([MAKE_CERTIFICATES, self.folder], check=True, timeout=DEADLINE)
        world = self.world(2)
        server = subprocess.Popen(["openssl", "s_server", "-accept", str(world.port), "-cert", self.path("good.pem"),
                                   "-key", self.path("good.key"), "-tls1_3", "-alpn", "ddl/10", "-quiet"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            self.refused(world.start(1, "init"), "DDL_EAUTH", f"127.0.0.1:{world.port}", "shows a certificate",
                         seconds=10)
        finally:
            server.kill()
            said, _ = server.communicate(timeout=DEADLINE)
        self.assertEqual(said, b"")

    def test_strangers_get_little_and_harm_nobody(self):
        world = self.world(2)
        first = world.start(0, "init", CALL, "free")
        hello = MAGIC + peer.VERSION_BYTES + b"\1\2" + bytes(peer.CLIENT_BYTES - 12)  # level tls, in clear
        endless = b"\x16\3\1\x40\0\1\0\x3f\xfc\3\3" + bytes(5000)
        streams = [self.connect(world.port) for _ in range(3)]
        streams[0].sendall(endless)
        streams[1].sendall(hello)
        streams[2].sendall(b"GET / HTTP/1.1\r\n\r\n")
        said = [self.read_to_the_end(stream) for stream in streams]
        self.assertLess(len(said[0]), 100)  # an alert at most
        self.assertEqual((len(said[1]), said[1][:8], said[1][10]), (peer.SERVER_BYTES, MAGIC, 10))
        self.assertEqual((said[1][16:32], said[1][64:]), (bytes(16), bytes(peer.SERVER_BYTES - 64)))  # nothing of the job or the host
        self.assertEqual(said[2], b"")
        self.all_do([first, world.start(1, "init", CALL, "free")], "init", "call", "free")

    def read_to_the_end(self, stream):
        """Less than 5 s, after which any stranger is sent away."""
        data = b""
        try:
            while more := stream.recv(4096):
                data += more
        except ConnectionResetError:
            pass
        return data


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60)


def can_tap():
    """Whether this process may make a network namespace, and lead its connections elsewhere."""
    name = f"ddl-{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        ip("netns", "exec", name, "nft", "add table ip tap; add chain ip tap out { type nat hook output priority -100; };"
           " add rule ip tap out meta mark != 1 tcp dport 1 redirect to :2")
        return True
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60, check=False)


@unittest.skipUnless(HAS_TLS, "this build is without TLS")
@unittest.skipUnless(shutil.which("ip") and shutil.which("nft") and can_tap(), "needs namespaces, and nft in them")
class Tapped(Tls):
    """Ranks in a namespace whose every connection is in somebody's hands."""

    def setUp(self):
        super().setUp()
        self.name = f"ddl-{os.getpid()}-{self._testMethodName[5:20]}"
        ip("netns", "add", self.name)
        self.addCleanup(subprocess.run, ["ip", "netns", "del", self.name], capture_output=True, timeout=60)
        ip("-n", self.name, "link", "set", "lo", "up")
        self.inside = ["ip", "netns", "exec", self.name]
        subprocess.run([*self.inside, "nft", "add table ip tap; add chain ip tap out { type nat hook output priority "
                        f"-100; }}; add rule ip tap out meta mark != 1 ip protocol tcp redirect to :{TAP_PORT}"],
                       check=True, timeout=60)

    def tap(self):
        tap = subprocess.Popen([*self.inside, sys.executable, os.path.join(os.path.dirname(__file__), "wiretap.py"),
                                str(TAP_PORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, tap)
        self.assertEqual(tap.stdout.readline(), "ready\n")
        return tap

    def end(self, tap):
        if tap.poll() is None:
            tap.stdin.close()
            tap.wait(DEADLINE)
            tap.stdout.close()

    def ask(self, tap, line):
        tap.stdin.write(line + "\n")
        tap.stdin.flush()
        return tap.stdout.readline().strip()

    def test_what_is_altered_before_all_are_connected_is_told_as_that(self):
        """By rank 0 to rank 1: over its connection to the store, and the next, between the two."""
        for connection, record in ((1, 5), (1, 6), (2, 4)):
            with self.subTest(connection=connection, record=record):
                tap = self.tap()
                world = self.world(2)
                ranks = [world.start(0, "init", prefix=self.inside)]
                wait_until(lambda: self.ask(tap, "count") != "0", DEADLINE, ranks[0].story)
                self.ask(tap, f"flip {connection} {record}")
                ranks.append(world.start(1, "init", prefix=self.inside))
                found, other = ranks[1].expect("init", "DDL_EPROTO"), ranks[0].expect("init")
                self.assertIn("altered on its way", found["text"])
                self.assertEqual(found["culprit"], 0, found)
                # Who found it says so, unless the end of the connection is faster.
                self.assertIn(other["status"], ("DDL_EPROTO", "DDL_EPEERLOST"), other)
                self.assertIn(other["culprit"], (0, 1), other)
                self.end(tap)

    def test_what_is_altered_is_not_taken(self):
        tap = self.tap()
        world = self.world(2, DDL_TIMEOUT=f"{bound(20)}s")
        ranks = [world.start(r, "init", "forever=" + LARGE, prefix=self.inside) for r in range(2)]
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("running")
        tap.stdin.write("flip\n")
        tap.stdin.flush()
        self.assertEqual(tap.stdout.readline(), "flipped\n")
        records = [rank.expect("forever") for rank in ranks]
        # Who found it tells the other, unless what is on its way there leaves no room for that: then that one sees
        # the connection end.
        self.assertIn("DDL_EPROTO", [record["status"] for record in records], records)
        for record in records:
            self.assertIn(record["status"], ("DDL_EPROTO", "DDL_EPEERLOST"), records)
            self.assertIs(record["exact"], True, records)  # all that came before
            self.assertIn(record["culprit"], (0, 1))
            self.assertIn(f"rank {record['culprit']} (pid ", record["text"])
            if record["status"] == "DDL_EPROTO":
                self.assertIn("altered on its way", record["text"])


@unittest.skipUnless(HAS_TLS and shutil.which("openssl"), "this build is without TLS, or there is no openssl command")
class Certificates(Tls):
    def setUp(self):
        super().setUp()
        subprocess.run([MAKE_CERTIFICATES, self.folder], check=True, timeout=DEADLINE)

    def files(self, name, ca="ca"):
        return {"DDL_TLS_CA": self.path(ca + ".pem"), "DDL_TLS_CERT": self.path(name + ".pem"),
                "DDL_TLS_KEY": self.path(name + ".key")}

    def test_hosts_are_known_by_their_certificates(self):
        ranks = self.world(3, **self.files("good")).start_all("init", CALL, "free")
        self.all_do(ranks, "init", "call", "free")

    def test_ranks_are_known_by_their_certificates(self):
        world = self.world(2, DDL_TLS_JOB="training")
        first = world.start(0, "init", CALL, "free", **self.files("rank0"))
        record = self.refused(world.start(1, "init", **self.files("rank0")), "DDL_EAUTH",
                              "the certificate of this rank is for another host or rank")
        self.assertIn(f"127.0.0.1:{world.port}", record["text"])
        self.all_do([first, world.start(1, "init", CALL, "free", **self.files("rank1"))], "init", "call", "free")
        self.assertIn("for ddl://training/0, not for ddl://training/1", "".join(first.errors))

    def test_wrong_certificates_are_refused_with_what_is_wrong(self):
        """The rank that calls finds fault with rank 0's, or rank 0 with its own; both say what it is. Who has one that is
        out of date says so before it calls anybody."""
        world = self.world(2)
        first = world.start(0, "init", CALL, "free", **self.files("good"))
        where = f"127.0.0.1:{world.port}"
        self.signed("foreign", "other_ca", "DNS:localhost,IP:192.0.2.7", False)
        foreign = {**self.files("foreign"), "DDL_TLS_KEY": self.path("good.key")}
        for files, words in ((self.files("elsewhere"), ("is for another host or rank",)),
                             (foreign, ("does not accept the certificate in " + self.path("foreign.pem"), "unknown ca",
                                        "that one is for localhost, 192.0.2.7, valid from ", " GMT to ")),
                             (self.files("good", "other_ca"), ("not signed by an authority in", "other_ca.pem"))):
            with self.subTest(words):
                self.refused(world.start(1, "init", **files), "DDL_EAUTH", where, *words)
        self.refused(world.start(1, "init"), "DDL_EAUTH", where, "DDL_TLS_CERT")  # none at all
        self.all_do([first, world.start(1, "init", CALL, "free", **self.files("good"))], "init", "call", "free")
        other = self.world(2)
        first = other.start(0, "init", **self.files("elsewhere"))
        # As a client of its own server it sees its own certificate first.
        self.refused(first, "DDL_EAUTH", f"127.0.0.1:{other.port}",
                     "is for example.org, 192.0.2.1, not for 127.0.0.1")
        for name, words in (("expired", "expired on Jan  1 00:00:00 2020 GMT"),
                            ("early", "is not valid before Jan  1 00:00:00 2090 GMT")):
            for rank in (0, 1):
                self.refused(other.start(rank, "init", **self.files(name)), "DDL_EAUTH", "DDL_TLS_CERT: the certificate of "
                             "localhost, 127.0.0.1 " + words, self.path(name + ".pem"), seconds=1)
            self.assertIn(words, self.answered_by(name, "-tls1_3"))

    def test_who_shows_no_certificate_is_said_to_show_none(self):
        """Nothing is wrong with that of rank 0, which who has none does not accept either."""
        secret = self.secret_file("secret")
        world = self.world(2, DDL_SECRET_FILE=secret, DDL_START_TIMEOUT=f"{bound(1):g}s")
        first = world.start(0, "init", **self.files("good"))
        self.refused(world.start(1, "init"), "DDL_EAUTH", f"127.0.0.1:{world.port}", "shows a certificate")
        text = self.refused(first, "DDL_ETIMEDOUT", "rank 0 turned away 127.0.0.1:", "it has shown no certificate")["text"]
        for said in (text, "".join(first.errors)):
            self.assertNotIn("does not accept", said)

    def signed(self, name, authority, names, is_authority, *extensions):
        """By a key that is good's."""
        key = self.path(authority + ".key" if authority in ("ca", "other_ca") else "good.key")
        subprocess.run(["openssl", "req", "-x509", "-key", self.path("good.key"), "-subj", f"/CN={name}", "-days", "2",
                        "-CA", self.path(authority + ".pem"), "-CAkey", key, "-out", self.path(name + ".pem"),
                        "-addext", "basicConstraints=critical,CA:" + ("true" if is_authority else "false"),
                        "-addext", "subjectAltName=" + names,
                        *[word for extension in extensions for word in ("-addext", extension)]],
                       check=True, timeout=DEADLINE, capture_output=True)
        with open(self.path(name + ".pem"), encoding="ascii") as file:
            return file.read()

    def test_a_host_whose_name_has_a_domain_is_known_by_it(self):
        name = "node7.cluster.example"
        enter = ["unshare", "--uts"] if os.geteuid() == 0 else ["unshare", "-Ur", "--uts"]
        enter += ["sh", "-c", f'hostname {name} && exec "$@"', "sh"]
        if subprocess.run([*enter, "true"], capture_output=True, timeout=DEADLINE).returncode != 0:
            self.skipTest("no host may be named here")
        # The subject is that name too, and does not count.
        for known, wrong in ((f"DNS:{name}", None), ("DNS:node7.another.example,DNS:node7", "node7.another.example, node7"),
                             ("IP:192.0.2.1", "192.0.2.1"), ("URI:ddl://another/1", "ddl://another/1")):
            self.signed(name, "ca", known, False)
            world = self.world(2)
            first = world.start(0, "init", CALL, "free", **self.files("good"))
            files = {**self.files(name), "DDL_TLS_KEY": self.path("good.key")}
            if wrong is not None:
                self.refused(world.start(1, "init", prefix=enter, **files), "DDL_EAUTH", "is for another host or rank")
                self.all_do([first, world.start(1, "init", CALL, "free", **self.files("good"))], "init", "call", "free")
                self.assertIn(f"for {wrong}, not for {name} or 127.0.0.1", "".join(first.errors))
            else:
                self.all_do([first, world.start(1, "init", CALL, "free", prefix=enter, **files)], "init", "call", "free")

    def test_a_chain_may_be_long_but_not_endless(self):
        chain = []
        for level in range(7):
            chain.insert(0, self.signed(f"level{level}", f"level{level - 1}" if level else "ca", f"DNS:level{level}",
                                        True))
        leaf = self.signed("leaf", "level6", "DNS:localhost,IP:127.0.0.1", False)
        with open(self.path("long.pem"), "w", encoding="ascii") as file:
            file.write(leaf + "".join(chain))
        with open(self.path("endless.pem"), "w", encoding="ascii") as file:
            file.write(leaf + "".join(chain) + 100 * chain[0])
        world = self.world(2, DDL_TLS_CA=self.path("ca.pem"), DDL_TLS_KEY=self.path("good.key"))
        first = world.start(0, "init", CALL, "free", DDL_TLS_CERT=self.path("long.pem"))
        self.refused(world.start(1, "init", DDL_TLS_CERT=self.path("endless.pem")), "DDL_ECONFIG",
                     "endless.pem have ", " and peers take 28672")
        self.all_do([first, world.start(1, "init", CALL, "free", DDL_TLS_CERT=self.path("long.pem"))], "init", "call",
                    "free")

    def test_a_certificate_has_to_be_for_both_ends(self):
        """Its own rank says so at once; and who shows one for the other end all the same is refused."""
        for usage in ("clientAuth", "serverAuth"):
            self.signed(usage, "ca", "DNS:localhost,IP:127.0.0.1", False, "extendedKeyUsage=" + usage)
            shutil.copy(self.path("good.key"), self.path(usage + ".key"))
            for rank in (0, 1):
                self.refused(self.world(2).start(rank, "init", **self.files(usage)), "DDL_ECONFIG", usage + ".pem is "
                             "not for both ends of a connection", "serverAuth and clientAuth")
        self.assertIn("unsuitable certificate purpose", self.answered_by("clientAuth", "-tls1_3"))
        world = self.world(2, **self.files("good"))
        first = world.start(0, "init", CALL, "free")
        self.connect(world.port).close()  # it listens
        wrong = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{world.port}", "-tls1_3", "-alpn", "ddl/10",
                                "-cert", self.path("serverAuth.pem"), "-key", self.path("good.key"), "-ign_eof", "-quiet"],
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
        self.assertRegex(wrong.stderr, b"alert (unsupported|bad) certificate")
        self.all_do([first, world.start(1, "init", CALL, "free")], "init", "call", "free")
        self.assertIn("unsuitable certificate purpose", "".join(first.errors))

    def test_rsa_of_2048_bits_will_do(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=rsa", "-days", "2",
                        "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), "-keyout", self.path("rsa.key"),
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", self.path("rsa.pem")],
                       check=True, timeout=DEADLINE, capture_output=True)
        self.all_do(self.world(2, **self.files("rsa")).start_all("init", CALL, "free"), "init", "call", "free")

    def test_a_pair_that_connects_late_is_told_which_certificate_will_not_do(self):
        """Ranks 1 and 4 of 6 are not connected at the start: it is the first time that 1 has to trust 4's."""
        self.signed("foreign", "other_ca", "DNS:localhost,IP:127.0.0.1", False)
        authorities = ""
        for name in ("ca", "other_ca"):
            with open(self.path(name + ".pem"), encoding="ascii") as file:
                authorities += file.read()
        with open(self.path("both.pem"), "w", encoding="ascii") as file:
            file.write(authorities)
        files = {4: {**self.files("foreign", "both"), "DDL_TLS_KEY": self.path("good.key")}, 1: self.files("good")}
        for caller, other, words in ((1, 4, ("the certificate of localhost, 127.0.0.1 is not signed by an authority in "
                                             + self.path("ca.pem"),)),
                                     (4, 1, ("it does not accept the certificate in " + self.path("foreign.pem"),))):
            with self.subTest(caller=caller):
                world = self.world(6, DDL_CONNECT="lazy")
                calls = {caller: f"send:4:int32:{other}"}
                ranks = [world.start(r, "init", calls.get(r, "barrier"), **files.get(r, self.files("good", "both")))
                         for r in range(6)]
                for rank in ranks:
                    rank.expect("init", "DDL_OK")
                for rank in ranks:
                    record = rank.expect("call", "DDL_EAUTH")
                    self.assertEqual(record["culprit"], other, rank.story())
                    for word in (f"rank {caller} cannot connect to rank {other} on ", "127.0.0.1:", *words):
                        self.assertIn(word, record["text"])

    def test_a_key_that_others_can_read_is_warned_of(self):
        shutil.copy(self.path("good.key"), self.path("readable.key"))
        os.chmod(self.path("readable.key"), 0o644)
        ranks = self.world(2, **{**self.files("good"), "DDL_TLS_KEY": self.path("readable.key")}).start_all("init", "free")
        self.all_do(ranks, "init", "free")
        for rank in ranks:
            rank.process.wait(DEADLINE)
            self.assertIn("others may read the key in " + self.path("readable.key") + " (mode 0644): chmod 0600", rank.story())

    def answered_by(self, name, *settings):
        """What a rank says of such a server, on a system that allows everything; that one hears nothing."""
        with open(self.path("lax.cnf"), "w", encoding="ascii") as file:
            file.write("openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = any\n"
                       "[any]\nMinProtocol = TLSv1\nCipherString = ALL:@SECLEVEL=0\n")
        world = self.world(2, **self.files("good"), OPENSSL_CONF=self.path("lax.cnf"))
        server = subprocess.Popen(["openssl", "s_server", "-accept", str(world.port), "-cert", self.path(name + ".pem"),
                                   "-key", self.path(name + ".key"), "-alpn", "ddl/10", "-quiet", *settings],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            return self.refused(world.start(1, "init"), "DDL_EAUTH", f"127.0.0.1:{world.port}", seconds=10)["text"]
        finally:
            server.kill()
            said, _ = server.communicate(timeout=DEADLINE)
            self.assertEqual(said, b"")

    def test_short_keys_and_old_protocols_are_refused(self):
        """At either end."""
        self.assertIn("key too weak", self.answered_by("weak", "-tls1_3", "-cipher", "ALL:@SECLEVEL=0"))
        self.assertIn("it does not speak TLS 1.3", self.answered_by("good", "-tls1_2"))
        world = self.world(2, **self.files("good"))
        self.refused(world.start(1, "init", **self.files("weak")), "DDL_ECONFIG", "key too small")
        first = world.start(0, "init", CALL, "free")
        self.connect(world.port).close()  # it listens
        old = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{world.port}", "-tls1_2"],
                             stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE)
        self.assertNotEqual(old.returncode, 0, old)
        self.assertIn(b"protocol version", old.stderr)
        self.all_do([first, world.start(1, "init", CALL, "free")], "init", "call", "free")

    def test_files_that_are_not_there_are_told_of(self):
        world = self.world(2)
        for change, word in (({"DDL_TLS_CERT": None}, "DDL_TLS_CERT"), ({"DDL_TLS_CA": None}, "DDL_TLS_CA"),
                             ({"DDL_TLS_CERT": "/no/such"}, "/no/such"), ({"DDL_TLS_KEY": "/no/such"}, "/no/such"),
                             ({"DDL_TLS_KEY": self.path("expired.key")}, "expired.key is not that of"),
                             ({"DDL_TLS_KEY": self.path("open.key")}, "open.key (mode 0666): chmod 0600"),
                             ({"DDL_TLS_JOB": "a/b"}, "DDL_TLS_JOB=a/b")):
            with self.subTest(change):
                self.refused(world.start(1, "init", **{**self.files("good"), **change}), "DDL_ECONFIG", word)


if __name__ == "__main__":
    ACTOR, MAKE_CERTIFICATES = sys.argv[1:3]
    program = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if program.result.testsRun == len(program.result.skipped) else 0)
