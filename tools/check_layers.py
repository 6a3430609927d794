#!/usr/bin/env python3
"""Holds the sources to the layers: who may include whom, where a library is used, what linkage is called.

    check_layers.py [--build DIR]    the repository that this file is in; DIR: also the symbols in its libraries
    check_layers.py --self-test      that each rule catches what it is for

Prints a line for each violation and ends with status 1 if there is any.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

# ---- the law ----

# Folder of src/: folders, or single headers, that it may include beside its own.
LAYERS = {
    "base": set(),
    "schedule": {"base"},
    "algorithms": {"schedule", "base"},
    "protocol": {"base"},
    "executor": {"schedule", "base"},
    "simulate": {"executor", "algorithms", "protocol", "schedule", "base"},
    "io": {"protocol", "base"},
    "rendezvous": {"io", "protocol", "base"},
    "transport": {"io", "protocol", "base", "executor/transport.h"},
    "compute": {"io", "base", "executor/compute.h"},
    "backend": {"executor", "algorithms", "schedule", "base"},
    "cuda": {"backend/device.h", "backend/offload.h", "base"},
    "api": {"base", "schedule", "algorithms", "protocol", "executor", "io", "rendezvous", "transport", "compute",
            "backend"}, # cuda is loaded at run time
}

# Programs see what users see, and what is named here.
PROGRAMS = {
    "tools/sim": {"base", "schedule", "algorithms", "protocol", "executor", "simulate"},
    "tools/launch": {"base", "protocol", "io", "rendezvous", "api/config.h", "api/membership.h"},
    "tools/bench": set(),
    "examples": set(),
}

# Headers of libraries: where alone they may be included (paths under src/; a folder ends with a slash).
LIBRARIES = [
    (re.compile(r"uv\.h$|uv/"), ["io/"]),
    (re.compile(r"hiredis/|hiredis\.h$"), ["rendezvous/store_redis_reply.c"]),
    (re.compile(r"openssl/"), ["io/crypto.c", "io/tls.c", "io/tls_certificate.c", "io/tls_certificate.h",
                             "io/tls_aes.c", "io/tls_aes.h", "io/tls_explain.c", "io/tls_group.c", "io/tls_key.c", "io/tls_key.h",
                             "io/tls_pipe.c", "io/tls_pipe.h", "io/tls_reason.c", "io/tls_socket.c", "io/tls_use.c"]),
    (re.compile(r"intel-ipsec-mb\.h$"), ["io/tls_aes.c"]),
    (re.compile(r"cuda|nccl"), ["cuda/"]),
]

# What io/engine.h and io/service.h bring with them of libuv, and the folders that may use it: transport has handles of
# its own on the loop of the engine, for others io/watch.h wraps what they need.
LIBUV_WORDS = re.compile(r"\b(?:uv|UV)_\w+")
LIBUV_PLACES = ("io/", "transport/")

# Folders that compute and never touch a socket, a thread or a clock.
PURE = {"schedule", "algorithms", "protocol", "executor", "simulate"}
IMPURE = re.compile(r"(sys/(socket|epoll|eventfd|mman|wait|time|uio|un)|netinet/.*|arpa/.*|net/.*|netdb|pthread|poll|"
                    r"threads|time|signal|unistd|fcntl|semaphore)\.h$")

IMPURE_HEADERS = {"base/thread.h"} # of our own

# What only Linux has; allowed in files named for it.
LINUX = re.compile(r"(linux/.*|asm/.*|sys/(epoll|eventfd|timerfd|signalfd|inotify|prctl|syscall|sendfile|random|"
                   r"capability|personality|vfs|sysinfo)|netpacket/.*)(\.h)?$")
LINUX_WORDS = re.compile(r"\b(?:_GNU_SOURCE|__linux__|SOCK_CLOEXEC|SOCK_NONBLOCK|accept4|pipe2|dup3|epoll_\w+|eventfd|"
                         r"MSG_ZEROCOPY|prctl|gettid|memfd_create|sched_getaffinity)\b|/(?:proc|sys)/\w+")

# The clock on the wall jumps; what it may be used for, and by what. Deadlines are of the monotonic clock.
WALL_CLOCK = re.compile(r"\bCLOCK_REALTIME\w*|\b(?:time|gettimeofday|timespec_get|uv_gettimeofday|uv_clock_gettime|sem_timedwait|"
                        r"pthread_mutex_timedlock|pthread_rwlock_timed\w+|pthread_timedjoin_np|mq_timed\w+)\s*\(")
WALL_CLOCK_PLACES = {"src/base/bell.c",               # of systems where conditions know no other; in slices there
                     "tools/launch/check_measure.c",  # how far hosts' clocks are apart
                     "tools/bench/occasion.c"}        # the date of a measurement
TIMED_WAIT = re.compile(r"\bpthread_cond_timedwait\b")  # by the clock of the condition: the wall's, if none was set
TIMED_WAIT_PLACES = {"src/base/bell.c", "src/io/engine_wait.c"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def strip_comments(text):
    """Comments out, line numbers kept; string literals stay, as paths in them matter."""
    def blank(match):
        found = match.group(0)
        return found if found[0] in "\"'" else "\n" * found.count("\n") + " "
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


class Checker:
    def __init__(self, top):
        self.top = top
        self.found = []

    def report(self, path, line, text):
        self.found.append(f"{os.path.relpath(path, self.top)}:{line}: {text}")

    def sources(self, folder):
        for directory, folders, files in os.walk(os.path.join(self.top, folder)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".c", ".h")):
                    yield os.path.join(directory, name)

    # ---- includes ----

    def check_includes(self):
        for path in self.sources("src"):
            inside = os.path.relpath(path, os.path.join(self.top, "src"))
            layer = inside.split(os.sep)[0]
            if layer not in LAYERS:
                self.report(path, 1, f"src/{layer} is no layer; the layers are {', '.join(LAYERS)}")
                continue
            self.check_file(path, inside, layer, LAYERS[layer] | {layer})
        for folder, allowed in PROGRAMS.items():
            for path in self.sources(folder):
                self.check_file(path, None, folder, allowed)

    def check_file(self, path, inside, owner, allowed):
        text = strip_comments(open(path, encoding="utf-8").read())
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(2)) + 1
            quoted, target = match.group(1) == '"', match.group(2)
            if quoted:
                self.check_own_header(path, line, target, owner, allowed)
            elif target in ("ddl/ddl.h", "ddl/cuda.h"):
                continue
            else:
                self.check_system_header(path, line, target, inside, owner)
        place = os.path.relpath(path, self.top)
        for words, places, what in ((WALL_CLOCK, WALL_CLOCK_PLACES, "goes by the clock on the wall"),
                                    (TIMED_WAIT, TIMED_WAIT_PLACES, "may be by the clock on the wall; wait for a bell")):
            for match in words.finditer(text) if owner != "examples" and place not in places else ():
                line = text.count("\n", 0, match.start()) + 1
                self.report(path, line, f"{match.group(0).rstrip(' (')} {what}")
        if inside is not None and not inside.startswith(LIBUV_PLACES):
            for match in LIBUV_WORDS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                self.report(path, line, f"{match.group(0)} is libuv's, for src/io and src/transport alone")
        if inside is not None and not inside.endswith(("_linux.c", "_linux.h")):
            for match in LINUX_WORDS.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                self.report(path, line, f"{match.group(0)} is Linux's; it belongs into a *_linux.c file")

    def check_own_header(self, path, line, target, owner, allowed):
        beside = os.path.join(os.path.dirname(path), target)
        if "/" not in target:
            if not os.path.exists(beside):
                self.report(path, line, f'"{target}" is not beside this file; name its folder')
            return
        if owner in PURE and target in IMPURE_HEADERS:
            self.report(path, line, f'{owner} is pure: no sockets, threads, files or clocks, so no "{target}"')
        folder = os.path.normpath(target).split("/")[0]
        if target not in allowed and folder not in allowed:
            shown = ", ".join(sorted(allowed - {owner})) or "nothing but the public header"
            self.report(path, line, f'{owner} may not include "{target}"; it may include {shown}')

    def check_system_header(self, path, line, target, inside, owner):
        for pattern, places in LIBRARIES:
            if pattern.match(target) and (inside is None or not inside.startswith(tuple(places))):
                if owner == "examples" and path.endswith("_gpu.c") and target == "cuda.h":
                    continue  # a program like any user's
                self.report(path, line, f"<{target}> may be included only in {', '.join('src/' + p for p in places)}")
        if owner in PURE and IMPURE.match(target):
            self.report(path, line, f"{owner} is pure: no sockets, threads, files or clocks, so no <{target}>")
        if inside is not None and LINUX.match(target) and not inside.endswith("_linux.c"):
            self.report(path, line, f"<{target}> is Linux's; it belongs into a *_linux.c file")

    # ---- files ----

    def check_pairs(self):
        for folder in ("src", "tools"):
            for path in self.sources(folder):
                if path.endswith("_linux.c") and not os.path.exists(path[:-len("_linux.c")] + "_posix.c"):
                    self.report(path, 1, "has no *_posix.c beside it for the systems that are not Linux")
        for path in self.sources("src"):
            text = strip_comments(open(path, encoding="utf-8").read())
            for match in re.finditer(r"\bDDL_API\b", text):
                self.report(path, text.count("\n", 0, match.start()) + 1, "DDL_API belongs into <ddl/ddl.h> and its extensions alone")

    # ---- symbols ----

    def symbols(self, *arguments):
        listed = subprocess.run(["nm", *arguments], check=True, capture_output=True, text=True).stdout
        for line in listed.splitlines():
            fields = line.split()
            if len(fields) == 3 and fields[1] in "TDBRCVWGS":
                yield fields[2].split("@")[0]

    def check_symbols(self, build):
        archives = sorted(f for f in os.listdir(build) if re.match(r"libddl_internal\.a$", f))
        shared = sorted(f for f in os.listdir(build) if re.match(r"libddl\.(so|dylib)$", f))
        if not archives or not shared:
            self.report(build, 1, "no libddl_internal.a and libddl.so here; build first")
            return
        for name in self.symbols("--defined-only", "-g", os.path.join(build, archives[0])):
            if not name.lstrip("_").startswith(("ddl_", "asan", "tsan", "ubsan", "odr_asan")):
                self.report(os.path.join(build, archives[0]), 0, f"{name} has linkage and does not begin with ddl_")
        header = "".join(open(os.path.join(self.top, "include/ddl", name), encoding="utf-8").read()
                         for name in ("ddl.h", "cuda.h"))
        declared = set(re.findall(r"\bDDL_API\b[^;(]*?\b(ddl_\w+)\s*\(", strip_comments(header)))
        visible = {n for n in self.symbols("-D", "--defined-only", os.path.join(build, shared[0])) if n != "DDL_0"}
        for name in sorted(declared - visible):
            self.report(os.path.join(build, shared[0]), 0, f"{name} is declared in include/ddl and not visible")
        for name in sorted(visible - declared):
            self.report(os.path.join(build, shared[0]), 0, f"{name} is visible and not declared in include/ddl")


def check(top, build=None):
    checker = Checker(top)
    checker.check_includes()
    checker.check_pairs()
    if build is not None:
        checker.check_symbols(build)
    return checker.found


# ---- the test of the test ----

VIOLATIONS = [
    # what is in which file, and a part of what must be said
    ("src/base/a.c", '#include "schedule/schedule.h"', "base may not include"),
    ("src/schedule/a.c", '#include "algorithms/catalogue.h"', "schedule may not include"),
    ("src/algorithms/a.c", '#include "executor/executor.h"', "algorithms may not include"),
    ("src/protocol/a.c", '#include "io/service.h"', "protocol may not include"),
    ("src/executor/a.c", '#include "transport/transport_mesh.h"', "executor may not include"),
    ("src/io/a.c", '#include "rendezvous/store.h"', "io may not include"),
    ("src/io/a.c", '#include "executor/transport.h"', "io may not include"),
    ("src/rendezvous/a.c", '#include "transport/transport_mesh.h"', "rendezvous may not include"),
    ("src/transport/a.c", '#include "executor/executor.h"', "transport may not include"),
    ("src/compute/a.c", '#include "executor/transport.h"', "compute may not include"),
    ("src/backend/a.c", '#include "transport/transport_mesh.h"', "backend may not include"),
    ("src/cuda/a.c", '#include "backend/plan.h"', "cuda may not include"),
    ("src/cuda/a.c", '#include "io/engine.h"', "cuda may not include"),
    ("src/api/a.c", '#include "cuda/driver.h"', "api may not include"),
    ("src/api/a.c", '#include "simulate/check.h"', "api may not include"),
    ("src/simulate/a.c", '#include "io/engine.h"', "simulate may not include"),
    ("src/base/a.c", '#include "../schedule/schedule.h"', "base may not include"),
    ("src/base/a.c", '#include "elsewhere.h"', "is not beside this file"),
    ("src/misc/a.c", "int ddl_x;", "is no layer"),
    ("tools/bench/a.c", '#include "base/error.h"', "tools/bench may not include"),
    ("examples/a.c", '#include "base/error.h"', "examples may not include"),
    ("tools/sim/a.c", '#include "io/engine.h"', "tools/sim may not include"),
    ("tools/launch/a.c", '#include "transport/transport_mesh.h"', "tools/launch may not include"),
    ("src/transport/a.c", "#include <uv.h>", "<uv.h> may be included only in"),
    ("src/api/a.c", "#  include <uv.h>", "<uv.h> may be included only in"),
    ("src/rendezvous/a.c", "#include <uv.h>", "<uv.h> may be included only in"),
    ("src/rendezvous/a.c", "static uv_poll_t poll;", "is libuv's"),
    ("src/api/a.c", "int ddl_x = UV_READABLE;", "is libuv's"),
    ("src/rendezvous/store.c", "#include <hiredis/hiredis.h>", "may be included only in"),
    ("src/rendezvous/store.c", "#include <openssl/hmac.h>", "may be included only in"),
    ("src/backend/a.c", "#include <nccl.h>", "may be included only in"),
    ("examples/a.c", "#include <cuda.h>", "<cuda.h> may be included only in"),
    ("src/executor/a.c", "#include <sys/socket.h>", "is pure"),
    ("src/protocol/a.c", "#include <pthread.h>", "is pure"),
    ("src/algorithms/a.c", "#include <time.h>", "is pure"),
    ("src/executor/a.c", '#include "base/thread.h"', "is pure"),
    ("src/io/a.c", "#include <sys/epoll.h>", "is Linux's"),
    ("src/io/a.c", "#include <linux/sockios.h>", "is Linux's"),
    ("src/io/a.c", "int ddl_x = SOCK_CLOEXEC;", "is Linux's"),
    ("src/io/a.c", '#define _GNU_SOURCE', "is Linux's"),
    ("src/io/a.c", 'const char *ddl_x = "/proc/self/fd";', "is Linux's"),
    ("src/io/a.c", "int64_t ddl_x = time(NULL);", "clock on the wall"),
    ("src/io/a.c", "int ddl_x = CLOCK_REALTIME_COARSE;", "clock on the wall"),
    ("tools/launch/a.c", "int x = gettimeofday (&now, NULL);", "clock on the wall"),
    ("src/api/a.c", "int ddl_x = pthread_cond_timedwait(&a, &b, &c);", "wait for a bell"),
    ("src/io/only_linux.c", "int ddl_x;", "no *_posix.c beside it"),
    ("src/api/a.c", "DDL_API int ddl_x(void);", "DDL_API belongs"),
]

ALLOWED = [
    ("src/api/a.c", '#include "io/engine.h"\n#include <ddl/ddl.h>'),
    ("src/transport/a.c", '#include "executor/transport.h"\n#include "io/engine.h"\nuv_poll_t ddl_x;'),
    ("src/cuda/a.c", '#include "backend/device.h"\n#include <cuda.h>'),
    ("src/compute/a.c", '#include "executor/compute.h"'),
    ("src/io/a.c", "#include <uv.h>\n/* #include <sys/epoll.h> */\n// SOCK_CLOEXEC"),
    ("src/protocol/a.c", "#include <string.h>"),
    ("src/io/a.c", "int ddl_x = CLOCK_MONOTONIC + run_time(); /* time(NULL) */"),
    ("src/base/bell.c", "int ddl_x = CLOCK_REALTIME;"),
    ("tools/launch/a.c", '#include "rendezvous/store_server.h"'),
    ("examples/a_gpu.c", "#include <cuda.h>\n#include <ddl/cuda.h>"),
]


def place(top, path, text):
    os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
    with open(os.path.join(top, path), "w", encoding="utf-8") as file:
        file.write(text + "\n")


def self_test():
    wrong = []
    for path, text, expected in VIOLATIONS:
        with tempfile.TemporaryDirectory() as top:
            place(top, path, text)
            found = check(top)
            if not any(expected in line and line.startswith(path) for line in found):
                wrong.append(f"{path} with {text!r} should be told {expected!r}, was told {found}")
    for path, text in ALLOWED:
        with tempfile.TemporaryDirectory() as top:
            place(top, path, text)
            if found := check(top):
                wrong.append(f"{path} with {text!r} is allowed, was told {found}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = self_test() if arguments.self_test else check(top, arguments.build)
    for line in found:
        print(line)
    if not found:
        print("self-test passed" if arguments.self_test else "layers hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
