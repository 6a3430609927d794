"""Explores every interleaving of the protocol by which ranks sleep beside their lanes and wake each other.

    test_lane_model.py

Writers and a reader run the steps of lane.c, lanes.c and transport_mesh.c: publish, look whether the other end
sleeps, ring; doze, look again, sleep. Each has a store buffer, as processors have: what it stores becomes
visible to others later, in order (the memory order of x86; acquire and release give the same elsewhere here, as
every look that matters follows a fence). A state in which nobody can go on and not everything has been taken is
a lost wake-up. That the search finds those is shown by leaving out one fence after the other.

A ring has room for few messages of size 1. The 20 ms tick, which would end any sleep, is left out.
"""
import sys
import unittest

# Everything that is shared, by name; a process is a generator of steps. A step is one of
#   ("load", name)            result: the own newest store, else what is in memory
#   ("store", name, value)    into the store buffer
#   ("swap", name, value)     result: what was there; with an empty buffer only
#   ("fence",)                with an empty buffer only
#   ("await", name)           once the name is not 0; makes it 0
# Generators cannot be copied, so the state of one is a history of results that leads to it; of those that lead to
# the same place with the same variables the first counts.


def nudge(other, fences):
    """Wake the other end if it sleeps."""
    if "nudge" in fences:
        yield ("fence",)
    asleep = yield ("load", f"asleep {other}")
    if asleep:
        was = yield ("swap", f"asleep {other}", 0)
        if was:
            yield ("swap", f"bell {other}", 1)


def writer(lane, reader, capacity, messages, fences, order=("asleep", "wants")):
    me = f"writer {lane}"
    written = 0
    while written < messages:
        seen = yield ("load", f"taken {lane}")
        if written - seen < capacity:
            written += 1
            yield ("store", f"written {lane}", written)
            yield from nudge(reader, fences)
            continue
        for name in order:
            yield ("store", f"{name} {lane if name == 'wants' else me}", 1)
        if "doze" in fences:
            yield ("fence",)
        seen = yield ("load", f"taken {lane}")
        if written - seen >= capacity:
            yield ("await", f"bell {me}")
        yield ("store", f"asleep {me}", 0)


def reader(lanes, capacity, messages, fences, half_full):
    taken = {lane: 0 for lane in lanes}
    while any(taken[lane] < messages[lane] for lane in lanes):
        found = False
        for lane in lanes:
            seen = yield ("load", f"written {lane}")
            if seen == taken[lane]:
                continue
            found = True
            before = taken[lane]
            taken[lane] += 1
            yield ("store", f"taken {lane}", taken[lane])
            if half_full:
                seen = yield ("load", f"written {lane}")
                if 2 * (seen - before) < capacity:
                    continue
            if "room" in fences:
                yield ("fence",)
            wanted = yield ("load", f"wants {lane}")
            if wanted:
                was = yield ("swap", f"wants {lane}", 0)
                if was:
                    yield from nudge(f"writer {lane}", fences)
        if found:
            continue
        yield ("store", "asleep reader", 1)
        if "doze" in fences:
            yield ("fence",)
        something = False
        for lane in lanes:
            seen = yield ("load", f"written {lane}")
            something = something or seen > taken[lane]
        if not something:
            yield ("await", "bell reader")
        yield ("store", "asleep reader", 0)


ALL = frozenset({"nudge", "doze", "room"})


def next_step(program, results):
    """The step that follows these results, None at the end; and where the process is, with its variables."""
    process = program()
    try:
        step = next(process)
        for result in results:
            step = process.send(result)
    except StopIteration:
        return None, "ended"
    # Where it is inside of nudge the step tells; what was seen last is not looked at after the next step.
    variables = {k: repr(v) for k, v in process.gi_frame.f_locals.items()
                 if k not in ("fences", "order", "seen", "wanted", "was")}
    return step, (process.gi_frame.f_lasti, step, tuple(sorted(variables.items())))


