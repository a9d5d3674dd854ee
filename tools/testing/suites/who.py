"""What `garonne who` says of jobs on several hosts, which are network namespaces: hangs over hosts, hosts that do not answer, and ranks that only seem to hang."""

import json
import os
import signal
import subprocess
import time

from ..other_launchers import Hydra
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Hosts, Wires
from ..runner import Case, check
from .launchers import program

# Receives of which each waits for the next; with an argument in pairs of neighbours.
RING = """#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size, x = 0;
    MPI_Comm halo;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    MPI_Comm_set_name(halo, "halo");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(&x, 1, MPI_INT, argc > 1 ? rank ^ 1 : (rank + 1) % size, 7, halo, MPI_STATUS_IGNORE); /* waits */
    MPI_Finalize();
    return 0;
}
"""
# Ranks 0 and 1 of two hosts alone in a communicator that has made no collective call yet, and then in different ones.
DIFFERENT = """#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size, x = 0;
    MPI_Comm two;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 || rank == size - 1, 0, &two);
    if (rank == 0) MPI_Barrier(two);
    else if (rank == size - 1) MPI_Bcast(&x, 1, MPI_INT, 0, two);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""
# Rank 1 refuses its own arguments, does not call again, and waits for rank 0, which waits for it.
REFUSED = """#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, x = 1, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&x, &sum, 1, MPI_INT, rank == 1 ? MPI_OP_NULL : MPI_SUM, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
"""

# Exit codes that say what was found.
FINDINGS = (0, 10, 11, 12, 13, 14)


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    for place in ("launchers", "who"):
        (context.work / place).mkdir(exist_ok=True)
    talk = program(context, "hosts", "talk")
    yield Case("who/waits", lambda: waits(context))
    yield Case("who/refused and not called again", lambda: refused(context))
    yield Case("who/without a host", lambda: without_a_host(context))
    yield Case("who/another launcher", lambda: another_launcher(context))
    yield Case("who/moves", lambda: moves(context, talk))


def run(context, hosts, arguments, extra=None):
    """`garonne run` on the first of some hosts."""
    command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec", *arguments]
    return MarkedJob(command, context.environment(extra))


def launcher(job):
    """The process of `garonne run` itself."""
    return min(pid for pid, command in job.alive().items() if " run --launcher" in command)


def who(context, hosts, job, at=0, until=None):
    """What `garonne who` on one of the hosts says, once it says all of `until`; and for how long the last one looked."""
    # A network has one agent, so its job need not be named.
    command = ["ip", "netns", "exec", hosts.names[at], context.prefix / "bin" / "garonne", "who", "--json"]
    patience = time.monotonic() + PATIENCE_S
    while True:
        began = time.monotonic()
        done = subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        said = json.loads(done.stdout) if done.returncode in FINDINGS else None
        if said is not None:
            expect(done.returncode == said["verdict"]["exit_code"], f"exit code {done.returncode}", done.stdout)
            if until is None or until(said):
                return said, time.monotonic() - began
        expect(time.monotonic() < patience, "who does not say what it should", done.stdout + done.stderr)
        time.sleep(0.2)


def hanging(context, name, text):
    """A program that hangs."""
    source, program = context.work / "who" / f"{name}.c", context.work / "who" / name
    source.write_text(text)
    check(context.execute(f"who build {name}", [context.mpicc(), "-g", "-O1", "-Wall", "-Werror", source, "-o", program], timeout=60))
    return program


def line_of(text, mark):
    return next(number for number, line in enumerate(text.splitlines(), 1) if mark in line)


def waits(context):
    """A hang over several hosts is explained from each of them, also the launcher's, which has no rank, and one whose agent reports to another than the first: a ring of receives, and different
    collectives."""
    ring, different = hanging(context, "ring", RING), hanging(context, "different", DIFFERENT)
    with Hosts(4) as hosts:
        where = ["--host", f"{hosts.names[1]}:2,{hosts.names[2]}:2,{hosts.names[3]}:1"]
        job = run(context, hosts, [*where, ring], {"GARONNE_FAN_OUT": "2"})
        with job:
            job.wait_for_ranks(ring, 5)
            for at in range(4):
                said, _ = who(context, hosts, job, at, lambda said: said["verdict"]["kind"] == "deadlock")
                expect(said["verdict"]["ranks"] == [0, 1, 2, 3, 4] and not said["elsewhere"] and not said["mismatch"], f"host {at}", str(said))
                ranks = {rank["rank"]: rank for rank in said["ranks"]}
                expect([ranks[rank]["host"] for rank in range(5)] == [hosts.names[at] for at in (1, 1, 2, 2, 3)], "where ranks are", str(said))
                for rank in range(5):
                    wait = ranks[rank]["waits_for"]
                    expect(wait["call"] == "MPI_Recv" and wait["peer"] == (rank + 1) % 5 and f"ring.c:{line_of(RING, '/* waits */')}" in wait["place"], f"rank {rank}", str(said))
                    expect(wait["comm_name"] == 'comm "halo"' and f"rank {rank}: MPI_Recv" in said["verdict"]["text"], f"rank {rank}", str(said))
        os.kill(launcher(job), signal.SIGINT)
        job.end()
        job = run(context, hosts, [*where, different])
        with job:
            job.wait_for_ranks(different, 5)
            said, _ = who(context, hosts, job, 0, lambda said: said["mismatch"])
            expect("MPI_Bcast #" in said["mismatch"] and "MPI_Barrier #" in said["mismatch"], "no mismatch", str(said))
        os.kill(launcher(job), signal.SIGINT)
        job.end()


def refused(context):
    """A rank whose call was refused for its arguments has not taken part: the others are seen to wait for it there, and it where it went on."""
    program = hanging(context, "refused", REFUSED)
    with Hosts(2) as hosts:
        job = run(context, hosts, ["-n", "4", "--map-by", "node", "--host", f"localhost,{hosts.names[1]}", program])
        with job:
            job.wait_for_ranks(program, 4)
            said, _ = who(context, hosts, job, 0, lambda said: said["verdict"]["kind"] == "deadlock")
            ranks = {rank["rank"]: rank["waits_for"]["call"] for rank in said["ranks"]}
            expect(ranks[0] == "MPI_Allreduce" and ranks[1] == "MPI_Recv" and {0, 1} <= set(said["verdict"]["ranks"]), "it is not explained", str(said))
        os.kill(launcher(job), signal.SIGINT)
        job.end()


def another_launcher(context):
    """Agents that have not started their ranks look as well."""
    ring = hanging(context, "adopted", RING)
    with Hydra(context) as engine, Hosts(2) as hosts:
        job = MarkedJob(engine.across(context, hosts, 4, [ring]), context.environment())
        with job:
            job.wait_for_ranks(ring, 4)
            for at in range(2):
                said, _ = who(context, hosts, job, at, lambda said: said["verdict"]["kind"] == "deadlock")
                expect(said["verdict"]["ranks"] == [0, 1, 2, 3] and not said["elsewhere"], f"host {at}", str(said))
            job.sweep()
        job.end()


def without_a_host(context):
    """A host whose agent is stopped is named within the time that it has; what is certain without it is still said. When it goes on it is seen again."""
    ring = hanging(context, "pairs", RING)
    with Hosts(3) as hosts:
        where = ["--host", f"localhost:1,{hosts.names[1]}:2,{hosts.names[2]}:1"]
        job = run(context, hosts, [*where, ring, "pairs"])
        with job:
            job.wait_for_ranks(ring, 4)
            who(context, hosts, job, 0, lambda said: said["verdict"]["kind"] == "deadlock" and len(said["ranks"]) == 4)
            last = max(job.ranks(ring), key=rank_of)
            with open(f"/proc/{last}/stat", encoding="utf-8") as stat:
                agent = int(stat.read().rpartition(")")[2].split()[1])  # its parent
            os.kill(agent, signal.SIGSTOP)
            try:
                said, took = who(context, hosts, job)
                # Once LOOK_WAIT, and what the machine's other work costs.
                expect(took < 12, f"it took {took:.1f} s", str(said))
                expect([(far["host"], far["ranks"]) for far in said["elsewhere"]] == [(hosts.names[2], [3])], "the host that is stopped is not named", str(said))
                expect(sorted(rank["rank"] for rank in said["ranks"]) == [0, 1, 2], "other ranks than those of the others", str(said))
                expect(said["verdict"]["kind"] == "deadlock" and said["verdict"]["ranks"] == [0, 1], "what is certain is not said", str(said))
            finally:
                os.kill(agent, signal.SIGCONT)
            said, _ = who(context, hosts, job, 0, lambda said: not said["elsewhere"])
            expect(len(said["ranks"]) == 4, "it is not seen again", str(said))
        os.kill(launcher(job), signal.SIGINT)
        job.end()


def moves(context, talk):
    """Ranks of two hosts that talk are never said to hang, though they wait for each other all the time: on a quick wire, and on one that takes most of a second for a large message."""
    for rate, large in ((None, 1_000_000), ("20mbit", 2_000_000)):
        with Wires([rate]) as hosts:
            job = run(context, hosts, ["--host", f"localhost:2,{hosts.names[1]}:2", talk, "0", large])
            with job:
                job.wait_for_ranks(talk, 4)
                who(context, hosts, job, 0, lambda said: len(said["ranks"]) == 4)
                for number in range(20):
                    said, _ = who(context, hosts, job, number % 2)
                    expect(said["verdict"]["kind"] in ("moving", "awaited") and not said["mismatch"] and not said["elsewhere"], f"wire {rate}", str(said))
            os.kill(launcher(job), signal.SIGINT)
            job.end()


def rank_of(pid):
    """The rank that a process is started as."""
    with open(f"/proc/{pid}/environ", "rb") as environment:
        return next(int(entry.split(b"=")[1]) for entry in environment.read().split(b"\0") if entry.startswith(b"GARONNE_RANK="))
