"""Jobs of a few processes under the launcher, with a deadline."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from folder import FolderTest  # noqa: E402
from surroundings import clean_environment  # noqa: E402
from waiting import bound, wait_until  # noqa: E402, F401 (for the tests, too)

LIMIT_S = bound(60)


def run(command, stdout=subprocess.PIPE, **more_environment):
    """The finished process; what it wrote is in .stdout, unless that is a file, and in .stderr."""
    return subprocess.run(command, env={**clean_environment(), **more_environment}, stdin=subprocess.DEVNULL,
                          stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)


def launch(launcher, nranks, program, *arguments):
    return run([launcher, "--no-prefix", "--nproc_per_node", str(nranks), program, *arguments])


def start(launcher, nranks, program, *arguments):
    """A job that is running; its output is a pipe."""
    return subprocess.Popen([launcher, "--no-prefix", "--nproc_per_node", str(nranks), program, *arguments],
                            env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


class JobTest(FolderTest):
    def succeed(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done
