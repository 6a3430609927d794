"""What was measured, and what follows from it: sizes, medians, bandwidths, bounds. Nothing here runs or writes."""
import collections
import re
import statistics

# One thing to compare the libraries in.
Case = collections.namedtuple("Case", "transport collective ranks")
# One library at one size: over the rounds, the median of each figure and the extremes of the mean.
Point = collections.namedtuple("Point", "operations median_us mean_us p99_us fastest_us slowest_us")

COLLECTIVES = ("allreduce", "allreduce_in_place", "allgather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
               "alltoall", "barrier")
OF_A_VECTOR = "allreduce", "allreduce_in_place", "broadcast", "reduce"  # the others have a block for each rank
SHARED_OUT = "reduce", "gather", "scatter"  # a part of what the root has, or gets, can be each rank's work
ONE_WAY = "broadcast", *SHARED_OUT  # from the root or to it
ELEMENT_BYTES = 4
OURS = "ddl", "ddl-shared"  # not among the others
NEAR = 4  # sizes to a turn
UNITS = {"": 1, "K": 2 ** 10, "M": 2 ** 20, "G": 2 ** 30}


def parse_sizes(text):
    """[4, 1024] of "4,1K"; of "4..1K" every fourth power: [4, 16, 64, 256, 1024]."""
    sizes = []
    for part in text.split(","):
        first, *last = map(parse_size, part.split("..", 1))
        sizes.append(first)
        while last and sizes[-1] * 4 <= last[0]:
            sizes.append(sizes[-1] * 4)
    return sizes


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text, re.I)
    if not match or int(match[1]) == 0:
        raise ValueError(f"{text!r} is no size; sizes look like 4, 64K, 1M or 4..256M")
    return int(match[1]) * UNITS[match[2].upper()]


