"""What a rank finds when it starts: variables, descriptors, signals, its input, a port to meet at."""
import os
import signal
import socket
import unittest

import harness
from harness import LaunchTest, linux_only, wait_until


class Environment(LaunchTest):
    def variables(self, *flags, env=None):
        """Of each rank, by rank."""
        self.launch(*flags, *self.shell('env >"$DIR/env.$RANK"'), env=env)
        found = {}
        for name in os.listdir(self.directory):
            if name.startswith("env."):
                with open(self.path(name)) as file:
                    found[int(name[4:])] = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
                os.unlink(self.path(name))
        return found

    def test_each_rank_knows_its_place(self):
        found = self.variables("--nnodes", "3", "--node_rank", "1", "--master_addr", "10.0.0.1", "--master_port", "4000",
                               "-n", "2", "--role", "trainer", "--rdzv_id", "7")
        self.assertEqual(sorted(found), [2, 3])
        for rank, local in ((2, 0), (3, 1)):
            expected = {
                "RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": 6, "LOCAL_WORLD_SIZE": 2, "NODE_RANK": 1,
                "GROUP_RANK": 1, "GROUP_WORLD_SIZE": 3, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 4000,
                "ROLE_RANK": rank, "ROLE_WORLD_SIZE": 6, "ROLE_NAME": "trainer", "TORCHELASTIC_RUN_ID": 7,
                "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0, "DDL_LAUNCH": f"{rank}/6",
                "PYTHONUNBUFFERED": 1,
            }
            self.assertEqual({name: found[rank].get(name) for name in expected},
                             {name: str(value) for name, value in expected.items()})

    def test_an_outer_launcher_does_not_shine_through(self):
        outer = {"RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "7", "MASTER_ADDR": "elsewhere", "MASTER_PORT": "1",
                 "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "3", "OMPI_COMM_WORLD_RANK": "5",
                 "PMI_RANK": "5", "PMIX_RANK": "5", "SLURM_PROCID": "5", "HOROVOD_RANK": "5",
                 "HOROVOD_LOG_LEVEL": "info", "SLURM_JOB_ID": "99", "MY_RANK": "1"}
        found = self.variables("-n", "2", env=outer)[1]
        self.assertEqual((found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"], found["MASTER_ADDR"]),
                         ("1", "2", "1", "127.0.0.1"))
        self.assertEqual(found["TORCHELASTIC_RESTART_COUNT"], "0")
        for name in ("TORCHELASTIC_USE_AGENT_STORE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID",
                     "HOROVOD_RANK"):
            self.assertNotIn(name, found)
        for name in ("HOROVOD_LOG_LEVEL", "SLURM_JOB_ID", "MY_RANK"):
            self.assertEqual(found[name], outer[name])

    def test_threads_are_shared_out_unless_the_user_has_said(self):
        self.assertEqual(self.variables("-n", "64")[0]["OMP_NUM_THREADS"], "1" if os.cpu_count() < 128 else str(os.cpu_count() // 64))
        self.assertEqual(self.variables("-n", "4", env={"OMP_NUM_THREADS": "5"})[3]["OMP_NUM_THREADS"], "5")

    def test_gloo_means_cpu_only(self):
        self.assertEqual(self.variables("--gloo", env={"CUDA_VISIBLE_DEVICES": "0,1"})[0]["CUDA_VISIBLE_DEVICES"], "")
        self.assertEqual(self.variables(env={"CUDA_VISIBLE_DEVICES": "0,1"})[0]["CUDA_VISIBLE_DEVICES"], "0,1")

    @unittest.skipUnless(harness.HAS_PROC, "needs /proc")
    def test_no_stray_descriptor_is_inherited(self):
        script = ("import os\n"
                  "def is_open(number):\n"
                  "    try: os.fstat(number); return True\n"
                  "    except OSError: return False  # what the list was read from\n"
                  "numbers = sorted(n for n in map(int, os.listdir('/proc/self/fd')) if is_open(n))\n"
                  "print([n for n in numbers if n != int(os.environ['DDL_SECRET_FD'])], len(numbers))\n")
        stray, other = os.pipe()
        os.set_inheritable(stray, True)
        try:
            result = self.launch("-n", "3", "--no-prefix", "--log-dir", self.path("logs"),
                                 *self.python(script),
                                 pass_fds=[stray])
        finally:
            os.close(stray)
            os.close(other)
        self.assertEqual(result.lines, ["[0, 1, 2] 4"] * 3)

    def test_signals_are_as_the_launcher_found_them(self):
        script = ("import signal\n"
                  "names = 'HUP INT QUIT TERM USR1 USR2 PIPE TSTP CHLD'.split()\n"
                  "kinds = {signal.SIG_IGN: 'ignored', signal.SIG_DFL: 'default'}\n"
                  "got = [n + ' ' + kinds[signal.getsignal(getattr(signal, 'SIG' + n))] for n in names if n not in ('INT', 'PIPE')]\n"
                  "print(got, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))\n")

        def before():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
        result = self.launch("--no-prefix", *self.python(script), preexec_fn=before)
        self.assertIn("HUP ignored", result.out.decode())
        self.assertEqual(result.out.decode().count("default"), 6)
        self.assertIn(repr([signal.SIGWINCH]), result.out.decode())

    def test_rank_0_reads_the_input_and_the_others_none(self):
        """Nor do they take it from rank 0 if they are quicker."""
        script = ('while [ $RANK = 0 ] && [ ! -e "$DIR/end.1" -o ! -e "$DIR/end.2" ]; do sleep 0.01; done;'
                  'echo got:$(cat); : >"$DIR/end.$RANK"')
        result = self.launch("-n", "3", *self.shell(script), input=b"hello\n")
        self.assertEqual(result.lines, ["[0] got:hello", "[1] got:", "[2] got:"])

    def test_closed_descriptors_of_the_launcher_do_no_harm(self):
        for closed, code in (((0, 1, 2), 125), ((0, 2), 0)):  # output is lost where there is no standard output
            with self.subTest(closed):
                result = self.launch("-n", "2", *self.shell('echo x; echo y >&2; echo done >"$DIR/done.$RANK"'),
                                     preexec_fn=lambda: [os.close(fd) for fd in closed])
                self.assertEqual((result.code, result.lines, result.err), (code, [] if 1 in closed else ["[0] x", "[1] x"], b""))
                self.assertTrue(os.path.exists(self.path("done.1")))
                os.unlink(self.path("done.1"))

    def test_each_rank_leads_a_group_of_its_own(self):
        result = self.launch("-n", "3", "--no-prefix", *self.python("import os; print(os.getpgrp() == os.getpid())"))
        self.assertEqual(result.lines, ["True"] * 3)

    def test_argv_and_working_directory_are_the_users(self):
        result = self.launch("--no-prefix", *self.shell('echo "$0|$1|$PWD"'), "a b", "", cwd=self.directory)
        self.assertEqual(result.out.decode(), "a b||%s\n" % os.path.realpath(self.directory))


class Port(LaunchTest):
    def running_port(self, job):
        """The port of a job that runs until its input ends."""
        process = self.start("-n", "2", "--no-prefix", *self.shell('echo $MASTER_PORT >"$DIR/port.%s.$RANK"; '
                                                                   '[ $RANK = 1 ] || cat; while [ -e "$DIR/run" ]; do sleep 0.01; done' % job),
                             stdin=harness.subprocess.PIPE)

        def ports():
            found = [self.read("port.%s.%d" % (job, rank)) for rank in (0, 1)]
            return found if all(found) else None
        first, second = wait_until(ports, 10 * harness.SLOW, "ports")
        self.assertEqual(first, second)
        return process, int(first)

    def test_jobs_side_by_side_have_ports_of_their_own(self):
        self.create("run")
        jobs = [self.running_port(str(i)) for i in range(5)]
        self.assertEqual(len({port for _, port in jobs}), 5)
        os.unlink(self.path("run"))
        for process, _ in jobs:
            self.assertEqual(self.finish(process).code, 0)

    @linux_only
    def test_the_port_is_held_until_the_job_ends_and_rank_0_can_listen_on_it(self):
        self.create("run")
        process, port = self.running_port("a")
        with socket.socket() as stranger:
            self.assertRaises(OSError, stranger.bind, ("0.0.0.0", port))
        with socket.socket() as rank0, socket.socket() as rank1:  # as rank 0 does it
            rank0.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            rank0.bind(("127.0.0.1", port))
            rank0.listen()
            rank1.connect(("127.0.0.1", port))
            rank0.accept()[0].close()
        os.unlink(self.path("run"))
        self.assertEqual(self.finish(process).code, 0)
        with socket.socket() as after:
            after.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            after.bind(("0.0.0.0", port))

    def test_ranks_meet_at_the_port(self):
        script = ("import os, socket, time\n"
                  "where = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
                  "if os.environ['RANK'] == '0':\n"
                  "    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                  "    s.bind(where); s.listen(); c = s.accept()[0]; print(c.recv(5).decode())\n"
                  "else:\n"
                  "    end = time.monotonic() + 20\n"
                  "    while time.monotonic() < end:\n"
                  "        try: c = socket.create_connection(where); break\n"
                  "        except OSError: time.sleep(0.01)\n"
                  "    c.send(b'hello'); c.recv(1)\n")
        for _ in range(3):
            result = self.launch("-n", "2", "--no-prefix", *self.python(script))
            self.assertEqual((result.code, result.out), (0, b"hello\n"), result.err)


if __name__ == "__main__":
    harness.main()
