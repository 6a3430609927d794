#!/usr/bin/env python3
"""The driver of torch.distributed with its backend gloo, over TCP on the loopback.

    torch_gloo.py LIBRARY COLLECTIVE SECONDS LIMIT_S BYTES...

LIBRARY is python.c with driver.c as a shared object: the checks and the timing loop are those of all drivers, and
call back here for each operation. RANK and WORLD_SIZE are the launcher's; BENCH_STORE is an empty directory in which
the ranks meet. torch reduces in place only, so an allreduce or a reduce out of place is a copy and one in place.
"""
import ctypes
import datetime
import functools
import os
import sys
import traceback

import torch
import torch.distributed as dist

COLLECTIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
JOIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
LEAVE = ctypes.CFUNCTYPE(None)


class Library(ctypes.Structure):
    """struct library of driver.h."""
    _fields_ = [("name", ctypes.c_char_p), ("join", JOIN), ("leave", LEAVE), ("allreduce", COLLECTIVE),
                ("allgather", COLLECTIVE), ("reduce_scatter", COLLECTIVE), ("alltoall", COLLECTIVE),
                ("broadcast", COLLECTIVE), ("barrier", COLLECTIVE), ("reduce", COLLECTIVE), ("gather", COLLECTIVE),
                ("scatter", COLLECTIVE), ("allocate", ctypes.c_void_p),
                ("release", ctypes.c_void_p)]


def or_end(function):
    """ctypes would print what is raised, and go on."""
    @functools.wraps(function)
    def call(*arguments):
        try:
            function(*arguments)
        except BaseException:  # pylint: disable=broad-exception-caught
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(2)
    return call


@functools.lru_cache(maxsize=64)
def tensor(address, count):
    """The floats there. What is made of an address lives as long as the driver's buffer, or is not used again."""
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


def join(_argc, _argv, rank, nranks):
    rank[0], nranks[0] = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['BENCH_STORE']}/ranks", rank=rank[0],
                            world_size=nranks[0], timeout=datetime.timedelta(hours=1))  # the driver has its own limit


def leave():
    dist.barrier()
    dist.destroy_process_group()


def allreduce(source, target, count):
    out = tensor(target, count)
    if source != target:
        out.copy_(tensor(source, count))
    dist.all_reduce(out)


def allgather(source, target, count):
    dist.all_gather_into_tensor(tensor(target, count * dist.get_world_size()), tensor(source, count))


def reduce_scatter(source, target, count):
    dist.reduce_scatter_tensor(tensor(target, count), tensor(source, count * dist.get_world_size()))


def alltoall(source, target, count):
    total = count * dist.get_world_size()
    dist.all_to_all_single(tensor(target, total), tensor(source, total))


def broadcast(_source, target, count):
    dist.broadcast(tensor(target, count), 0)


def reduce(source, target, count):
    out = tensor(target, count)
    out.copy_(tensor(source, count))
    dist.reduce(out, 0)


def blocks(address, count):
    return list(tensor(address, count * dist.get_world_size()).chunk(dist.get_world_size()))


def gather(source, target, count):
    dist.gather(tensor(source, count), blocks(target, count) if dist.get_rank() == 0 else None, 0)


def scatter(source, target, count):
    dist.scatter(tensor(target, count), blocks(source, count) if dist.get_rank() == 0 else None, 0)


def barrier(_source, _target, _count):
    dist.barrier()


def main():
    torch.set_num_threads(1)
    calls = [COLLECTIVE(or_end(call)) for call in (allreduce, allgather, reduce_scatter, alltoall, broadcast, barrier,
                                                reduce, gather, scatter)]
    library = Library(f"torch.distributed {torch.__version__} (Gloo)".encode(), JOIN(or_end(join)), LEAVE(or_end(leave)), *calls)
    driver = ctypes.CDLL(sys.argv[1])
    driver.use_library(ctypes.byref(library))
    words = [word.encode() for word in (sys.argv[0], *sys.argv[2:])]
    return driver.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))


if __name__ == "__main__":
    sys.exit(main())
