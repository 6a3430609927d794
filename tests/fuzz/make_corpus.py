#!/usr/bin/env python3
"""Writes the seeds in corpus/ from the layouts in src/protocol: whole inputs, and the same cut and spoilt."""
import pathlib
import re
import struct

HERE = pathlib.Path(__file__).parent / "corpus"
HELLO = HERE.parents[2] / "src/protocol/hello.h"
VERSION = int(re.search(r"DDL_HELLO_VERSION = (\d+)", HELLO.read_text())[1])


def write(target, name, data):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def hello():
    """The first byte: 1 client, 2 store, 4 welcome, 8 level off, 16 proofs hold."""
    magic = b"ddl\r\n\x1a\n\0"
    run = bytes([1, 2, 3]) + bytes(13)
    client = lambda channel, run, rank=2, peer=1, size=4, level=1: (
        magic + struct.pack("<HBBI", VERSION, channel, level, 7) + run + bytes([5] * 16)
        + struct.pack("<iiii", rank, peer, size, 99) + b"other".ljust(64, b"\0") + bytes([9, 8, 7, 0]))
    finish = lambda verdict=0: bytes(32) + bytes([verdict, 0, 0, 0])
    server = lambda verdict, rank=0, size=4, level=1, channel=2, host=b"other": (
        magic + struct.pack("<HBBI", VERSION, verdict, level, 7) + run + bytes([5] * 16)
        + struct.pack("<ii", rank, size) + bytes([channel]) + bytes(3)
        + struct.pack("<i", 99) + host.ljust(64, b"\0") + bytes([9, 8, 7, 0]) + bytes(32))
    write("hello", "server_mesh", b"\x14\xff" + client(2, run) + finish())
    write("hello", "server_mesh_bytewise", b"\x14\x00" + client(2, run) + finish())
    write("hello", "server_mesh_off", b"\x0c\xff" + client(2, run, level=0) + finish())
    write("hello", "server_store", b"\x16\xff" + client(1, bytes(16)) + finish())
    write("hello", "server_no_proof", b"\x04\xff" + client(2, run) + finish())
    write("hello", "server_is_turned_away", b"\x14\xff" + client(2, run) + finish(6))
    write("hello", "server_is_told_nonsense", b"\x14\xff" + client(2, run) + finish(200))
    write("hello", "server_refuses", b"\x10\x20" + client(2, run) + finish())
    write("hello", "server_other_size", b"\x14\xff" + client(2, run, size=5) + finish())
    write("hello", "server_other_run", b"\x14\xff" + client(2, bytes([8] * 16)) + finish())
    write("hello", "server_bad_rank", b"\x14\xff" + client(2, run, rank=-1) + finish())
    write("hello", "server_other_level", b"\x04\xff" + client(2, run, level=0))
    write("hello", "server_unknown_level", b"\x04\xff" + client(2, run, level=250))
    write("hello", "server_version", b"\x04\xff" + magic + struct.pack("<HH", VERSION + 1, 0))
    write("hello", "server_cut", b"\x04\xff" + client(2, run)[:70])
    write("hello", "server_http", b"\x04\xffGET / HTTP/1.1\r\n\r\n")
    write("hello", "client_welcome", b"\x11\xff" + server(0))
    write("hello", "client_welcome_off", b"\x09\xff" + server(0, level=0))
    write("hello", "client_no_proof", b"\x01\xff" + server(0))
    write("hello", "client_refused", b"\x11\x07" + server(6, size=5))
    write("hello", "client_refused_by_a_world_of_no_size", b"\x11\x07" + server(6, size=-2**31))
    write("hello", "client_refused_by_a_long_name", b"\x13\xff" + server(6, size=5, channel=1, host=b"\x1b" * 64))
    write("hello", "client_unknown_verdict", b"\x13\xff" + server(200, channel=1))
    write("hello", "client_other_rank", b"\x11\xff" + server(0, rank=3))
    write("hello", "client_other_level", b"\x01\xff" + server(0, level=0))


def member(rank, host, address, port=40000, other=b"", other_port=0, is_inner=0):
    return (struct.pack("<iiIHBB", rank, 1000 + rank, 2, port, len(host), len(address))
            + bytes([rank % 2 + 1] * 16) + struct.pack("<HBB", other_port, len(other), is_inner) + host + address
            + other)


