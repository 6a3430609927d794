"""Two hosts on one link: network namespaces, 10.78.0.1 and .2, joined by a veth whose ends send no faster than a rate."""
import os
import subprocess

ADDRESSES = "10.78.0.1", "10.78.0.2"


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)


class Link:
    made = 0

    def __init__(self, megabit_per_s):
        Link.made += 1
        self.megabit_per_s = megabit_per_s
        self.names = [f"ddl-{os.getpid()}-link{Link.made}-{i}" for i in range(2)]

    def __enter__(self):
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", self.names[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns",
                self.names[1])
            for name, address in zip(self.names, ADDRESSES):
                run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "wire")
                run("ip", "-n", name, "link", "set", "wire", "up")
                run("tc", "-n", name, "qdisc", "add", "dev", "wire", "root", "tbf", "rate", f"{self.megabit_per_s}mbit",
                    "burst", "256kb", "latency", "50ms")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)

    def on(self, host):
        """What to put before a command to run it on this host."""
        return ["ip", "netns", "exec", self.names[host]]


def refused():
    """Why there can be no such link here; None if there can."""
    try:
        with Link(1000):
            return None
    except subprocess.CalledProcessError as error:
        return error.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
