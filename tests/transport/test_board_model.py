"""Explores every interleaving of the protocol by which ranks say something to all others of their host.

    test_board_model.py EXPLORE [TESTS]

Ranks run the steps of board.c and posting.c, and of those that sleep meanwhile: see that all have come to the post so
many before, write the bytes and the number of one of the sheets in turn, look at the sheets that the post needs, look
who sleeps and ring; doze, look again, sleep; read. How far a rank may be ahead is DDL_AHEAD there, and 1 or 2 here. A state in which nobody can go on and not everybody has read
everything is a lost wake-up; one in which somebody reads what is not of the post that he took it for, or while it is
written, is a sheet that was taken too early or written too early. That the search finds those is shown by leaving out
what prevents them, and by making one order after the other weaker.

Numbers are as on the sheets: that of the call, which wraps early here, and the turn. Several posts may have the number
of one call (rounds, pieces), and between two there may be any number of calls by messages.

Where all reach the buffers of all (Places), a post tells where they are. Who has seen that of everybody takes its part of
all of them, and puts what comes of it into all of them; with the next post all know that theirs are complete. A rank may
give up at any point. It says that its place holds no more, has other pages for what others write, and goes on with its
buffers; others hear of that in other ways. Whoever is done has to have what it should, and whoever has given up what it
puts there. Waiting is left out, which is as above, and that pages are copied while a late writer is at them.

The 20 ms tick, which would end any sleep, is left out. Nothing rests on the order that the system gives who rings a bell
and who hears it.
"""
import itertools
import unittest

from interleavings import ACQUIRE, C11, MEMORIES, PLAIN, RELAXED, RELEASE, SLEEPING, X86, Explorer, main, orders_of, weakened

ACCESSES = {
    "sign": (RELAXED, "executor/board.c", "ddl_board_post", "store signature"),
    "post": (RELEASE, "executor/board.c", "ddl_board_post", "store number"),
    "has posted": (ACQUIRE, "executor/board.h", "ddl_board_has_posted", "load number"),
    "clear": (RELAXED, "executor/board.c", "ddl_board_begin", "store number"),
    "begin": (RELEASE, "executor/board.c", "ddl_board_begin", "fence"),
    "signature": (RELAXED, "executor/board.h", "ddl_board_signature", "load signature"),
    "still has": (ACQUIRE, "executor/board.h", "ddl_board_still_has_posted", "fence"),
    "number": (RELAXED, "executor/board.h", "ddl_board_still_has_posted", "load number"),
    **SLEEPING,
    "tell": (RELAXED, "executor/board.c", "ddl_board_tell", "store tells"),
    "told": (RELAXED, "executor/board.c", "ddl_board_tells_place", "load tells"),
    "withdraw": (RELAXED, "executor/board.c", "ddl_board_withdraw", "store tells"),
    "withdrawn": (RELEASE, "executor/board.c", "ddl_board_withdraw", "fence"),
    "all read": (ACQUIRE, "executor/board.c", "ddl_board_still_tells", "fence"),
    "still tells": (RELAXED, "executor/board.c", "ddl_board_still_tells", "load tells"),
    "say done": (RELEASE, "transport/lane.c", "publish", "store written"),  # a message through a lane
    "hear done": (ACQUIRE, "transport/lane.c", "ddl_lane_peek", "load written"),
}
ORDERS = orders_of(ACCESSES)
AMONG_ALL = "among all"  # a call; others are ("from", root) and ("to", root)


class Rules:
    """What the protocol has; a test takes something away."""

    def __init__(self, orders=ORDERS, ahead=1, sheets=None, look_first=True, sleeps=True, gate=True, long_gate=True,
                 turn=True, bytes_first=True, wraps_at=2, long=()):
        """long: posts that are longer than a sheet."""
        self.orders, self.ahead, self.sheets, self.look_first, self.sleeps = orders, ahead, sheets or 2 * ahead, look_first, sleeps
        self.gate, self.long_gate, self.turn, self.bytes_first = gate, long_gate, turn, bytes_first
        self.wraps_at, self.long = wraps_at, long

    def number(self, communicator, sequence, k):
        """Of post k of a communicator, in the call of this sequence: ddl_board_number, and what ddl_board_post adds."""
        turn = k // self.sheets % 2 if self.turn else 0
        return 1 + (communicator * self.wraps_at + sequence % self.wraps_at) * 2 + turn


