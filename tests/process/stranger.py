"""A process of another user on the same host, which root starts: what it gets of an abstract Unix socket.

    stranger.py USER call NAME MESSAGE     say that, with two descriptors, and tell what the answer is
    stranger.py USER hold NAME             listen there, and tell of each caller what it said

Name and message are in hex; what it has to tell is a line of JSON each, as an actor's.
"""
import json
import os
import socket
import sys


def tell(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


def hear(stream):
    """What comes first; nothing if the other end has closed."""
    try:
        data, descriptors, _, _ = socket.recv_fds(stream, 4096, 16)
    except ConnectionResetError:
        data, descriptors = b"", []
    tell("heard", bytes=len(data), descriptors=len(descriptors))


user, what, name = int(sys.argv[1]), sys.argv[2], b"\0" + bytes.fromhex(sys.argv[3])
if user != os.getuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
stream = socket.socket(socket.AF_UNIX)
if what == "hold":
    stream.bind(name)
    stream.listen()
    tell("holds")
    while True:
        hear(stream.accept()[0])
stream.connect(name)
try:
    socket.send_fds(stream, [bytes.fromhex(sys.argv[4])], [0, 1])
except OSError:
    pass  # it has closed already
tell("called")
hear(stream)
