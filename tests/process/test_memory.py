"""A rank in a world of 64 never has more than 8 MiB of resident memory, from its start until after an operation.

    test_memory.py ACTOR
"""
import os
import sys
import unittest

from world import World, end_well

ACTOR = None
LIMIT_KIB = 8 * 1024


class Memory(unittest.TestCase):
    @unittest.skipUnless(sys.platform == "linux", "needs /proc")
    def test_a_rank_among_64_is_small(self):
        with World(ACTOR, 64) as world:
            # The operation makes every rank talk before it idles.
            ranks = world.start_all("init", "allreduce:1000:float32:sum", "line", "free")
            peaks = []
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                rank.expect("ready")
                with open(f"/proc/{rank.pid}/status", encoding="ascii") as file:
                    peaks += [int(line.split()[1]) for line in file if line.startswith("VmHWM:")]
            for rank in ranks:
                rank.go()
            end_well(ranks, "free")
        if len(peaks) < len(ranks):
            self.skipTest("this system does not tell what was resident")
        print(f"resident at most: {min(peaks)} to {max(peaks)} KiB")
        self.assertLessEqual(max(peaks), LIMIT_KIB)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ACTOR = sys.argv.pop(1)
    os.environ.pop("MALLOC_PERTURB_", None)  # meson's: it writes to what nobody uses
    unittest.main()
