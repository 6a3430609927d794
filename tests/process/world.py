"""Ranks as processes, started one by one and watched: what the tests of failures are written with.

A rank runs `actor` (see actor.c) with a list of commands and reports each as a line of JSON. Every wait here
has a deadline, and leaving the `with` block kills whatever is left.
"""
import collections
import contextlib
import json
import os
import pathlib
import queue
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

# Also for who starts ranks by this.
from folder import FolderTest  # noqa: E402, F401
from skipping import SKIPPED, run_unless  # noqa: E402, F401
from surroundings import PLACES, clean_environment  # noqa: E402
from waiting import PATIENCE, bound, wait_until  # noqa: E402, F401

# Something is wrong after so long. More than a minute, as Linux 6.18 was seen not to run its own threads for 41 to
# 59 s while many processes yield ("rcu_preempt kthread starved", "workqueue lockup" in its log).
DEADLINE = 150 * PATIENCE


class Unexpected(AssertionError):
    """Something did not come, or came otherwise; carries what all ranks have said."""


def cpu_seconds(pid):
    """Of all its threads, so far."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def states(pid):
    """Those that its threads are in, by the system's letters."""
    return {pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()[0]
            for thread in os.listdir(f"/proc/{pid}/task")}


def times_asleep(pid):
    """How often its threads have gone to sleep so far."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as file:
            total += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", file.read(), re.M).group(1))
    return total


def await_rest(ranks):
    """Wait until these have come as far as they can: all of their threads sleep, and none has woken up in 0.1 s. Not for
    ranks that look at something again and again, as at files, or for a rank 0 that is not there."""
    def looks():
        return [(times_asleep(rank.pid), states(rank.pid)) for rank in ranks if rank.process.poll() is None]

    def rest():
        try:
            before = looks()
            time.sleep(0.1)
            return looks() == before and all(state == {"S"} for _, state in before)
        except OSError:  # a thread has just ended
            return False
    wait_until(rest, DEADLINE, lambda: "; ".join(f"{rank.name} rests; {rank.story()}" for rank in ranks))


@contextlib.contextmanager
def on_two_cpus():
    """What is started meanwhile has two at most, as three ranks that are to share CPUs need."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# Abstract Unix sockets named after the ports given out last, so that no test beside this one gets them before they are
# used, or while nobody is to be there.
PORTS_KEPT = collections.deque()


def free_port():
    """One that nobody has, no test that runs now is about to use, and no connection gets by itself."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first_given // 8 * 5, first_given)  # below: world_free_port's, in tests/rendezvous
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as s:
            try:
                claim.bind(f"\0test-port-{port}")  # first: what is claimed must not be taken even for a moment
                s.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        PORTS_KEPT.append(claim.detach())
        if len(PORTS_KEPT) > 200:
            os.close(PORTS_KEPT.popleft())
        return port


def may_mount():
    """Whether this program has a namespace of its own for what it mounts, as mount_apart gives it."""
    return os.environ.get("DDL_TEST_MOUNTS") == "1"


def mount_apart():
    """Begin again where what is mounted is nobody else's, if that is allowed."""
    if may_mount():
        return
    enter = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    try:
        probe = subprocess.run([*enter, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tempfile.gettempdir()],
                               capture_output=True, timeout=30)
    except OSError:
        return
    if probe.returncode == 0:
        PLACES.cleanup()  # who begins again makes his own
        os.execvpe(enter[0], [*enter, sys.executable, *sys.argv], {**os.environ, "DDL_TEST_MOUNTS": "1"})


