"""What becomes of the ranks' output on its way to the launcher's."""
import hashlib
import os
import re
import resource
import select
import signal
import subprocess
import time
import unittest

import harness
from harness import LaunchTest, linux_only

LONGEST = 1 << 20
FLOOD_BYTES = int(os.environ.get("DDL_TEST_FLOOD_MIB", "64" if harness.SLOW == 1 else "16")) << 20

# Writes FLOOD_BYTES / 8 bytes of lines of all lengths, the same for the same rank, in writes that cut lines.
FLOOD = """
import os, random, sys
rank, total = int(os.environ['RANK']), %d // 8
r = random.Random(rank)
block = b''.join(bytes([97 + rank]) * r.choice((0, 1, 7, 63, 200, 1000, 5000)) + b'\\n' for _ in range(3000))
left = total
while left > 0:
    n = min(left, len(block), r.randint(1, 200000))
    os.write(1, block[:n]); block = block[n:] + block[:n]; left -= n
""" % FLOOD_BYTES


def flood_lines(rank):
    """The number of bytes and lines that FLOOD writes as this rank, and the digest of the lines."""
    import random
    r = random.Random(rank)
    block = b"".join(bytes([97 + rank]) * r.choice((0, 1, 7, 63, 200, 1000, 5000)) + b"\n" for _ in range(3000))
    digest, left, ends = hashlib.md5(), FLOOD_BYTES // 8, b"\n"
    while left > 0:
        n = min(left, len(block), r.randint(1, 200000))
        digest.update(block[:n])
        ends = block[n - 1:n]
        block, left = block[n:] + block[:n], left - n
    if ends != b"\n":
        digest.update(b"\n")  # the launcher completes the last line
    return digest.hexdigest()


