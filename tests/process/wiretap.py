"""A man in the middle of every TCP connection of a network namespace; started inside it, with what leads all of its
connections here.

    wiretap.py PORT

Listens at PORT of loopback, and carries each connection to where it was going. A line "flip" on standard input has it
change a bit of the next piece of at least 4 KiB; it then says "flipped".
A line "flip C N" has it change a bit of the N-th encrypted record that comes back over the C-th connection from then on,
and "count" say how many connections there have been. It says "ready" once it listens, and ends with its standard input.
"""
import os
import socket
import struct
import sys
import threading

SO_ORIGINAL_DST = 80
MARK = 1  # of its own connections, which are let through
LEAST = 4096


class Record:
    """The records of TLS in one direction of a connection, of which the N-th encrypted one is changed."""

    def __init__(self, which):
        self.which = which
        self.header = b""
        self.left = 0

    def change(self, data):
        changed = bytearray(data)
        for at in range(len(data)):
            if self.left > 0:
                self.left -= 1
                if self.left == 0 and self.header[0] == 23:
                    self.which -= 1
                    changed[at] ^= 1 if self.which == 0 else 0
                if self.left == 0:
                    self.header = b""
                continue
            self.header += data[at:at + 1]
            if len(self.header) == 5:
                self.left = int.from_bytes(self.header[3:], "big")
        return bytes(changed)


class Tap:
    def __init__(self):
        self.lock = threading.Lock()
        self.flips = self.count = 0
        self.wanted = {}  # the record to change on a connection, by their number

    def carry(self, source, sink, record=None):
        try:
            while data := source.recv(1 << 16):
                with self.lock:
                    if self.flips > 0 and len(data) >= LEAST:
                        self.flips -= 1
                        middle = len(data) // 2
                        data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
                        print("flipped", flush=True)
                sink.sendall(record.change(data) if record else data)
        except OSError:
            pass
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def handle(self, client):
        port, address = struct.unpack_from("!2xH4s", client.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
        try:
            server.connect((socket.inet_ntoa(address), port))
        except OSError:
            server.close()
            client.close()  # whoever calls will try again
            return
        with self.lock:
            self.count += 1
            which = self.wanted.get(self.count)
        back = threading.Thread(target=self.carry, args=(server, client, which and Record(which)), daemon=True)
        back.start()
        self.carry(client, server)
        back.join()
        client.close()
        server.close()


def main():
    tap = Tap()
    door = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)

    def accept():
        while True:
            client, _ = door.accept()
            threading.Thread(target=tap.handle, args=(client,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "flip\n":
            with tap.lock:
                tap.flips += 1
        elif line == "count\n":
            print(tap.count, flush=True)
        else:
            _, connection, record = line.split()
            with tap.lock:
                tap.wanted[tap.count + int(connection)] = int(record)
            print("ready", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
