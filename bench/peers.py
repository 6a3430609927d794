"""The libraries: what each needs, how its driver is built, and how that is started."""
import dataclasses
import glob
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRIVERS = os.path.join(ROOT, "bench", "drivers")
C = "-std=gnu11", "-O2"


class Broken(Exception):
    """A command that has to work did not."""


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str  # in --peers and in the CSV
    label: str  # in tables and plots
    packages: tuple  # of Debian
    driver: str  # the program; several peers may be settings of one
    source: str
    compiler: tuple
    launcher: tuple  # {ranks} stands for their number, {ddl_launch} for that program
    transports: dict  # name: (more words for the launcher, environment)
    libraries: tuple = ()
    header: str = os.devnull  # there if the library is, where the compiler's own presence does not tell
    lacks: tuple = ()  # collectives
    module: str = ""  # of Python, which is not of Debian
    interpreter: tuple = ()  # what is started, to call back from the driver; empty: the driver itself

    def is_here(self):
        if self.module and importlib.util.find_spec(self.module) is None:
            return False
        programs = [word for word in (self.compiler[0], self.launcher[0]) if "{" not in word]
        if any(shutil.which(program) is None for program in programs):
            return False
        look = [*self.compiler, "-E", "-include", self.header, os.path.join(DRIVERS, "driver.h")]
        return subprocess.run(look, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def needs(self):
        """What is to be installed, in words."""
        if self.module:
            return f"Python's module {self.module} (pip install {self.module}, for {sys.executable})"
        return f"{' '.join(self.packages)} (--install gets them)"

    def can(self, transport, collective):
        return transport in self.transports and collective not in self.lacks

    def start(self, tools, transport, ranks):
        """The words that start its driver, but for the driver's own, and the environment that goes with them."""
        words, environment = self.transports[transport]
        launcher = [word.format(ranks=ranks, ddl_launch=tools["ddl-launch"]) for word in (*self.launcher, *words)]
        return [*launcher, *self.interpreter, tools[self.driver]], environment


def openmpi(name, label, *words, shm=(), **environment):
    """A setting of Open MPI. Its layer ob1 is named lest it find another one, which would choose transports itself;
    vader is what it calls its shared memory."""
    return Peer(name, label, ("openmpi-bin", "libopenmpi-dev"), "openmpi", "mpi.c", ("mpicc.openmpi", *C),
                ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "{ranks}", "--mca", "pml", "ob1", *words),
                {"shm": (("--mca", "btl", "vader,self", *shm), environment),
                 "tcp": (("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"), environment)})


