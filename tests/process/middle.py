"""Somebody in the middle of every TCP connection of a network namespace, who may do with it what a test wants.

The rules of nft lead whatever is opened in the namespace to him; he connects to where it was meant to go. He tells
connections apart by the handshake's first message, which he holds back until he has it whole.
"""
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading

from peer import CLIENT_BYTES, RANK_AT
from world import PLACES

MARK, ORIGINAL_DESTINATION, SO_MARK, PORT = 7, 80, 36, 999
RULES = f"""table ip middle {{
    chain out {{
        type nat hook output priority -100; policy accept;
        meta mark {MARK} return
        tcp dport 1024-65535 redirect to :{PORT}
    }}
}}"""
CALLER, CALLED = 0, 1


def into_own_namespace():
    """Begin again in a namespace of this program's own, or say why that is not possible."""
    if os.environ.pop("DDL_TEST_MIDDLE", None):
        for command in (["ip", "link", "set", "lo", "up"], ["nft", "-f", "-"]):
            subprocess.run(command, input=RULES, text=True, check=True, capture_output=True, timeout=30)
        return None
    enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
    environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    try:
        subprocess.run([*enter, "nft", "-f", "-"], input=RULES, text=True, check=True, capture_output=True,
                       timeout=30, env=environment)
    except subprocess.CalledProcessError as refused:
        return refused.stderr.strip()
    except OSError as refused:
        return str(refused)
    environment["DDL_TEST_MIDDLE"] = "1"
    PLACES.cleanup()  # who begins again makes his own
    os.execvpe(enter[0], [*enter, sys.executable, *sys.argv], environment)


class Connection:
    """One that goes through here. said: all that each end has sent so far, as it was sent."""

    def __init__(self, number, caller, called):
        self.number = number
        self.ends = [caller, called]
        self.said = [b"", b""]

    @property
    def channel(self):
        return self.said[CALLER][10]

    @property
    def rank(self):
        return struct.unpack("<i", self.said[CALLER][RANK_AT:RANK_AT + 4])[0]


class Middle:
    """change(connection, sender, data) gives what is passed on instead: the bytes, or None to cut the connection."""

    def __init__(self, change=None):
        self.change = change or (lambda connection, sender, data: data)
        self.connections = []
        self.threads = []
        self.closing = False
        self.listener = socket.create_server(("127.0.0.1", PORT), backlog=1024)
        self.acceptor = threading.Thread(target=self._accept, daemon=True)
        self.acceptor.start()

    def _accept(self):
        while not self.closing:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(caller,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _carry(self, caller):
        port, host = struct.unpack("!2xH4s", caller.getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)[:8])
        with caller, socket.socket() as called:
            called.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
            for end in (caller, called):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                called.connect((socket.inet_ntoa(host), port))
                self._pass_on(Connection(len(self.connections), caller, called))
            except OSError:  # whoever is not there, or has gone, is not for us to tell
                pass

    def _pass_on(self, connection):
        self.connections.append(connection)
        held = b""
        with selectors.DefaultSelector() as selector:
            for sender, end in enumerate(connection.ends):
                selector.register(end, selectors.EVENT_READ, sender)
            while selector.get_map():
                for key, _ in selector.select():
                    sender = key.data
                    data = key.fileobj.recv(65536)
                    if not data:
                        selector.unregister(key.fileobj)
                        connection.ends[1 - sender].shutdown(socket.SHUT_WR)
                        continue
                    connection.said[sender] += data
                    if sender == CALLER and len(connection.said[CALLER]) <= CLIENT_BYTES:
                        held += data
                        if len(held) < CLIENT_BYTES:
                            continue
                        data, held = held, b""
                    data = self.change(connection, sender, data)
                    if data is None:
                        return
                    if data:
                        connection.ends[1 - sender].sendall(data)

    def close(self):
        self.closing = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.acceptor.join()
        for connection in self.connections:
            for end in connection.ends:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        for thread in self.threads:
            thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