def needed(call, me, others):
    if call == AMONG_ALL:
        return others
    direction, root = call
    if direction == "from":
        return [root] if me != root else []
    return others if me == root else []


def wait_for_posts(me, awaited, side, number, rules):
    """Until all of these have posted this number; they are taken out of the list."""
    dozes = False
    while awaited:
        if not rules.sleeps:
            yield ("until", f"number {awaited[0]} {side}", number, rules.orders["has posted"])
            awaited.pop(0)
        elif (yield ("load", f"number {awaited[0]} {side}", rules.orders["has posted"])) == number:
            awaited.pop(0)
        elif dozes:
            yield ("await", f"bell {me}", RELAXED)
            yield ("store", f"asleep {me}", 0, RELAXED)
            dozes = False
        else:
            yield ("store", f"asleep {me}", 1, RELAXED)
            yield ("fence", rules.orders["doze"])
            dozes = True
    if dozes:
        yield ("store", f"asleep {me}", 0, RELAXED)


def rank(me, nranks, communicators, rules):
    """communicators: one after the other on the same sheets, each a list of posts: a sequence and a call."""
    others = [r for r in range(nranks) if r != me]
    orders = rules.orders
    first = 0  # what the bytes of a post say is how many there were before
    for which, posts in enumerate(communicators):
        unseen = {}  # of the last posts: the number, and who has not been seen to have posted it
        for k, (sequence, call) in enumerate(posts, 1):
            needs = needed(call, me, others)
            number = rules.number(which, sequence, k)
            side = k % rules.sheets
            is_long = k in rules.long
            lead = 1 if is_long and rules.long_gate else rules.ahead
            for before in [j for j in sorted(unseen) if j <= k - lead] if rules.gate else ():
                mine, missing = unseen.pop(before)
                yield from wait_for_posts(me, missing, before % rules.sheets, mine, rules)
            place = f"page {{}} {k % 2}" if is_long else f"bytes {{}} {side}"
            stores = [("store", place.format(me), first + k, PLAIN), ("store", f"number {me} {side}", number, orders["post"])]
            yield stores[0 if rules.bytes_first else 1]
            yield stores[1 if rules.bytes_first else 0]
            awaited = list(needs)
            while rules.look_first and awaited:
                if (yield ("load", f"number {awaited[0]} {side}", orders["has posted"])) != number:
                    break
                awaited.pop(0)
            yield ("fence", orders["nudge"])
            for other in others if rules.sleeps else ():
                if (yield ("load", f"asleep {other}", RELAXED)):
                    if (yield ("swap", f"asleep {other}", 0, RELAXED)):
                        yield ("swap", f"bell {other}", 1, RELAXED)
            yield from wait_for_posts(me, awaited, side, number, rules)
            if needs:
                yield ("expect", tuple((place.format(other), first + k) for other in needs))
            unseen[k] = number, [r for r in others if r not in needs]
        first += len(posts)
        if which + 1 < len(communicators):  # all tell all by messages that they are done with it
            yield ("store", f"done {me}", which + 1, orders["say done"])
            for other in others:
                yield ("until", f"done {other}", which + 1, orders["hear done"])


def world_of(nranks, communicators, memory=X86, **rules):
    rules = Rules(**rules)
    return Explorer([lambda me=me: rank(me, nranks, communicators, rules) for me in range(nranks)], memory)


def world(nranks, calls, gaps=None, memory=X86, **rules):
    """gaps: by how much the sequence of each call is above that of the one before; 0: another post of the same."""
    if isinstance(calls, int):
        calls = [AMONG_ALL] * calls
    sequences = itertools.accumulate(gaps or [1] * len(calls))
    return world_of(nranks, [list(zip(sequences, calls))], memory, **rules)


def next_owner(orders, begins):
    """Of a sheet of a communicator that has ended: its last post, ddl_board_begin, and the first post of the next one."""
    yield ("store", "signature", 1, RELAXED)
    yield ("store", "number", 1, orders["post"])
    if begins:
        yield ("store", "number", 0, RELAXED)
        yield ("fence", orders["begin"])
    yield ("store", "signature", 2, RELAXED)
    yield ("store", "number", 2, orders["post"])


