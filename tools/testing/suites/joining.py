"""Hosts that join a job with a key: namespaces of which some take no calls, as containers behind a translator, two that can only meet at a third one or cannot meet at all,
and what is left when anything of such a job is killed at any moment.
"""

import os
import random
import re
import signal
import subprocess
import time

from ..time_limits import APART_S, CONNECTION_SILENT_S, HOST_SILENT_S, within
from ..marked_jobs import PATIENCE_S, MarkedJob, expect, kill_one
from ..namespaces import OneWay
from ..runner import Case, Failure, check
from .hosts import ROUNDS, SILENCE_S, SOAK_ROUNDS

KEY = re.compile(r"garonne join (\S+)")
# Where a first host takes calls that takes no others.
KEY_PORT = 40000
# A message that is announced, and takes every network.
LARGE = 3000000


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    with OneWay(2, closed=[2]):
        pass  # says once why not, if hosts cannot be made
    place = context.work / "joining"
    place.mkdir(exist_ok=True)
    talk = place / "talk"
    context.build_program("joining", "tests/hosts/talk.c", talk)
    for case in (outbound_alone, calls_are_refused, one_of_two_guests, two_that_call_out_alone, met_and_cut, met_and_died, two_that_cannot_meet, busy_ranks, cut_off, kills):
        yield Case(f"joining/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk), waits=case not in (busy_ranks, kills), second_try=case is not kills)


class Job:
    """`garonne run --join-key` on the first of some hosts, and `garonne join` on the others: jobs of one mark each."""

    def __init__(self, context, hosts, arguments, slots):
        self.context, self.hosts = context, hosts
        count = ["--join-hosts", len(slots)]
        self.run = MarkedJob(self.on(0, "run", "--join-key", *count, *arguments), context.environment())
        line = self.run.process.stdout.readline().decode()
        if not (found := KEY.fullmatch(line.strip())):
            raise Failure(f"no key is printed, but: {line}{self.run.process.communicate()[0].decode(errors='replace')}")
        self.key = found[1]
        self.guests = []
        for index, offered in enumerate(slots, 1):
            command = self.on(index, "join", "-", "--slots", offered, "--name", f"h{index + 1}")
            guest = MarkedJob(command, context.environment(), subprocess.PIPE)
            guest.process.stdin.write(f"{self.key}\n".encode())
            guest.process.stdin.flush()
            self.guests.append(guest)
            time.sleep(0.1)  # so that ranks are in the order of the hosts

    def on(self, index, *words):
        return ["ip", "netns", "exec", self.hosts.names[index], self.context.prefix / "bin" / "garonne", *words]

    def end(self, limit=PATIENCE_S):
        """Exit codes and outputs of all, the job's first."""
        parts = [self.run, *self.guests]
        try:
            ended = [part.end(limit) for part in parts]
        finally:
            for part in parts:
                part.sweep()
        return [code for code, _ in ended], [output for _, output in ended]

    def alive(self):
        found = {}
        for part in [self.run, *self.guests]:
            found.update(part.alive())
        return found

    def ranks(self, program, part=None):
        """The processes of ranks, of the whole job or of one part of it."""
        alive = (part or self).alive()
        return sorted(pid for pid, command in alive.items() if command.startswith(str(program)))

    def stop(self, program):
        """Has the ranks come to their end, of which one suffices."""
        for pid in self.ranks(program):
            os.kill(pid, signal.SIGUSR1)

    def wait_for_ranks(self, program, count):
        until = time.monotonic() + PATIENCE_S
        while len(self.ranks(program)) < count:
            if time.monotonic() > until or self.run.process.poll() is not None:
                codes, outputs = self.end()
                raise Failure(f"the ranks do not come: {codes} {outputs}")
            time.sleep(0.02)


def wait_until(what, is_so, seen=lambda: ""):
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        expect(time.monotonic() < until, f"{what} never came", str(seen()))
        time.sleep(0.1)


def outbound_alone(context, talk):
    """Nothing but the guest's own calls gets through, and all pairs of ranks talk nevertheless."""
    with OneWay(2, closed=[2]) as hosts:
        codes, outputs = Job(context, hosts, ["-n", 4, talk, "20"], [2]).end()
        expect(codes == [0, 0] and "all is well" in outputs[0], f"exit codes {codes}", "".join(outputs))


def calls_are_refused(context, talk):
    """The same where calls are answered by a refusal, which elsewhere means that a rank has ended."""
    with OneWay(2, closed=[2], refusing=True) as hosts:
        codes, outputs = Job(context, hosts, ["-n", 4, talk, "20"], [2]).end()
        expect(codes == [0, 0] and "all is well" in outputs[0], f"exit codes {codes}", "".join(outputs))


def one_of_two_guests(context, talk):
    """Of two guests one takes no calls: the other does."""
    with OneWay(3, closed=[2]) as hosts:
        codes, outputs = Job(context, hosts, ["-n", 5, talk, "20"], [2, 2]).end()
        expect(codes == [0, 0, 0] and "all is well" in outputs[0], f"exit codes {codes}", "".join(outputs))


def two_that_call_out_alone(context, talk):
    """Two guests of which nobody can call either meet at the job's own host, whether their hosts refuse calls or say nothing; encrypted, too."""
    for refusing in (False, True):
        with OneWay(3, closed=[2, 3], refusing=refusing) as hosts:
            sealed = ["-x", "GARONNE_ENCRYPT=1"] * refusing
            codes, outputs = Job(context, hosts, ["-n", 5, *sealed, talk, "20", LARGE], [2, 2]).end()
            expect(codes == [0, 0, 0] and "all is well" in outputs[0], f"refusing: {refusing}: exit codes {codes}", "".join(outputs))


def two_meeting(context, hosts, talk):
    """A job of three hosts, a rank on each, that goes on until it is told to end: the second and the third have met at the first, with connections for packets and for large data."""
    job = Job(context, hosts, ["-n", 3, talk, "0", LARGE], [1, 1])
    job.wait_for_ranks(talk, 3)
    wait_until("connections where two meet", lambda: len(met_at(hosts)) >= 4, lambda: met_at(hosts))
    return job


def met_and_cut(context, talk):
    """The way of one of them to the host where they meet is gone for longer than a connection lasts without a word, in the middle of messages: nothing is lost, nothing comes twice."""
    with OneWay(3, closed=[2, 3]) as hosts:
        job = two_meeting(context, hosts, talk)
        time.sleep(1)
        before = met_at(hosts)
        hosts.cut(2)
        time.sleep(CONNECTION_SILENT_S + 2)
        hosts.mend(2)
        wait_until("other connections where two meet", lambda: len(met_at(hosts) - before) >= 2, lambda: met_at(hosts))
        time.sleep(2)
        job.stop(talk)
        codes, outputs = job.end(SILENCE_S)
        expect(codes == [0, 0, 0] and "all is well" in outputs[0], f"exit codes {codes}", "".join(outputs))


def met_and_died(context, talk):
    """A rank that another reaches through the host where they meet is killed: the job ends and names it."""
    with OneWay(3, closed=[2, 3]) as hosts:
        job = two_meeting(context, hosts, talk)
        victim = job.ranks(talk, job.guests[1])[0]
        os.kill(victim, signal.SIGKILL)
        codes, outputs = job.end(SILENCE_S)
        expect(0 not in codes and "SIGKILL" in outputs[0] and "rank 2" in outputs[0], f"exit codes {codes}", "".join(outputs))


def two_that_cannot_meet(context, talk):
    """Two guests that take no calls, and a first host that takes some at the port of its key alone: an error that names two hosts, and nothing is left."""
    starting_s = 5
    with OneWay(3, closed=[1, 2, 3], but=KEY_PORT) as hosts:
        codes, outputs = Job(context, hosts, ["-n", 3, "--join-port", KEY_PORT, talk, "5"], [1, 1]).end(within(APART_S, starting_s))
        said = outputs[0]
        expect(codes[0] != 0 and "G0229" in said and ("'h2'" in said or "'h3'" in said), f"exit codes {codes}", "".join(outputs))


def met_at(hosts):
    """Ends, at the first host, of connections that its agent has with the second and the third, but those of their lines, which end at the port of the key."""
    ss = ["ip", "netns", "exec", hosts.names[0], "ss", "-Htnp", "state", "established"]
    lines = [line.split() for line in subprocess.run(ss, capture_output=True, text=True, check=True).stdout.splitlines()]
    agents = [(words[2].rpartition(":")[2], words[3].replace("[::ffff:", "").replace("]", "")) for words in lines if '"garonne' in words[-1]]
    # The agents' lines are one of each host; where ranks meet is the other port.
    ports = {port for port, _ in agents}
    most = max(ports, key=lambda port: sum(port == at for at, _ in agents), default="")
    return {other for port, other in agents if port == most and sum(port == at for at, _ in agents) > 2}


def busy_ranks(context, talk):
    """A rank where no call gets in computes for longer than any patience with silent hosts: it is waited for."""
    del talk
    source = context.work / "joining" / "busy.c"
    source.write_text(BUSY)
    busy = source.with_suffix("")
    check(context.execute("joining build busy", [context.mpicc(), "-O1", "-Wall", "-Werror", source, "-o", busy], timeout=60))
    with OneWay(2, closed=[2]) as hosts:
        codes, outputs = Job(context, hosts, ["-n", 2, busy, "35"], [1]).end(SILENCE_S)
        expect(codes == [0, 0] and "it came" in outputs[0], f"exit codes {codes}", "".join(outputs))
    # Where two meet: longer than a call is kept there, and than two are given up that do not reach each other.
    with OneWay(3, closed=[2, 3]) as hosts:
        codes, outputs = Job(context, hosts, ["-n", 3, busy, APART_S + 8], [1, 1]).end(SILENCE_S)
        expect(codes == [0, 0, 0] and "it came" in outputs[0], f"exit codes {codes} where two meet", "".join(outputs))


BUSY = """#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, size, value = 7, left = atoi(argv[argc - 1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The last two ranks. */
    if (rank == size - 2) {
        MPI_Send(&value, 1, MPI_INT, rank + 1, 1, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, rank + 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == size - 1) {
        while (left > 0)
            left = sleep(left);
        MPI_Recv(&value, 1, MPI_INT, rank - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, rank - 1, 2, MPI_COMM_WORLD);
        printf("it came\\n");
    }
    MPI_Finalize();
    return value != 7;
}
"""


def cut_off(context, talk):
    """The network of a guest is gone without a word: both sides end, and say so."""
    with OneWay(2, closed=[2]) as hosts:
        job = Job(context, hosts, ["-n", 4, talk, "0"], [2])
        job.wait_for_ranks(talk, 4)
        hosts.cut(2)
        codes, outputs = job.end(within(HOST_SILENT_S))
        expect(0 not in codes and all("G0217" in output for output in outputs), f"exit codes {codes}", "".join(outputs))
        expect("'h2'" in outputs[0], "the host is not named", outputs[0])


def kills(context, talk):
    """Any process of the job, at any moment: all parts end with an error, and nothing is left on any host."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))
    dice = random.Random(seed)
    with OneWay(3, closed=[2]) as one, OneWay(3, closed=[2, 3]) as both:
        for number in range(SOAK_ROUNDS if context.soak else ROUNDS):
            hosts = (one, both)[number % 2]
            job = Job(context, hosts, ["-n", 4, "--join-timeout", 5, talk, "0"], [1, 2])
            time.sleep(dice.uniform(0, 0.8))
            # On a busy machine nothing may have begun yet.
            while not (victims := sorted(job.alive().items())):
                time.sleep(0.02)
            kinds = {}
            for pid, command in victims:
                kind = "guest" if " join " in command else "launcher" if " run " in command else "rank"
                kinds.setdefault(kind, []).append((pid, command))
            command = kill_one(dice, kinds)
            try:
                codes, outputs = job.end(SILENCE_S)
            except Failure as failure:
                raise Failure(f"GARONNE_TEST_SEED={seed}, round {number}, after the death of {command}: {failure}") from None
            expect(0 not in codes, f"GARONNE_TEST_SEED={seed}, round {number}: {codes} after the death of {command}", "".join(outputs))
