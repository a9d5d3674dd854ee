"""Eight hosts at once, which are network namespaces on a bridge: our C programs and talk across them, an agent that is killed, links that fail for a while and for good, a rail that is left
alone and taken back on all of them."""

import json
import os
import random
import re
import signal
import subprocess
import time

from ..time_limits import HOST_SILENT_S, within
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts
from ..runner import Case
from . import c as programs
from .hosts import SILENCE_S, Job, rail_that_answers, run
from .agent_tree import agent_of

HOSTS = 8
# What is said where an agent's line has ended; there are other words where it was silent, or was broken and not made again.
KILLED = "its agent was killed"
# Programs of tests/c and on how many ranks, which are shared out in turn; the others in the long form.
ACROSS, SOAK_ACROSS = {"communicators": 9, "topologies": 12}, {"collectives": 8, "operations": 8, "p2p": 8, "windows": 8}


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    with Hosts(1):
        pass  # says once why not, if hosts cannot be made
    binaries = context.work / "eight"
    binaries.mkdir(exist_ok=True)
    talk = binaries / "talk"
    context.build_program("eight-hosts", "tests/hosts/talk.c", talk)
    for name, ranks in (ACROSS | SOAK_ACROSS if context.soak else ACROSS).items():
        program = binaries / name
        programs.build(context, context.root / "tests" / "c" / f"{name}.c", program)
        yield Case(f"eight-hosts/{name} on {ranks}", lambda program=program, ranks=ranks: across(context, program, ranks))
    for case in (talk_on_all, agent_is_killed, links_flap, rail_on_all, *([link_is_cut] if context.soak else [])):
        yield Case(f"eight-hosts/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk))


def where(hosts, slots=1):
    return ["--host", ",".join(f"{name}:{slots}" for name in ["localhost", *hosts.names[1:]])]


def across(context, program, ranks):
    with Hosts(HOSTS) as hosts:
        code, output = run(context, hosts, ["-n", ranks, "--map-by", "node", *where(hosts), program], limit=3 * PATIENCE_S)
        expect(code == 0, f"exit code {code}", output)


def talk_on_all(context, talk):
    """Two ranks on each; in the order of hosts and in turns."""
    with Hosts(HOSTS) as hosts:
        for order in ([], ["--map-by", "node"]):
            code, output = run(context, hosts, [*order, *where(hosts, 2), talk, 6, 3000000])
            said = re.findall(r"rank \d+ of 16 on (\S+) with 2", output)
            expect(code == 0 and "all is well" in output and len(said) == 16 and len(set(said)) == HOSTS, f"exit code {code}", output)


def agent_is_killed(context, talk):
    """Any of them, or the process that has started it: the job ends by the end of its line, and not since a line was silent or could not be made again, and names its host."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))
    dice = random.Random(seed)
    with Hosts(HOSTS) as hosts:
        for generation in (0, 2):
            name = dice.choice(hosts.names[1:])
            job = Job(context, hosts, [*where(hosts), talk, "0"])
            with job:
                job.wait_for_ranks(talk, HOSTS)
                victim = agent_of(job, name)
                for _ in range(generation):
                    victim = parent_of(victim)
                os.kill(victim, signal.SIGKILL)
            code, output = job.end()
            first = output.splitlines()[0]
            expect(code != 0 and "G0217" in first and name in first, f"GARONNE_TEST_SEED={seed}: exit code {code}", output)
            expect(KILLED in first, f"GARONNE_TEST_SEED={seed}: not known by the end of its line", output)


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def links_flap(context, talk):
    """Three links are down for some seconds, two of them at one time: nothing is lost."""
    with Hosts(HOSTS) as hosts:
        job = Job(context, hosts, [*where(hosts), talk, "0"])
        with job:
            job.wait_for_ranks(talk, HOSTS)
            time.sleep(0.5)
            for several in ((3, 8), (5,)):
                for index in several:
                    hosts.cut(index)
                time.sleep(2)
                for index in several:
                    hosts.mend(index)
            time.sleep(0.5)
        job.end_well(talk, 2 * SILENCE_S)


def link_is_cut(context, talk):
    """A host vanishes without a word: it is named, and all others end."""
    with Hosts(HOSTS) as hosts:
        job = Job(context, hosts, [*where(hosts), talk, "0"])
        with job:
            job.wait_for_ranks(talk, HOSTS)
            hosts.cut(6)
        code, output = job.end(limit=within(HOST_SILENT_S))
        expect(code != 0 and "G0217" in output and hosts.names[5] in output, f"exit code {code}", output)


def rail_on_all(context, talk):
    """A second network comes to all hosts while the job runs, is added, the first is drained and taken back, and the second removed: on all hosts, by one command on one of them."""
    with Hosts(HOSTS) as hosts:

        def rail(*words):
            return rail_that_answers(context, hosts, *words)

        def packets(interface):
            """How many connections for packets the first host has there."""
            return {row["interface"]: row["connections"]["packets"] for row in json.loads(rail("--json"))}.get(interface, 0)

        def connections(network):
            """How many each host has there."""
            found = []
            for name in hosts.names:
                ss = ["ip", "netns", "exec", name, "ss", "-Htn", "state", "established", "src", network]
                found.append(len(subprocess.run(ss, capture_output=True, text=True, check=True).stdout.splitlines()))
            return found

        def wait_until(what, is_so):
            until = time.monotonic() + PATIENCE_S
            while not is_so():
                expect(time.monotonic() < until, f"{what} never came", f"{connections('10.77.0.0/24')} {connections('10.78.0.0/24')}\n{rail()}")
                time.sleep(0.2)

        job = Job(context, hosts, [*where(hosts), talk, "0", "2000000"])
        with job:
            job.wait_for_ranks(talk, HOSTS)
            hosts.add("net1", "10.78.0")
            rail("add", "10.78.0.0/24")
            wait_until("large data on the new network, on every host", lambda: all(connections("10.78.0.0/24")))
            rail("drain", "10.77.0.0/24")
            wait_until("packets on the new one alone", lambda: packets("net0") == 0)
            rail("add", "10.77.0.0/24")
            rail("remove", "10.78.0.0/24")
            wait_until("packets on the first one again", lambda: packets("net1") == 0)
        job.end_well(talk, 2 * SILENCE_S)