def introductions():
    """Rank 3 takes them, of 69 on its host and one elsewhere."""
    def note(*others, count=None, magic=b"ddl\x05"):
        pairs = b"".join(struct.pack("=II", *other) for other in others)
        return magic + struct.pack("=I", len(others) if count is None else count) + pairs.ljust(480, b"\0")
    write("introductions", "of_two", b"\x02" + note((1, 1), (2, 1)))
    write("introductions", "one_without", b"\x01" + note((1, 1), (2, 0)))
    write("introductions", "of_none", b"\x00" + note())
    write("introductions", "of_all", b"\x00" + note(*((rank, 0) for rank in range(4, 64))))
    write("introductions", "of_too_many", b"\x00" + note(*((rank, 0) for rank in range(4, 64)), count=61))
    write("introductions", "too_few_descriptors", b"\x01" + note((1, 1), (2, 1)))
    write("introductions", "too_many_descriptors", b"\x03" + note((1, 1), (2, 1)))
    write("introductions", "of_the_usher", b"\x01" + note((0, 1)))
    write("introductions", "of_itself", b"\x01" + note((3, 1)))
    write("introductions", "of_another_host", b"\x01" + note((69, 1)))
    write("introductions", "beyond", b"\x01" + note((0xffffffff, 1)))
    write("introductions", "has_two", b"\x02" + note((1, 2)))
    write("introductions", "other_magic", b"\x01" + note((1, 1), magic=b"ddl\x04"))
    write("introductions", "cut", b"\x02" + note((1, 1), (2, 1))[:200])
    write("introductions", "two_at_once", b"\x00" + note((1, 0)) + note((2, 0)))


def roster():
    members = [member(r, b"node%d" % (r % 2), b"10.0.0.%d" % (r + 1)) for r in range(3)]
    run, records = bytes(range(16)), b"".join(struct.pack("<H", len(m)) + m for m in members)
    whole = lambda costs: (b"ddlR" + struct.pack("<I", 3) + run
                           + struct.pack(f"<I{len(costs)}d", len(costs), *costs) + records)
    table = whole([4000, 3000, 0.33])
    write("roster", "three_ranks", b"\x00" + table)
    write("roster", "three_ranks_own_2", b"\x04" + table)
    write("roster", "own_rank_beyond", b"\x08" + table)
    write("roster", "cut", b"\x00" + table[:-5])
    write("roster", "too_long", b"\x00" + table + b"x")
    write("roster", "huge_count", b"\x00" + table[:4] + b"\xff\xff\xff\x7f" + table[8:])
    write("roster", "no_costs", b"\x00" + whole([]))
    write("roster", "costs_at_the_limit", b"\x00" + whole([0.5] * 32))
    write("roster", "too_many_costs", b"\x00" + whole([0.5] * 33))
    write("roster", "huge_cost_count", b"\x00" + table[:24] + b"\xff\xff\xff\xff" + table[28:])
    write("roster", "cost_zero", b"\x00" + whole([4000, 0]))
    write("roster", "cost_nan", b"\x00" + whole([float("nan")]))
    write("roster", "cost_infinite", b"\x00" + whole([float("inf")]))
    write("roster", "member", b"\x01" + members[1])
    write("roster", "member_v6", b"\x01" + member(5, b"h", b"fe80::1%eth0"))
    both = dict(other=b"fd77::5", other_port=40001)
    write("roster", "member_of_two_families", b"\x01" + member(5, b"h", b"10.0.0.5", **both))
    write("roster", "member_behind_nat", b"\x01" + member(5, b"h", b"203.0.113.7", is_inner=1, **both))
    write("roster", "member_other_without_port", b"\x01" + member(5, b"h", b"10.0.0.5", other=b"fd77::5"))
    write("roster", "member_inner_of_nothing", b"\x01" + member(5, b"h", b"10.0.0.5", is_inner=1))
    write("roster", "member_cut", b"\x01" + members[1][:-1])
    write("roster", "member_port_0", b"\x01" + member(1, b"h", b"10.0.0.1", port=0))


def store_wire():
    def message(kind, key=b"", value=b"", flags=0, ident=1, zero=0):
        return struct.pack("<IIBBHI", len(key) + len(value), ident, kind, flags, len(key), zero) + key + value
    error = struct.pack("<iii", -3, 2, 104) + b"rank 2 ended"
    requests = (message(1, b"member.1", b"record") + message(2, b"roster", flags=1, ident=2) + message(3, ident=2)
                + message(4, value=error, ident=3) + message(5, value=error, ident=4)
                + message(6, b"member", struct.pack("<I", 4), ident=5))
    replies = (message(16) + message(17, value=b"value") + message(18, value=b"theirs", flags=1) + message(19)
               + message(20, value=error, ident=0) + message(21, value=error))
    write("store_wire", "requests", b"\x01\xff" + requests)
    write("store_wire", "requests_bytewise", b"\x01\x00" + requests)
    write("store_wire", "replies", b"\x00\x10" + replies)
    write("store_wire", "wrong_direction", b"\x00\xff" + requests)
    write("store_wire", "huge_value", b"\x01\xff" + struct.pack("<IIBBHI", 2**32 - 1, 1, 1, 0, 4, 0) + b"key.")
    write("store_wire", "key_beyond_body", b"\x01\xff" + struct.pack("<IIBBHI", 3, 1, 2, 0, 4, 0) + b"key.")
    write("store_wire", "flags", b"\x01\xff" + message(2, b"k", flags=3))
    write("store_wire", "cut", b"\x01\xff" + requests[:37])