class Explorer:
    """prompt: a store is visible before another process has made so many more of its own; None: whenever."""

    def __init__(self, programs, prompt=None):
        self.programs = programs
        self.prompt = prompt
        self.steps = {}
        self.first = {}

    def canonical(self, index, results):
        """The first history that was seen to lead where this one leads."""
        key = (index, results)
        if key not in self.steps:
            step, where = next_step(self.programs[index], results)
            self.steps[key] = step, self.first.setdefault((index, where), results)
        return self.steps[key][1]

    def step_of(self, index, results):
        self.canonical(index, results)
        return self.steps[(index, results)][0]

    def moves(self, state):
        memory, buffers, histories = state
        for index in range(len(self.programs)):
            buffer = buffers[index]
            if buffer:
                name, value, _ = buffer[0]
                yield self.changed(state, index, memory=(name, value), buffer=buffer[1:])
            step = self.step_of(index, histories[index])
            if step is None:
                continue
            kind, values = step[0], dict(memory)
            if kind == "store":
                aged = tuple(tuple((n, v, age + (i != index)) for n, v, age in b) for i, b in enumerate(buffers))
                if self.prompt is not None and any(age >= self.prompt for b in aged for _, _, age in b):
                    continue  # the older store comes first
                yield self.changed((memory, aged, histories), index, buffer=aged[index] + ((step[1], step[2], 0),),
                                   result=None)
            elif kind == "load":
                own = [value for name, value, _ in buffer if name == step[1]]
                yield self.changed(state, index, result=own[-1] if own else values.get(step[1], 0))
            elif buffer:
                continue
            elif kind == "fence":
                yield self.changed(state, index, result=None)
            elif kind == "swap":
                yield self.changed(state, index, memory=(step[1], step[2]), result=values.get(step[1], 0))
            elif values.get(step[1], 0):
                yield self.changed(state, index, memory=(step[1], 0), result=None)

    KEEP = object()

    def changed(self, state, index, memory=None, buffer=None, result=KEEP):
        shared, buffers, histories = state
        if memory is not None:
            values = dict(shared)
            values[memory[0]] = memory[1]
            shared = tuple(sorted(item for item in values.items() if item[1]))
        if buffer is not None:
            buffers = buffers[:index] + (buffer,) + buffers[index + 1:]
        if result is not self.KEEP:
            after = self.canonical(index, histories[index] + (result,))
            histories = histories[:index] + (after,) + histories[index + 1:]
        return shared, buffers, histories

    def lost(self, most=2_000_000):
        """A state in which nobody can go on, though not all have ended; None: there is none."""
        nothing = ((), ((),) * len(self.programs), ((),) * len(self.programs))
        seen, stack = {nothing}, [nothing]
        while stack:
            state = stack.pop()
            went_on = False
            for after in self.moves(state):
                went_on = True
                if after not in seen:
                    seen.add(after)
                    stack.append(after)
            if len(seen) > most:
                raise AssertionError(f"more than {most} states")
            if not went_on and any(self.step_of(i, h) is not None for i, h in enumerate(state[2])):
                return state
        return None


def world(messages, capacity, fences=ALL, half_full=False, prompt=None, order=("asleep", "wants")):
    """messages: of each writer."""
    lanes = range(len(messages))
    programs = [lambda lane=lane: writer(lane, "reader", capacity, messages[lane], fences, order) for lane in lanes]
    programs.append(lambda: reader(lanes, capacity, messages, fences, half_full))
    return Explorer(programs, prompt)


class Lanes(unittest.TestCase):
    def test_two_ranks(self):
        for capacity, messages in ((1, 3), (1, 5), (2, 5), (3, 5)):
            self.assertIsNone(world([messages], capacity).lost())

    def test_three_ranks(self):
        for messages in ([1, 1], [2, 1]):
            self.assertIsNone(world(messages, 1).lost())

    def test_every_fence_is_needed(self):
        for fence in ALL:
            with self.subTest(without=fence):
                self.assertIsNotNone(world([3], 1, fences=ALL - {fence}).lost())

    def test_a_wish_that_is_seen_before_the_sleep_is_lost(self):
        self.assertIsNotNone(world([3], 1, order=("wants", "asleep")).lost())

    def test_a_reader_that_looks_for_wishes_only_in_lanes_that_are_half_full(self):
        """Sound if a store is visible before a writer has filled half a lane, which takes thousands of stores; and
        not without that."""
        self.assertIsNone(world([5], 4, half_full=True, prompt=2).lost())
        self.assertIsNotNone(world([6], 4, half_full=True).lost())


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    unittest.main()
