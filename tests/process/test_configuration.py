"""Settings that are wrong, or not the same on all ranks, and starts to which not all come: who is to blame hears it first.

    test_configuration.py ACTOR [CLASS[.TEST]...] [-v]
"""
import contextlib
import errno
import os
import signal
import socket
import tempfile
import threading
import time

from failures import LARGE, SMALL, Failures, main
from relay import Relay
from world import DEADLINE, await_rest, bound, end_well, wait_until


class Configuration(Failures):
    """Wrong settings: a clear error quickly, never a hang and never silent worlds of one."""

    # environment (None: unset), codes that fit, words that the text must have
    WRONG = [
        ({"WORLD_SIZE": None}, ["DDL_ECONFIG"], ["RANK", "WORLD_SIZE"]),
        ({"RANK": None}, ["DDL_ECONFIG"], ["RANK", "WORLD_SIZE"]),
        ({"WORLD_SIZE": "abc"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "abc"]),
        ({"WORLD_SIZE": ""}, ["DDL_ECONFIG"], ["WORLD_SIZE"]),
        ({"WORLD_SIZE": "0"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "0"]),
        ({"WORLD_SIZE": "-4"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "-4"]),
        ({"WORLD_SIZE": "4x"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "4x"]),
        ({"WORLD_SIZE": "99999999999999999999"}, ["DDL_ECONFIG"], ["WORLD_SIZE", "99999999999999999999"]),
        ({"RANK": "9"}, ["DDL_ECONFIG"], ["RANK", "9", "4"]),
        ({"RANK": "4"}, ["DDL_ECONFIG"], ["RANK", "4"]),
        ({"RANK": "-1"}, ["DDL_ECONFIG"], ["RANK", "-1"]),
        ({"RANK": "one"}, ["DDL_ECONFIG"], ["RANK", "one"]),
        ({"MASTER_ADDR": None}, ["DDL_ECONFIG"], ["MASTER_ADDR"]),
        ({"MASTER_ADDR": "10.0.0.1:2950"}, ["DDL_ECONFIG"], ["MASTER_ADDR=10.0.0.1 and MASTER_PORT=2950"]),
        ({"MASTER_PORT": None}, ["DDL_ECONFIG"], ["MASTER_PORT"]),
        ({"MASTER_PORT": "http"}, ["DDL_ECONFIG"], ["MASTER_PORT", "http"]),
        ({"MASTER_PORT": "65536"}, ["DDL_ECONFIG"], ["MASTER_PORT", "65536"]),
        ({"MASTER_PORT": "-1"}, ["DDL_ECONFIG"], ["MASTER_PORT", "-1"]),
        ({"MASTER_ADDR": "no-such-host.invalid"}, ["DDL_ENETWORK", "DDL_ECONFIG"], ["no-such-host.invalid"]),
        ({"MASTER_ADDR": "not a host"}, ["DDL_ENETWORK", "DDL_ECONFIG"], ["not a host"]),
        ({"MASTER_ADDR": "192.0.2.1"}, ["DDL_ENETWORK", "DDL_ECONFIG"], ["192.0.2.1"]),
        ({"DDL_TIMEOUT": "soon"}, ["DDL_ECONFIG"], ["DDL_TIMEOUT", "soon"]),
        ({"DDL_TIMEOUT": "0"}, ["DDL_ECONFIG"], ["DDL_TIMEOUT", "0"]),
        ({"DDL_TIMEOUT": "-5s"}, ["DDL_ECONFIG"], ["DDL_TIMEOUT", "-5s"]),
        ({"DDL_START_TIMEOUT": "5 lightyears"}, ["DDL_ECONFIG"], ["DDL_START_TIMEOUT", "5 lightyears"]),
        ({"DDL_TRANSPORT": "pigeon"}, ["DDL_ECONFIG"], ["DDL_TRANSPORT", "pigeon", "tcp"]),
        ({"DDL_IFACE": "nosuch0"}, ["DDL_ENETWORK"], ["DDL_IFACE", "nosuch0", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "203.0.113.0/24"}, ["DDL_ENETWORK"], ["DDL_IFACE", "203.0.113.0/24", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "nosuch0,203.0.113.0/24"}, ["DDL_ENETWORK"], ["DDL_IFACE", "nosuch0,203.0.113.0/24", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "lo,10.0.0/8"}, ["DDL_ECONFIG"], ["DDL_IFACE", "10.0.0/8", "lo 127.0.0.1"]),
        ({"DDL_IFACE": "^0.0.0.0/0,::/0"}, ["DDL_ENETWORK"], ["DDL_IFACE", "^0.0.0.0/0", "leaves nothing", "lo 127.0.0.1"]),
        ({"DDL_TLS_CERT": "/no/such"}, ["DDL_ECONFIG"], ["DDL_TLS_CERT", "DDL_SECURITY", "nothing would be encrypted"]),
        ({"DDL_TLS_CA": "/no/such"}, ["DDL_ECONFIG"], ["DDL_TLS_CA", "DDL_SECURITY"]),
        ({"DDL_PORT_RANGE": "30000:30010"}, ["DDL_ECONFIG"], ["DDL_PORT_RANGE", "30000:30010", "30000-30099"]),
        ({"DDL_PORT_RANGE": "30010-30000"}, ["DDL_ECONFIG"], ["DDL_PORT_RANGE", "30010-30000", "65535"]),
        ({"DDL_ADVERTISE": "0.0.0.0"}, ["DDL_ECONFIG"], ["DDL_ADVERTISE", "0.0.0.0", "lo 127.0.0.1"]),
        ({"DDL_ADVERTISE": "203.0.113.7:31000"}, ["DDL_ECONFIG"], ["DDL_ADVERTISE", "31000", "DDL_PORT_RANGE"]),
        ({"DDL_ADVERTISE": "no-such-host.invalid"}, ["DDL_ENETWORK"], ["DDL_ADVERTISE", "no-such-host.invalid"]),
        ({"DDL_STORE": "carrier://pigeon"}, ["DDL_ECONFIG"], ["DDL_STORE", "carrier"]),
        ({"DDL_ALLREDUCE": "quantum"}, ["DDL_ECONFIG"], ["DDL_ALLREDUCE", "quantum", "ring"]),
    ]

    def test_the_deadline_is_kept_on_a_long_way_to_the_meeting(self):
        """Who gives up finds out who is missing in a few questions, not one for each rank."""
        world = self.world(200, DDL_CONNECT="lazy")
        world.start(0, "init", DDL_START_TIMEOUT="60s")
        world.ranks[0].await_ports()
        relay = Relay(world.port, 0.05)
        self.addCleanup(relay.cut)
        record = world.start(1, "init", DDL_START_TIMEOUT="3s", MASTER_PORT=relay.port).expect("init", "DDL_ETIMEDOUT")
        self.assert_names(record, "ranks 2-199 of 200 (joined: 0-1 on ")
        self.assertLess((record["end_ns"] - record["begin_ns"]) / 1e9, bound(4), record)

    def test_wrong_settings_are_told(self):
        for i in range(0, len(self.WRONG), 6):  # who tells the others waits for those that may be about to come
            self.at_once(*[(self.check_wrong, *wrong) for wrong in self.WRONG[i:i + 6]])

    def check_wrong(self, environment, codes, words):
        world = self.world(4)
        rank = world.start(0, "init", **environment)
        record = rank.next()
        self.assertIn(record["status"], codes, rank.story())
        self.assertEqual(record["status"], record["code"], record)
        self.assertEqual(record["operation"], "init", record)
        self.assert_names(record, *words)
        self.assert_within(record, record["begin_ns"], 1.5 if "DDL_IFACE" in environment else 2)
        rank.finish(0)

    def test_an_unknown_name_on_a_later_rank(self):
        world = self.world(4)
        rank = world.start(2, "init", MASTER_ADDR="no-such-host.invalid", DDL_START_TIMEOUT="1s")  # else 10 s, as it may be new
        record = rank.next()
        self.assertIn(record["status"], ("DDL_ENETWORK", "DDL_ECONFIG"), rank.story())
        self.assert_names(record, "no-such-host.invalid")
        self.assert_within(record, record["begin_ns"], 2)

    def test_a_scheduler_without_an_address(self):
        schedulers = [("Slurm", {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}),
                      ("Open MPI", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}),
                      ("PMI", {"PMI_RANK": "1", "PMI_SIZE": "4"}), ("PALS", {"PALS_RANKID": "1", "PMI_SIZE": "4"}),
                      ("Horovod", {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}), ("Flux", {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"}),
                      ("Flux", {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4", "PMI_RANK": "1", "PMI_SIZE": "4"}),
                      ("PALS", {"PALS_RANKID": "1", "PMI_RANK": "1", "PMI_SIZE": "4"}),
                      ("MVAPICH", {"MVP_COMM_WORLD_RANK": "1", "MVP_COMM_WORLD_SIZE": "4"}),
                      ("MVAPICH2", {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"}),
                      ("jsrun", {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "4"})]
        for name, variables in schedulers:
            with self.subTest(**variables):
                world = self.world(1)
                rank = world.start(0, "init", RANK=None, WORLD_SIZE=None, MASTER_ADDR=None, MASTER_PORT=None,
                                   **variables)
                record = rank.next()
                self.assertEqual(record["status"], "DDL_ECONFIG", rank.story())
                self.assert_names(record, f"started by {name} as", "MASTER_ADDR", "MASTER_PORT")

    def test_half_of_what_a_launcher_sets(self):
        """Several ranks are not as many worlds of one."""
        halves = [{"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, {"OMPI_COMM_WORLD_RANK": "3"}, {"PMI_RANK": "1"},
                  {"OMPI_COMM_WORLD_RANK": "0"}, {"PMI_RANK": "0"}, {"PMIX_RANK": "1"}, {"HOROVOD_RANK": "0"},
                  {"DDL_LAUNCH": "1/2"}, {"DDL_LAUNCH": "0/2"}]
        for variables in halves:
            with self.subTest(**variables):
                rank = self.world(1).start(0, "init", RANK=None, WORLD_SIZE=None, **variables)
                record = rank.next()
                self.assertEqual(record["status"], "DDL_ECONFIG", rank.story())
                self.assert_names(record, "RANK", "WORLD_SIZE", *variables.values() if "DDL_LAUNCH" in variables else
                                  list(variables)[:1])

    def test_nothing_set_is_a_world_of_one(self):
        """Nor is anything said by a batch script of Slurm, which is the first of its tasks."""
        for variables in ({}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, {"DDL_LAUNCH": "0/1"}):
            world = self.world(1)
            rank = world.start(0, "init", "facts", SMALL, "free", RANK=None, WORLD_SIZE=None, MASTER_ADDR=None,
                               MASTER_PORT=None, **variables)
            rank.expect("init", "DDL_OK")
            self.assertEqual(rank.expect("facts")["size"], 1)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_a_place_to_meet_alone_is_a_world_of_one_that_says_so(self):
        for variables in ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, {"DDL_STORE": "redis://nowhere:1"}, {"LOCAL_RANK": "1"}, {"PMIX_RANK": "0"}):
            with self.subTest(**variables):
                rank = self.world(1).start(0, "init", SMALL, "free", **{"RANK": None, "WORLD_SIZE": None, "MASTER_ADDR": None,
                                                                        "MASTER_PORT": None, **variables})
                for event in ("init", "call", "free"):
                    rank.expect(event, "DDL_OK")
                rank.finish(0)
                self.assertIn(f"a world of one: {list(variables)[0]} is set, but neither RANK nor WORLD_SIZE", "".join(rank.errors))

    def test_worlds_of_one_below_a_rank_of_the_launcher_say_so(self):
        """ddl-launch -np 1 mpirun -np 2 ./program: RANK and WORLD_SIZE count, and are the same for both."""
        for launched, size, told in (("0/1", "2", True), ("0/1", "1", False), (None, "2", False)):
            with self.subTest(launched=launched, size=size):
                rank = self.world(1).start(0, "init", SMALL, "free", RANK="0", WORLD_SIZE="1", DDL_LAUNCH=launched,
                                           OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE=size)
                for event in ("init", "call", "free"):
                    rank.expect(event, "DDL_OK")
                rank.finish(0)
                self.assertEqual("a world of one: ddl-launch has started one rank, and Open MPI below it 2 processes"
                                 in "".join(rank.errors), told)

    def test_an_impossible_algorithm_is_an_error(self):
        """recursive doubling is for powers of two: forced on three ranks it is refused, not replaced."""
        world = self.world(3, DDL_ALLGATHER="doubling")
        for rank in world.start_all("init", "allgather:10:int32", "free"):
            record = rank.next()
            if record["status"] == "DDL_OK":
                record = rank.next()
            self.assertEqual(record["status"], "DDL_ECONFIG", rank.story())
            self.assert_names(record, "DDL_ALLGATHER", "doubling", "3")

    def test_port_in_use(self):
        for address in ("127.0.0.1", "0.0.0.0"):
            with self.subTest(address=address), socket.socket() as other:
                other.bind((address, 0))
                other.listen(1)
                world = self.world(2)
                world.port = other.getsockname()[1]
                rank = world.start(0, "init")
                record = rank.expect("init", "DDL_ENETWORK")
                self.assert_names(record, f"port {world.port} on 127.0.0.1")
                self.assertEqual(record["os_errno"], errno.EADDRINUSE, record)
                self.assert_within(record, record["begin_ns"], 1)

    def test_a_second_init_at_the_place_of_the_first(self):
        world = self.world(2)
        ranks = world.start_all("init", SMALL, "free", others={0: ["init", "init", SMALL, "free"]})
        ranks[0].expect("init", "DDL_OK")
        record = ranks[0].expect("init", "DDL_ENETWORK")
        self.assert_names(record, f"port {world.port} on 127.0.0.1", "in this very process", "free that communicator")
        for rank in ranks:
            rank.close()

    def test_who_never_comes_is_named(self):
        self.at_once((self.check_peers_never_come,), (self.check_rank_0_never_comes,), (self.check_progress_is_told,),
                     (self.check_a_crowd_is_quiet,),
                     (self.check_who_waits_longer_hears_of_it,), (self.check_rank_0_stops_while_others_wait,),
                     (self.check_something_else_closes_every_call,))

    def check_peers_never_come(self):
        world = self.world(4, DDL_START_TIMEOUT="2s")
        ranks = [world.start(r, "init") for r in (0, 2)]
        for rank in ranks:
            record = rank.expect("init", "DDL_ETIMEDOUT")
            self.assert_within(record, record["begin_ns"], 3)
            self.assert_names(record, f"ranks 1, 3 of 4 (joined: 0, 2 on {socket.gethostname()}) did not come to "
                              f"tcp://127.0.0.1:{world.port} (which only this host reaches) within ", "DDL_START_TIMEOUT")
            self.assertEqual(record["culprit"], 1, record)
            rank.finish(0)

    def check_who_waits_longer_hears_of_it(self):
        """Who was started first gives up first, and all the others with it."""
        world = self.world(3, LOCAL_WORLD_SIZE=3)
        ranks = [world.start(0, "init"), world.start(1, "init", DDL_START_TIMEOUT="2s")]
        records = [rank.expect("init", "DDL_ETIMEDOUT") for rank in ranks]
        for rank, record in zip(ranks, records):
            self.assert_within(record, records[1]["end_ns"], 1)
            self.assert_names(record, f"rank 2 of 3 (joined: 0-1 on {socket.gethostname()}) did not come to "
                              f"tcp://127.0.0.1:{world.port} within 2.")
            self.assertEqual(record["culprit"], 2, record)
            rank.finish(0)

    def await_connections(self, port, count):
        """That have been accepted there, or are about to be."""
        def connections():
            with open("/proc/net/tcp", encoding="ascii") as table:
                rows = [line.split() for line in table.readlines()[1:]]
            return sum(row[1].endswith(f":{int(port):04X}") and row[3] == "01" for row in rows)
        wait_until(lambda: connections() >= count, bound(2), f"{count} connections to port {port}")

    def check_rank_0_stops_while_others_wait(self):
        world = self.world(8)
        ranks = [world.start(r, "init", **({"DDL_START_TIMEOUT": "3s"} if r else {})) for r in range(3)]
        self.await_connections(world.port, 2)
        await_rest(ranks)  # they have joined
        os.kill(ranks[0].pid, signal.SIGSTOP)
        for rank in ranks[1:]:
            record = rank.expect("init", "DDL_ETIMEDOUT")
            self.assert_within(record, record["begin_ns"], 4.5)
            self.assert_names(record, "rank 0 at tcp://", "does not answer")
            self.assertEqual(record["culprit"], 0, record)
            rank.finish(0)
        os.kill(ranks[0].pid, signal.SIGCONT)
        ranks[0].expect("init")
        ranks[0].finish(0)

    def check_rank_0_never_comes(self):
        world = self.world(3, DDL_START_TIMEOUT="2s")
        ranks = [world.start(r, "init") for r in (1, 2)]
        for rank in ranks:
            record = rank.expect("init")
            self.assertIn(record["status"], ("DDL_ETIMEDOUT", "DDL_ENETWORK"), record)
            self.assert_within(record, record["begin_ns"], 3)
            self.assert_names(record, world.port)
            rank.finish(0)

    def check_something_else_closes_every_call(self):
        """It is called again and again, and told what was seen of it, whatever the deadline cuts short."""
        calls = []

        def close_all(door):
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = door.accept()
                    caller.close()
                    calls.append(time.monotonic())
        with socket.create_server(("127.0.0.1", 0)) as door:
            world = self.world(3, DDL_START_TIMEOUT="2s")
            world.port = door.getsockname()[1]
            closer = threading.Thread(target=close_all, args=(door,))
            closer.start()
            try:
                rank = world.start(1, "init")
                record = rank.expect("init", "DDL_ETIMEDOUT")
            finally:
                door.shutdown(socket.SHUT_RDWR)
                closer.join()
        self.assertGreater(len(calls), 20)  # one in 50 ms
        self.assert_within(record, record["begin_ns"], 3)
        self.assert_names(record, "what listens at the meeting place", world.port, "connections in a row", "another program")
        self.assertEqual(record["culprit"], 0, record)
        rank.finish(0)

    def check_progress_is_told(self):
        """By rank 0, and by the first rank of each other host, or who does not know that it is another."""
        world = self.world(4, DDL_START_TIMEOUT="7s")
        ranks = [world.start(0, "init"), world.start(1, "init"), world.start(2, "init", LOCAL_RANK=1)]
        for rank, tells in zip(ranks, (1, 1, 0)):
            rank.expect("init", "DDL_ETIMEDOUT")
            rank.finish(0)
            said = "".join(rank.errors)
            self.assertEqual(said.count("waiting for rank 3 of 4 (joined: 0-2 on 1 host) at tcp://127.0.0.1:"), tells, said)
            self.assertNotIn("~/.ddl/secret", said)  # which no rank of this host needs

    def check_a_crowd_is_quiet(self):
        """Nobody says which ranks are the first of their hosts, and all would ask the store for all."""
        world = self.world(65, DDL_START_TIMEOUT="7s")
        ranks = [world.start(r, "init") for r in (0, 1)]
        for rank, tells in zip(ranks, (1, 0)):
            rank.expect("init", "DDL_ETIMEDOUT")
            rank.finish(0)
            self.assertEqual("".join(rank.errors).count("waiting for ranks 2-64 of 65"), tells, rank.story())

    def test_duplicate_rank_during_start(self):
        """Of two that come as rank 1 exactly one is refused, at once, and the job goes on with the other."""
        world = self.world(3)
        commands = ["init", SMALL, "free"]
        job = [world.start(0, *commands)]
        twins = [world.start(1, *commands), world.start(1, *commands)]
        latecomer = wait_until(lambda: next((twin for twin in twins if not twin.records.empty()), None), DEADLINE,
                               lambda: "one twin is refused; " + twins[0].story() + twins[1].story())
        record = latecomer.expect("init", "DDL_ECONFIG")
        self.assert_names(record, "rank 1", *[f"[{twin.pid}]" for twin in twins])
        self.assert_within(record, record["begin_ns"], 1)
        job += [twin for twin in twins if twin is not latecomer]
        job.append(world.start(2, *commands))
        end_well(job, "init", "call", "free")

    def test_duplicate_rank_once_the_job_runs(self):
        world = self.world(2)
        ranks = world.start_all("init", SMALL, "line", LARGE, "free")
        for rank in ranks:
            rank.expect("init", "DDL_OK")
            rank.expect("call", "DDL_OK")
            rank.expect("ready")
        late = world.start(1, "init")
        record = late.expect("init", "DDL_ECONFIG")
        self.assert_names(record, "rank 1", f"[{ranks[1].pid}]", f"[{late.pid}]")
        self.assert_within(record, record["begin_ns"], 1)
        for rank in ranks:
            rank.go()
        end_well(ranks, "call", "free")

    def test_wrong_world_size_on_one_rank(self):
        world = self.world(3)
        ranks = [world.start(0, "init"), world.start(1, "init", WORLD_SIZE=5)]
        records = [rank.expect("init", "DDL_ECONFIG") for rank in ranks]
        contact = max(record["begin_ns"] for record in records)
        for rank, record in zip(ranks, records):
            self.assert_names(record, f"[{ranks[1].pid}] has world size 5", "rank 0 on ",
                              f"[{ranks[0].pid}] has world size 3", "WORLD_SIZE")
            self.assertEqual(record["culprit"], 1, record)
            self.assert_within(record, contact, 1)
            rank.finish(0)

    def test_who_comes_to_a_running_job_of_another_kind_is_told(self):
        """Over a file store nobody of it waits for callers any more. Another size, of ranks that it has or not; another secret."""
        with tempfile.TemporaryDirectory(prefix="ddl-place-") as folder:
            secret = os.path.join(folder, "other")
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write("5" * 64)
            world = self.world(3, DDL_STORE=f"file://{folder}")
            running = world.start_all("init", "line", SMALL, "free")
            for rank in running:
                rank.expect("init", "DDL_OK")
                rank.expect("ready")
            cases = ((3, {"WORLD_SIZE": 4}, "DDL_ECONFIG", "world size 4"), (1, {"WORLD_SIZE": 4}, "DDL_ECONFIG", "world size 4"),
                     (2, {"DDL_SECRET_FILE": secret}, "DDL_EAUTH", "secret"))
            for rank, environment, status, words in cases:
                with self.subTest(rank=rank, status=status):
                    record = world.start(rank, "init", **environment).expect("init", status)
                    self.assert_names(record, words)
                    self.assert_within(record, record["begin_ns"], 2.5)
            for rank in running:
                rank.go()
            end_well(running, "call")

    def test_who_comes_just_after_the_failure_hears_of_it(self):
        """All were started together, and somebody is always the last."""
        with tempfile.TemporaryDirectory(prefix="ddl-late-") as folder:
            for store in (None, f"file://{folder}"):
                with self.subTest(store):
                    world = self.world(3, DDL_STORE=store)
                    ranks = [world.start(0, "init"), world.start(2, "line", "init")]
                    ranks[1].expect("ready")
                    world.start(1, "init", WORLD_SIZE=5).expect("init", "DDL_ECONFIG")
                    ranks[1].go()
                    record = ranks[1].expect("init", "DDL_ECONFIG")
                    self.assert_names(record, "has world size 5")
                    self.assert_within(record, record["begin_ns"], 1.5)
                    ranks[0].expect("init", "DDL_ECONFIG")

    def test_a_rank_that_dies_during_start(self):
        """While a third is waited for: the server of the store sees the connection end. Who comes just then hears of it."""
        world = self.world(3, DDL_START_TIMEOUT="20s")
        ranks = [world.start(0, "init"), world.start(1, f"mortal:{int(bound(1e6))}", "init"), world.start(2, "line", "init")]
        ranks[2].expect("ready")
        killed = ranks[1].expect("killed")
        ranks[2].go()
        for rank in (ranks[0], ranks[2]):
            record = rank.expect("init", "DDL_EPEERLOST")
            self.assertEqual(record["culprit"], 1, record)
            self.assert_names(record, f"rank 1 on ", f"[{ranks[1].pid}] ended before all ranks were connected")
            self.assert_within(record, killed["end_ns"], 1)

    def test_what_one_rank_lacks_is_told_to_all(self):
        """Who cannot come says why, also where it finds out before it has met anybody; rank 0 as any other."""
        with socket.socket() as other, tempfile.TemporaryDirectory() as folder:
            other.bind(("", 0))
            other.listen()
            port = other.getsockname()[1]
            interface, ports = ("DDL_IFACE", "nosuch0"), ("DDL_PORT_RANGE", f"{port}-{port}")
            name = ("DDL_ADVERTISE", "no-such-host.invalid")
            for store, lack, culprit in ((None, interface, 2), (None, interface, 0), (None, ports, 2), (None, name, 0),
                                         ("file://" + folder, interface, 0), ("file://" + folder, ports, 0)):
                with self.subTest(store=store, lack=lack, culprit=culprit):
                    self.check_told(self.world(3, DDL_START_TIMEOUT="20s", DDL_STORE=store), "DDL_ENETWORK", culprit, *lack)

    def test_what_is_wrong_with_the_settings_of_one_rank_is_told_to_all(self):
        wrong = [("DDL_PROFILE", "/no/such", 0), ("DDL_TRANSPORT", "pigeon", 0), ("DDL_TRANSPORT", "pigeon", 2),
                 ("DDL_ALLREDUCE", "quantum", 1), ("DDL_LOG", "loud", 2), ("DDL_TIMEOUT", "soon", 0), ("DDL_GPU", "abacus", 1), ("DDL_START_TIMEOUT", "later", 0),
                 ("DDL_PORT_RANGE", "30000:30010", 2)]
        with tempfile.TemporaryDirectory() as folder:
            for store in None, "file://" + folder:
                worlds = [self.world(3, DDL_START_TIMEOUT="20s", DDL_STORE=store) for _ in wrong]
                self.at_once(*[(self.check_told, world, "DDL_ECONFIG", culprit, variable, value)
                               for world, (variable, value, culprit) in zip(worlds, wrong)])

    def test_who_tells_what_is_wrong_keeps_the_limit_of_the_start(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            world = self.world(3, DDL_STORE=f"redis://127.0.0.1:{silent.getsockname()[1]}", DDL_START_TIMEOUT="2s")
            for limit, seconds in ("2s", 2.7), ("10ms", 0.5):
                rank = world.start(0, "init", DDL_TRANSPORT="pigeon", DDL_START_TIMEOUT=limit)
                record = rank.expect("init", "DDL_ECONFIG")
                self.assert_within(record, record["begin_ns"], seconds)

    def test_a_limit_of_descriptors_that_one_rank_has_is_told_to_all(self):
        for culprit in 0, 2:
            world = self.world(200, DDL_START_TIMEOUT="20s", DDL_CONNECT="eager")
            others = [world.start(r, "init") for r in (0, 1, 2) if r != culprit]
            self.await_comers(others)
            begun = time.monotonic_ns()
            few = world.start(culprit, "init", prefix=["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"])
            for rank in [few, *others]:
                record = rank.expect("init", "DDL_ERESOURCE")
                self.assertEqual(record["culprit"], culprit, record)
                self.assert_names(record, f"rank {culprit} on ", f"[{few.pid}]", "64")
                self.assert_within(record, begun, 2)

    def await_comers(self, ranks):
        """Until they call at the place of rank 0, or wait there: who came later would find rank 0 gone."""
        for rank in ranks:
            rank.await_threads(2)
        time.sleep(bound(0.3))

    def check_told(self, world, status, culprit, variable, value):
        ranks = {r: world.start(r, "init") for r in range(3) if r != culprit}
        self.await_comers(ranks.values())
        ranks[culprit] = world.start(culprit, "init", **{variable: value})
        begun = time.monotonic_ns()
        for rank in ranks.values():
            record = rank.expect("init", status)
            self.assertEqual(record["culprit"], culprit, record)
            self.assert_names(record, f"rank {culprit} on ", f"[{ranks[culprit].pid}]: {variable}", value)
            self.assert_within(record, begun, 2)

    def check_tries_again(self, store, name, wrong, right, culprits):
        world = self.world(3, DDL_START_TIMEOUT="20s", DDL_STORE=store)
        ranks = [world.start(r, *([f"set:{name}={wrong}"] if r in culprits else []), "line", "init", f"set:{name}={right}", "init",
                             SMALL, "free") for r in range(3)]
        for rank in ranks:
            rank.expect("ready")
        for rank in ranks:
            rank.go()
        for rank in ranks:
            self.assertNotEqual(rank.expect("init")["status"], "DDL_OK")
            record = rank.expect("init", "DDL_OK")
            self.assert_within(record, record["begin_ns"], 3)
            rank.expect("call", "DDL_OK")
            rank.expect("free", "DDL_OK")
            rank.finish(0)

    def test_who_tries_another_setting_does_not_hear_of_the_last_try(self):
        """Tried by all, or by one alone. Rank 0 stays a moment for those who have not heard of it; the others are in their
        next try by then."""
        tries = [("DDL_IFACE", "nosuch0", "", (0, 1, 2)), ("DDL_IFACE", "nosuch0", "", (0,)), ("DDL_IFACE", "nosuch0", "", (1,)),
                 ("DDL_TRANSPORT", "pigeon", "auto", (0, 1, 2)), ("DDL_PORT_RANGE", "99-1", "", (0, 1, 2)),
                 ("WORLD_SIZE", "4", "3", (2,))]
        with tempfile.TemporaryDirectory() as folder:
            for store in None, "file://" + folder:
                self.at_once(*[(self.check_tries_again, store, *tried) for tried in tries])

    def test_who_cannot_tell_what_it_lacks_says_so(self):
        world = self.world(3, DDL_TRANSPORT="pigeon")
        with socket.socket() as other:
            other.bind(("127.0.0.1", world.port))
            rank = world.start(0, "init")
            rank.expect("init", "DDL_ECONFIG")
            rank.finish()
        self.assertRegex("".join(rank.errors), f"^ddl: the other ranks are not told .* port {world.port} .* is in use")

    def test_who_fails_by_itself_is_the_culprit_where_there_are_others(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = {"MASTER_PORT": other.getsockname()[1], "DDL_START_TIMEOUT": "2s"}
            name = {"MASTER_ADDR": "no-such-host.invalid", "DDL_START_TIMEOUT": "2s"}
            store = {"DDL_STORE": "file:///no/such"}
            ranks = [(self.world(nranks).start(rank, "init", **setting), culprit) for nranks, rank, setting, culprit in
                     [(2, 0, port, 0), (3, 1, name, 1), (3, 2, store, 2), (1, 0, {"DDL_TRANSPORT": "pigeon"}, -1),
                      (2, 0, {"RANK": None, "DDL_TRANSPORT": "pigeon"}, -1)]]
            for rank, culprit in ranks:
                record = rank.expect("init")
                self.assertIn(record["status"], ("DDL_ENETWORK", "DDL_ESTORE", "DDL_ECONFIG"), record)
                self.assertEqual(record["culprit"], culprit, record)

    def test_what_a_second_rank_of_that_number_lacks_harms_nobody(self):
        world = self.world(3)
        ranks = [world.start(r, "init", SMALL, "free") for r in range(2)]
        self.await_comers(ranks)
        record = world.start(1, "init", DDL_IFACE="nosuch0").expect("init", "DDL_ENETWORK")
        self.assert_names(record, "DDL_IFACE", "nosuch0")
        ranks.append(world.start(2, "init", SMALL, "free"))
        end_well(ranks, "init", "call", "free")


if __name__ == "__main__":
    main(__doc__)
