"""An idle rank in a world of 32 stays under 16 MiB of resident memory.

    test_memory.py ACTOR
"""
import sys
import unittest

from world import World

ACTOR = None
LIMIT_KIB = 16 * 1024


class Memory(unittest.TestCase):
    def test_an_idle_rank_among_32_is_small(self):
        with World(ACTOR, 32) as world:
            # The operation makes every rank talk before it idles.
            ranks = world.start_all("init", "allreduce:1000:float32:sum", "resources", "line", "free")
            sizes = []
            for rank in ranks:
                rank.expect("init", "DDL_OK")
                rank.expect("call", "DDL_OK")
                sizes.append(rank.expect("resources")["rss_kib"])
                rank.expect("ready")
            for rank in ranks:
                rank.go()
            for rank in ranks:
                rank.expect("free", "DDL_OK")
                rank.finish(0)
        if -1 in sizes:
            self.skipTest("this system does not tell what is resident")
        print(f"resident: {min(sizes)} to {max(sizes)} KiB")
        self.assertLess(max(sizes), LIMIT_KIB)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ACTOR = sys.argv.pop(1)
    unittest.main()