def record():
    """The first byte: 1 as a file, 2 with a secret, 4 seals hold."""
    head = lambda version=VERSION, level=1: struct.pack("<II", version, level)
    body = lambda size=4: (struct.pack("<III", 7, size, 99) + bytes([1] * 16) + bytes([6] * 16)
                           + b"host".ljust(64, b"\0") + bytes([9, 8, 7, 0]))
    sealed = lambda body: struct.pack("<I", 0) + bytes(32) + body
    def file(content, magic=b"ddlF"):
        checksum = 0xcbf29ce484222325
        for byte in content:
            checksum = (checksum ^ byte) * 0x100000001b3 % 2**64
        return magic + struct.pack("<IQ", len(content), checksum) + content
    whole = head() + sealed(body())
    write("record", "meet_proved", b"\x06" + whole)
    write("record", "meet_not_proved", b"\x02" + whole)
    write("record", "meet_of_others", b"\x00" + whole)
    write("record", "meet_off", b"\x00" + head(level=0) + body())
    write("record", "meet_unknown_level", b"\x06" + head(level=77) + sealed(body()))
    write("record", "meet_version", b"\x06" + head(version=VERSION + 1) + sealed(body()))
    write("record", "meet_version_longer", b"\x06" + head(version=VERSION + 1) + sealed(body()) + b"and more")
    write("record", "meet_no_ranks", b"\x06" + head() + sealed(body(size=0)))
    write("record", "meet_cut", b"\x06" + whole[:60])
    write("record", "meet_host_without_end", b"\x06" + whole[:-68] + b"\xff" * 68)
    write("record", "file", b"\x07" + file(whole))
    write("record", "file_cut", b"\x07" + file(whole)[:-1])
    write("record", "file_of_others", b"\x07" + file(whole, magic=b"what"))
    write("record", "file_empty", b"\x07")
    write("record", "file_without_content", b"\x07" + file(b""))


def url():
    for name, text in (("plain", "127.0.0.1:6379"), ("all", "me:%2Fetc%2Fpw@h:6379/3?prefix=a%3Ab&cacert=/c&cert=/d&key=/e"),
                       ("v6", "[::1]:6379/1"), ("scope", "fe80::1%lo"), ("scope_number", "fe80::1%77"),
                       ("scope_nonsense", "fe80::1%9o"), ("v4", "10.1.2.3"), ("no_port", "host"),
                       ("bad_escape", "h%2:6379"), ("nul", "h%00:6379"), ("twice", "h:1?prefix=a&prefix=b"),
                       ("at_end", "user:@"), ("port_0", "h:0"), ("long", "h" * 300 + ":1"), ("mapped", "::ffff:1.2.3.4"),
                       ("scheme_none", "gopher://h:1"), ("file_not_whole", "file://shared/dir"), ("file_slashes", "shared//dir///"),
                       ("file_long", "d" * 520)):
        for flag in (0, 1):
            write("url", f"{name}_{flag}", bytes([flag]) + text.encode())


def environment():
    for name, lines in (("launched", ("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=::1", "MASTER_PORT=29500")),
                        ("alone", ()), ("rank_beyond", ("RANK=4", "WORLD_SIZE=4")), ("half", ("RANK=1",)),
                        ("store", ("RANK=0", "WORLD_SIZE=2", "DDL_STORE=file:///tmp/x")),
                        ("open_mpi", ("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1")),
                        ("slurm", ("SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2")), ("pmi", ("PMI_RANK=0", "PMI_SIZE=1")),
                        ("times", ("DDL_TIMEOUT=1.5min", "DDL_START_TIMEOUT=200ms")), ("endless", ("DDL_TIMEOUT=1e300h",)),
                        ("choices", ("DDL_TRANSPORT=shm", "DDL_SECURITY=off", "DDL_IFACE=eth0", "DDL_LOG=trace")),
                        ("ifaces", ("DDL_IFACE=^docker0,lo", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1")),
                        ("iface_networks", ("DDL_IFACE=ib0,eth*,^10.0.0.0/8,fd00::/8,127.0.0.1",)),
                        ("iface_malformed", ("DDL_IFACE=10.0.0.0/33,",)),
                        ("algorithms", ("DDL_ALLREDUCE=ring", "DDL_BROADCAST=binomial", "DDL_BARRIER=none")),
                        ("huge", ("WORLD_SIZE=99999999999999999999", "RANK=-1"))):
        write("environment", name, "\n".join(lines).encode())


def profile():
    write("profile", "some", b"# measured\nlocal.latency_ns = 3600\nremote.byte_ns=0.85 # fast\n\n")
    write("profile", "unknown", b"local.speed = 3\n")
    write("profile", "twice", b"reduce_ns = 1\nreduce_ns = 2\n")
    write("profile", "zero", b"reduce_ns = 0.000\n")
    write("profile", "huge", b"reduce_ns = 1" + b"0" * 400)
    write("profile", "no_value", b"reduce_ns =")
    write("profile", "nul", b"reduce_ns = 1\0\n\0 = \0")


hello()
introductions()
roster()
store_wire()
record()
url()
environment()
profile()
