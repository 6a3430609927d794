#!/usr/bin/env python3
"""Every process contributes some numbers, and every process gets their sums: allreduce.c by way of ctypes.

    ddl-launch -np 4 python3 allreduce.py
"""
import array
import ctypes
import random

FLOAT64, SUM = 11, 0  # of ddl_dtype and ddl_op


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("rank", ctypes.c_int), ("culprit", ctypes.c_int), ("sequence", ctypes.c_uint64),
                ("operation", ctypes.c_char * 32), ("os_errno", ctypes.c_int), ("text", ctypes.c_char * 512)]


def load():
    """The library, with the types of what is called here: without them ctypes takes pointers for ints, and cuts them off."""
    ddl = ctypes.CDLL("libddl.so.0")
    comm = ctypes.c_void_p
    ddl.ddl_last_error.restype = ctypes.POINTER(Error)
    ddl.ddl_init.argtypes = [ctypes.POINTER(comm), ctypes.c_void_p]
    ddl.ddl_comm_free.argtypes = [ctypes.POINTER(comm)]
    ddl.ddl_rank.argtypes = ddl.ddl_size.argtypes = [comm]
    ddl.ddl_allreduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, comm,
                                  ctypes.c_void_p]
    return ddl


def main():
    ddl = load()

    def must(status):
        if status != 0:
            raise SystemExit(ddl.ddl_last_error().contents.text.decode())

    world = ctypes.c_void_p()
    must(ddl.ddl_init(ctypes.byref(world), None))

    # This process measures a thousand times something that is 20, more or less.
    measured = [20 + random.Random(1000 * ddl.ddl_rank(world) + i).random() - 0.5 for i in range(1000)]
    sums = array.array("d", [len(measured), sum(measured), sum(x * x for x in measured)])
    where, count = sums.buffer_info()

    must(ddl.ddl_allreduce(where, where, count, FLOAT64, SUM, world, None))

    mean = sums[1] / sums[0]
    spread = (sums[2] / sums[0] - mean * mean) ** 0.5
    if ddl.ddl_rank(world) == 0:
        size = ddl.ddl_size(world)
        print(f"{size} process{'' if size == 1 else 'es'} measured {sums[0]:.0f} times: {mean:.4f}, spread {spread:.4f}")
    must(ddl.ddl_comm_free(ctypes.byref(world)))


if __name__ == "__main__":
    main()