def late_reader(orders):
    """have_posted in posting.c. It reads the signature while that may be written."""
    if (yield ("load", "number", orders["has posted"])) == 1:
        if (yield ("load", "signature", RELAXED)) != 1:
            yield ("fence", orders["still has"])
            if (yield ("load", "number", RELAXED)) == 1:
                yield ("expect", (("nothing else", 1),))  # it takes that for a mistake of the other rank


def taken_over(memory, orders=ORDERS, begins=True):
    return Explorer([lambda: next_owner(orders, begins), lambda: late_reader(orders)], memory)


TELLS, TELLS_NO_MORE = 1, 2
OWN = 63  # what a program has in its buffers once it has given up


class PlaceRules:
    """gives_up: who may. words: of buffers; relaxed where late readers and writers are part of it."""

    def __init__(self, orders=ORDERS, calls=1, in_place=False, gives_up=(), looks_again=True, withdraws=True, second=True):
        self.orders, self.calls, self.in_place, self.gives_up = orders, calls, in_place, gives_up
        self.looks_again, self.withdraws, self.second = looks_again, withdraws, second
        self.words = RELAXED if gives_up else PLAIN
        self.out = "in" if in_place else "out"  # of the names of buffers: whose it is, and the part of which rank


def take_back(me, nranks, rules):
    """ddl_posting_cancel, and what the program does then. Reads of IN go on; what is in place has other pages, too."""
    orders = rules.orders
    yield ("store", f"tells {me}", TELLS_NO_MORE, RELAXED)
    yield ("fence", orders["withdrawn"])
    yield ("store", f"gone {me}", 1, RELAXED)
    for part in range(nranks):
        out = f"other {me} {part}" if rules.withdraws else f"{rules.out} {me} {part}"
        yield ("store", out, OWN, rules.words)
        if not rules.in_place:
            yield ("store", f"in {me} {part}", OWN, rules.words)
        if (yield ("load", out, rules.words)) != OWN:
            yield ("expect", (("nothing else", 1),))


def wait_for(other, which, call, me, rules):
    """True once it has posted; False: it has given up, or this one does."""
    while (yield ("load", f"{which} {other}", rules.orders["has posted"])) != call:
        if me in rules.gives_up and (yield ("choose", 2)):
            return False
        if rules.gives_up and (yield ("load", f"gone {other}", RELAXED)):
            return False
    return True


def teller(me, nranks, rules):
    """telling.c, with what posting.c does around it: the two posts of a piece, on the two sheets."""
    orders, others = rules.orders, [r for r in range(nranks) if r != me]
    for call in range(1, rules.calls + 1):
        for part in range(nranks):
            yield ("store", f"in {me} {part}", call, rules.words)
        yield ("store", f"tells {me}", TELLS, RELAXED)
        yield ("store", f"first {me}", call, orders["post"])
        for other in others:
            if not (yield from wait_for(other, "first", call, me, rules)):
                return (yield from take_back(me, nranks, rules))
            yield ("load", f"tells {other}", RELAXED)
        total = 0
        for rank in range(nranks):
            total += yield ("load", f"in {rank} {me}", rules.words)
        total = min(total, OWN - 1)
        for rank in range(nranks):
            yield ("store", f"{rules.out} {rank} {me}", total, rules.words)
        for other in others if rules.looks_again else ():
            yield ("fence", orders["all read"])
            if (yield ("load", f"tells {other}", RELAXED)) != TELLS:
                return (yield from take_back(me, nranks, rules))
        if rules.second:
            yield ("store", f"second {me}", call, orders["post"])
        for other in others if rules.second else ():
            if not (yield from wait_for(other, "second", call, me, rules)):
                return (yield from take_back(me, nranks, rules))
        for part in range(nranks):
            if (yield ("load", f"{rules.out} {me} {part}", rules.words)) != nranks * call:
                yield ("expect", (("nothing else", 1),))


def places(nranks, memory=X86, **rules):
    rules = PlaceRules(**rules)
    return Explorer([lambda me=me: teller(me, nranks, rules) for me in range(nranks)], memory)


