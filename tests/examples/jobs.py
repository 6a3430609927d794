"""Jobs of a few processes under the launcher, with a deadline."""
import os
import re
import subprocess
import tempfile

# Sanitizers slow everything down; the build says by how much.
PATIENCE = float(os.environ.get("DDL_TEST_PATIENCE", "1"))
LIMIT_S = 60 * PATIENCE


PLACES = tempfile.TemporaryDirectory(prefix="ddl-jobs-")


def clean_environment():
    """Ours without what a launcher or a person may have set for ddl."""
    foreign = re.compile(r"^(DDL_(?!TEST)|RANK$|WORLD_SIZE$|LOCAL_|GROUP_|NODE_RANK$|ROLE_|MASTER_|TORCHELASTIC|"
                         r"SLURM_|PMI|OMPI_)")
    kept = {k: v for k, v in os.environ.items() if not foreign.match(k)}
    return {**kept, "HOME": PLACES.name, "XDG_RUNTIME_DIR": PLACES.name}  # where ddl keeps secrets


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
