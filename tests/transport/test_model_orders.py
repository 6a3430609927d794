"""Compares the orders in the models with those in the sources, which the models do not see.

    test_model_orders.py ROOT [TESTS]

ROOT is the folder of the project. Each model (test_*_model.py) says in ACCESSES where the code has what it does, and in
which order. That is found in the text: in this function the one call of this kind for this variable. One that names no
order is seq_cst, as is a variable that is used without a call. Nor may FOLDERS have any other, but what ELSEWHERE names.
"""
import functools
import importlib
import itertools
import pathlib
import re
import sys
import unittest
from collections import namedtuple

from interleavings import ACQ_REL, ACQUIRE, RELAXED, RELEASE, SEQ_CST

FILES = None  # of FOLDERS: path in src, text
FOLDERS = ("transport", "executor", "backend")
HERE = pathlib.Path(__file__).parent

# Who calls them has the fence that is in them.
FENCES = {name: ("transport/doze.h", name, "fence") for name in ("ddl_doze_told", "ddl_doze_look_again")}

# What is in no model, and why.
ELSEWHERE = {
    "a sign of life to the watch, which may come late":
        (RELAXED, "transport/lane.c", "ddl_lane_taken", "load taken"),
    "a hint where a rank computes, all in one word":
        (RELAXED, "transport/balance.c", "tell", "store place"),
    "the same hint, read":
        (RELAXED, "transport/balance.c", "find_ranks", "load place"),
    "only says where that hint is":
        (SEQ_CST, "transport/lanes.c", "ddl_lanes_place", "plain place"),
    "in no shared memory; it makes a rank poll for longer":
        (RELAXED, "transport/lanes.c", "ring_for_sleepers", "store rang"),
    "the same, read":
        (RELAXED, "transport/lanes.c", "ddl_lanes_have_rung", "exchange rang"),
    "for the compiler, so that a header is read once":
        (SEQ_CST, "transport/mesh_read.c", "own_copy", "signal_fence"),
}

# Members of a ddl_post, which is called as a sheet is elsewhere.
NAMESAKES = {("backend/posting.c", "next->number"), ("backend/posting.c", "next->signature")}

# place: file, function and access, as in ACCESSES. call, token: where the text has it, and its memory_order_..., if any.
Access = namedtuple("Access", "place order call token")


# ---- the sources ----

