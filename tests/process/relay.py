"""Something between ranks and a server: it may be slow, lose an answer, stall, or break."""
import socket
import threading
import time

from world import free_port


def commands(data):
    """The names of the commands in what a rank says to Redis."""
    at = 0
    def number():
        nonlocal at
        end = data.index(b"\r\n", at)
        said, at = int(data[at + 1:end]), end + 2
        return said
    while at < len(data):
        words = []
        for _ in range(number()):
            size = number()
            words.append(data[at:at + size])
            at += size + 2
        yield words[0]


def answer_while_loading(name):
    """What Redis says to a command that comes in a transaction, or behind it."""
    return {b"MULTI": b"+OK\r\n", b"EXEC": b"-EXECABORT Transaction discarded because of previous errors.\r\n"}.get(
        name, b"-LOADING Redis is loading the dataset in memory\r\n")


class Relay:
    """Between ranks and a server, until it is cut: then presences end before all else. A connection over which what is
    in unanswered goes ends with that; all is cut where what is in fatal comes. To a transaction with what is in loading the
    answer is that of a server that loads its data, once. What ranks say comes so many seconds late."""

    def __init__(self, server, delay=0):
        self.delay = delay
        self.listener = None
        while self.listener is None:
            self.port = free_port()
            try:
                self.listener = socket.create_server(("127.0.0.1", self.port))
            except OSError:  # somebody was faster, as the bus of a Redis cluster, which takes a port beside its own
                continue
        self.server, self.pairs, self.presences, self.stalls = server, [], [], False
        self.unanswered = self.muted = self.fatal = self.loading = None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            pair = near, socket.create_connection(("127.0.0.1", self.server))
            self.pairs.append(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.copy, args=(pair, source, sink), daemon=True).start()

    def copy(self, pair, source, sink):
        try:
            while data := source.recv(65536):
                if source is pair[0]:
                    time.sleep(self.delay)
                if b"SUBSCRIBE" in data:
                    self.presences.append(pair)
                if self.fatal is not None and self.fatal in data:
                    self.cut_at = time.monotonic()
                    self.cut()
                    break
                if self.loading is not None and self.loading in data and b"MULTI" in data:
                    self.loading = None
                    source.sendall(b"".join(answer_while_loading(name) for name in commands(data)))
                    continue
                is_last = self.unanswered is not None and self.unanswered in data
                if is_last:
                    self.unanswered, self.muted = None, pair
                if not self.stalls and (is_last or pair is not self.muted):
                    sink.sendall(data)
                if is_last:
                    time.sleep(0.1)
                    break
        except OSError:
            pass
        self.end([pair])

    def end(self, pairs):
        for pair in pairs:
            for stream in pair:
                try:
                    stream.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended

    def stall_and_cut_late(self):
        """Nothing goes through any more; seconds later presences end, and those that are made anew are met by silence.
        Returns when it began, by the monotonic clock."""
        self.stalls = True
        begun = time.monotonic()
        time.sleep(4)
        self.end(list(self.presences))
        return begun

    def cut(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.end(self.presences)
        time.sleep(0.3)
        self.end(self.pairs)
