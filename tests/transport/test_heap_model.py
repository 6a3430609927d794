"""Explores every interleaving of ranks that move messages past their lanes, out of heaps and into them, and give some up.

    test_heap_model.py EXPLORE [TESTS]

Ranks run the states of mesh_match.c and mesh_pages.c. Who sends from a heap offers the place; the receiver copies from
there, says that it has taken it, and is done when the sender has said the rest. Who receives into a heap tells the place;
the sender puts the message there and says the rest. Where a message is to be answered into the place that it was sent
from, or to a place that has been told by then, who takes it writes the answer there at once, and has nothing to put
later. What is in no heap, or was withdrawn, goes through the lane. At any
point a rank may give up: it says so, withdraws what it had offered or told, and goes on with its buffers.

A mistake is a state in which

- a message is done, and something else lies where it belongs;
- a rank finds in a buffer of its own anything but what it had there;
- a frame comes that cannot be, for which a rank would take the other one for broken;
- nobody can go on;
- two are at the same bytes without an order between them.

That the search finds those is shown by leaving out what prevents them, and by making orders weaker.

A buffer is one page, and that one word: what becomes of one becomes of all. Frames go through lanes; each is one store
and one load here, with the orders of the lane's position, as test_lane_model.py has the bytes before that. To withdraw
is one step, as the system changes a mapping at once. What a late writer does to a place while it is copied is left out,
as nobody looks at that.

To the program words are plain. They are relaxed here where something is left out, so that it shows what comes of it, and
where blocks are released: the system clears pages that a late reader may be at, which then is not told the rest.
"""
import itertools
import unittest
from collections import namedtuple

from interleavings import (ACQUIRE, ANYTHING, C11, MEMORIES, PLAIN, RELAXED, RELEASE, X86, Explorer, main, orders_of,
                           weakened)

# Of frames; those that are not among them tell of no bytes.
ACCESSES = {
    "offer": (RELEASE, "transport/lane.c", "publish", "store written"),
    "taken": (RELEASE, "transport/lane.c", "publish", "store written"),
    "place": (RELEASE, "transport/lane.c", "publish", "store written"),
    "rest": (RELEASE, "transport/lane.c", "publish", "store written"),
    "bulk": (RELEASE, "transport/lane.c", "publish", "store written"),
    "hear": (ACQUIRE, "transport/lane.c", "ddl_lane_peek", "load written"),
}
ORDERS = orders_of(ACCESSES)

# Frames. END stands for all that tells that an operation is over.
OFFER, PLACE, GRANT, TAKEN, REST, BULK, END = range(1, 8)

# States of a message at one of its ends, as in mesh_link.h. Those that are due wait for nothing.
DUE = UNPOSTED, PUT_DUE, TAKE_DUE, REST_DUE, BULK_DUE = "unposted", "put due", "take due", "rest due", "bulk due"
AWAITING_GRANT, OFFERED = "awaiting grant", "offered"  # of the sender
GRANTED, PLACED, RECEIVING_REST = "granted", "placed", "receiving rest"  # of the receiver
OVER = DONE, GIVEN_UP = "done", "given up"

# What becomes of a message when a frame of it comes. Others cannot be.
HEARD = {
    (OFFER, GRANTED): TAKE_DUE,
    (OFFER, PLACED): PLACED,  # the sender is told a place, and puts it there
    (PLACE, AWAITING_GRANT): PUT_DUE,
    (PLACE, OFFERED): PUT_DUE,
    (GRANT, AWAITING_GRANT): BULK_DUE,
    (GRANT, OFFERED): OFFERED,  # the offer is answered by another frame
    (TAKEN, OFFERED): REST_DUE,
    (REST, PLACED): DONE,
    (REST, RECEIVING_REST): DONE,
    (BULK, GRANTED): DONE,
}