class Output(LaunchTest):
    def test_each_line_carries_its_rank_aligned(self):
        result = self.launch("-n", "11", *self.shell("echo a; echo; echo b"))
        self.assertEqual(sorted(result.out.decode().splitlines()),
                         sorted("[%2d] %s" % (rank, text) for rank in range(11) for text in ("a", "", "b")))

    def test_ranks_of_several_nodes_are_aligned_alike(self):
        result = self.launch("--nnodes", "100", "--node_rank", "3", "--master_addr", "x", *self.shell("echo a"))
        self.assertEqual(result.out, b"[ 3] a\n")

    def test_stdout_and_stderr_stay_apart(self):
        result = self.launch("-n", "2", *self.shell("echo out; echo err >&2"))
        self.assertEqual(result.lines, ["[0] out", "[1] out"])
        self.assertEqual(sorted(result.err.decode().splitlines()), ["[0] err", "[1] err"])

    def test_lines_of_both_streams_are_whole_when_they_go_to_one_place(self):
        script = ("import os\n"
                  "for i in range(4000):\n"
                  "    os.write(1 + i % 2, (b'%d' % (i % 2)) * 300 + b'\\n')\n")
        result = self.launch("-n", "4", *self.python(script), stderr=subprocess.STDOUT)
        self.assertEqual(result.code, 0)
        seen = {}
        for line in result.out.splitlines():
            found = re.fullmatch(rb"\[(\d)\] (0{300}|1{300})", line)
            self.assertIsNotNone(found, line[:80])
            seen[found[1]] = seen.get(found[1], 0) + 1
        self.assertEqual(seen, {b"%d" % rank: 4000 for rank in range(4)})

    def test_a_line_that_is_written_bit_by_bit_comes_out_whole(self):
        script = ("import os\n"
                  "for c in b'one line of rank ' + os.environ['RANK'].encode() + b'\\n':\n"
                  "    os.write(1, bytes([c]))\n")
        result = self.launch("-n", "8", *self.python(script))
        self.assertEqual(result.lines, ["[%d] one line of rank %d" % (r, r) for r in range(8)])

    def test_a_last_line_without_end_is_completed(self):
        for flags, expected in (([], "[%d] x"), (["--no-prefix"], "x")):
            result = self.launch("-n", "2", *flags, *self.shell("printf x"))
            self.assertEqual(result.lines, sorted(expected % r if "%" in expected else expected for r in range(2)))

    def test_a_rank_killed_in_the_middle_of_a_line_loses_nothing(self):
        result = self.launch("-n", "2", *self.shell('printf "whole\\npart of $RANK"; [ $RANK = 0 ] && kill -9 $$; exit 0'))
        self.assertEqual(result.code, 137)
        self.assertEqual(result.lines, ["[0] part of 0", "[0] whole", "[1] part of 1", "[1] whole"])

    def test_without_prefix_one_rank_is_passed_on_byte_for_byte(self):
        data = os.urandom(3 << 20) + b"no line end"
        with open(self.path("data"), "wb") as file:
            file.write(data)
        result = self.launch("--no-prefix", *self.shell('cat "$DIR/data"; cat "$DIR/data" >&2'))
        self.assertEqual(result.out == data, True)
        self.assertEqual(result.err == data, True)

    def test_without_prefix_a_prompt_comes_at_once(self):
        process = self.start("--no-prefix", *self.shell("printf 'name? '; read x; echo hello $x"), stdin=subprocess.PIPE)
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"name? ")
        result = self.finish(process, b"you\n")
        self.assertEqual(result.out, b"hello you\n")

    def test_lines_come_while_the_job_runs(self):
        process = self.start("-n", "2", *self.shell("echo ready; read x"), stdin=subprocess.PIPE)
        self.assertEqual({process.stdout.readline() for _ in range(2)}, {b"[0] ready\n", b"[1] ready\n"})
        self.assertEqual(self.finish(process, b"go\n").code, 1)  # rank 1 has nothing to read

    def test_binary_output_survives(self):
        data = bytes(range(256)) * 5000 + b"\n"
        with open(self.path("data"), "wb") as file:
            file.write(data)
        result = self.launch("-n", "2", "--log-dir", self.path("logs"), *self.shell('cat "$DIR/data"'))
        for rank in range(2):
            mark = b"[%d] " % rank
            got = b"".join(line[4:] + b"\n" for line in result.out.split(b"\n") if line.startswith(mark))
            self.assertEqual(got == data, True)
            self.assertEqual(self.read("logs/rank_%d/stdout" % rank) == data, True)

    def test_long_lines_are_split_only_above_1_mib(self):
        cases = [  # bytes before the line end, and of the pieces that come out
            (LONGEST - 1, [LONGEST - 1]),
            (LONGEST, [LONGEST]),
            (LONGEST + 1, [LONGEST, 1]),
            (2 * LONGEST, [LONGEST, LONGEST]),
            (3 * LONGEST + 5, [LONGEST, LONGEST, LONGEST, 5]),
        ]
        for end in ("\\n", ""):
            for length, pieces in cases:
                with self.subTest(length=length, end=end):
                    script = "import sys; sys.stdout.write('x' * %d + '%s' + 'next\\n')" % (length, end)
                    expected = list(pieces)
                    if end == "" and pieces[-1] <= LONGEST - 4:
                        expected[-1] += 4  # "next" belongs to the line
                        after = []
                    elif end == "":
                        expected[-1] = LONGEST
                        after = [length + 4 - sum(expected)]
                    else:
                        after = [4]
                    result = self.launch("-n", "2", "--no-prefix", *self.python(script))
                    got = sorted(len(line) for line in result.out.split(b"\n")[:-1])
                    self.assertEqual(got, sorted(2 * (expected + after)))

    def test_log_files_hold_what_each_rank_wrote(self):
        directory = self.path("a/b/logs")
        for repeat in range(2):  # the second run replaces the first
            self.launch("--nnodes", "2", "--node_rank", "1", "--master_addr", "x", "-n", "2", "--log-dir", directory,
                        *self.shell("echo run %d of $RANK; printf err >&2" % repeat))
        for rank in (2, 3):
            self.assertEqual(self.read("a/b/logs/rank_%d/stdout" % rank), b"run 1 of %d\n" % rank)
            self.assertEqual(self.read("a/b/logs/rank_%d/stderr" % rank), b"err")
        self.assertEqual(sorted(os.listdir(directory)), ["rank_2", "rank_3"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_output_that_cannot_be_written_is_said_and_the_job_goes_on(self):
        with open("/dev/full", "wb") as full:
            result = self.launch("-n", "2", *self.shell('echo x; echo done >"$DIR/done.$RANK"'), stdout=full)
        self.assertEqual(result.code, 125)
        self.assertIn("output was lost: No space left", result.err.decode())
        self.assertTrue(self.read("done.0") and self.read("done.1"))

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_a_log_that_is_not_complete_is_lost_output(self):
        for stream, script in (("stdout", "echo x"), ("stderr", "echo x >&2")):
            with self.subTest(stream):
                os.makedirs(self.path(stream + "/rank_1"))
                os.symlink("/dev/full", self.path(stream + "/rank_1/" + stream))
                result = self.launch("-n", "2", "--log_dir", self.path(stream), *self.shell(script + '; echo done >"$DIR/done.$RANK"'))
                shown = sorted((result.out + result.err).decode().splitlines())
                self.assertEqual((result.code, shown[:2]), (125, ["[0] x", "[1] x"]))
                self.assertIn("the log of rank 1 is not complete: No space left", shown[2])
                for rank in range(2):
                    self.assertTrue(self.read("done.%d" % rank))
                    os.unlink(self.path("done.%d" % rank))

    def test_a_fifo_for_a_log_is_refused(self):
        """Opening it would wait for a reader, with nothing that could end that."""
        os.mkdir(self.path("rank_0"))
        os.mkfifo(self.path("rank_0/stdout"))
        reader = None
        for words in ("cannot write", "is no file"):
            result = self.launch("--log_dir", self.directory, "true")
            self.assertEqual(result.code, 2)
            self.assertIn(words, result.err.decode())
            reader = reader or os.open(self.path("rank_0/stdout"), os.O_RDONLY | os.O_NONBLOCK)
        os.close(reader)

    def test_a_log_that_may_not_grow_is_lost_output(self):
        """The ranks have the limit too, and its signal as they would without a launcher."""
        script = ('head -c 20000 /dev/zero | tr "\\0" x; echo; echo done >"$DIR/done.$RANK";'
                  'head -c 20000 /dev/zero >"$DIR/large.$RANK"; kill -l $? >"$DIR/ended.$RANK"; exit 0')
        result = self.launch("-n", "2", "--log_dir", self.path("logs"), *self.shell(script),
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)))
        self.assertEqual((result.code, result.lines), (125, ["[%d] %s" % (rank, "x" * 20000) for rank in range(2)]))
        self.assertIn("the logs of ranks 0-1 are not complete: File too large", result.err.decode())
        for rank in range(2):
            self.assertTrue(self.read("done.%d" % rank))
            self.assertEqual(self.read("ended.%d" % rank), b"XFSZ\n")
            self.assertEqual(self.read("logs/rank_%d/stdout" % rank), b"x" * 8192)

    def test_output_to_a_closed_descriptor_is_lost(self):
        for script, code in (("echo x", 125), ("echo x >&2", 0), ("exit 3", 3)):
            for nranks in ("1", "2"):
                with self.subTest(script, nranks=nranks):
                    result = self.launch("-n", nranks, *self.shell(script), preexec_fn=lambda: os.close(1))
                    self.assertEqual(result.code, code, result.err)
                    self.assertEqual(result.err.count(b"output was lost: standard output is closed"), code == 125)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_what_it_prints_itself_and_cannot_write_is_said(self):
        for arguments in (["--help"], ["--version"], ["--dry_run", "true"]):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                result = self.launch(*arguments, stdout=full)
                self.assertEqual(result.code, 125)
                self.assertEqual(result.messages, ["ddl-launch: cannot write to standard output: No space left on device"])