DDL_LAUNCH = "{ddl_launch}", "--no-prefix", "--nproc_per_node", "{ranks}"
YIELD = "--mca", "mpi_yield_when_idle", "1"
PEERS = {peer.name: peer for peer in (
    Peer("ddl", "ddl", (), "ddl", "ddl.c", ("cc", *C), DDL_LAUNCH,
         {"shm": ((), {"DDL_TRANSPORT": "shm"}), "tcp": ((), {"DDL_TRANSPORT": "tcp"})}),
    # With buffers that the other ranks of the host reach, which no other library has.
    Peer("ddl-shared", "ddl, ddl_mem_alloc", (), "ddl", "ddl.c", ("cc", *C), DDL_LAUNCH,
         {"shm": ((), {"DDL_TRANSPORT": "shm", "BENCH_MEMORY": "shared"})}),
    openmpi("openmpi", "Open MPI"),
    openmpi("openmpi-yield", "Open MPI, yielding", *YIELD),
    # With its collectives for shared memory, which it does not choose by itself (and which would be taken beside TCP
    # too), and with a heap that keeps what is freed: it takes new memory in every large operation.
    openmpi("openmpi-tuned", "Open MPI, tuned", *YIELD, shm=("--mca", "coll_sm_priority", "90"),
            MALLOC_MMAP_THRESHOLD_="4294967296", MALLOC_TRIM_THRESHOLD_="17179869184"),
    Peer("mpich", "MPICH", ("mpich", "libmpich-dev"), "mpich", "mpi.c", ("mpicc.mpich", *C),
         ("mpiexec.mpich", "-n", "{ranks}"),
         {"shm": ((), {}), "tcp": ((), {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"})}),
    # Its sums are templates in its headers: they are as fast as they are compiled here. It has no launcher; any will
    # do that sets RANK and WORLD_SIZE.
    Peer("gloo", "Gloo", ("g++", "libgloo-dev"), "gloo", "gloo.cc", ("g++", "-std=c++17", "-O3"), DDL_LAUNCH,
         {"tcp": ((), {})}, ("-lgloo", "-lpthread"), "gloo/context.h",
         ("reduce_scatter",)),
    # The Gloo of today, as programs that train call it.
    Peer("torch", "torch.distributed", (), "torch", "python.c", ("cc", *C, "-fPIC", "-shared"), DDL_LAUNCH,
         {"tcp": ((), {"GLOO_SOCKET_IFNAME": "lo"})}, module="torch",
         interpreter=(sys.executable, os.path.join(DRIVERS, "torch_gloo.py"))),
)}
DEFAULT = "ddl", "openmpi", "openmpi-yield", "mpich", "gloo"


def install(packages):
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    run([*as_root, "apt-get", "install", "-y", "--no-install-recommends", *packages])


def install_ddl(build):
    """Builds the working tree for release and installs it into a folder of the build directory; the folder."""
    prefix = os.path.join(build, "installed")
    if not os.path.exists(os.path.join(build, "ddl", "build.ninja")):
        run(["meson", "setup", os.path.join(build, "ddl"), ROOT, "--buildtype=release", "-Dtests=false", "--prefix", prefix])
    run(["meson", "install", "-C", os.path.join(build, "ddl"), "--quiet"])
    return prefix


def build_drivers(peers, prefix, build):
    """{name: path} of each driver, of limits and of ddl-launch. prefix is where ddl is installed, or was built."""
    out = os.path.join(build, "drivers")
    os.makedirs(out, exist_ok=True)
    tools = {"ddl-launch": find(prefix, "bin/ddl-launch", "tools/launch/ddl-launch"),
             "limits": os.path.join(out, "limits")}
    loop = os.path.join(out, "driver.o")
    run(["cc", *C, "-fPIC", "-c", os.path.join(DRIVERS, "driver.c"), "-o", loop])
    run(["cc", *C, "-O3", "-march=native", os.path.join(DRIVERS, "limits.c"), "-o", tools["limits"]])
    for peer in {peer.driver: peer for peer in peers}.values():
        tools[peer.driver] = os.path.join(out, peer.driver)
        flags = ddl_flags(prefix) if peer.driver == "ddl" else peer.libraries
        run([*peer.compiler, os.path.join(DRIVERS, peer.source), loop, "-o", tools[peer.driver], *flags])
    return tools


def find(prefix, *places):
    found = [path for place in places for path in glob.glob(os.path.join(glob.escape(prefix), place))]
    if not found:
        raise Broken(f"there is no ddl in {prefix}: no {' and no '.join(places)}")
    return found[0]


def ddl_flags(prefix):
    package = find(prefix, "lib/pkgconfig/ddl.pc", "lib/*/pkgconfig/ddl.pc", "meson-uninstalled/ddl-uninstalled.pc")
    text = run(["pkg-config", "--cflags", "--libs", "ddl"], PKG_CONFIG_PATH=os.path.dirname(package))
    flags = shlex.split(text)
    if package.endswith("-uninstalled.pc"):
        flags.append("-I" + os.path.join(ROOT, "include"))
    return flags + ["-Wl,-rpath," + flag[2:] for flag in flags if flag.startswith("-L")]


def run(command, **environment):
    """What it prints; Broken, with all it said, if it fails."""
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Broken(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Broken(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