class Rank:
    """One process. Its records come out of `next` and `expect` in the order they were written."""

    def __init__(self, program, commands, environment, name, prefix=()):
        self.name = name
        self.secrets = [pathlib.Path(PLACES.name, "ddl", "secret"), pathlib.Path(PLACES.name, ".ddl", "secret"),
                        pathlib.Path(environment.get("DDL_SECRET_FILE", os.devnull))]
        self.seen = []
        self.said, self.saying = bytearray(), threading.Lock()  # on stderr
        self.beside = []  # other ranks of its world, whose last words tell more of what went wrong
        self.records = queue.Queue()
        self.process = subprocess.Popen([*prefix, program, *commands], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace")
        os.set_blocking(self.process.stderr.fileno(), False)
        self.threads = [threading.Thread(target=self._read_records, daemon=True),
                        threading.Thread(target=self._read_errors, daemon=True)]
        for thread in self.threads:
            thread.start()

    @property
    def pid(self):
        return self.process.pid

    def _read_records(self):
        for line in self.process.stdout:
            try:
                record = json.loads(line)
            except ValueError:
                record = {"event": "noise", "line": line}  # the library may not write to stdout
            self.records.put(record)
        self.records.put(None)

    def _read_errors(self):
        ready = select.poll()  # select() stops at 1,024 descriptors
        ready.register(self.process.stderr, select.POLLIN)
        has_more = True
        while has_more:
            ready.poll()
            has_more = self._take_errors()

    def _take_errors(self):
        """What is there on stderr; False: there will be no more."""
        with self.saying:
            while True:
                try:
                    data = os.read(self.process.stderr.fileno(), 65536)
                except BlockingIOError:
                    return True
                if not data:
                    return False
                self.said += data

    @property
    def errors(self):
        """The lines on stderr, at least those that were written before the last record that was read."""
        if not self.process.stderr.closed:
            self._take_errors()
        return self.said.decode(errors="replace").splitlines(keepends=True)

    def next(self, seconds=None):
        """The next record; None at the end of the output."""
        try:
            record = self.records.get(timeout=DEADLINE if seconds is None else seconds)
        except queue.Empty:
            raise Unexpected(f"{self.name} said nothing more in time; {self.story()}") from None
        if record is None:
            self.records.put(None)
        else:
            self.seen.append(record)
        return record

    def expect(self, event, status=None, seconds=None):
        """The next record must be this event, and with this status where one is given."""
        record = self.next(seconds)
        if record is None or record["event"] != event or (status is not None and record.get("status") != status):
            raise Unexpected(f"{self.name}: expected {event} {status or ''}, got {record}; {self.story()}")
        if record.get("exact") is False and record.get("status") == "DDL_OK":
            raise Unexpected(f"{self.name}: a result is not exact: {record}; {self.story()}")
        return record

    def go(self):
        """Let a rank that waits for a line go on."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        """SIGKILL; returns the time."""
        now = time.monotonic_ns()
        self.process.kill()
        return now

    def finish(self, code=0, seconds=None):
        """Wait until the process has ended, with this exit code."""
        try:
            ended = self.process.wait(DEADLINE if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            raise Unexpected(f"{self.name} does not end; {self.story()}") from None
        for thread in self.threads:
            thread.join(DEADLINE)
        if code is not None and ended != code:
            raise Unexpected(f"{self.name} ended with {ended}, not {code}; {self.story()}")
        if any(r["event"] == "noise" for r in list(self.records.queue) if r):
            raise Unexpected(f"{self.name} wrote something else to stdout; {self.story()}")
        if self.tells_secret():
            raise Unexpected(f"{self.name} tells a secret; {self.story()}")
        return ended

    def tells_secret(self):
        """Whether what it said has the secret of a file in it that it may have read, and that is still there."""
        told = ("".join(self.errors) + json.dumps([*self.seen, *self.records.queue])).lower()
        secrets = [path.read_text(errors="replace").strip().lower() for path in self.secrets if path.is_file()]
        return any(len(secret) >= 16 and secret in told for secret in secrets)

    def story(self):
        others = [f"; {r.name}: {[*r.seen, *filter(None, list(r.records.queue))][-2:]}, on stderr {''.join(r.errors[-5:])!r}"
                  for r in self.beside[:8] if r is not self]
        return f"it said {self.seen[-6:]} and on stderr {''.join(self.errors[-20:])!r}{''.join(others)}"

    def await_threads(self, count):
        """Wait until it has so many: the second is the library's, so it has come into ddl_init."""
        wait_until(lambda: len(os.listdir(f"/proc/{self.pid}/task")) >= count, DEADLINE,
                   lambda: f"{self.name} has {count} threads; {self.story()}")

    def await_ports(self, count=1):
        """Wait until it listens at so many; rank 0 does at the store's and then at its own door for ranks. All of them."""
        wait_until(lambda: len(listening_ports(self.pid)) >= count, DEADLINE,
                   lambda: f"{self.name} listens at {count} ports, and not {listening_ports(self.pid)}; {self.story()}")
        return listening_ports(self.pid)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join(DEADLINE)
        told = self.tells_secret()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except OSError:
                pass
        if told:
            raise Unexpected(f"{self.name} tells a secret; {self.story()}")


class World:
    """A few ranks that meet on one port of this machine."""

    def __init__(self, program, nranks, **environment):
        self.program = program
        self.nranks = nranks
        self.port = free_port()
        self.environment = environment
        self.ranks = []

    def start(self, rank, *commands, prefix=(), **environment):
        """Start one rank. A variable given as None is left out."""
        variables = {"RANK": rank, "WORLD_SIZE": self.nranks, "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": self.port, "DDL_START_TIMEOUT": f"{DEADLINE:g}s",
                     "DDL_TIMEOUT": f"{DEADLINE:g}s", "DDL_TRANSPORT": os.environ.get("DDL_TEST_TRANSPORT"),
                     "DDL_SECURITY": os.environ.get("DDL_TEST_SECURITY"),
                     "DDL_CONNECT": os.environ.get("DDL_TEST_CONNECT")}
        variables.update(self.environment)
        variables.update(environment)
        everything = clean_environment()
        everything.update({k: str(v) for k, v in variables.items() if v is not None})
        started = Rank(self.program, [str(c) for c in commands], everything, f"rank {rank}", prefix)
        self.ranks.append(started)
        started.beside = self.ranks
        return started

    def start_all(self, *commands, others=None, **environment):
        """Start every rank with these commands; others maps a rank to commands of its own."""
        return [self.start(r, *(others or {}).get(r, commands), **environment) for r in range(self.nranks)]

    def await_record(self, directory):
        """Wait until rank 0 has put its record into this directory, where the ranks meet, and its own key behind it."""
        place = f"{directory}/ddl-127.0.0.1_{self.port}"
        wait_until(lambda: os.path.exists(place + "/meet") and any(os.path.exists(f"{place}/{run}/key/=member.0")
                                                                   for run in os.listdir(place)),
                   DEADLINE, lambda: "rank 0 leaves a record; " + self.ranks[0].story())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for rank in self.ranks:
            rank.close()


def end_well(ranks, *events):
    """Each tells of these events, all of which went well, and ends."""
    for rank in ranks:
        for event in events:
            rank.expect(event, "DDL_OK")
        rank.finish()


def finish_thousands(test, ranks):
    """Ranks that were started with "line", a thousand calls, "line", as many, "free", and let go once: all of it is
    exact, and they go."""
    for again in (True, False):
        for rank in ranks:
            test.assertEqual(rank.expect("repeated", "DDL_OK")["done"], 1000)
            rank.expect("ready" if again else "free")
        for rank in ranks if again else []:
            rank.go()


def connect(port, seconds=DEADLINE):
    """To a port of this machine at which somebody is about to listen; nothing that is done with it takes longer."""
    def try_it():
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=seconds)
        except ConnectionRefusedError:
            return None
    return wait_until(try_it, DEADLINE, f"somebody listens at port {port}")


def read_link(path):
    """Where a link leads; "" if it has gone in the meantime."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def numeric(written):
    """An address as /proc writes it, in words of the machine's byte order."""
    words = b"".join(int(written[i:i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(written), 8))
    return socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)


def listening(pid):
    """The TCP addresses and ports at which a process listens; empty where the system does not tell."""
    try:
        links = [read_link(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        tables = [pathlib.Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    except OSError:
        return []
    inodes = {m.group(1) for m in (re.match(r"socket:\[(\d+)\]", link) for link in links) if m}
    rows = [line.split() for table in tables for line in table]
    at = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in inodes]
    return sorted({(numeric(address), int(port, 16)) for address, port in at})


def listening_ports(pid):
    return sorted({port for _, port in listening(pid)})


def alive(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def terminate(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
