"""Histories drawn from a seed: a small world makes calls, one thing goes wrong, and all have to tell the same.

    test_histories.py ACTOR [CLASS[.TEST]...] [-v]

What is drawn: ranks, transport, level of security, how pairs connect, how many CPUs, the world or a half of it; the
calls; what goes wrong, where, and on which rank; which ranks come late, and one that stands still for a while; whether
those who are left shrink what broke and go on. What is held against it holds for each: whoever is told of a failure is
told the same one, in time, and every result before and after it is exact. A failure prints the seed;

    DDL_TEST_SEED=SEED DDL_TEST_ROUNDS=1 test_histories.py ACTOR Histories

is that history again, as far as its moments can be had again.
"""
import os
import random
import re
import shutil
import signal
import threading
import time
from collections import namedtuple

from failures import SEED, Failures, main
from world import bound

ROUNDS = int(os.environ.get("DDL_TEST_ROUNDS", "40"))
TLS = os.environ.get("DDL_TEST_TLS", "1") == "1"
ONE_CPU = ("taskset", "-c", str(min(os.sched_getaffinity(0)))) if shutil.which("taskset") else ()
REDUCING = ("allreduce", "reduce", "reduce_scatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
KINDS = sorted({*REDUCING, *ROOTED, "allgather", "alltoall", "barrier"})
DTYPES = ("int32", "uint32", "int64", "float32", "float64", "uint8")
OPS = ("sum", "max", "min")


class Call(namedtuple("Call", "kind count dtype op root")):
    """A collective, and how the actor is told of it."""

    def __str__(self):
        if self.kind == "barrier":
            return self.kind
        op = [self.op] if self.kind in REDUCING else []
        root = [str(self.root)] if self.kind in ROOTED else []
        return ":".join([self.kind, str(self.count), self.dtype, *op, *root])


def draw_call(draw, nranks):
    most = draw.choice((1, 16, 16, 600, 600, 6000, 40000 // nranks))
    return Call(draw.choice(KINDS), draw.randint(1, most), draw.choice(DTYPES), draw.choice(OPS), draw.randrange(nranks))


def another(draw, choices, than):
    return draw.choice([choice for choice in choices if choice != than])


def differ(draw, call, nranks):
    """The calls of a rank that makes something else of one."""
    ways = ["kind", "skip", "twice"]
    if call.kind != "barrier":
        ways += ["count", "dtype"] + ["op"] * (call.kind in REDUCING) + ["root"] * (call.kind in ROOTED)
    way = draw.choice(ways)
    if way in ("skip", "twice"):
        return [call] * (2 if way == "twice" else 0)
    if way == "count":
        return [call._replace(count=call.count + draw.choice((1, 7, 5000)))]
    choices = {"kind": KINDS, "dtype": DTYPES, "op": OPS, "root": range(nranks)}[way]
    return [call._replace(**{way: another(draw, choices, getattr(call, way))})]


class History:
    """What is drawn from a seed. Ranks of the communicator that breaks, `members`, are numbered in it as in the world."""

    def __init__(self, seed):
        draw = self.draw = random.Random(seed)
        self.nranks = draw.choice((2, 3, 3, 4, 4, 5, 6, 7, 8))
        self.settings = {"DDL_TRANSPORT": draw.choice((None, None, "tcp")), "DDL_CONNECT": draw.choice((None, None, "lazy")),
                         "DDL_SECURITY": draw.choice((None,) * 4 + ("tls" if TLS else "off", "off"))}
        self.prefix = draw.choice(((),) * 4 + (ONE_CPU,))
        self.fault = draw.choice(("differ",) * 4 + ("killed", "killed", "left", "freed", "abort"))
        self.in_half = self.nranks > 3 and self.fault in ("differ", "abort") and draw.random() < 0.3
        self.members = range(0, self.nranks, 2) if self.in_half else range(self.nranks)
        self.size = len(self.members)
        self.before = [draw_call(draw, self.size) for _ in range(draw.randrange(6))]
        self.times = draw.choice((1, 1, 1, 20, 300))  # the last of them
        self.call = draw_call(draw, self.size)
        self.tail = self.call
        while str(self.tail) == str(self.call):
            self.tail = draw_call(draw, self.size)
        self.in_flight = draw.random() < 0.3  # the call is started, and then waited for
        self.odd = self.draw_odd()
        self.late = {rank: draw.random() * 0.6 for rank in self.members if draw.random() < 0.25}
        self.stopped = draw.choice(self.members) if draw.random() < 0.3 else None
        self.stop_at, self.stop_for = draw.random() * 0.1, draw.random() * 0.7
        ngone = sum(map(self.is_gone, self.odd))
        self.shrinks = draw.random() < 0.5 and ngone < 2 and self.size > 2 * ngone  # the second may die of what follows

    def draw_odd(self):
        """The ranks that do something else, and what; never all."""
        draw = self.draw
        does = {"differ": lambda: self.made(differ(draw, self.call, self.size)),
                "killed": lambda: [f"mortal:{draw.randint(1, 30000)}", *self.made([self.call])],
                "left": lambda: [draw.choice(("exit:0", "_exit:0"))],
                "freed": lambda: ["free"],
                "abort": lambda: ["abort:enough"]}
        most = {"differ": self.size // 2, "killed": self.size - 1}.get(self.fault, 1)
        count = draw.choice((1, 1, max(1, min(2, most))))
        return {rank: does[self.fault]() for rank in draw.sample(self.members, count)}

    def made(self, calls):
        return [f"+{call}" for call in calls] + ["wait"] if self.in_flight else list(map(str, calls))

    def is_gone(self, rank):
        return rank in self.odd and self.fault in ("killed", "left", "freed")

    def commands(self, rank):
        start = ["init", *([f"split:half:{rank % 2}:0", "use:half"] if self.in_half else [])]
        if rank not in self.members:
            return [*start, "cases:3:20", "line", "cases:4:20", "free", "use:world", "barrier", "free"]
        for call in self.before:
            start.append(str(call))
        if self.before:
            start.append(f"{self.times}={self.before[-1]}")
        broken = "half" if self.in_half else "world"
        rest = self.odd.get(rank, self.made([self.call]))
        if self.fault in ("left", "freed") and rank in self.odd:
            return [*start, "line", *rest]
        if self.fault == "killed" and rank in self.odd:
            return [*start, "line", *rest, f"forever={self.tail}", "line"]  # told of another's death, it waits for its own
        return [*start, "line", *rest, f"forever={self.tail}", "barrier",
                *(["shrink:rest", "use:rest", "cases:5:10", "free", f"use:{broken}"] if self.shrinks else []), "free",
                *(["use:world", "barrier", "free"] if self.in_half else [])]

    def __str__(self):
        lines = [f"rank {rank}: {' '.join(self.commands(rank))}" for rank in range(self.nranks)]
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items() if value)
        late = {rank: round(by, 2) for rank, by in self.late.items()}
        return (f"{settings} {' '.join(self.prefix)} late {late} stopped {self.stopped} at {self.stop_at:.2f} "
                f"for {self.stop_for:.2f}\n" + "\n".join(lines))


class Histories(Failures):
    def let_go(self, history, ranks):
        """Let all go on, each at its moment; returns when all had come and nothing stood still any more."""
        events = [(history.late.get(r, 0), rank.go) for r, rank in enumerate(ranks)]
        if history.stopped is not None:
            pid = ranks[history.stopped].pid
            for at, number in ((history.stop_at, signal.SIGSTOP), (history.stop_at + history.stop_for, signal.SIGCONT)):
                events.append((at, lambda number=number: os.kill(pid, number)))  # not waited for yet: it is still its own
        begun = time.monotonic()
        for at, act in sorted(events, key=lambda event: event[0]):
            time.sleep(max(0, begun + at - time.monotonic()))
            act()
        return time.monotonic_ns()

    def said_by(self, rank, code):
        """All that a rank says until it ends."""
        records = []
        while (record := rank.next(30)) is not None:
            if record.get("status") == "DDL_OK":
                self.assertIsNot(record.get("exact"), False, record)
            records.append(record)
        rank.finish(code)
        return records

    def assert_ends_well(self, first, then):
        """What comes after the failure is refused at once, but for what is made of it."""
        for record in then:
            if record["event"] in ("free", "shrink"):
                self.assertEqual(record["status"], "DDL_OK", record)
                self.assertLess(self.seconds(record["begin_ns"], record["end_ns"]), bound(1), record)
            elif record["event"] == "wait" and record["status"] == first["status"]:  # it was in flight too
                self.assertEqual(*(re.sub(r"^.*?: (in \w+#\d+, )?", "", r["text"]) for r in (record, first)))
            elif record["event"] in ("call", "forever", "wait", "started"):
                self.assertIn(record["status"], ("DDL_EABORTED", "DDL_OK"), record)

    def run_one(self, seed):
        history = History(seed)
        world = self.world(history.nranks, DDL_TIMEOUT="9s", **history.settings)
        ranks = [world.start(r, *history.commands(r), prefix=history.prefix) for r in range(history.nranks)]
        try:
            self.judge(history, ranks)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{history}") from error
        finally:
            world.__exit__()

    def failure_in(self, records):
        """The first record that tells of one, and what follows it; (None, []): none does."""
        for i, record in enumerate(records):
            if record.get("status", "DDL_OK") != "DDL_OK":
                return record, records[i + 1:]
        return None, []

    def judge(self, history, ranks):
        for rank in ranks:
            while (record := rank.next(30))["event"] != "ready":
                self.assertEqual(record["status"], "DDL_OK", rank.story())
                self.assertIsNot(record.get("exact"), False, rank.story())
        all_there_ns = self.let_go(history, ranks)
        killed = history.odd if history.fault == "killed" else ()
        said = [self.said_by(rank, -signal.SIGKILL if r in killed else 0) for r, rank in enumerate(ranks)]
        deaths = [record["end_ns"] for r in killed for record in said[r] if record["event"] == "killed"]
        told = {}
        for r, records in enumerate(said):
            first, then = self.failure_in(records)
            if r not in history.members:
                self.assertIsNone(first, f"rank {r}, whom it does not concern")
            elif not history.is_gone(r):
                self.assertIsNotNone(first, f"rank {r} was told of nothing: {records}")
                self.assert_ends_well(first, then)
                told[r] = first
        self.assert_same(history, told, max([all_there_ns, *deaths]))

    def assert_same(self, history, told, all_there_ns):
        """One status, one culprit, and of calls that differ one pair; among them is one to whom it is due."""
        code = {"abort": "DDL_EABORTED", "killed": "DDL_EPEERLOST", "left": "DDL_EPEERLOST"}.get(history.fault, "DDL_EMISMATCH")
        headlines = {(record["status"], record["culprit"], *map(int, re.findall(r"rank ([0-9]+) \(pid", record["text"])))
                     for record in told.values()}
        self.assertEqual(len(headlines), 1, told)
        status, culprit, *pair = headlines.pop()
        self.assertEqual(status, code, told)
        named = pair if code == "DDL_EMISMATCH" else [culprit]
        self.assertTrue({history.members[rank] for rank in named} & {*history.odd}, told)
        for record in told.values():
            self.assert_within(record, all_there_ns, 1)

    def test_all_tell_the_same(self):
        seeds = iter(range(SEED, SEED + ROUNDS))
        taking = threading.Lock()

        def some():
            while True:
                with taking:
                    seed = next(seeds, None)
                if seed is None:
                    return
                self.run_one(seed)

        self.at_once(*[(some,)] * 3)


if __name__ == "__main__":
    main(__doc__)