# source, target: buffers, of the sender and of the receiver. value: what is sent. answer: the key of the message that goes
# back to the source, and was told of with the offer. reply: that of one that goes back elsewhere, as the receiver knows.
Message = namedtuple("Message", "key sender source receiver target value answer reply", defaults=(None, None))
OWN = 63  # what programs have in their buffers otherwise


class Rules:
    """What the protocol has; a test takes something away.

    heaps: the buffers that are in one. gives_up: who may. keeps: what is withdrawn has the content that it had. has_memory:
    there is some for other pages. hides: what was withdrawn is not offered nor told again. releases: blocks, at the end.
    closes: the addresses of what was withdrawn are not used again. unasked: who takes a message knows of its answer, though
    its sender does not. heard: what else becomes of messages than in HEARD.
    """

    def __init__(self, heaps, gives_up, orders=ORDERS, words=PLAIN, withdraws=(OFFERED, PLACED), keeps=True,
                 has_memory=True, hides=True, releases=False, closes=True, copies_first=True, after_offer=OFFERED,
                 after_take=RECEIVING_REST, unasked=None, heard=()):
        self.heaps, self.gives_up, self.orders, self.words = heaps, gives_up, orders, RELAXED if releases else words
        self.withdraws, self.keeps, self.has_memory, self.hides = withdraws, keeps, has_memory, hides
        self.releases, self.closes = releases, closes
        self.copies_first, self.after_offer, self.after_take = copies_first, after_offer, after_take
        self.unasked = unasked or {}
        self.heard = {**HEARD, **dict(heard)}
        self.tells = {OFFER: orders["offer"], TAKEN: orders["taken"], PLACE: orders["place"], REST: orders["rest"],
                      BULK: orders["bulk"]}