def size_name(size):
    for unit, name in (2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB"):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def whole_sizes(case, sizes):
    """Sizes of whole elements, for each rank where there are blocks, one at least. A barrier has no size."""
    if case.collective == "barrier":
        return [0]
    unit = ELEMENT_BYTES * (1 if case.collective in OF_A_VECTOR else case.ranks)
    return sorted({max(size // unit, 1) * unit for size in sizes})


def bus_factor(collective, ranks):
    """Bytes that a rank must send and receive over bytes of its buffer, as in nccl-tests."""
    if collective in ("allreduce", "allreduce_in_place"):
        return 2 * (ranks - 1) / ranks
    return 1 if collective in ("broadcast", "reduce", "barrier") else (ranks - 1) / ranks


def near(sizes):
    """The sizes in groups of those that are measured at about the same time, as few seconds as a start is worth."""
    return [sizes[at:at + NEAR] for at in range(0, len(sizes), NEAR)]


def rotated(items, by):
    """Who comes first differs from round to round, so that nobody always runs after the same neighbour."""
    by %= len(items) or 1
    return items[by:] + items[:by]


# ---- the physical limit ----

def sent_bytes(case, size):
    """What a rank must send and receive over a network. Something is sent in any case."""
    return max(round(bus_factor(case.collective, case.ranks) * size), ELEMENT_BYTES)


def limits_for(case):
    """What the program that measures them is asked for."""
    return "sums" if case.transport == "shm" and case.collective == "allreduce_in_place" else case.transport


def part_of(case, size):
    """Of one rank; something in any case."""
    return max(size // case.ranks, ELEMENT_BYTES)


def limit_sizes(case, sizes):
    """The sizes at which the limits are to be measured, so that bound_us can be told."""
    if case.transport == "tcp":
        return sorted({sent_bytes(case, size) for size in sizes})
    if case.collective in SHARED_OUT:
        sizes = [part_of(case, size) for size in sizes]
    return [size for size in sizes if size > 0]


def bound_us(case, size, limits):
    """The least time that a collective of this size can take here, from {(name, processes, bytes): us}.

    tcp: every rank sends and receives as many bytes as it must (bus_factor), to one neighbour and from another, all
    ranks at once, by a program that does nothing else. What has a root goes one way: a stream from one to another.

    shm: no rank knows of another before a flag has come across. And every rank reads as many bytes as its
    result is made of, and writes the result: in allreduce, allgather, alltoall and broadcast of n bytes it reads n and
    writes n, which is a memcpy of n by all ranks at once; in reduce_scatter it reads n and writes n / ranks. In reduce,
    gather and scatter n bytes go to the root or from it, and each rank can copy its part of them. The bound does not
    know that buffers are private: who copies through shared memory moves at least twice as much.

    shm, in place: every rank adds its part of the buffers of all, which are shared, and writes the sums into all of them.
    """
    if case.transport == "tcp":
        if case.collective in ONE_WAY:
            return limits["stream", 2, sent_bytes(case, size)]
        return limits["exchange", case.ranks, sent_bytes(case, size)]
    flag = limits["flag", 2, 0]
    if size == 0:
        return flag
    if case.collective == "allreduce_in_place":
        return max(flag, limits["sum", case.ranks, size])
    if case.collective in SHARED_OUT:
        return max(flag, limits["memcpy", case.ranks, part_of(case, size)])
    share = (1 + 1 / case.ranks) / 2 if case.collective == "reduce_scatter" else 1
    return max(flag, share * limits["memcpy", case.ranks, size])


# ---- results ----

class Results:
    """The figures of all turns. A turn is what was measured within seconds: all libraries and limits at a few sizes, once.

    A machine changes from one minute to the next, so what is compared is of the same turn: of ratios, not of times, the
    median is taken. A point that could not be measured has a word instead: "timeout", "failed".
    """

    def __init__(self):
        self.samples = collections.defaultdict(dict)  # (case, peer, size) -> {turn: line of its driver}
        self.words = {}
        self.facts = collections.defaultdict(dict)  # case -> {turn: {(name, processes, bytes): microseconds}}
        self.versions = {}  # peer -> what its library calls itself

    def add(self, case, peer, turn, line):
        self.samples[case, peer, line["bytes"]][turn] = line
        self.versions[peer] = line["library"]

    def add_limit(self, case, turn, line):
        self.facts[case].setdefault(turn, {})[line["limit"], line["processes"], line["bytes"]] = line["us"]

    def give_up(self, case, peer, size, word):
        self.words[case, peer, size] = word

    def word(self, case, peer, size):
        return self.words.get((case, peer, size))

    def means(self, case, peer, size):
        """{turn: microseconds}; empty if it could not be measured."""
        if self.word(case, peer, size):
            return {}
        return {turn: line["mean_us"] for turn, line in self.samples.get((case, peer, size), {}).items()}

    def point(self, case, peer, size):
        """None if there is none."""
        means = self.means(case, peer, size).values()
        if not means:
            return None
        lines = self.samples[case, peer, size].values()
        middle = [statistics.median(line[name] for line in lines)
                  for name in ("operations", "median_us", "mean_us", "p99_us")]
        return Point(*middle, min(means), max(means))

    def limits(self, case):
        """{(name, processes, bytes): microseconds}, medians."""
        times = collections.defaultdict(list)
        for facts in self.facts[case].values():
            for fact, us in facts.items():
                times[fact].append(us)
        return {fact: statistics.median(us) for fact, us in times.items()}

    def bounds(self, case, size, turns):
        """{turn: microseconds} of those turns in which the limits were measured."""
        return {turn: bound_us(case, size, facts) for turn, facts in self.facts[case].items() if turn in turns}

    def bound_us(self, case, size):
        """None if the limits were not measured."""
        limits = self.limits(case)
        return bound_us(case, size, limits) if limits else None

    def bus_gbps(self, case, peer, size):
        point = self.point(case, peer, size)
        return point and bus_factor(case.collective, case.ranks) * size / point.mean_us / 1000

    def ratio(self, case, size, peers):
        """ddl's time over another library's of the same turn, the median; the greatest of all other libraries.

        None if there is nothing to compare.
        """
        own = self.means(case, "ddl", size)
        ratios = [median_ratio(own, self.means(case, peer, size)) for peer in peers if peer not in OURS]
        return max((ratio for ratio in ratios if ratio is not None), default=None)

    def limit_share(self, case, peer, size):
        """How much of what is possible a library reaches: 1 is the limit."""
        means = self.means(case, peer, size)
        return median_ratio(self.bounds(case, size, means), means)


def median_ratio(times, others):
    """Of {turn: microseconds} each, over the turns that are in both; None if there are none."""
    return statistics.median(both) if (both := [times[turn] / others[turn] for turn in times if turn in others]) else None
