"""A program whose ranks are threads (ranks.h), with its ranks on hosts: network namespaces that are joined by a bridge.

    on_hosts.py NHOSTS PROGRAM [ARGUMENT...]

Needs the right to make network namespaces; exits with 77 (skipped) where it is not given.
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "process"))
from test_hosts import Hosts, permitted  # noqa: E402  (beside the other tests of processes)
from world import SKIPPED  # noqa: E402


def main():
    reason = permitted()
    if reason is not None:
        print(f"skipped: no network namespaces here: {reason}")
        return SKIPPED
    with Hosts(int(sys.argv[1])) as hosts:
        places = " ".join(f"/run/netns/{name}" for name in hosts.names)
        return subprocess.run(sys.argv[2:], env={**os.environ, "DDL_TEST_HOSTS": places, "DDL_IFACE": "wire"}).returncode


if __name__ == "__main__":
    sys.exit(main())