@functools.cache
def blanked(text):
    """Without comments and what is in quotes; all else is where it was."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def arguments(code, at):
    """Of a call whose parenthesis is here: the beginning and the end of each."""
    spans, depth, begin = [], 0, at + 1
    for i in itertools.count(at):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[i], 0)
        if depth == 0 or (depth == 1 and code[i] == ","):
            spans.append((begin, i))
            begin = i + 1
        if depth == 0:
            return spans


@functools.cache
def members_in(text):
    """Structs that have atomic members, and these."""
    atomic = r"\b(?:_Atomic\s*\([^;]*?\)|_Atomic\s+\w+|atomic_\w+)\s+(\w+)\s*[;\[]"
    structs = re.finditer(r"\bstruct\s+(\w+)\s*\{(.*?)^\}", blanked(text), re.M | re.S)
    return tuple((m[1], name) for m in structs for name in re.findall(atomic, m[2]))


@functools.cache
def holders_in(text, struct):
    """What is called one, points to one or gives one."""
    return tuple(re.findall(rf"\b{struct}\s+\**(\w+)", blanked(text)))


def plain_uses(files):
    """A pattern for uses of atomic members."""
    members = {}
    for text in files.values():
        for struct, name in members_in(text):
            members.setdefault(struct, set()).add(name)
    uses = []
    for struct, names in sorted(members.items()):
        holders = {holder for text in files.values() for holder in holders_in(text, struct)}
        if holders:
            uses.append(rf"(?:{'|'.join(sorted(holders))})(?:\[[^\]]*\]|\([^()]*\))*\)*(?:->|\.)(?:{'|'.join(sorted(names))})")
    return rf"\b(?:{'|'.join(uses)})\b"


CALL = re.compile(r"\b(?:(?:__)?(?:atomic|sync)_(?P<kind>\w+?)(?P<explicit>_explicit)?"
                  rf"|(?P<fence>{'|'.join(FENCES)})(?!\(void\)))\s*(?=\()")


@functools.cache
def accesses_in(path, text, uses):
    code = blanked(text)
    functions = []
    for m in re.finditer(r"^\{$.*?^\}", code, re.M | re.S):
        head = code[max(code.rfind("\n\n", 0, m.start()), 0):m.start()]
        functions.append((re.search(r"(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*\Z", head)[1], *m.span()))
    found, variables = [], []

    def add(what, order, call, token=None):
        function = next((name for name, begin, end in functions if begin <= call[0] < end), "outside of functions")
        found.append(Access((path, function, what), order, call, token))

    for m in CALL.finditer(code):
        spans = arguments(code, m.end())
        call = m.start(), spans[-1][1] + 1
        if m["fence"]:
            add(m["fence"], None, call)
            continue
        order, token = SEQ_CST, None
        if m["explicit"] or m["kind"].endswith("_fence"):
            begin, end = spans[-2 if "compare" in m["kind"] else -1][0], spans[-1][1]  # those have two
            order = code[begin:end].strip()
            begin = code.index(order, begin)
            token = begin, begin + len(order)
            order = order.replace("memory_order_", "")
        if m["kind"].endswith("_fence"):
            add(m["kind"].removeprefix("thread_"), order, call, token)
            continue
        variable = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", code[slice(*spans[0])]))[-1:]
        variables.append(spans[0])
        add(" ".join([m["kind"], *variable]), order, call, token)
    for m in re.finditer(uses, code):
        if (path, m[0]) not in NAMESAKES and not any(begin <= m.start() < end for begin, end in variables):
            add("plain " + re.search(r"\w+\Z", m[0])[0], SEQ_CST, m.span())
    return sorted(found, key=lambda access: access.call)


def accesses_of(files):
    uses = plain_uses(files)
    return [access for path, text in files.items() for access in accesses_in(path, text, uses)]


# ---- beside the models ----

def tables():
    """ACCESSES of each model, and what is elsewhere."""
    models = sorted(path.stem for path in HERE.glob("test_*_model.py"))
    return {**{f"{model}.py": importlib.import_module(model).ACCESSES for model in models}, "ELSEWHERE": ELSEWHERE}


def mismatches(files, tables):
    said, claims = [], {}
    for table, entries in tables.items():
        for what, (order, *place) in entries.items():
            if len(place) != 3:
                said.append(f'{table}, "{what}": {order}, but of no access in the sources')
                continue
            for one in filter(None, (tuple(place), FENCES.get(place[2]))):
                claims.setdefault(one, []).append((f'{table}, "{what}"', order))

    accesses = accesses_of(files)
    for place, claimants in claims.items():
        orders = [access.order for access in accesses if access.place == place]
        for claimant, order in claimants:
            if len(orders) != 1:
                said.append(f"{', '.join(place)}: the code has {len(orders)} of it; {claimant}: one, {order}")
            elif orders[0] not in (order, None):
                said.append(f"{', '.join(place)}: the code has {orders[0]}; {claimant}: {order}")
    said += [f"{', '.join(access.place)}: the code has {access.order or 'it'}, and no model knows it"
             for access in accesses if access.place not in claims]

    for table, entries in tables.items():
        functions = {}
        for _, *place in entries.values():
            functions.setdefault(tuple(place[:2]), {}).update(dict.fromkeys(place[2:]))
        for function, wanted in functions.items():
            there = [access.place[2] for access in accesses if access.place[:2] == function and access.place[2] in wanted]
            if sorted(there) == sorted(wanted) and there != list(wanted):
                said.append(f"{', '.join(function)}: the code has {', '.join(there)} one after the other; "
                            f"{table}: {', '.join(wanted)}")
    return said


class Orders(unittest.TestCase):
    def test_the_code_has_those_of_the_models(self):
        said = mismatches(FILES, tables())
        if said:
            self.fail("\n" + "\n".join(said))

    def test_the_steps_of_the_models_have_those_of_their_tables(self):
        """Or are relaxed, or plain."""
        for path in HERE.glob("test_*_model.py"):
            text, model = path.read_text(encoding="utf-8"), importlib.import_module(path.stem)
            with self.subTest(path.name):
                self.assertEqual(model.ORDERS, model.orders_of(model.ACCESSES))
                self.assertEqual(set(re.findall(r'\borders\["([^"]+)"\]', text)), set(model.ORDERS))
                steps = re.findall(r'\("(?:load|store|swap|fence|await|until)".*', text)
                self.assertFalse([step for step in steps if re.search(r"\b(?:ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)\b", step)])


def changes(access, text):
    """What may become of an access, by name."""
    call = text[slice(*access.call)]
    if access.token:
        token = text[slice(*access.token)]
        for order in (RELAXED, "consume", ACQUIRE, RELEASE, ACQ_REL, SEQ_CST):
            if order != access.order:
                yield order, call.replace(token, "memory_order_" + order)
        yield "whatever that is", call.replace(token, "order")
        if "_explicit" in call:
            yield "no order", re.sub(rf",\s*{token}", "", call).replace("_explicit", "")
    yield "gone", "0"
    yield "twice", f"({call}, {call})"


class Mistakes(unittest.TestCase):
    """Made one after the other, in the text of the sources and in the tables."""

    def finds(self, files, tables, *words):
        self.assertTrue(any(all(word in said for word in words) for said in mismatches(files, tables)))

    def replaced(self, path, *parts):
        """parts: beginning, end, and what comes there."""
        text = FILES[path]
        for begin, end, new in sorted(parts, reverse=True):
            text = text[:begin] + new + text[end:]
        self.assertNotEqual(text, FILES[path])
        return {**FILES, path: text}

    def test_an_access_is_another_one(self):
        for access in accesses_of(FILES):
            for change, new in changes(access, FILES[access.place[0]]):
                with self.subTest(access.place, change=change):
                    self.finds(self.replaced(access.place[0], (*access.call, new)), tables(), *access.place)

    def test_two_accesses_have_changed_places(self):
        for first, second in itertools.pairwise(accesses_of(FILES)):
            path, function, _ = first.place
            if second.place[:2] == (path, function):
                texts = [FILES[path][slice(*access.call)] for access in (first, second)]
                with self.subTest(first.place, second=second.place[2]):
                    self.finds(self.replaced(path, (*first.call, texts[1]), (*second.call, texts[0])), tables(),
                               path, function, "one after the other")

    def test_an_access_is_new(self):
        path, function = "transport/lane.c", "ddl_lane_is_broken"
        at = FILES[path].index("return", FILES[path].index(function))
        for new in ("atomic_load_explicit(&end->lane->taken, memory_order_relaxed)", "atomic_load(&end->lane->taken)",
                    "end->lane->taken++", "(*end->lane).taken", "atomic_thread_fence(memory_order_acquire)", "ddl_doze_told()",
                    "__atomic_load_n(&end->lane->taken, __ATOMIC_RELAXED)", "__sync_synchronize()"):
            with self.subTest(new):
                self.finds(self.replaced(path, (at, at, f"{new};\n    ")), tables(), path, function, "no model knows it")
        new = {"transport/new.h": "#define TAKEN(lane) atomic_load(&(lane)->taken)\n"}
        self.finds({**FILES, **new}, tables(), *new, "outside of functions", "no model knows it")

    def test_an_entry_is_another_one(self):
        for table, entries in tables().items():
            for what, (order, *place) in entries.items():
                changed = [((other, *place), other) for other in (RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST) if other != order]
                for entry, said in (*changed, ((order,), "of no access"), ((order, *place[:2], "load nothing"), "has 0 of it")):
                    with self.subTest(table, what=what, entry=entry):
                        self.finds(FILES, {**tables(), table: {**entries, what: entry}}, table, what, said)

    def test_an_access_has_no_entry(self):
        for place in {tuple(place) for entries in tables().values() for _, *place in entries.values()}:
            without = {table: {what: entry for what, entry in entries.items() if entry[1:] != place}
                       for table, entries in tables().items()}
            with self.subTest(place):
                self.finds(FILES, without, *place, "no model knows it")


if __name__ == "__main__":
    root = pathlib.Path(sys.argv.pop(1)) / "src"
    FILES = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
             for folder in FOLDERS for path in sorted((root / folder).glob("*.[ch]"))}
    unittest.main()
