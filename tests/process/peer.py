"""The handshake of docs/wire.md once more, independent of the library: what tests play ranks of other kinds with."""
import hashlib
import hmac
import os
import struct

MAGIC = b"ddl\r\n\x1a\n\0"
VERSION = 10
CLIENT_BYTES, SERVER_BYTES, FINISH_BYTES = 132, 164, 36
VERSION_BYTES = struct.pack("<H", VERSION)
STORE, MESH = 1, 2
LIBRARY = struct.pack("<I", 7 << 16 | 8 << 8 | 9)
RANK_AT = 48  # of the client's message


def mac(secret, run, *parts):
    """Under the key of a run."""
    master = hmac.new(b"ddl job secret 1", secret, hashlib.sha256).digest()
    key = hmac.new(master, b"ddl 10 auth" + run + b"\1", hashlib.sha256).digest()
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def client_hello(channel=STORE, rank=1, expected=0, size=2, version=VERSION, generator=0, run=bytes(16), level=1):
    return (MAGIC + struct.pack("<HBBI", version, channel, level, generator) + run + os.urandom(16)
            + struct.pack("<iiii", rank, expected, size, 0) + b"a peer".ljust(64, b"\0") + LIBRARY)


def server_reply(secret, hello, version=VERSION, generator=0, verdict=0, rank=0, size=2):
    """To a client's hello, by a server of its own run."""
    run = os.urandom(16)
    body = (MAGIC + struct.pack("<HBBI", version, verdict, hello[11], generator) + run + os.urandom(16)
            + struct.pack("<ii", rank, size) + bytes([hello[10]]) + bytes(3)
            + struct.pack("<i", 0) + b"a peer".ljust(64, b"\0") + LIBRARY)
    return body + mac(secret, run, b"ddl hello server", hello, body)


def finish(secret, hello, reply, verdict=0):
    end = bytes([verdict, 0, 0, 0])
    return mac(secret, reply[16:32], b"ddl hello client", hello, reply, end) + end


def generator_of(reply):
    return struct.unpack("<I", reply[12:16])[0]


def read_exactly(stream, count):
    """As many bytes, or fewer at the end of the stream."""
    data = b""
    while len(data) < count:
        try:
            more = stream.recv(count - len(data))
        except ConnectionResetError:
            break
        if not more:
            break
        data += more
    return data
