"""The command line of ddl-launch: what it accepts, what it refuses, what it prints."""
import os
import re

import harness
from harness import LaunchTest, linux_only

FLAG_WITH_VALUE = re.compile(r"^  --(\w+)", re.M)

# Launchers that tell a process its size and rank.
RANKS_OF_OTHERS = [("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("MVAPICH2", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
                   ("MVAPICH", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK"), ("Horovod", "HOROVOD_SIZE", "HOROVOD_RANK"),
                   ("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"), ("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
                   ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("PALS", "PMI_SIZE", "PALS_RANKID"), ("PMI", "PMI_SIZE", "PMI_RANK")]


class CommandLine(LaunchTest):
    def dry(self, *arguments, **options):
        """The environment and command of each rank, as --dry-run tells them."""
        result = self.launch("--dry-run", *arguments, **options)
        self.assertEqual(result.code, 0, result.err)
        return [line.split(" ") for line in result.out.decode().splitlines()]

    def test_flags_are_known_in_all_spellings(self):
        for flags in (["--nproc_per_node", "3"], ["--nproc-per-node", "3"], ["--nproc_per_node=3"],
                      ["--nproc-per-node=3"], ["--nproc_per-node=3"], ["-np", "3"], ["-n", "3"],
                      ["-n", "2", "--nproc_per_node", "3"]):
            with self.subTest(flags):
                ranks = self.dry(*flags, "true")
                self.assertEqual(len(ranks), 3)
                self.assertIn("WORLD_SIZE=3", ranks[0])

    def test_flags_end_where_the_program_begins(self):
        for flags in ([], ["--"]):
            with self.subTest(flags):
                result = self.launch("-n", "1", "--no-prefix", *flags, "echo", "-n", "2", "--help")
                self.assertEqual((result.code, result.out), (0, b"2 --help"))

    def test_torchrun_flags_keep_their_meaning(self):
        rank = self.dry("--standalone", "--role", "worker", "--rdzv-id=job7", "--max-restarts=0", "--no-python", "true")[0]
        for entry in ("ROLE_NAME=worker", "TORCHELASTIC_RUN_ID=job7", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1"):
            self.assertIn(entry, rank)

    def test_one_process_on_one_node_is_the_default(self):
        ranks = self.dry("true")
        self.assertEqual(len(ranks), 1)
        for entry in ("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1"):
            self.assertIn(entry, ranks[0])

    def test_a_check_of_one_node_has_two_processes_unless_told(self):
        several = ["--nnodes", "2", "--node_rank", "0", "--master_addr", "node0"]
        for flags, count in (([], 2), (["-n", "1"], 1), (several, 1), ([*several, "-n", "3"], 3)):
            with self.subTest(flags):
                self.assertEqual(len(self.dry("--check", *flags)), count)

    def test_several_nodes_meet_at_29500_by_default(self):
        rank = self.dry("--nnodes", "2", "--node_rank", "1", "--master_addr", "node0", "true")[0]
        self.assertIn("MASTER_PORT=29500", rank)
        self.assertIn("MASTER_ADDR=node0", rank)

    def test_wrong_command_lines_are_refused_in_one_line(self):
        program = self.shell('touch "$DIR/started"')
        many = ["--nnodes", "2"]
        cases = [
            (["--nproc_per_node", "0"], "--nproc_per_node 0: accepted is a number from 1"),
            (["--nproc_per_node", "abc"], "accepted is a number from 1"),
            (["--nproc_per_node=-1"], "accepted is a number"),
            (["--nproc_per_node="], "accepted is a number"),
            (["--nproc_per_node", "4x"], "or auto"),
            (["--nproc_per_node", "99999999999999999999"], "from 1 to 4096"),
            (["-np", "5000"], "from 1 to 4096"),
            (["--nnodes", "0"], "--nnodes 0"),
            (["--node_rank", "1"], "is --nnodes missing"),
            (many + ["--master_addr", "a"], "needs --node_rank, from 0 to 1"),
            (many + ["--master_addr", "a", "--node_rank", "2"], "from 0 to 1"),
            (many + ["--master_addr", "a", "--node_rank", "-1"], "--node_rank -1"),
            (many + ["--node_rank", "0"], "needs --master_addr"),
            (many + ["--node_rank", "0", "--master_addr", ""], "--master_addr : accepted"),
            (many + ["--node_rank", "0", "--master_addr", "a b"], "host name or address"),
            (many + ["--node_rank", "0", "--master_addr", "a", "--master_port", "0"], "from 1 to 65535"),
            (many + ["--standalone", "--node_rank", "0"], "--standalone means one node"),
            (["--master_port", "65536"], "from 1 to 65535"),
            (["--grace", "soon"], "seconds, or a number with a unit"),
            (["--grace", "1.2.3"], "seconds"),
            (["--timeout", "0"], "seconds above 0"),
            (["--timeout", "5 weeks"], "seconds"),
            (["--on-failure", "retry"], "stop or continue"),
            (["--max-restarts", "3"], "not restarted"),
            (["--no-prefix=yes"], "--no_prefix takes no value"),
            (["--nproc"], "unknown flag --nproc (did you mean --nproc_per_node?); accepted are -np -n --nproc_per_node"),
            (["--nprocs-per-node=2"], "unknown flag --nprocs-per-node=2 (did you mean --nproc_per_node?)"),
            (["--nprocs", "2"], "(did you mean --nproc_per_node?)"),
            (["--Timeout", "2"], "(did you mean --timeout?)"),
            (["-nnode", "2"], "(did you mean --nnodes?)"),
            (["--colour"], "unknown flag --colour; accepted are"), (["--nporc", "2"], "(did you mean --nproc_per_node?)"),
            (["--" + "x" * 100], "x; accepted are"),
            (["-y"], "unknown flag -y; accepted are"), (["-z2"], "unknown flag -z2; accepted are"),
            (["-x"], "-x is another launcher's; here: env NAME=VALUE before the program"),
            (["--np", "2"], "another launcher's; here: -n N, or --nproc_per_node N"),
            (["--kill-on-bad-exit"], "another launcher's; here: leave it out"),
            (["--network-interface", "eth0"], "another launcher's; here: DDL_IFACE"),
            (["-t", "5"], "another launcher's; here: --log_dir DIR for torchrun's, --timeout SECONDS for srun's"),
            (["--master_addr", "tcp://10.0.0.1", "true"], "tcp://10.0.0.1: write --master_addr 10.0.0.1"),
            (["--master_addr", "tcp://10.0.0.1:29500/", "true"], "/: write --master_addr 10.0.0.1 --master_port 29500"),
            (["--master_addr", "tcp://[::1]:5", "true"], ": write --master_addr [::1] --master_port 5"),
            (["--master_addr", "http://h:", "true"], "http://h:: write --master_addr h"),
            (["--master_addr", "10.0.0.1:", "true"], "--master_addr 10.0.0.1:: write --master_addr 10.0.0.1"),
            (["--rdzv-endpoint=a:1"], "another launcher's; here: --master_addr HOST --master_port PORT"),
            (["--allow-run-as-root"], "root may start a job"), (["-N", "2"], "here: --nproc_per_node N for the processes"),
            (["--tag-output"], "begins with its rank"), (["--local_rank", "0"], "in LOCAL_RANK"),
            (["--start-timeout", "9"], "DDL_START_TIMEOUT"), (["--monitor_interval=5"], "seen at once"),
            (["--master_addr", "10.0.0.1:29500"], "write --master_addr 10.0.0.1 --master_port 29500"),
            (many + ["--node_rank", "0", "--master_addr", "[::1]:99"], "write --master_addr [::1] --master_port 99"),
            (many + ["--node_rank", "0", "--master_addr", "a:1"], "write --master_addr a --master_port 1"),
            (["-H", "a,b"], "here: ddl-launch on each node, with --nnodes"), (["-m", "a"], "here: python3 -m MODULE"),
            (["-nx", "true"], "unknown flag -nx"), (["-n=x", "true"], "--nproc_per_node x: accepted is"),
            (["-y"], " -h --help -V --version\n"),
            (["true", "a", ":", "-np", "2"], "': -np' is how mpirun begins another program"), (["true", ":", "-n2"], "case $RANK in"),
            (["true", ":", "b", ":", "--np", "2"], "': --np' is how"), (["true", ":", "--nproc-per-node=2"], "one program here"),
            (["--", "--gloo"], "cannot start --gloo"),
        ]
        for flags, words in cases:
            with self.subTest(flags):
                result = self.launch(*flags, *program)
                self.assertEqual(result.code, 127 if "--" in flags else 2)
                self.assertEqual(result.out, b"")
                self.assertEqual(result.err.decode().count("\n"), 1, result.err)
                self.assertTrue(result.err.startswith(b"ddl-launch: "), result.err)
                self.assertIn(words, result.err.decode())
                self.assertFalse(os.path.exists(self.path("started")))

    def test_the_usual_flags_of_other_launchers_are_known(self):
        theirs = {
            "torchrun": "--logs-specs --run-path --numa-binding --signals-to-handle --virtual-local-rank --shutdown-timeout "
                        "--event-log-handler --duplicate-stdout-filters --duplicate-stderr-filters",
            "mpiexec": "-perhost -pernode --rankfile --cpu-set --display-map -q --prefix --stdin --rank-by "
                       "--nooversubscribe --use-hwthread-cpus --merge-stderr-to-stdout",
            "srun": "-G --gpus-per-node -u -o -e -i -p -J --mem --exclusive --multi-prog -W -N -c --account -A --qos "
                    "--overlap --mem-per-cpu --gpu-bind",
            "horovodrun": "--min-np --max-np --ssh-port --config-file --log-level --gloo-timeout-seconds -H --timeline-filename",
        }
        for launcher, flags in theirs.items():
            for flag in flags.split():
                with self.subTest(launcher, flag=flag):
                    result = self.launch(flag, "true")
                    self.assertEqual(result.code, 2)
                    self.assertTrue(result.err.startswith(b"ddl-launch: %s is another launcher's; here: " % flag.encode()), result.err)

    def test_no_flag_is_guessed_from_one_letter(self):
        for letter in "abdgkyzABEIQSTXYZ":
            self.assertNotIn(b"did you mean", self.launch("-" + letter, "true").err, letter)

    def test_a_colon_may_be_an_argument(self):
        for words in (["a", ":", "b"], [":"], [":", ":"], ["-np", ":"], [":", "--n"], ["a:", "-np"], [":-n", "2"]):
            self.assertEqual(self.launch("--no_prefix", "echo", *words).out.decode(), " ".join(words) + "\n")
        self.assertEqual(self.launch("--no_prefix", "--", "echo", ":", "-np", "2").out, b": -np 2\n")

    def test_a_missing_program_or_value_is_said(self):
        for arguments, words in (([], "no program to start"), (["-n", "2"], "no program to start"),
                                 (["-n"], "--nproc_per_node needs a value"), (["--log_dir"], "needs a value")):
            with self.subTest(arguments):
                result = self.launch(*arguments)
                self.assertEqual(result.code, 2)
                self.assertIn(words, result.err.decode())

    def test_a_program_that_cannot_be_started_ends_as_in_a_shell(self):
        def file(name, text, mode):
            with open(self.path(name), "w") as made:
                made.write(text)
            os.chmod(self.path(name), mode)
        file("plain.py", "print(1)\n", 0o644)
        file("no-interpreter", "#!/no/such/interpreter\n", 0o755)
        file("no-first-line", "echo hello\n", 0o755)
        cases = [
            ("no-such-program-anywhere", 127, "no such program in PATH"),
            ("plain.py", 127, "write ./plain.py"),
            ("", 127, "empty"),
            ("./nothing", 127, "No such file"),
            ("./plain.py/x", 127, "Not a directory"),
            ("./plain.py", 126, "not executable"),
            (self.directory, 126, "is a directory"),
            ("./no-interpreter", 127, "interpreter"),
            ("./no-first-line", 126, "first line"),
        ]
        for program, code, words in cases:
            with self.subTest(program):
                result = self.launch("-n", "3", program, cwd=self.directory)
                self.assertEqual(result.code, code, result.err)
                self.assertEqual(result.err.decode().count("\n"), 1, result.err)
                self.assertIn(words, result.err.decode())

    def test_a_log_directory_that_cannot_be_made_is_said_before_anything_starts(self):
        self.create("file")
        for name in ("file", "file/logs", "x" * 5000):
            with self.subTest(name):
                result = self.launch("-n", "2", "--log-dir", self.path(name), *self.shell('touch "$DIR/started"'))
                self.assertEqual(result.code, 2)
                self.assertIn("--log_dir", result.err.decode())
                self.assertFalse(os.path.exists(self.path("started")))

    def test_several_nodes_in_the_environment_alone_are_warned_of(self):
        free = {"PET_NNODES": "", "SLURM_STEP_NUM_NODES": "", "NNODES": "", "NODE_RANK": "", "MASTER_ADDR": "",
                **{name: "" for _, *names in RANKS_OF_OTHERS for name in names}}
        torchrun = "--node_rank $PET_NODE_RANK --master_addr $PET_MASTER_ADDR"
        by_hand = "--node_rank $NODE_RANK --master_addr $MASTER_ADDR"
        for variables, told in (
                ({"PET_NNODES": "2"}, "PET_NNODES=2 is set, but without --nnodes this is a job of one node; give --nnodes 2 " + torchrun),
                ({"PET_NNODES": "1:4"}, "PET_NNODES=1:4 is set, but without --nnodes this is a job of one node; give --nnodes 4 " + torchrun),
                ({"SLURM_STEP_NUM_NODES": "3"}, "SLURM_STEP_NUM_NODES=3 is set, but without --nnodes this is a job of one node; give "
                 "--nnodes 3 --node_rank $SLURM_NODEID --master_addr HOST (of node 0), by srun sh -c '...'"),
                ({"MASTER_ADDR": "10.0.0.1", "NNODES": "2", "NODE_RANK": "0"},
                 "NNODES=2 is set, but without --nnodes this is a job of one node; give --nnodes 2 " + by_hand),
                ({"MASTER_ADDR": "10.0.0.1", "NODE_RANK": "1"},
                 "NODE_RANK=1 is set, but without --nnodes this is a job of one node; give --nnodes N " + by_hand)):
            with self.subTest(variables):
                result = self.launch("-n", "1", "--", "true", "--nnodes", env={**free, **variables})
                self.assertEqual((result.code, result.messages), (0, ["ddl-launch: warning: %s, or --nnodes 1" % told]))
                for told_so in (["--nnodes", "1"], ["--nnodes=1"], ["--standalone"]):
                    self.assertEqual(self.launch(*told_so, "true", env={**free, **variables}).messages, [])
        for launcher, size, rank in RANKS_OF_OTHERS:
            with self.subTest(launcher):
                several = {**free, size: "3", rank: "0"}
                self.assertEqual(self.launch("-n", "1", "true", env=several).messages, [
                    "ddl-launch: warning: %s=3 is set, but without --nnodes this is a job of one node; start the program itself "
                    "in place of ddl-launch, or give --nnodes 3 --node_rank $%s --master_addr HOST (of rank 0), by sh -c '...', "
                    "or --nnodes 1" % (size, rank)])
                for told_so in (["--nnodes", "1"], ["--standalone"]):
                    self.assertEqual(self.launch(*told_so, "true", env=several).messages, [])
                for silent in ({size: "1"}, {rank: ""}, {"DDL_LAUNCH": "0/2"}):
                    self.assertEqual(self.launch("true", env={**several, **silent}).messages, [])
        for variables in ({}, {"PET_NNODES": "1"}, {"PET_NNODES": "1:1"}, {"PET_NNODES": "many"}, {"SLURM_STEP_NUM_NODES": "1"},
                          {"NNODES": "2"}, {"NODE_RANK": "1"}, {"MASTER_ADDR": "10.0.0.1", "NODE_RANK": "0"},
                          {"PET_NNODES": "2", "DDL_LAUNCH": "0/2"}, {"PET_NNODES": "2", "TORCHELASTIC_RUN_ID": "none"}):
            with self.subTest(variables):
                self.assertEqual(self.launch("true", env={**free, **variables}).messages, [])

    def test_help_and_documentation_tell_every_flag(self):
        result = self.launch("--help")
        self.assertEqual((result.code, result.err), (0, b""))
        text = result.out.decode()
        self.assertTrue(text.startswith("usage: ddl-launch [FLAGS] [--] PROGRAM [ARGUMENTS]\n"))
        self.assertLessEqual(max(map(len, text.splitlines())), 110)
        flags = FLAG_WITH_VALUE.findall(text)
        self.assertGreater(len(flags), 15)
        with open(os.path.join(harness.SOURCE, "docs", "launch.md")) as document:
            documented = document.read()
        for flag in flags:
            self.assertIn("`--%s" % flag, documented)
        self.assertEqual(self.launch("-h").out, result.out)

    def test_documentation_tells_every_launcher_that_the_library_understands(self):
        with open(os.path.join(harness.SOURCE, "src", "api", "config_ranks.c")) as source:
            families = re.findall(r'^    \{ "([^"]+)", "(\w+)", "(\w+)", "(\w+)",', source.read(), re.M)
        self.assertGreater(len(families), 8)
        with open(os.path.join(harness.SOURCE, "docs", "launch.md")) as document:
            rows = [line for line in document if line.startswith("| ")]
        for name, *variables in families:
            with self.subTest(name):
                self.assertTrue(any(row.startswith("| " + name) and all("`%s`" % variable in row for variable in variables)
                                    for row in rows))

    def test_version_is_that_of_the_library(self):
        with open(os.path.join(harness.SOURCE, "include", "ddl", "ddl.h")) as header:
            numbers = dict(re.findall(r"define DDL_VERSION_(\w+) (\d+)", header.read()))
        expected = "ddl-launch %(MAJOR)s.%(MINOR)s.%(PATCH)s\n" % numbers
        for flag in ("--version", "-V"):
            self.assertEqual(self.launch(flag).out.decode(), expected)

    def test_a_dry_run_prints_lines_for_a_shell_and_starts_nothing(self):
        """Which take out of the environment what a rank does not get, whatever it is called."""
        outer = {"SLURM_PROCID": "7", "PMI_$(touch $DIR/run)": "1"}
        script = 'touch "$DIR/started"; echo "$RANK of $WORLD_SIZE$SLURM_PROCID: it\'s $1"'
        result = self.launch("--dry-run", "-n", "2", "sh", "-c", script, "sh", "a  b*", env=outer)
        self.assertEqual((result.code, result.err), (0, b""))
        self.assertFalse(os.path.exists(self.path("started")))
        for rank, line in enumerate(result.out.decode().splitlines()):
            ran = harness.subprocess.run(["sh", "-c", line], stdout=harness.subprocess.PIPE, env=self.environment(outer))
            self.assertEqual(ran.stdout.decode(), "%d of 2: it's a  b*\n" % rank)
        self.assertFalse(os.path.exists(self.path("run")))
        with open(self.path("a=1"), "w") as program:
            program.write("#!/bin/sh\necho \"$0 $1\"\n")
        os.chmod(self.path("a=1"), 0o700)
        line = self.launch("--dry-run", self.path("a=1"), "b  c").out.decode()
        ran = harness.subprocess.run(["sh", "-c", line], stdout=harness.subprocess.PIPE, env=self.environment({}))
        self.assertEqual(ran.stdout.decode(), "%s b  c\n" % self.path("a=1"))

    @linux_only
    def test_auto_means_the_cpus_that_may_be_used(self):
        usable = len(os.sched_getaffinity(0))
        self.assertLessEqual(len(self.dry("-n", "auto", "true")), usable)
        first = min(os.sched_getaffinity(0))
        self.assertEqual(len(self.dry("-n", "auto", "true", preexec_fn=lambda: os.sched_setaffinity(0, {first}))), 1)


if __name__ == "__main__":
    harness.main()