class Places(unittest.TestCase):
    def test_two_ranks(self):
        for memory, in_place in itertools.product(MEMORIES, (False, True)):
            self.assertIsNone(places(2, memory, calls=2, in_place=in_place).lost())

    def test_three_ranks(self):
        for memory, in_place in itertools.product(MEMORIES, (False, True)):
            self.assertIsNone(places(3, memory, calls=2, in_place=in_place).lost())

    def test_any_of_two_ranks_gives_up(self):
        for memory, in_place in itertools.product(MEMORIES, (False, True)):
            self.assertIsNone(places(2, memory, calls=3, gives_up=(0, 1), in_place=in_place).lost())

    def test_any_of_three_ranks_gives_up(self):
        for in_place in (False, True):
            self.assertIsNone(places(3, gives_up=(0,), in_place=in_place).lost())
            self.assertIsNone(places(3, C11, calls=2, gives_up=(0,), in_place=in_place).lost())

    def test_who_has_read_looks_again(self):
        for memory in MEMORIES:
            self.assertIsNotNone(places(2, memory, gives_up=(0,), looks_again=False).lost())

    def test_pages_are_withdrawn(self):
        for in_place in (False, True):
            self.assertIsNotNone(places(2, gives_up=(0,), withdraws=False, in_place=in_place).lost())

    def test_the_second_post_is_needed(self):
        for memory, in_place in itertools.product(MEMORIES, (False, True)):
            self.assertIsNotNone(places(2, memory, second=False, in_place=in_place).lost())


class Boards(unittest.TestCase):
    def test_two_ranks(self):
        for look_first in (True, False):
            for memory in MEMORIES:
                self.assertIsNone(world(2, 7, memory=memory, look_first=look_first).lost())

    def test_three_ranks_that_sleep(self):
        """Each sheet is written more than once; but in the memory of C11."""
        self.assertIsNone(world(3, 1, memory=C11, look_first=False).lost())
        self.assertIsNone(world(3, 4).lost())
        self.assertIsNone(world(3, 5, look_first=False).lost())

    def test_three_ranks_that_look_all_the_time(self):
        for look_first in (True, False):
            for memory in MEMORIES:
                self.assertIsNone(world(3, 5, memory=memory, look_first=look_first, sleeps=False).lost())

    def test_every_order_is_needed(self):
        """That of messages by two communicators whose only posts are on the same sheet."""
        for what, orders in weakened(ORDERS):
            with self.subTest(weaker=what):
                communicators = [[(1, AMONG_ALL)]] * 2 if "done" in what else [[(1, AMONG_ALL), (2, AMONG_ALL)]]
                if what in ("begin", "still has"):
                    model = taken_over(C11, orders)
                elif what in ("withdrawn", "all read"):
                    model = places(2, C11, gives_up=(0,), orders=orders)
                else:
                    model = world_of(2, communicators, C11, orders=orders)
                self.assertIsNotNone(model.lost())

    def test_every_fence_is_needed(self):
        for nranks, what in itertools.product((2, 3), ("nudge", "doze")):
            with self.subTest(without=what, nranks=nranks):
                self.assertIsNotNone(world(nranks, 2, orders={**ORDERS, what: RELAXED}).lost())

    def test_one_sheet_is_not_enough(self):
        for sleeps in (True, False):
            self.assertIsNotNone(world(2, 2, sheets=1, sleeps=sleeps).lost())

    def test_twice_as_many_as_a_rank_may_be_ahead_are_needed(self):
        for ahead, sheets in ((2, 2), (2, 3), (3, 5)):
            calls = [("from", 0)] + [("from", 1)] * sheets  # the second root is ahead of one that has not looked at its first post
            self.assertIsNotNone(world(2, calls, ahead=ahead, sheets=sheets, sleeps=False).lost())
            self.assertIsNone(world(2, calls, ahead=ahead, sleeps=False).lost())

    def test_bytes_come_before_their_number(self):
        for nranks, sleeps in itertools.product((2, 3), (True, False)):
            self.assertIsNotNone(world(nranks, 1, bytes_first=False, sleeps=sleeps).lost())


    def test_who_looks_late_sees_that_a_sheet_was_taken_over(self):
        for memory in MEMORIES:
            self.assertIsNone(taken_over(memory).lost())
            self.assertIn("expected", taken_over(memory, begins=False).lost())


