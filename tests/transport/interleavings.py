"""Every interleaving of some processes, in one of two memories.

X86: each process has a store buffer, as processors have; what it stores becomes visible to others later, in order.
C11: the memory of the C standard, in which each access has the order that it is given, and no other.

Processes are written as generators; explore.c walks through them, and asks here for each step when it first comes to it.
"""
import subprocess
import sys
import unittest

X86, C11 = "x86", "C11"
MEMORIES = (X86, C11)

PLAIN, RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = ORDERS = ("plain", "relaxed", "acquire", "release", "acq_rel", "seq_cst")

# Everything that is shared, by name; a process is a generator of steps. A step is one of
#   ("load", name, order)            result: what is found
#   ("store", name, value, order)
#   ("swap", name, value, order)     result: what was there
#   ("fence", order)                 one that is relaxed is none
#   ("await", name, order)           once the name is not 0; makes it 0
#   ("until", name, value, order)    once it is that, or, if that is ANYTHING, not 0; result: what is found. For who looks
#                                    again and again
#   ("expect", ((name, value), ...))    nothing; plain loads, and anything else there is as bad as a state in which
#                                       nobody can go on
#   ("choose", count)                result: any number from 0 to below that
# Values are numbers from 0 to 63; all names have 0 at first. Orders are those of C11, and plain, of what is not atomic:
# in C11 it is a mistake if two of which one stores are not kept apart by others, and one name cannot have both. For x86
# it is the same whatever the order is, but that of a fence.
ANYTHING = 0
KINDS = ("end", "load", "store", "swap", "fence", "await", "until", "expect", "choose")
MAY_HAVE = {"load": (PLAIN, RELAXED, ACQUIRE), "store": (PLAIN, RELAXED, RELEASE),
            "swap": (RELAXED, ACQUIRE, RELEASE, ACQ_REL), "fence": (RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST),
            "await": (RELAXED, ACQUIRE), "until": (RELAXED, ACQUIRE)}

# Generators cannot be copied, so the state of one is a history of results that leads to it; of those that lead to
# the same place with the same variables the first counts. Variables named in PASSING do not: a process looks at
# them in the very next step at most.
PASSING = frozenset({"orders", "order", "seen", "wanted", "was", "ways", "way"})

EXPLORE = None  # the program


def next_step(program, results):
    """The step that follows these results, None at the end; and where the process is, with its variables."""
    process = program()
    try:
        step = next(process)
        for result in results:
            step = process.send(result)
    except StopIteration:
        return None, "ended"
    places, inner = [], process
    while inner is not None:  # the process, and the generators that it is inside of
        variables = {k: repr(v) for k, v in inner.gi_frame.f_locals.items() if k not in PASSING}
        places.append((inner.__name__, inner.gi_frame.f_lasti, tuple(sorted(variables.items()))))
        inner = inner.gi_yieldfrom
    return step, (step, *places)


class Program:
    """A process with the steps that are known, by number."""

    def __init__(self, program, names):
        self.program, self.names = program, names
        self.numbers, self.results, self.steps = {}, [], []
        self.first = self.told(())[1]

    def told(self, results):
        """The number of the step that these results lead to; and the step, if it is a new one."""
        step, where = next_step(self.program, results)
        if where in self.numbers:
            return f"{self.numbers[where]}", ""
        self.numbers[where] = len(self.results)
        self.results.append(results)
        self.steps.append(step)
        return f"{self.numbers[where]}", " ".join(map(str, self.words_of(step or ("end",))))

    def words_of(self, step):
        """As explore.c reads them."""
        kind, order = step[0], ORDERS[0]
        if kind in MAY_HAVE:
            order = step[-1]
            if order not in MAY_HAVE[kind]:
                raise ValueError(f"{step}: a {kind} cannot be {order}")
        name = self.index(step[1]) if kind in ("load", "store", "swap", "await", "until") else 0
        value = step[2] if kind in ("store", "swap", "until") else step[1] if kind == "choose" else 0
        expected = [f"{self.index(n)} {v}" for n, v in step[1]] if kind == "expect" else []
        return (KINDS.index(kind), ORDERS.index(order), name, value, len(expected), *expected)

    def index(self, name):
        return self.names.setdefault(name, len(self.names))

    def after(self, number, found):
        return " ".join(self.told(self.results[number] + (found,)))


class Explorer:
    """prompt, of x86: a store is visible before another process has made so many more of its own; None: whenever."""

    def __init__(self, programs, memory=X86, prompt=None):
        self.programs = programs
        self.memory = memory
        self.prompt = prompt
        self.states = None  # how many there were

    def lost(self, most=4_000_000):
        """What is said of a state in which nobody can go on, though not all have ended, in which somebody did not find
        what he expected, or in which plain accesses race; None: there is none."""
        names = {}
        programs = [Program(program, names) for program in self.programs]
        with subprocess.Popen([EXPLORE, self.memory, str(len(programs)), str(most), str(self.prompt or 0)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as explorer:
            explorer.stdin.write("\n".join(program.first for program in programs) + "\n")
            explorer.stdin.flush()
            while (said := explorer.stdout.readline()).startswith("after"):
                process, number, found = map(int, said.split()[1:])
                explorer.stdin.write(programs[process].after(number, found) + "\n")
                explorer.stdin.flush()
        if said.startswith("lost"):
            at = said.split("steps")[1].split()
            return said.strip() + "".join(f"\n{p}: {program.steps[int(n)]}" for p, (program, n) in enumerate(zip(programs, at)))
        if not said.startswith("none"):
            raise AssertionError(said)
        self.states = int(said.split()[2])
        return None


# A model says in ACCESSES what is stored and looked at in the code: its order there, file, function and name; of one function
# one after the other. test_model_orders.py holds the code to it. What the steps do not call by these names is relaxed.


SLEEPING = {  # of ranks that sleep, and are woken, in several models
    "nudge": (SEQ_CST, "transport/lanes.c", "ddl_lanes_wake", "ddl_doze_told"),
    "see sleep": (RELAXED, "transport/doze.h", "ddl_doze_sees", "load is_asleep"),
    "take sleep": (RELAXED, "transport/doze.h", "ddl_doze_take", "exchange is_asleep"),
    "sleep": (RELAXED, "transport/doze.h", "ddl_doze_begin", "store is_asleep"),
    "doze": (SEQ_CST, "transport/mesh_turn.c", "ddl_mesh_doze", "ddl_doze_look_again"),
    "awake": (RELAXED, "transport/doze.h", "ddl_doze_end", "store is_asleep"),
}


def orders_of(accesses):
    """Of ACCESSES: the orders, but those that are relaxed."""
    return {what: order for what, (order, *_) in accesses.items() if order != RELAXED}


WEAKER = {ACQUIRE: RELAXED, RELEASE: RELAXED, SEQ_CST: ACQ_REL, ACQ_REL: RELAXED}


def weakened(orders):
    """Of a model's orders, by what they are for: what was weakened, and all of them; one after the other."""
    for what, order in orders.items():
        yield what, {**orders, what: WEAKER[order]}


def main(*tests):
    """Of a test of a model: EXPLORE, and which tests, if not these."""
    global EXPLORE
    EXPLORE = sys.argv.pop(1)
    if len(sys.argv) == 1:
        sys.argv += tests
    unittest.main(module="__main__")
