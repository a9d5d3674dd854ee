"""Connections whose other end is gone without a word, so that nothing ever comes back, not even a reset: each side finds out by itself, whether the connection was idle
or in the middle of something, and the job goes on by another network, or ends and names the host if there is none.
"""

import os
import signal
import subprocess
import time

from ..time_limits import CONNECTION_IDLE_S, CONNECTION_SILENT_S, HOST_SILENT_S, LINE_SILENT_S, within
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts, Parted
from ..runner import Case
from .hosts import SILENCE_S, Job


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    with Hosts(2):
        pass  # says once why not, if hosts cannot be made
    binaries = context.work / "half-open"
    binaries.mkdir(exist_ok=True)
    programs = []
    for name in ("quiet", "talk"):
        program = binaries / name
        context.build_program("half-open", f"tests/hosts/{name}.c", program)
        programs.append(program)
    for case in (idle_ranks, last_word, ranks_in_a_message, idle_agents, agents_in_output):
        yield Case(f"half-open/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, *programs), waits=True)


def connections(hosts, network, name):
    """On each host: the connections by a network that its kernel holds for open, of processes of this name."""
    ss = ["ss", "-Htnp", "state", "established", "dst", f"10.77.{network}.0/24"]
    found = [subprocess.run(["ip", "netns", "exec", host, *ss], capture_output=True, text=True, check=True).stdout for host in hosts.names]
    return [[line for line in lines.splitlines() if f'("{name}' in line] for lines in found]


def network_of(hosts, name):
    """The network by which processes of this name on both hosts have a connection."""
    until = time.monotonic() + PATIENCE_S
    while True:
        for network in (0, 1):
            if all(connections(hosts, network, name)):
                return network
        expect(time.monotonic() < until, f"no connection of {name}", "")
        time.sleep(0.1)


def both_find_out(hosts, network, name, promised):
    until = time.monotonic() + within(promised)
    while any(left := connections(hosts, network, name)):
        expect(time.monotonic() < until, f"{name} does not find out within {promised} s", str(left))
        time.sleep(0.2)


def call(job, quiet):
    """Has rank 1 call MPI_Recv."""
    for pid in job.ranks(quiet):
        os.kill(pid, signal.SIGUSR2)


def at_rest(hosts, name):
    """The network of the one connection that these processes have, when all that they said has arrived. What rank 0 did not hear confirmed nobody sees to while it computes."""
    network, until = network_of(hosts, name), time.monotonic() + PATIENCE_S
    rest = 0
    while rest < 5:
        expect(time.monotonic() < until, "there is always something under way", "")
        time.sleep(0.1)
        # The second column: bytes that left and were not confirmed.
        confirmed = all(line.split()[1] == "0" for lines in connections(hosts, network, name) for line in lines)
        rest = rest + 1 if confirmed else 0
    return network


def quiet_pair(context, quiet, part, promised):
    """Two ranks with one connection, whose network `part` has swallow everything from some moment on: both find out, and go on by the other network."""
    with Parted(2) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", quiet])
        with job:
            job.wait_for_ranks(quiet, 2)
            both_find_out(hosts, part(hosts, job), "quiet", promised)
        job.end_well(quiet, SILENCE_S)


def idle_ranks(context, quiet, talk):
    """Neither has anything to say, one waits in a receive: the kernel's probes tell both. What is said later goes by the other network."""
    del talk

    def part(hosts, job):
        network_of(hosts, "quiet")
        call(job, quiet)
        network = at_rest(hosts, "quiet")
        hosts.part(network)
        return network

    quiet_pair(context, quiet, part, CONNECTION_IDLE_S)


def last_word(context, quiet, talk):
    """Before a rank goes to sleep it acknowledges what it got, and nothing answers to that: the kernel, which repeats it for a quarter of an hour, sends no probes meanwhile."""
    del talk

    def part(hosts, job):
        network = at_rest(hosts, "quiet")
        hosts.part(network)
        call(job, quiet)
        return network

    quiet_pair(context, quiet, part, CONNECTION_SILENT_S)


def ranks_in_a_message(context, quiet, talk):
    """Large data and small messages are under way by both networks: what one of them swallowed comes by the other."""
    del quiet
    with Parted(2) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "4000000"])
        with job:
            job.wait_for_ranks(talk, 2)
            network_of(hosts, "talk")
            for network in (0, 1):
                until = time.monotonic() + PATIENCE_S
                while not all(connections(hosts, network, "talk")):
                    expect(time.monotonic() < until, f"no connection by network {network}", "")
                    time.sleep(0.1)
            hosts.part(0)
            both_find_out(hosts, 0, "talk", CONNECTION_SILENT_S)
        job.end_well(talk, 2 * SILENCE_S)


def idle_agents(context, quiet, talk):
    """Ranks that are no MPI programs say nothing at all: the agents alone can find out, and do."""
    del quiet, talk
    with Parted(1) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", "sleep", "1000"])
        with job:
            job.wait_for_ranks("sleep", 2)
            hosts.part(0)
        code, output = job.end(within(HOST_SILENT_S))
        expect(code != 0 and "G0217" in output and hosts.names[1] in output, f"exit code {code}", output)


def agents_in_output(context, quiet, talk):
    """A rank of the other host writes when the line of its agent's is swallowed: all that it wrote comes by the other network, once and in order."""
    del quiet, talk
    count, writing_s = 400000, 5
    with Parted(2) as hosts:
        # Never much at a time, so that it is still writing when the network is gone.
        script = f"for part in $(seq 0 39); do seq $((part * {count // 40} + 1)) $(((part + 1) * {count // 40})); sleep 0.1; done"
        job = Job(context, hosts, ["--host", f"{hosts.names[1]}:1", "sh", "-c", script])
        with job:
            job.wait_for_ranks("sh", 1)
            network = network_of(hosts, "garonne")
            hosts.part(network)
        code, output = job.end(within(LINE_SILENT_S, writing_s))
        expect(code == 0 and output.splitlines() == [str(number) for number in range(1, count + 1)], f"exit code {code}: lines are missing", output)