class Rank:
    def __init__(self, me, messages, rules):
        self.me, self.rules = me, rules
        self.messages = {m.key: m for m in messages}
        self.states = {m.key: UNPOSTED for m in messages}
        self.early = {m.key: None for m in messages}  # what came before the message was posted
        self.ended = {m.key: False for m in messages}  # its peer has given it up
        self.said = {self.peer(m): 0 for m in messages}
        self.heard = {self.peer(m): 0 for m in messages}
        self.withdrawn = {self.buffer(m): False for m in messages}
        self.answered = set()  # keys of messages that are where they belong

    def __repr__(self):
        """What changes."""
        return repr((self.states, self.early, self.ended, self.said, self.heard, self.withdrawn, sorted(self.answered)))

    def sends(self, m):
        return m.sender == self.me

    def peer(self, m):
        return m.receiver if self.sends(m) else m.sender

    def buffer(self, m):
        return m.source if self.sends(m) else m.target

    # ---- memory ----

    def own(self, buffer):
        """What lies at its address. To others it is what it was at first."""
        return f"{buffer} of its own" if self.withdrawn[buffer] and self.rules.has_memory else buffer

    def is_found(self, buffer):
        return buffer in self.rules.heaps and not (self.withdrawn[buffer] and self.rules.hides)

    def write(self, buffer, value):
        yield ("store", buffer, value, self.rules.words)

    def copy(self, source, target):
        found = yield ("load", source, self.rules.words)
        yield ("store", target, found, self.rules.words)

    def look(self, buffer, value, mistake):
        if (yield ("load", buffer, self.rules.words)) != value:
            yield ("expect", ((mistake, 1),))

    def release(self, buffer):
        """Its block, and take another one, which lies where this says."""
        yield from self.write(buffer, 0)
        return f"elsewhere than {buffer}" if self.withdrawn[buffer] and self.rules.closes else buffer

    # ---- frames ----

    def say(self, m, frame):
        peer = self.peer(m)
        self.said[peer] += 1
        order = self.rules.tells.get(frame, RELAXED)
        yield ("store", f"{self.me} to {peer} {self.said[peer]}", 8 * m.key + frame, order)

    def hear(self, peer, waits):
        """The next frame, if there is one."""
        orders, name = self.rules.orders, f"{peer} to {self.me} {self.heard[peer] + 1}"
        said = yield ("until", name, ANYTHING, orders["hear"]) if waits else ("load", name, orders["hear"])
        if said != 0:
            self.heard[peer] += 1
            yield from self.take_frame(said // 8, said % 8)

    def take_frame(self, key, frame):
        m, state = self.messages[key], self.states[key]
        if state == GIVEN_UP or (state == DONE and frame == END):
            return
        if frame == END:
            self.ended[key] = True
        elif state == UNPOSTED and frame in (OFFER, PLACE, GRANT):
            self.early[key] = frame
        elif self.rules.heard.get((frame, state)) is not None:
            if frame == BULK:
                yield from self.copy(f"payload {key}", self.own(m.target))
            yield from self.enter(m, self.rules.heard[frame, state])
        else:
            yield ("expect", (("a frame that can be", 1),))

    # ---- messages ----

    def enter(self, m, state):
        self.states[m.key] = state
        if state == DONE and not self.sends(m):
            yield from self.look(self.own(m.target), m.value, "the message")

    def post_send(self, m, said):
        """said: by the receiver, before."""
        if said == PLACE:
            yield from self.enter(m, PUT_DUE)
        elif self.is_found(m.source):
            yield from self.say(m, OFFER)
            yield from self.enter(m, self.rules.after_offer)
        else:
            yield from self.enter(m, BULK_DUE if said == GRANT else AWAITING_GRANT)

    def post_receive(self, m, said):
        if self.is_found(m.target):
            yield from self.say(m, PLACE)
            yield from self.enter(m, PLACED)
        elif said == OFFER:
            yield from self.enter(m, TAKE_DUE)
        else:
            yield from self.say(m, GRANT)
            yield from self.enter(m, GRANTED)

    def move(self, m, source, target, frame, state):
        if not self.rules.copies_first:
            yield from self.say(m, frame)
        if frame != REST or m.key not in self.answered:
            yield from self.copy(source, target)
        answer = self.rules.unasked.get(m.key, m.answer)
        if frame == TAKEN and answer is not None:
            yield from self.write(source, self.messages[answer].value)
            self.answered.add(answer)
        if frame == TAKEN and m.reply is not None and self.early[m.reply] == PLACE:
            yield from self.write(self.messages[m.reply].target, self.messages[m.reply].value)
            self.answered.add(m.reply)
        if self.rules.copies_first:
            yield from self.say(m, frame)
        yield from self.enter(m, state)

    def is_due(self, m):
        return self.states[m.key] in DUE or self.ended[m.key]

    def go_on(self, m):
        state, own = self.states[m.key], self.own(self.buffer(m))
        if state == UNPOSTED and any(self.states[other.key] == GIVEN_UP for other in self.messages.values()
                                     if other.target == m.source):
            yield from self.give_up(m)  # what it is to pass on has not come
        elif state == UNPOSTED:
            said, self.early[m.key] = self.early[m.key], None
            yield from self.post_send(m, said) if self.sends(m) else self.post_receive(m, said)
        elif state == PUT_DUE:
            yield from self.move(m, own, m.target, REST, DONE)
        elif state == TAKE_DUE:
            yield from self.move(m, m.source, own, TAKEN, self.rules.after_take)
        elif state == BULK_DUE:
            yield from self.move(m, own, f"payload {m.key}", BULK, DONE)
        elif state == REST_DUE:
            yield from self.say(m, REST)
            yield from self.enter(m, DONE)
        else:
            yield from self.give_up(m)  # as the peer has

    def give_up(self, m):
        buffer, state = self.buffer(m), self.states[m.key]
        if not self.ended[m.key]:
            yield from self.say(m, END)
        if state in self.rules.withdraws and not self.withdrawn[buffer]:
            if state == OFFERED and m.answer is None and self.rules.has_memory and self.rules.keeps:
                yield from self.copy(buffer, f"{buffer} of its own")
            self.withdrawn[buffer] = True
        self.states[m.key], self.early[m.key], self.ended[m.key] = GIVEN_UP, None, True

    def do_something(self, messages):
        """For one of them."""
        waits = not any(map(self.is_due, messages))
        ways = [(self.go_on, m) for m in messages if self.is_due(m)]
        ways += [(self.give_up, m) for m in messages if self.me in self.rules.gives_up]
        ways += [(self.hear, peer, waits) for peer in sorted(set(map(self.peer, messages)))]
        way, *what = ways[(yield ("choose", len(ways)))]
        yield from way(*what)


def rank(me, turns, rules):
    """turns: messages that are under way at the same time, one such list after the other."""
    r = Rank(me, [m for turn in turns for m in turn], rules)
    buffers = list(r.withdrawn)
    for buffer in buffers:
        yield from r.write(buffer, OWN)
    received = set()
    for turn in turns:
        fresh = sorted({(m.source, m.value) for m in turn if r.sends(m) and m.source not in received})
        kept = [(m.source, m.value) for m in turn if r.sends(m) and m.answer is None and m.source not in received]
        received |= {m.target for m in turn if not r.sends(m)}
        for buffer, value in fresh:
            yield from r.write(r.own(buffer), value)
        while not_over := [m for m in turn if r.states[m.key] not in OVER]:
            yield from r.do_something(not_over)
        for buffer, value in sorted(set(kept)):
            yield from r.look(r.own(buffer), value, "what it had there")
    owned = []
    for buffer in buffers:
        owned.append((yield from r.release(buffer)) if rules.releases else r.own(buffer))
        yield from r.write(owned[-1], OWN)
    for buffer in owned:
        yield from r.look(buffer, OWN, "what it had there")


def world(ranks, heaps, memory=X86, gives_up=None, **rules):
    """ranks: the turns of each. gives_up: all, if nothing else is said."""
    rules = Rules(heaps, ranks if gives_up is None else gives_up, **rules)
    return Explorer([lambda me=me, turns=turns: rank(me, turns, rules) for me, turns in ranks.items()], memory)


def ranks_of(*turns):
    """Those that these messages are between."""
    names = sorted({name for turn in turns for m in turn for name in (m.sender, m.receiver)})
    return {name: [[m for m in turn if name in (m.sender, m.receiver)] for turn in turns] for name in names}


def sent(key, sender, receiver, value=None):
    """Buffers have names of their owner and a number, and by these messages they are the owner's first."""
    return Message(key, sender, sender.lower(), receiver, receiver.lower(), value or key)


ONE, TWO, THREE = (ranks_of(*([sent(k, "A", "B")] for k in range(1, count + 1))) for count in (1, 2, 3))
# Into the buffer that was sent from; both at the same time.
ANSWERED = ranks_of([sent(1, "A", "B")], [Message(2, "B", "b2", "A", "a", 2)])
SWAPPED = ranks_of([sent(1, "A", "B")._replace(answer=2)], [Message(2, "B", "b2", "A", "a", 2)])
REPLIED = ranks_of([sent(1, "A", "B")._replace(reply=2), Message(2, "B", "b2", "A", "a2", 2)])
EXCHANGED = ranks_of([Message(1, "A", "a", "B", "b2", 1), Message(2, "B", "b", "A", "a2", 2)])
# By way of o, out of it to both, and others of its heap with one rank each.
PASSED_ON = ranks_of([sent(1, "A", "O")], [sent(2, "O", "B", 1)])
TO_BOTH = ranks_of([sent(1, "O", "A", 1), sent(2, "O", "B", 1)])
FROM_BOTH = ranks_of([sent(1, "A", "O"), Message(2, "B", "b", "O", "o2", 2)])
IN_AND_OUT = ranks_of([sent(1, "A", "O"), Message(2, "O", "o2", "B", "b", 2)])


class Test(unittest.TestCase):
    def holds(self, ranks, heaps, memory, **rules):
        with self.subTest(heaps=heaps, memory=memory, **rules):
            self.assertIsNone(world(ranks, heaps.split(), memory, **rules).lost(most=50_000_000))

    def is_found(self, mistake, ranks, heaps, **without):
        for memory in MEMORIES:
            with self.subTest(heaps=heaps, memory=memory, **without):
                said = world(ranks, heaps.split(), memory, words=RELAXED, **without).lost()
                self.assertIn(mistake, said or "nothing is found")


class TwoRanks(Test):
    def test_a_message(self):
        for memory, heaps, gives_up in itertools.product(MEMORIES, ("", "a", "b", "a b"), ("", "A", "B", "AB")):
            self.holds(ONE, heaps, memory, gives_up=gives_up)

    def test_another_one_from_and_into_the_same_buffers(self):
        for memory, heaps in itertools.product(MEMORIES, ("a", "b", "a b")):
            self.holds(TWO, heaps, memory)
        self.holds(ANSWERED, "a b", C11)

    def test_a_message_that_is_answered_where_it_lies(self):
        for heaps in ("a", "a b2"):
            self.holds(SWAPPED, heaps, C11)

    def test_a_message_whose_answer_has_a_place_already(self):
        self.holds(REPLIED, "a a2", C11)

    def test_both_at_the_same_time(self):
        for heaps in ("a b2", "a2 b2"):
            self.holds(EXCHANGED, heaps, C11)

    def test_blocks_are_released(self):
        for memory, heaps in itertools.product(MEMORIES, ("a", "b", "a b")):
            self.holds(ONE, heaps, memory, releases=True)


class ThreeRanks(Test):
    def test_a_message_that_is_passed_on(self):
        for memory, heaps in itertools.product(MEMORIES, ("o", "a o", "o b", "a o b")):
            self.holds(PASSED_ON, heaps, memory)

    def test_two_messages_of_a_heap(self):
        self.holds(TO_BOTH, "o", C11)
        for heaps in ("o o2", "o o2 a b"):
            self.holds(FROM_BOTH, heaps, C11)
            self.holds(IN_AND_OUT, heaps, C11)


class Needed(Test):
    """What is left out is found."""

    def test_a_place_is_withdrawn(self):
        for ranks, heaps in ((ONE, "b"), (ONE, "a b"), (FROM_BOTH, "o o2"), (PASSED_ON, "o")):
            self.is_found("what it had there", ranks, heaps, withdraws=(OFFERED,))

    def test_an_offer_is_withdrawn(self):
        """Or the receiver reads what is being written. But it waits for the rest in vain then, and tells nobody."""
        for ranks, heaps in ((ONE, "a"), (TO_BOTH, "o"), (PASSED_ON, "o")):
            self.assertIn("race", world(ranks, heaps, C11, withdraws=(PLACED,)).lost())
        for memory in MEMORIES:
            self.holds(ONE, "a", memory, withdraws=(PLACED,), words=RELAXED)

    def test_an_offer_of_what_is_answered_is_withdrawn(self):
        self.is_found("what it had there", SWAPPED, "a", withdraws=(PLACED,))

    def test_a_place_is_withdrawn_to_which_an_answer_goes(self):
        self.is_found("what it had there", REPLIED, "a a2", withdraws=(OFFERED,))

    def test_nothing_is_answered_of_which_the_sender_does_not_know(self):
        self.is_found("what it had there", ANSWERED, "a", unasked={1: 2})

    def test_what_is_withdrawn_keeps_its_content(self):
        self.is_found("what it had there", ONE, "a", keeps=False)

    def test_what_was_withdrawn_is_not_offered_nor_told(self):
        for heaps in ("a", "b", "a b"):
            self.is_found("the message", TWO, heaps, hides=False)

    def test_the_rest_is_waited_for(self):
        """What was withdrawn stays as it was. But it is cleared when its block is released, and where there was no memory
        to withdraw it it is written to."""
        without = {"after_take": DONE, "heard": [((TAKEN, OFFERED), DONE)]}
        self.is_found("the message", ONE, "a", releases=True, **without)
        self.is_found("the message", ONE, "a", has_memory=False, **without)
        for memory in MEMORIES:
            self.holds(ONE, "a", memory, **without)
            self.holds(ONE, "a", memory, has_memory=False, words=RELAXED)
            self.holds(ONE, "a", memory, has_memory=False, releases=True)

    def test_without_memory_a_late_writer_writes(self):
        """As a warning says."""
        self.is_found("what it had there", ONE, "b", has_memory=False)

    def test_addresses_of_what_was_withdrawn_are_not_used_again(self):
        self.is_found("what it had there", ONE, "b", releases=True, closes=False)

    def test_what_was_offered_is_kept_until_it_was_taken(self):
        heard = [((frame, DONE), DONE) for frame in (TAKEN, GRANT)]
        self.is_found("the message", ONE, "a", after_offer=DONE, after_take=DONE, heard=heard)

    def test_the_pages_are_copied_before_that_is_told(self):
        for heaps in ("a", "b"):
            self.is_found("the message", ONE, heaps, copies_first=False)

    def test_who_told_a_place_takes_no_offer(self):
        self.is_found("expected", ONE, "a b", heard=[((OFFER, PLACED), TAKE_DUE)])

    def test_who_has_offered_takes_a_place_and_no_grant(self):
        self.is_found("can be", ONE, "a", heard=[((GRANT, OFFERED), BULK_DUE)])
        self.is_found("nobody can go on", ONE, "a b", heard=[((PLACE, OFFERED), OFFERED)])

    def test_every_frame_comes_in_every_state_that_it_may(self):
        for each in HEARD:
            said = [world(ONE, heaps.split(), heard=[(each, None)]).lost() or "" for heaps in ("", "a", "b", "a b")]
            self.assertTrue(any("can be" in one for one in said), each)

    def test_every_order_is_needed(self):
        heaps = {"offer": ["a"], "taken": ["a"], "place": ["b"], "rest": ["b"], "bulk": [""], "hear": ["", "a", "b"]}
        for what, orders in weakened(ORDERS):
            for heap in heaps[what]:
                with self.subTest(weaker=what, heap=heap):
                    self.assertIn("race", world(ONE, heap, C11, orders=orders).lost() or "nothing is found")


class Long(Test):
    """With --long."""

    def test_three_messages_of_two_ranks(self):
        for memory, heaps in itertools.product(MEMORIES, ("a", "b", "a b")):
            self.holds(THREE, heaps, memory)
            self.holds(ANSWERED, heaps, memory)

    def test_a_message_that_is_answered_where_it_lies(self):
        for memory, heaps in itertools.product(MEMORIES, ("a", "a b", "a b2", "b b2")):
            self.holds(SWAPPED, heaps, memory)
            self.holds(SWAPPED, heaps, memory, releases=True)

    def test_a_message_whose_answer_has_a_place_already(self):
        for memory, heaps in itertools.product(MEMORIES, ("a a2", "a b a2", "a a2 b2")):
            self.holds(REPLIED, heaps, memory)
            self.holds(REPLIED, heaps, memory, releases=True)

    def test_blocks_are_released(self):
        for memory, heaps in itertools.product(MEMORIES, ("a", "b", "a b")):
            self.holds(TWO, heaps, memory, releases=True)
            self.holds(PASSED_ON, f"o {heaps}", memory, releases=True)

    def test_two_messages_at_the_same_time(self):
        for memory in MEMORIES:
            for heaps in ("a b", "a b2", "a2 b2", "a a2 b b2"):
                self.holds(EXCHANGED, heaps, memory)
            for heaps in ("o", "o a", "o a b"):
                self.holds(TO_BOTH, heaps, memory)
            for heaps in ("o o2", "o o2 a b"):
                self.holds(FROM_BOTH, heaps, memory)
                self.holds(IN_AND_OUT, heaps, memory)


if __name__ == "__main__":
    main("TwoRanks", "ThreeRanks", "Needed")
