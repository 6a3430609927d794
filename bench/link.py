"""Two hosts on one link: network namespaces, 10.78.0.1 and .2, joined by a veth whose ends send no faster than a rate.

Each connection may have a rate of its own besides.
"""
import os
import subprocess

ADDRESSES = "10.78.0.1", "10.78.0.2"
CALLERS = range(40000, 40048)  # ports from which the second host calls the first
FLOW_BUFFER = "512kb"


def run(*command):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)


class Link:
    made = 0

    def __init__(self, megabit_per_s, flow_megabit_per_s=None):
        Link.made += 1
        self.megabit_per_s = megabit_per_s
        self.flow_megabit_per_s = flow_megabit_per_s
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
                if self.flow_megabit_per_s is None:
                    run("tc", "-n", name, "qdisc", "add", "dev", "wire", "root", "tbf", "rate", f"{self.megabit_per_s}mbit",
                        "burst", "256kb", "latency", "50ms")
                else:
                    self.shape_flows(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def shape_flows(self, name):
        """A class for each connection, told by its caller's port."""
        run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={CALLERS[0]} {CALLERS[-1]}")
        end = "dport" if name == self.names[0] else "sport"
        flow = f"rate 1mbit ceil {self.flow_megabit_per_s}mbit quantum 60000"
        lines = ["qdisc add dev wire root handle 1: htb default 1",
                 f"class add dev wire parent 1: classid 1:fff htb rate {self.megabit_per_s}mbit quantum 60000",
                 f"class add dev wire parent 1:fff classid 1:1 htb {flow}"]
        for number, port in enumerate(CALLERS, 0x10):
            lines += [f"class add dev wire parent 1:fff classid 1:{number:x} htb {flow}",
                      f"qdisc add dev wire parent 1:{number:x} bfifo limit {FLOW_BUFFER}",
                      f"filter add dev wire parent 1: protocol ip u32 match ip {end} {port} 0xffff flowid 1:{number:x}"]
        subprocess.run(["tc", "-n", name, "-b", "-"], input="\n".join(lines) + "\n", check=True, capture_output=True, text=True,
                       timeout=30)

    def __exit__(self, *exc):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)

    def on(self, host):
        """What to put before a command to run it on this host."""
        return ["ip", "netns", "exec", self.names[host]]


def refused(flow_megabit_per_s=None):
    """Why there can be no such link here; None if there can."""
    try:
        with Link(1000, flow_megabit_per_s):
            return None
    except subprocess.CalledProcessError as error:
        return error.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