class Numbers(unittest.TestCase):
    """Calls by messages, and as many of them as let the number wrap; calls of up to three posts; communicators."""

    def test_any_gaps_between_posts_of_two_ranks(self):
        for wraps_at, posts in ((2, 5), (4, 4)):
            for gaps in itertools.product(range(wraps_at + 1), repeat=posts - 1):
                with self.subTest(gaps=gaps):
                    self.assertIsNone(world(2, posts, gaps=(1, *gaps), wraps_at=wraps_at).lost())

    def test_any_gaps_between_four_posts_of_three_ranks(self):
        for gaps in itertools.product((0, 1, 2), repeat=3):
            with self.subTest(gaps=gaps):
                self.assertIsNone(world(3, 4, gaps=(1, *gaps), sleeps=False).lost())

    def test_three_ranks_that_sleep(self):
        """Of one call, and of calls as far apart as the number is wide, or half of that."""
        for gaps in itertools.product((0, 1, 2), repeat=2):
            with self.subTest(gaps=gaps):
                self.assertIsNone(world(3, 3, gaps=(1, *gaps), look_first=False).lost())

    def test_calls_of_one_rank_and_the_others_of_several_posts(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0), ("from", 1)), repeat=4):
            for gaps in ((1, 0, 0, 0), (1, 1, 0, 0), (1, 2, 2, 2)):
                with self.subTest(calls=calls, gaps=gaps):
                    self.assertIsNone(world(2, calls, gaps=gaps).lost())

    def test_the_turn_is_needed(self):
        """As numbers of calls alone wrap between two posts on a sheet, or do not change."""
        for gaps in ((1, 0, 0), (1, 1, 1), (1, 2, 2), (1, 0, 2)):
            for nranks, sleeps in itertools.product((2, 3), (True, False)):
                with self.subTest(gaps=gaps, nranks=nranks, sleeps=sleeps):
                    said = world(nranks, 3, gaps=gaps, turn=False, sleeps=sleeps).lost()
                    self.assertIsNotNone(said)
                    self.assertIn("expected", said)
        self.assertIsNone(world(2, 3, gaps=(1, 1, 2), turn=False).lost())

    def test_communicators_share_sheets(self):
        for before, after in itertools.product((1, 2, 3), repeat=2):
            communicators = [[(k, AMONG_ALL) for k in range(1, posts + 1)] for posts in (before, after)]
            self.assertIsNone(world_of(2, communicators).lost())
            self.assertIsNone(world_of(2, communicators, C11).lost())
            self.assertIsNone(world_of(3, communicators, sleeps=False).lost())
        self.assertIsNone(world_of(3, [[(1, AMONG_ALL)] * 2] * 2, look_first=False).lost())


class RootedCalls(unittest.TestCase):
    def test_any_four_calls_of_two_ranks(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0), ("from", 1)), repeat=4):
            with self.subTest(calls=calls):
                self.assertIsNone(world(2, calls, sleeps=False).lost())
                self.assertIsNone(world(2, calls).lost())
                self.assertIsNone(world(2, calls[:3], memory=C11, sleeps=False).lost())

    def test_three_ranks(self):
        for calls in itertools.product((("from", 0), ("to", 1)), (AMONG_ALL, ("from", 0), ("to", 1)), (("from", 0), ("from", 1))):
            with self.subTest(calls=calls):
                self.assertIsNone(world(3, calls, look_first=False, sleeps=False).lost())

    def test_everybody_has_to_have_come_to_the_call_so_many_before(self):
        for ahead, sleeps in itertools.product((1, 2), (True, False)):
            self.assertIsNotNone(world(2, [("from", 0)] * (2 * ahead + 1), ahead=ahead, sleeps=sleeps, gate=False).lost())

    def test_a_root_that_is_two_calls_ahead(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0), ("from", 1)), repeat=4):
            with self.subTest(calls=calls):
                self.assertIsNone(world(2, [*calls, calls[0]], ahead=2, sleeps=False).lost())
                self.assertIsNone(world(2, calls, ahead=2).lost())
                self.assertIsNone(world(2, calls[:3], ahead=2, memory=C11, sleeps=False).lost())
        for memory, sleeps in itertools.product(MEMORIES, (True, False)):
            self.assertIsNone(world(2, [("from", 0)] * (5 if memory == C11 else 9), ahead=2, memory=memory, sleeps=sleeps).lost())

    def test_three_ranks_of_which_one_is_two_calls_ahead(self):
        for calls in ([("from", 0)] * 5, [("to", 1)] * 5, [("from", 0), ("from", 0), ("to", 1), AMONG_ALL, ("from", 2)]):
            self.assertIsNone(world(3, calls, ahead=2, look_first=False, sleeps=False).lost())

    def test_gaps_between_posts_where_one_is_ahead(self):
        for gaps in itertools.product((0, 1, 2), repeat=4):
            with self.subTest(gaps=gaps):
                self.assertIsNone(world(2, [("from", 0)] * 5, gaps=(1, *gaps), ahead=2, sleeps=False).lost())


