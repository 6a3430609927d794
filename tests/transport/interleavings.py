"""Every interleaving of some processes, each with a store buffer as processors have: what it stores becomes visible to
others later, in order (the memory order of x86).
"""
# Everything that is shared, by name; a process is a generator of steps. A step is one of
#   ("load", name)            result: the own newest store, else what is in memory
#   ("store", name, value)    into the store buffer
#   ("swap", name, value)     result: what was there; with an empty buffer only
#   ("fence",)                with an empty buffer only
#   ("await", name)           once the name is not 0; makes it 0
#   ("until", name, value)    once it is that: for who looks again and again
# Generators cannot be copied, so the state of one is a history of results that leads to it; of those that lead to
# the same place with the same variables the first counts. Variables named in PASSING do not: a process looks at
# them in the very next step at most.
PASSING = frozenset({"fences", "order", "seen", "wanted", "was"})


def next_step(program, results):
    """The step that follows these results, None at the end; and where the process is, with its variables."""
    process = program()
    try:
        step = next(process)
        for result in results:
            step = process.send(result)
    except StopIteration:
        return None, "ended"
    # Where it is inside of another generator the step tells.
    variables = {k: repr(v) for k, v in process.gi_frame.f_locals.items()
                 if k not in PASSING}
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
            elif kind == "until":
                if values.get(step[1], 0) == step[2]:
                    yield self.changed(state, index, result=None)
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
