"""What a program under test finds around it: nothing that a launcher or a person has set for ddl, and no home of theirs."""
import os
import pathlib
import re
import sys
import tempfile

# Where ranks make and find their user's secrets, instead of where this user has his own.
PLACES = tempfile.TemporaryDirectory(prefix=f"ddl-test-home-{pathlib.Path(sys.argv[0]).stem}-")


def clean_environment():
    """Ours without what a launcher or a person may have set for ddl, and with another home."""
    foreign = re.compile(r"^(DDL_(?!TEST)|RANK$|WORLD_SIZE$|LOCAL_|GROUP_|NODE_RANK$|ROLE_|MASTER_|TORCHELASTIC|"
                         r"SLURM_|PMI|MPI_|OMPI_)")
    return {**{k: v for k, v in os.environ.items() if not foreign.match(k)},
            "HOME": PLACES.name, "XDG_RUNTIME_DIR": PLACES.name}