class LongPosts(unittest.TestCase):
    """Longer than a sheet, in one of two places in turn."""

    def test_two_ranks(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0)), repeat=4):
            for long in ((2,), (1, 2), (1, 3), (2, 4), (1, 2, 3, 4)):
                with self.subTest(calls=calls, long=long):
                    self.assertIsNone(world(2, calls, ahead=2, long=long, sleeps=False).lost())
                    self.assertIsNone(world(2, calls[:3], ahead=2, long=long).lost())

    def test_three_ranks(self):
        for long in ((1, 3), (1, 2, 3)):
            self.assertIsNone(world(3, [("from", 0)] * 4, ahead=2, long=long, look_first=False, sleeps=False).lost())

    def test_all_have_to_have_come_to_the_post_before(self):
        for sleeps in (True, False):
            self.assertIsNotNone(world(2, [("from", 0)] * 3, ahead=2, long=(1, 3), long_gate=False, sleeps=sleeps).lost())


class Long(unittest.TestCase):
    """With --long."""

    def test_three_ranks_that_sleep_and_look_first(self):
        self.assertIsNone(world(3, 8).lost(most=50_000_000))

    def test_three_ranks_that_sleep(self):
        self.assertIsNone(world(3, 6, look_first=False).lost())

    def test_all_of_three_ranks_give_up(self):
        for in_place in (False, True):
            self.assertIsNone(places(3, C11, gives_up=(0, 1, 2), in_place=in_place).lost())

    def test_three_ranks_and_one_with_something_for_all(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0), ("to", 1)), repeat=4):
            with self.subTest(calls=calls):
                self.assertIsNone(world(3, calls, look_first=False).lost(most=50_000_000))

    def test_any_gaps_between_five_posts_of_two_ranks(self):
        for gaps in itertools.product(range(5), repeat=4):
            with self.subTest(gaps=gaps):
                self.assertIsNone(world(2, 5, gaps=(1, *gaps), wraps_at=4).lost())

    def test_any_gaps_between_five_posts_of_three_ranks_that_sleep(self):
        for gaps in itertools.product((0, 1, 2), repeat=4):
            with self.subTest(gaps=gaps):
                self.assertIsNone(world(3, 5, gaps=(1, *gaps), look_first=False).lost())

    def test_any_four_calls_of_two_ranks_in_c11(self):
        for calls in itertools.product((AMONG_ALL, ("from", 0), ("from", 1)), repeat=4):
            for gaps in ((1, 1, 1, 1), (1, 0, 0, 0), (1, 2, 2, 2)):
                with self.subTest(calls=calls, gaps=gaps):
                    self.assertIsNone(world(2, calls, gaps=gaps, memory=C11).lost())

    def test_any_gaps_between_five_posts_of_two_ranks_in_c11(self):
        for gaps in itertools.product(range(3), repeat=4):
            with self.subTest(gaps=gaps):
                self.assertIsNone(world(2, 5, gaps=(1, *gaps), memory=C11).lost())

    def test_three_ranks_that_sleep_and_look_first_in_c11(self):
        for call in (AMONG_ALL, ("from", 0), ("to", 1)):
            self.assertIsNone(world(3, [call], memory=C11).lost())


if __name__ == "__main__":
    main("Boards", "Numbers", "RootedCalls", "LongPosts", "Places")