class Beginning(LaunchTest):
    """Of lines whose end does not come."""

    def read_until(self, process, text):
        """What comes on standard output, which has to be just this."""
        shown = b""
        deadline = time.monotonic() + 10 * harness.SLOW
        while len(shown) < len(text) and time.monotonic() < deadline:
            if select.select([process.stdout], [], [], 0.1)[0]:
                shown += os.read(process.stdout.fileno(), len(text) - len(shown))
        self.assertEqual(shown, text)

    def test_a_prompt_is_shown_and_its_line_goes_on(self):
        script = "[ $RANK = 0 ] || exit 0; printf 'name? '; read x; echo hello $x; printf end"
        for flags, prefix in (([], b"[0] "), (["--no-prefix"], b"")):
            with self.subTest(flags):
                process = self.start("-n", "2", *flags, *self.shell(script), stdin=subprocess.PIPE)
                self.read_until(process, prefix + b"name? ")
                self.assertEqual(self.finish(process, b"you\n").out, b"hello you\n" + prefix + b"end\n")

    def test_what_comes_in_between_ends_it_first(self):
        wait = 'while [ ! -e "$DIR/%s" ]; do sleep 0.01; done;'
        for nranks, stream, rest, after in ((2, 1, " rest", b"[0]  rest\n"), (2, 1, "", b""), (1, 2, " rest", b"[0]  rest\n")):
            with self.subTest(nranks=nranks, rest=rest):
                script = ("[ $RANK = 0 ] && printf part;" + wait % "first" + "[ $RANK = %d ] && echo line >&%d;" % (nranks - 1, stream)
                          + "[ $RANK = 0 ] || exit 0;" + wait % "then" + "echo '%s'" % rest)
                process = self.start("-n", str(nranks), "--log_dir", self.path("logs"), *self.shell(script), stderr=subprocess.STDOUT)
                self.read_until(process, b"[0] part")
                self.create("first")
                self.read_until(process, b"\n[%d] line\n" % (nranks - 1))
                self.create("then")
                result = self.finish(process)
                self.assertEqual((result.code, result.out), (0, after))
                self.assertEqual(self.read("logs/rank_0/stdout"), b"part%s\n" % rest.encode())
                os.unlink(self.path("first"))
                os.unlink(self.path("then"))

    def test_while_others_write_its_end_is_waited_for_longer(self):
        """As where a rank is short of a CPU, which others have. It is asked again where the test's own ranks were so short of
        one that what they wrote was not what this is about."""
        script = ("import os, time\n"
                  "begun, ended, slow = [os.environ['DIR'] + name for name in ('/begun', '/ended', '/slow')]\n"
                  "before = time.monotonic()\n"
                  "def pause(seconds, most):\n"
                  "    global before\n"
                  "    time.sleep(seconds)\n"
                  "    if time.monotonic() - before > most: open(slow, 'w').close()\n"
                  "    before = time.monotonic()\n"
                  "if os.environ['RANK'] == '0':\n"
                  "    while not os.path.exists(begun): pause(0.01, 600)\n"
                  "    os.write(1, b'part'); pause(0.5, 0.8); os.write(1, b' and end\\n'); open(ended, 'w').close()\n"
                  "else:\n"
                  "    while not os.path.exists(ended): os.write(1, b'line\\n'); open(begun, 'w').close(); pause(0.01, 0.2)\n")
        for _ in range(10):
            for name in ("begun", "ended", "slow"):
                if os.path.exists(self.path(name)):
                    os.unlink(self.path(name))
            result = self.launch("-n", "2", *self.python(script))
            if not os.path.exists(self.path("slow")):
                break
        self.assertEqual(set(result.lines), {"[0] part and end", "[1] line"})

    def test_a_bar_that_shows_progress_moves(self):
        script = ("import os, time\n"
                  "i = 0\n"
                  "while not os.path.exists(os.environ['DIR'] + '/enough'):\n"
                  "    os.write(1, b'\\r%d %%' % i); i += 1; time.sleep(0.05)\n"
                  "os.write(1, b' done\\n')")
        process = self.start("-n", "1", *self.python(script))
        self.read_until(process, b"[0] \r0 %\r1 %\r2 %")
        self.read_until(process, b"".join(b"\r%d %%" % i for i in range(3, 50)))
        self.create("enough")
        self.assertRegex(self.finish(process).out, rb"\A(\r\d+ %)* done\n\Z")

    def test_who_waits_for_its_end_sleeps(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = self.start("-n", "2", *self.shell("printf part; read x; exit 0"), stdin=subprocess.PIPE)
        self.read_until(process, b"[")
        time.sleep(2)
        self.assertEqual(self.finish(process, b"\n").code, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 0.5 * harness.SLOW)


class Flood(LaunchTest):
    def read_flood(self, process, watch=lambda: None, chunk=1 << 20):
        """Digests of each rank's lines without prefix, and the number of torn ones."""
        digests, torn, rest = {}, 0, b""
        while True:
            data = process.stdout.read1(chunk)
            if not data:
                break
            watch()
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                rank = line[1:2]
                text = line[4:]
                torn += line[:1] != b"[" or text.strip(bytes([97 + int(rank)])) != b""
                digests.setdefault(int(rank), hashlib.md5()).update(text + b"\n")
        return {rank: digest.hexdigest() for rank, digest in digests.items()}, torn + len(rest)

    def test_a_flood_through_8_ranks_arrives_whole(self):
        process = self.start("-n", "8", *self.python(FLOOD))
        digests, torn = self.read_flood(process)
        self.assertEqual(process.wait(30 * harness.SLOW), 0)
        self.assertEqual(torn, 0)
        self.assertEqual(digests, {rank: flood_lines(rank) for rank in range(8)})

    @unittest.skipUnless(harness.HAS_PROC and harness.SLOW == 1, "needs /proc, and memory that is not a sanitizer's")
    def test_a_slow_reader_holds_the_ranks_back_and_costs_no_memory(self):
        process = self.start("-n", "8", *self.python(FLOOD))
        guardian = self.guardian_of(process)
        largest = 0

        def watch():
            nonlocal largest
            try:
                with open("/proc/%d/status" % guardian) as status:
                    found = re.search(r"VmRSS:\s+(\d+)", status.read())
                largest = max(largest, int(found[1]) if found else 0)
            except (FileNotFoundError, ProcessLookupError):  # it ends meanwhile
                pass
        # Every rank is blocked in a write before we read the first byte.
        self.wait_blocked(guardian, 8)
        watch()
        digests, torn = self.read_flood(process, watch, 1 << 16)
        self.assertEqual((process.wait(30), torn), (0, 0))
        self.assertEqual(digests, {rank: flood_lines(rank) for rank in range(8)})
        self.assertLess(largest, 48 << 10)


    def test_a_log_has_what_its_rank_wrote_though_nobody_reads_the_output(self):
        """The job is stopped with pipes full, of which the rank knows what went into them."""
        script = ("import os, signal, time\n"
                  "written = 0\n"
                  "def end(*_):\n"
                  "    os.write(2, b'last words, %d' % written)\n"
                  "    os._exit(0)\n"
                  "signal.signal(signal.SIGTERM, end)\n"
                  "os.set_blocking(1, False)\n"
                  "while True:\n"
                  "    try: written += os.write(1, b'x' * 99 + b'\\n')\n"
                  "    except BlockingIOError: time.sleep(0.01)\n")
        logs = {"lines": (), "raw": ("--no_prefix",)}
        processes = [self.start("-n", "2", "--timeout", "1", "--log_dir", self.path(name), *flags, *self.python(script),
                                stderr=subprocess.STDOUT) for name, flags in logs.items()]
        for process, name in zip(processes, logs):
            self.assertEqual(process.wait(30 * harness.SLOW), 124)
            for rank in range(2):
                words, count = (self.read("%s/rank_%d/stderr" % (name, rank)) or b",").split(b",")
                self.assertEqual(words, b"last words")
                self.assertEqual(len(self.read("%s/rank_%d/stdout" % (name, rank))), int(count))


class Drain(LaunchTest):
    def test_what_a_rank_left_running_may_finish_its_line(self):
        script = "(while kill -0 $$ 2>&-; do :; done; echo late) & exit 0"  # when the rank is gone
        result = self.launch("-n", "1", *self.shell(script))
        self.assertEqual((result.code, result.out), (0, b"[0] late\n"))

    def test_a_leftover_that_holds_the_pipe_does_not_hold_the_launcher(self):
        result = self.launch("-n", "2", *self.shell(harness.NOTE + "sleep 600 & echo $! >>$NOTED; echo x"))
        self.assertEqual((result.code, result.lines), (0, ["[0] x", "[1] x"]))
        self.assertLess(result.seconds, 5 * harness.SLOW)
        self.assertEqual([pid for pid in self.noted_pids() if harness.is_alive(pid)], [])

    def test_a_leftover_that_keeps_writing_is_ended(self):
        """Also when its rank has failed; and who waits for it sleeps."""
        script = "(while :; do echo more; sleep 0.1; done) & echo $! >>$NOTED; exit %d"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.monotonic()
        launched = [(code, self.start("-n", "1", *self.shell(script % code))) for code in (0, 3)]
        for code, process in launched:
            result = self.finish(process, begun=begun)
            self.assertEqual(result.code, code)
            self.assertLess(result.seconds, 9 * harness.SLOW)  # 5 s for its output, 2 s to end
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.assertLess(used, 3 * harness.SLOW)
        self.assertEqual([pid for pid in self.noted_pids() if harness.is_alive(pid)], [])

    @linux_only
    def test_a_stranger_that_holds_the_pipe_does_not_hold_the_launcher(self):
        # Hand rank 0's standard output to this very process, which is no part of the job.
        script = ("import os, socket\n"
                  "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['DIR'] + '/socket')\n"
                  "socket.send_fds(s, [b'x'], [1])\n"
                  "print('sent')\n")
        import socket
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(self.path("socket"))
            server.listen()
            process = self.start("-n", "1", *self.python(script))
            with server.accept()[0] as connection:
                fds = socket.recv_fds(connection, 10, 1)[1]
            try:
                result = self.finish(process)
            finally:
                os.close(fds[0])
        self.assertEqual((result.code, result.out), (0, b"[0] sent\n"))
        self.assertLess(result.seconds, 5 * harness.SLOW)

    @unittest.skipUnless(harness.HAS_PROC, "needs /proc")
    def test_a_reader_that_does_not_read_is_not_waited_for_when_the_job_is_stopped(self):
        for signals, seconds in (([signal.SIGTERM], 7), ([signal.SIGINT, signal.SIGINT], 2)):
            process = self.start("-n", "2", *self.shell("exec yes"))
            self.wait_blocked(self.guardian_of(process), 2)
            begun = time.monotonic()
            for number in signals:
                process.send_signal(number)
                time.sleep(harness.OTHER_KEY_S)  # two of a kind at once count as one
            process.wait(30)
            self.assertLess(time.monotonic() - begun, seconds * harness.SLOW)
            self.assertEqual(process.returncode, -signals[0])
            self.assert_nothing_left(0.5)

    def test_nor_beyond_the_time_limit(self):
        """All ranks have ended with 0 by then."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = self.start("-n", "2", "--timeout", "500ms", *self.shell("head -c 200000 /dev/zero | tr '\\0' x; exit 0"))
        self.assertEqual(process.wait(10 * harness.SLOW), 124)
        self.assertIn(b"time limit of 0.5 s reached (--timeout); the job was stopped\nddl-launch: ranks 0-1 ended with 0\n",
                      process.stderr.read())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1 * harness.SLOW)

    def test_the_job_ends_when_nobody_reads_any_more(self):
        process = self.start("-n", "3", *self.shell(harness.NOTE + "while :; do echo x; sleep 0.01; done"))
        self.assertEqual(process.stdout.readline()[3:], b" x\n")
        self.wait_noted(3)
        process.stdout.close()
        err = process.stderr.read().decode()
        self.assertEqual(process.wait(20 * harness.SLOW), 141)
        self.assertIn("nobody reads the output", err)
        self.assert_nothing_left(1)

    def test_what_nobody_has_read_of_a_job_that_has_ended_is_told_too(self):
        """Whether the ranks end before or after their output cannot be written is chance."""
        for script in ("echo hi", "sleep 0.02; echo hi", "seq 3000"):
            for _ in range(5):
                process = self.start("-n", "2", *self.shell(script))
                process.stdout.close()
                err = process.stderr.read().decode()
                self.assertEqual(process.wait(20 * harness.SLOW), 141, err)
                self.assertIn("nobody reads the output", err)

    def test_also_where_a_rank_has_failed_and_the_others_go_on(self):
        process = self.start("-n", "2", "--on_failure", "continue", *self.shell(
            harness.NOTE + "[ $RANK = 1 ] && exit 5; while :; do echo x; sleep 0.01; done"))
        self.wait_noted(2)
        harness.wait_until(lambda: sum(map(harness.is_alive, self.noted_pids())) == 1, 10 * harness.SLOW, "a failed rank")
        process.stdout.close()
        self.assertEqual(process.wait(10 * harness.SLOW), 5)
        err = process.stderr.read().decode()
        self.assertRegex(err, r"rank 1 on \S+ \(pid \d+\) failed first: exit code 5\n")
        self.assertIn("ddl-launch: rank 0 ended by SIGTERM after it", err)


if __name__ == "__main__":
    harness.main()
