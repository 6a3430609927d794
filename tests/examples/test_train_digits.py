"""train_digits: the same training on any number of processes, checkpoints, and what can be wrong with them.

    test_train_digits.py LAUNCHER TRAIN_DIGITS [TEST...]
"""
import gzip
import os
import re
import struct
import sys
import unittest

from jobs import JobTest, launch, run

LAUNCHER, TRAIN = sys.argv[1:3]
DATA = os.path.join(os.path.dirname(__file__), "../../examples/data/digits.csv.gz")
EPOCH = re.compile(r"epoch +(\d+)  loss (\S+)  test accuracy +(\d+\.\d) %  \d+ samples/s  communication \d+\.\d %")
HEAD = struct.Struct("=8sI4IIqqq")  # magic, version, units, reserved, epochs done, batch, seed


def train(nranks, *arguments):
    return launch(LAUNCHER, nranks, TRAIN, *arguments)


def checksum(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return struct.pack("=Q", value)


class Case(JobTest):
    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def fail_with(self, done, code, message):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(message, done.stderr)

    def epochs(self, done):
        """(epoch, loss as printed, accuracy) of every line but the last, which is checked."""
        *lines, last = self.succeed(done).stdout.splitlines()
        self.assertRegex(last, r"^test accuracy \d+\.\d % \(297 digits\)$")
        parsed = [EPOCH.fullmatch(line) for line in lines]
        self.assertNotIn(None, parsed, done.stdout)
        return [(int(m[1]), m[2], float(m[3])) for m in parsed]


class Agreement(Case):
    def assert_agree(self, left, right):
        self.assertEqual(len(left), len(right))
        for (epoch, a, _), (same_epoch, b, _) in zip(left, right):
            self.assertEqual(epoch, same_epoch)
            self.assertLess(abs(float(a) - float(b)), 0.5e-4 * float(a), f"epoch {epoch}: losses {a} and {b}")

    def test_losses_agree_on_one_to_four_processes_and_digits_are_learnt(self):
        alone = self.epochs(train(1))
        self.assertEqual([epoch for epoch, _, _ in alone], list(range(1, 31)))
        self.assertLess(float(alone[-1][1]), float(alone[0][1]) / 10)
        for nranks in 2, 3, 4:
            done = train(nranks)
            self.assert_agree(alone, self.epochs(done))
            accuracy = float(done.stdout.splitlines()[-1].split()[2])
            self.assertGreaterEqual(accuracy, 92)

    def test_losses_agree_when_the_batch_does_not_divide(self):
        for batch in "64", "7":
            alone = self.epochs(train(1, "--epochs", "3", "--batch", batch))
            for nranks in 3, 4:
                self.assert_agree(alone, self.epochs(train(nranks, "--epochs", "3", "--batch", batch)))

    def test_losses_agree_when_some_ranks_have_no_sample(self):
        alone = self.epochs(train(1, "--epochs", "1", "--batch", "2"))
        self.assert_agree(alone, self.epochs(train(3, "--epochs", "1", "--batch", "2")))

    def test_a_repeated_run_gives_the_same_bits(self):
        for nranks in 2, 3:
            first = self.epochs(train(nranks, "--epochs", "5", "--checkpoint", self.path("first")))
            second = self.epochs(train(nranks, "--epochs", "5", "--checkpoint", self.path("second")))
            self.assertEqual(first, second)
            self.assertEqual(self.read("first"), self.read("second"))

    def test_another_seed_gives_another_training(self):
        one = self.epochs(train(1, "--epochs", "1"))
        two = self.epochs(train(1, "--epochs", "1", "--seed", "2"))
        self.assertNotEqual(one[0][1], two[0][1])

    def test_it_works_without_a_launcher(self):
        done = run([TRAIN, "--epochs", "2"])
        self.assert_agree(self.epochs(done), self.epochs(train(2, "--epochs", "2")))


class Checkpoints(Case):
    def save(self, name, *arguments):
        self.succeed(train(2, "--checkpoint", self.path(name), *arguments))
        return self.read(name)

    def resume(self, name, *arguments, nranks=2):
        return train(nranks, "--checkpoint", self.path(name), "--resume", *arguments)

    def test_resuming_equals_not_having_stopped(self):
        whole = self.epochs(train(2, "--epochs", "6", "--checkpoint", self.path("whole")))
        self.save("parts", "--epochs", "2")
        rest = self.epochs(self.resume("parts", "--epochs", "6"))
        self.assertEqual(rest, whole[2:])
        self.assertEqual(self.read("parts"), self.read("whole"))

    def test_resuming_goes_on_with_the_batch_and_seed_of_the_checkpoint(self):
        whole = self.epochs(train(2, "--epochs", "3", "--batch", "50", "--seed", "9"))
        self.save("parts", "--epochs", "1", "--batch", "50", "--seed", "9")
        self.assertEqual(self.epochs(self.resume("parts", "--epochs", "3")), whole[1:])

    def test_resuming_on_another_number_of_processes_works(self):
        self.save("parts", "--epochs", "1")
        self.assertEqual([epoch for epoch, _, _ in self.epochs(self.resume("parts", "--epochs", "3", nranks=3))],
                         [2, 3])

    def test_resuming_a_finished_run_tells_its_accuracy(self):
        accuracy = self.epochs(train(2, "--epochs", "2", "--checkpoint", self.path("done")))[-1][2]
        before = self.read("done")
        done = self.resume("done", "--epochs", "2")
        self.assertEqual(self.epochs(done), [])
        self.assertEqual(done.stdout, f"test accuracy {accuracy} % (297 digits)\n")
        self.assertEqual(self.read("done"), before)

    def test_what_was_left_half_written_is_in_nobodys_way(self):
        self.write("new.new", b"half a check")
        self.save("new", "--epochs", "1")
        self.assertFalse(os.path.exists(self.path("new.new")))

    def test_a_bad_checkpoint_is_refused_on_every_rank_and_kept(self):
        good = self.save("good", "--epochs", "1")
        body = bytearray(good[:-8])

        def with_head(**changes):
            names = ["magic", "version", "pixels", "first", "second", "classes", "reserved", "epochs", "batch", "seed"]
            values = dict(zip(names, HEAD.unpack_from(body)), **changes)
            changed = HEAD.pack(*(values[name] for name in names)) + body[HEAD.size:]
            return changed + checksum(changed)

        self.assertEqual(with_head(), good)  # this test knows the format
        flipped = bytearray(good)
        flipped[5000] ^= 1
        cases = {
            "empty": (b"", "cut short: 0 of"),
            "half a head": (good[:20], "cut short: 20 of"),
            "half": (good[:len(good) // 2], "cut short"),
            "all but one byte": (good[:-1], "cut short"),
            "one byte more": (good + b"x", "too long"),
            "one bit flipped": (bytes(flipped), "damaged"),
            "another file": (b"0,0,5,13,9,1,0,0,0,0,13,15,10,15,5,0\n", "no checkpoint"),
            "another version": (with_head(version=2), "version 2"),
            "another shape": (with_head(second=32), "another network"),
            "no batch": (with_head(batch=0), "makes no sense"),
            "too great a batch": (with_head(batch=1501), "--batch 1501 is more than"),
        }
        for name, (data, message) in cases.items():
            with self.subTest(name):
                self.write("bad", data)
                done = self.resume("bad", nranks=3)
                self.fail_with(done, 1, message)
                for rank in 1, 2:
                    self.assertIn(f"rank {rank} ends, as rank 0 could not start", done.stderr)
                self.assertEqual(self.read("bad"), data)

    def test_a_checkpoint_that_is_not_there_is_an_error(self):
        self.fail_with(self.resume("nowhere"), 1, "No such file")

    def test_flags_that_contradict_the_checkpoint_are_an_error(self):
        self.save("good", "--epochs", "1")
        self.fail_with(self.resume("good", "--seed", "2"), 1, "--seed 1")
        self.fail_with(self.resume("good", "--batch", "61"), 1, "--batch 60")

    def test_a_checkpoint_that_cannot_be_written_ends_all_ranks(self):
        done = train(3, "--epochs", "5", "--checkpoint", self.path("no/such/directory"))
        self.fail_with(done, 1, "directory: No such file")
        self.assertNotIn("epoch", done.stdout)  # none is spent on it


class Input(Case):
    def test_bad_flags_are_refused(self):
        cases = [(["--epochs", "0"], "--epochs 0"), (["--epochs", "1x"], "--epochs 1x"), (["--batch", "-1"], "--batch -1"),
                 (["--seed", ""], "--seed "), (["--frobnicate"], "frobnicate"), (["extra"], "extra"),
                 (["--resume"], "--checkpoint"), (["--epochs"], "epochs")]
        for flags, message in cases:
            with self.subTest(flags):
                self.fail_with(run([TRAIN, *flags]), 2, message)
        self.fail_with(train(2, "--epochs", "none"), 2, "--epochs none")

    def test_help_names_every_flag(self):
        done = self.succeed(run([TRAIN, "--help"]))
        for flag in "--epochs", "--batch", "--seed", "--data", "--checkpoint", "--resume":
            self.assertIn(flag, done.stdout)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs a file that is full")
    def test_output_that_cannot_be_written_is_a_failure(self):
        for flags in ["--epochs", "1"], ["--help"]:
            with open("/dev/full", "w") as full:
                done = run([TRAIN, *flags], stdout=full)
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot write to standard output", done.stderr)

    def test_bad_data_is_refused_on_every_rank(self):
        with gzip.open(DATA) as file:
            lines = file.read().splitlines(keepends=True)
        with open(DATA, "rb") as file:
            packed = file.read()
        cases = {
            "too few": (b"".join(lines[:297]), "297 lines"),
            "a grey too great": (b"".join(lines[:5]) + b"17" + lines[5][1:], "line 6, field 1"),
            "no digit": (b"".join(lines[:3]) + lines[3].rsplit(b",", 1)[0] + b"\n", "line 4, field 64"),
            "a field more": (lines[0][:-1] + b",1\n", "line 1, field 65"),
            "words": (b"hello\n", "line 1, field 1"),
            "cut short": (packed[:3000], "unexpected end of file"),
            "empty": (b"", "0 lines"),
        }
        for name, (data, message) in cases.items():
            with self.subTest(name):
                done = train(2, "--data", self.write("data", data))
                self.fail_with(done, 1, message)
                self.assertIn("rank 1 ends", done.stderr)
        self.fail_with(train(2, "--data", self.path("nowhere")), 1, "No such file")

    def test_data_need_not_be_compressed(self):
        with gzip.open(DATA) as file:
            plain = self.write("plain", file.read())
        self.assertEqual(self.epochs(train(2, "--epochs", "1", "--data", plain)),
                         self.epochs(train(2, "--epochs", "1")))

    def test_a_batch_beyond_the_data_is_an_error(self):
        self.fail_with(train(2, "--batch", "1501"), 1, "--batch 1501")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
