"""Jobs on several hosts, which are network namespaces on a bridge: our C programs and a part of mpi4py's suite across them, what users see
(output, input, failures), what is left when agents, ranks and launchers are killed at any moment, and what becomes of a link that is cut.
"""

import ctypes
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from ..time_limits import HOST_SILENT_S, within
from ..marked_jobs import PATIENCE_S, MarkedJob, expect, kill_one
from ..jobs_on_hosts import Job, children_of, launcher_of, on_host, rail_that_answers, run
from ..namespaces import Chain, Hosts, Six, Wires, namespaces
from ..runner import Case, Failure, Skip, check
from . import c as programs
from . import mpi4py

# When a job that goes on through what fails counts as hanging.
SILENCE_S = 90
ROUNDS, SOAK_ROUNDS = 10, 300
# How long strangers call the ports of a job.
STRANGERS_S = 6
# Programs of tests/c and on how many ranks. Not: what is promised for one node only (mismatch, overlap), and the flood, whose million of messages
# is for memory and takes minutes over TCP.
ACROSS = {
    "background": [2, 4, 5], "collectives": [2, 5], "communicators": [3, 5], "datatypes": [2], "environment": [3], "errors": [2, 5], "file_gathering": [3],
    "file_requests": [2], "file_sharing": [2], "file_views": [3], "files": [2], "notified": [3], "one_sided": [3], "operations": [4],
    "p2p": [2, 5], "partitioned": [3], "passive_target": [3], "reordered": [8], "results": [4], "sessions": [3], "threads": [3], "topologies": [5], "window_memory": [3], "windows": [4], "windows_kept": [3],
}
PART = ["test_cco_buf", "test_comm$", "test_p2p_buf", "test_p2p_obj"]


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    with Hosts(3):
        pass  # says once why not, if hosts cannot be made
    binaries = context.work / "hosts"
    binaries.mkdir(exist_ok=True)
    talk = binaries / "talk"
    context.build_program("hosts", "tests/hosts/talk.c", talk)
    for name, counts in ACROSS.items():
        program = binaries / name
        programs.build(context, context.root / "tests" / "c" / f"{name}.c", program)
        for ranks in counts:
            yield Case(f"hosts/{name} on {ranks}", lambda program=program, ranks=ranks: across(context, program, ranks))
    if not context.soak:
        yield python(context, PART)
    else:
        yield python(context, [])
    for case in (places, orders_of_ranks, words_and_input, failures, hosts_that_are_not_there, link_flaps, link_down_at_the_start, link_is_cut, second_program, ipv6_alone, several_networks, tuned_networks, network_that_comes, network_lost, gateway, settings_of_networks, one_side_encrypts, strangers, libfabric, libfabric_fails):
        yield Case(f"hosts/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk), waits=case in (hosts_that_are_not_there, link_flaps, link_is_cut, network_that_comes, network_lost))
    yield Case("hosts/the first agent stands still", lambda: first_agent_stands_still(context, talk), waits=True)
    yield Case("hosts/kills at any moment", lambda: kills(context, talk))


def across(context, program, ranks):
    with Hosts(2) as hosts:
        code, output = run(context, hosts, ["-n", ranks, "--map-by", "node", "--host", f"localhost,{hosts.names[1]}", program], limit=3 * PATIENCE_S)
        expect(code == 0, f"exit code {code}", output)


def python(context, modules):
    """mpi4py's own suite with ranks in turn on two hosts."""
    name = f"hosts/mpi4py {'part' if modules else 'whole'} on 4"
    hosts = Hosts(2)

    def within(run_case):
        def run():
            with hosts:
                return run_case()
        return run

    check(context.execute("mpi4py build", ["tools/mpi4py.sh", str(context.prefix)], timeout=1500))
    include = [word for module in modules for word in ("-i", module.replace("$", r"\.py"))]
    garonne = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec"]
    garonne += ["--map-by", "node", "--host", f"localhost,{hosts.names[1]}", "-n"]
    limit = mpi4py.PART_LIMIT_S if modules else mpi4py.SOAK_LIMIT_S
    case = mpi4py.run_case(context, name, 4, include, limit, launcher=lambda ranks: [*map(str, garonne), str(ranks)])
    return Case(case.name, within(case.run), alone=True)


def places(context, talk):
    """Every rank knows where it is, and who shares its host; several rounds of messages between all."""
    with Hosts(3) as hosts:
        line = f"localhost:2,{hosts.names[1]}:1,{hosts.names[2]}:2"
        code, output = run(context, hosts, ["--host", line, talk, "20"])
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        said = {int(rank): (name, int(here)) for rank, name, here in re.findall(r"rank (\d+) of 5 on (\S+) with (\d)", output)}
        expect(len({name for name, _ in said.values()}) == 3, "the hosts' names do not differ", output)
        expect([said[rank][1] for rank in range(5)] == [2, 2, 1, 2, 2], "ranks do not know who is near", output)
        # The launcher's host may have no ranks at all.
        code, output = run(context, hosts, ["--host", f"{hosts.names[1]},{hosts.names[2]}", talk, "5"])
        expect(code == 0 and "all is well" in output, f"exit code {code} without ranks on the launcher's host", output)
        # A binding that only other hosts cannot give is told here, once.
        code, output = run(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:2,{hosts.names[2]}:2", "--cpu-set", "0", "--bind-to", "core", talk, "5"])
        line = f"garonne run: ranks 1-4 on hosts {hosts.names[1]},{hosts.names[2]} share CPUs 0: there are too few for each to have its own"
        expect(code == 0 and output.count("garonne run: ") == 1 and line in output, f"exit code {code}", output)


def orders_of_ranks(context, talk):
    del talk
    with Hosts(2) as hosts:
        other = hosts.names[1]
        show = ["sh", "-c", "echo $PMI_RANK is $MPI_LOCALRANKID of $MPI_LOCALNRANKS at $(ip -4 -o address show net0 | grep -o '10[.]77[.]0[.][0-9]*')"]
        wanted = {
            ("--host", f"localhost:2,{other}:2"): ["0 is 0 of 2 at 10.77.0.1", "1 is 1 of 2 at 10.77.0.1", "2 is 0 of 2 at 10.77.0.2", "3 is 1 of 2 at 10.77.0.2"],
            ("-n", "3", "--map-by", "node", "-H", f"{other},localhost"): ["0 is 0 of 2 at 10.77.0.2", "1 is 0 of 1 at 10.77.0.1", "2 is 1 of 2 at 10.77.0.2"],
            ("-ppn", "1", "-hosts", f"localhost:4,{other}:4"): ["0 is 0 of 1 at 10.77.0.1", "1 is 0 of 1 at 10.77.0.2"],
        }
        for arguments, lines in wanted.items():
            code, output = run(context, hosts, [*arguments, *show])
            expect(code == 0 and sorted(output.splitlines()) == lines, f"{arguments}", output)
        listed = context.work / "hosts" / "hostfile"
        listed.write_text(f"# two hosts\nlocalhost slots=1\n{other}:2\n")
        code, output = run(context, hosts, ["--hostfile", listed, *show])
        expect(code == 0 and len(output.splitlines()) == 3 and "2 is 1 of 2 at 10.77.0.2" in output, "a file of hosts", output)


def words_and_input(context, talk):
    """Lines of ranks of all hosts stay whole, and the input reaches a rank of another host whole."""
    del talk
    with Hosts(2) as hosts:
        where = ["--host", f"{hosts.names[1]}:2,localhost:2"]
        code, output = run(context, hosts, [*where, "-l", "sh", "-c", "seq 1 30000; echo to-err-$PMI_RANK >&2"])
        lines = output.splitlines()
        for rank in range(4):
            mine = [line.split("] ", 1)[1] for line in lines if line.startswith(f"[{rank}] ")]
            numbers = [line for line in mine if not line.startswith("to-err")]
            expect(numbers == [str(number) for number in range(1, 30001)], f"rank {rank}'s lines are not whole and in order", output)
            expect(f"to-err-{rank}" in mine, f"rank {rank}'s error output is missing", output)
        expect(code == 0 and len(lines) == 4 * 30001, f"exit code {code}, {len(lines)} lines", output)
        text = random.Random(3).randbytes(3_000_000)
        code, output = run(context, hosts, [*where, "sh", "-c", "sha256sum"], input=text)
        sums = sorted(line.split()[0] for line in output.splitlines())
        wanted = sorted([hashlib.sha256(text).hexdigest()] + 3 * [hashlib.sha256(b"").hexdigest()])
        expect(code == 0 and sums == wanted, "standard input did not arrive whole at rank 0 alone", output)


def failures(context, talk):
    """The first failure ends the job on all hosts, with its own words and code."""
    with Hosts(2) as hosts:
        where = ["--host", f"localhost:2,{hosts.names[1]}:2"]
        wait = "else sleep 1000; fi"
        code, output = run(context, hosts, [*where, "sh", "-c", f"if [ $PMI_RANK = 3 ]; then echo my last words; exit 7; {wait}"])
        expect(code == 7 and "my last words" in output and "rank 3" in output, f"exit code {code}", output)
        code, output = run(context, hosts, [*where, "sh", "-c", f"if [ $PMI_RANK = 2 ]; then kill -SEGV $$; {wait}"])
        expect(code == 139 and "rank 2" in output and "SIGSEGV" in output, f"exit code {code}", output)
        code, output = run(context, hosts, [*where, "--timeout", "1", talk, "0"])
        expect(code == 124 and "G0208" in output, f"exit code {code} at the time limit", output)
        code, output = run(context, hosts, [*where, "no-such-program"])
        expect(code == 127 and "no-such-program" in output, f"exit code {code} of a program that is not there", output)
        job = Job(context, hosts, [*where, talk, "0"])
        job.wait_for_ranks(talk, 4)
        os.kill(launcher_of(job), signal.SIGINT)
        code, output = job.end()
        expect(code == 130, f"exit code {code} after SIGINT", output)


def hosts_that_are_not_there(context, talk):
    with Hosts(2) as hosts:
        code, output = run(context, hosts, ["--host", "localhost,not-a-host", talk])
        expect(code != 0 and "G0216" in output and "'not-a-host'" in output, f"exit code {code}", output)
        code, output = run(context, hosts, ["--launcher", "no-such-launcher", "--host", "b", talk])
        expect(code != 0 and "no-such-launcher" in output and "'b'" in output, f"exit code {code}", output)
        many = context.work / "too-many-hosts"
        many.write_text("\n".join(f"h{index:x}" for index in range(131_073)))
        code, output = run(context, hosts, ["--hostfile", many, talk])
        expect(code == 2 and "G0306" in output and "131073 hosts" in output, f"exit code {code}", output)
        for name in ("lsf", "pbs"):
            code, output = run(context, hosts, ["--launcher", name, "--host", "b", talk])
            expect(code == 2 and name in output and "not there yet" in output, f"exit code {code}", output)
        # An agent that cannot reach the launcher says at which addresses it tried.
        hosts.cut(1)
        code, output = run(context, hosts, ["--host", f"{hosts.names[1]}", talk])
        expect(code != 0 and "10.77.0.1" in output and hosts.names[1] in output, f"exit code {code}", output)


def second_program(context, talk):
    with Hosts(2) as hosts:
        code, output = run(context, hosts, ["--host", f"localhost,{hosts.names[1]}", "sh", "-c", f"{talk} && {talk}"])
        expect(code != 0 and "G0218" in output, f"exit code {code}", output)


def ipv6_alone(context, talk):
    with Six(2) as hosts:
        code, output = run(context, hosts, ["--host", f"localhost:2,{hosts.names[1]}:2", talk, "20"])
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        ping = [context.prefix / "bin" / "garonne", "ping", "--as-rank", "--ms", "5"]
        code, output = run(context, hosts, ["--map-by", "node", "--host", f"localhost,{hosts.names[1]}", *ping])
        expect(code == 0 and "TCP from [fd00:77::1]" in output and "to [fd00:77::2]" in output, f"exit code {code}", output)


def several_networks(context, talk):
    """Two wires: large data take both, in the proportion of their rates; one is taken out of use and back while the job runs; one stands still for a while, the first, too;
    nothing is lost."""

    def rail(*words):
        command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "network", *words]
        done = subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return done.returncode, done.stdout + done.stderr

    def networks():
        return {row["interface"]: row for row in json.loads(rail_that_answers(context, hosts, "--json"))}

    def wait_until(what, is_so):
        until = time.monotonic() + PATIENCE_S
        while not is_so(seen := networks()):
            expect(time.monotonic() < until, f"{what} never came", str(seen))
            time.sleep(0.2)
        return seen

    with Wires(["400mbit", "200mbit"]) as hosts:
        # Four megabytes at a time.
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "4000000"])
        with job:
            job.wait_for_ranks(talk, 2)
            wait_until("large data on both wires", lambda seen: all(seen[wire]["mb_brought"] > 20 for wire in ("net0", "net1")))
            code, output = rail("drain", "net1")
            expect(code == 0 and "10.77.1.0/24" in output, f"exit code {code}", output)
            before = wait_until("net1 out of use", lambda seen: not seen["net1"]["in_use"])
            later = wait_until("data on net0 alone", lambda seen: seen["net0"]["mb_brought"] > before["net0"]["mb_brought"] + 20)
            # What was under way when it was drained still came.
            expect(later["net1"]["mb_brought"] <= before["net1"]["mb_brought"] + 8, "data moved by a network that is left alone", f"{before}\n{later}")
            code, output = rail("drain", "10.77.0.0/24")
            expect(code == 1 and "the last network" in output, f"exit code {code}: the last network was taken out of use", output)
            expect(rail("add", "net1")[0] == 0, "net1 is not taken back", "")
            wait_until("data on net1 again", lambda seen: seen["net1"]["mb_brought"] > later["net1"]["mb_brought"] + 20)
            # The network that the first connections took: packets move to the other, too.
            expect(rail("drain", "net0")[0] == 0, "net0 cannot be drained", "")
            wait_until("packets on net1", lambda seen: seen["net1"]["connections"]["packets"] == 1 and seen["net0"]["connections"]["packets"] == 0)
            expect(rail("add", "net0")[0] == 0, "net0 is not taken back", "")
            for wire in (1, 0):
                at = wait_until("data on both wires again", lambda seen: seen["net0"]["connections"]["bulk"] and seen["net1"]["connections"]["bulk"])
                hosts.cut(wire)
                time.sleep(3)
                hosts.mend(wire)
                wait_until("data after a wire stood still", lambda seen: sum(row["mb_brought"] for row in seen.values()) > sum(row["mb_brought"] for row in at.values()) + 40)
        job.end_well(talk, 2 * SILENCE_S)


def tuned_networks(context, talk):
    """Two wires are measured; ranks of a later job begin with what was found, and go on with what they find."""
    with Wires(["400mbit", "100mbit"]) as hosts:
        # Tests run beside each other, and other jobs are to find nothing.
        cache = context.work / "hosts" / f"cache{os.getpid()}"
        environment = {**context.environment(), "XDG_CACHE_HOME": str(cache)}
        garonne = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne"]

        def say(*words):
            done = subprocess.run([*garonne, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            expect(done.returncode == 0, f"garonne {words}: exit code {done.returncode}", done.stdout + done.stderr)
            return done.stdout

        found = json.loads(say("tune", "--host", f"localhost,{hosts.names[1]}", "--launcher", "ip netns exec", "--json"))
        for host in found:
            rates = {one["own"]: one["mb_per_s"] for one in host["networks"]}
            expect(set(rates) == {"10.77.0.0/24", "10.77.1.0/24"} and rates["10.77.0.0/24"] > 1.5 * rates["10.77.1.0/24"], "not what the wires give", str(found))
        kept = json.loads(say("why", "costs", "--json"))
        expect(kept["networks"] == found[1]["networks"], "not what was found is kept", f"{kept}\n{found}")
        job = MarkedJob([*garonne, "run", "--launcher", "ip netns exec", "--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "4000000"], environment)
        with job:
            job.wait_for_ranks(talk, 2)
            until = time.monotonic() + PATIENCE_S
            while (said := why_gate(context, hosts, job)).count("from garonne tune") < 2:
                expect(time.monotonic() < until, "ranks do not begin with what was kept", said)
                time.sleep(0.2)
        job.end_well(talk, SILENCE_S)


def network_that_comes(context, talk):
    """A wire that two hosts get while the job runs: somebody says so, and large data take it; it is taken away, and nothing is lost; another one comes."""

    def rail(*words):
        return rail_that_answers(context, hosts, *words)

    def wait_until(what, is_so):
        until = time.monotonic() + PATIENCE_S
        while not is_so(seen := {row["interface"]: row for row in json.loads(rail("--json"))}):
            expect(time.monotonic() < until, f"{what} never came", str(seen))
            time.sleep(0.2)
        return seen

    with Wires(["400mbit"]) as hosts:
        garonne = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne"]
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "4000000"])
        with job:
            job.wait_for_ranks(talk, 2)
            wait_until("large data", lambda seen: seen["net0"]["mb_brought"] > 10)
            # A lower number than the other's, and a higher one.
            for wire, prefix in ((1, "10.76.9"), (2, "10.78.9")):
                hosts.add(f"net{wire}", prefix, "200mbit")
                rail("add", f"net{wire}")
                before = wait_until(f"data by net{wire}", lambda seen: seen[f"net{wire}"]["mb_brought"] > 10)
                wait_until("data by both", lambda seen: all(seen[name]["mb_brought"] > before[name]["mb_brought"] + 10 for name in ("net0", f"net{wire}")))
                if wire == 1:
                    hosts.remove("net1")
                    at = wait_until("one wire less", lambda seen: "net1" not in seen)
                    wait_until("data by the other", lambda seen: seen["net0"]["mb_brought"] > at["net0"]["mb_brought"] + 20)
            said = why_gate(context, hosts, job)
            for words in ("round trip", "are announced", "not encrypted", "MB/s last"):
                expect(words in said, f"garonne why gate says nothing of {words}", said)
            said = subprocess.run([*garonne, "why", "paces"], env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            expect("What goes by a network, from other hosts" in said.stdout, "garonne why paces", said.stdout + said.stderr)
            # What nobody has is no network of the job's.
            for word in ("add", "drain"):
                refused = subprocess.run([*garonne, "network", word, "10.99.0.0/24"], env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                expect(refused.returncode != 0 and "no host of the job has an address in 10.99.0.0/24" in refused.stderr, f"garonne network {word}", refused.stdout + refused.stderr)
            # The one that the job began with goes; packets, too, move to what there is.
            rail("drain", "net0")
            at = wait_until("packets on the new one", lambda seen: seen["net2"]["connections"]["packets"] == 1 and seen["net0"]["connections"]["packets"] == 0)
            wait_until("data by it", lambda seen: seen["net2"]["mb_brought"] > at["net2"]["mb_brought"] + 20)
        job.end_well(talk, 2 * SILENCE_S)


def network_lost(context, talk):
    """Two wires: everything leaves one that is drained, agents too; then the other one dies for good, and the job goes on by the one that is left."""

    def connections(wire):
        command = ["ip", "netns", "exec", hosts.names[1], "ss", "-Htn", "state", "established", "dst", f"10.77.{wire}.0/24"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    def wait_until(what, is_so):
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            expect(time.monotonic() < until, f"{what} never came", "\n".join(connections(0) + connections(1)))
            time.sleep(0.2)

    def rail(*words):
        command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "network", *words]
        subprocess.run(command, env=context.environment(), capture_output=True, timeout=PATIENCE_S, check=True)

    with Wires([None, None]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:2", talk, "0"])
        with job:
            job.wait_for_ranks(talk, 3)
            # Two ranks call one, and the agent the first one.
            wait_until("connections", lambda: len(connections(0)) + len(connections(1)) >= 3)
            rail("drain", "net0")
            wait_until("a wire left alone by all", lambda: not connections(0))
            rail("add", "net0")
            hosts.cut(1)
            time.sleep(HOST_SILENT_S + 4)
        job.end_well(talk, SILENCE_S)


def gateway(context, talk):
    """Two hosts that have no network in common talk through a third one, whose ranks compute as well; a wire that stands still loses nothing; without a host between them
    they are told so."""
    with Chain([None, None]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:2,{hosts.names[2]}:1", talk, "0", "3000000"])
        with job:
            job.wait_for_ranks(talk, 4)
            until, through = time.monotonic() + PATIENCE_S, []
            while len(through) < 2:
                expect(time.monotonic() < until, "no connection through the host between them", str(through))
                time.sleep(0.2)
                ss = ["ip", "netns", "exec", hosts.names[0], "ss", "-Htnp", "state", "established"]
                lines = subprocess.run(ss, capture_output=True, text=True, check=True).stdout.splitlines()
                # Those that the agent, and no rank, has with both hosts: its line, and what it passes on. Callers show as IPv6.
                agents = [line for line in lines if '"garonne' in line]
                through = [host for host in ("10.77.0.2", "10.77.1.2") if sum(f"{host}:" in line or f"{host}]:" in line for line in agents) > 1]
            hosts.cut(1)
            time.sleep(3)
            hosts.mend(1)
            time.sleep(1)
        job.end_well(talk, 2 * SILENCE_S)


def settings_of_networks(context, talk):
    """GARONNE_NETWORKS and GARONNE_ENCRYPT: what is forbidden is not used, what is not understood ends the job, what is encrypted does not show."""
    with Wires([None, None]) as hosts:
        where = ["--host", f"localhost,{hosts.names[1]}"]
        ping = [context.prefix / "bin" / "garonne", "ping", "--as-rank", "--ms", "5"]
        for said, wire in (("^net0", 1), ("net0", 0), ("10.77.1.0/24", 1)):
            code, output = run(context, hosts, [*where, "-x", f"GARONNE_NETWORKS={said}", *ping])
            expect(code == 0 and f"TCP from 10.77.{wire}.1:" in output, f"exit code {code}", output)
        # What no rank could live with is said once, before any has begun.
        begins = ["sh", "-c", "echo begun; sleep 1"]
        host = os.uname().nodename
        for said, words in (
            ("NETWORKS=ib0", f"no interface of host '{host}'; there are: net0 (10.77.0.0/24), net1 (10.77.1.0/24)"),
            ("NETWORKS=10.99.0.0/16", "leaves no way to '"),
            ("ENCRYPT=maybe", 'GARONNE_ENCRYPT="maybe"'),
            ("OFI=a b", 'GARONNE_OFI="a b"'),
            ("RAILS=tcp", 'GARONNE_RAILS="tcp"'),
        ):
            code, output = run(context, hosts, [*where, "-x", f"GARONNE_{said}", *begins])
            expect(code != 0 and words in output and output.count("G0225") == 1 and "begun" not in output, f"{said}: exit code {code}", output)
        code, output = run(context, hosts, [*where, "-x", "GARONNE_ENCRYPT=1", talk, "30", "3000000"])
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)


def one_side_encrypts(context, talk):
    """Who is told why: the rank that calls, and whoever started the job."""
    with Hosts(2) as hosts:
        code, output = run(context, hosts, ["--host", f"localhost,{hosts.names[1]}", "sh", "-c", f"GARONNE_ENCRYPT=$PMI_RANK exec {talk} 5"])
        said = re.search(r"error\[G0231\]: rank (\d) on host '.+' cannot have a connection to rank (\d) on host '.+': rank \d (encrypts|does not encrypt) and rank \d does", output)
        expect(code != 0 and said and said[1] != said[2], f"exit code {code}", output)
        expect("it died or cut the connection" not in output, "a rank is said to have died", output)


def strangers(context, talk):
    """A host of the network that knows no secret calls every port of the job, in all ways that nobody should: large messages go on moving meanwhile, and all ends well."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))

    def within(name, *words):
        return subprocess.run(["ip", "netns", "exec", name, *map(str, words)], env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    def brought():
        return sum(row["mb_brought"] for row in json.loads(within(hosts.names[0], context.prefix / "bin" / "garonne", "network", "--json")))

    with Hosts(3) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:2,{hosts.names[1]}:2", talk, "0", "1000000"])
        with job:
            job.wait_for_ranks(talk, 4)
            ports = [(address, line.split()[3].rpartition(":")[2]) for name, address in zip(hosts.names[:2], hosts.addresses) for line in within(name, "ss", "-Htln").splitlines()]
            # One of each rank, and the agent's of the first host.
            expect(len(ports) >= 5, f"only {len(ports)} ports", str(ports))
            before = brought()
            said = within(hosts.names[2], sys.executable, context.root / "tests/hosts/strangers.py", seed, STRANGERS_S, *(f"{address}:{port}" for address, port in ports))
            calls = sum(int(count) for count in re.findall(r"(?:garbage|proofs|lengths|silence): (\d+)", said))
            expect(calls > 100, f"GARONNE_TEST_SEED={seed}: too few strangers were let in to be a test", said)
            after = brought()
            expect(after > before + 20, f"GARONNE_TEST_SEED={seed}: {before} MB before strangers came, {after} when they had gone", said)
        job.end_well(talk, SILENCE_S, f"GARONNE_TEST_SEED={seed}: ")


def why_gate(context, hosts, job, *words):
    """What `garonne why gate 0` says; nothing before rank 0 is there."""
    command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "why", "gate", "0", str(launcher_of(job)), *words]
    done = subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "MPI_Init yet" in done.stderr:
        return ""
    expect(done.returncode == 0, f"exit code {done.returncode}", done.stdout + done.stderr)
    return done.stdout


def fabric_of(context, hosts, job):
    """What rank 0 shows of its way by libfabric to rank 1, which is on another host; None before there is one."""
    told = why_gate(context, hosts, job, "--json")
    connections = json.loads(told)[0]["connections"] if told else []
    return next((one for one in connections if one["for"] == "libfabric"), None)


def brought_by_fabric(context, hosts, job, least):
    """Waits until so many megabytes came by libfabric; how many did."""
    until = time.monotonic() + PATIENCE_S
    while not (seen := fabric_of(context, hosts, job)) or seen["mb"] < least:
        expect(time.monotonic() < until, f"{least} MB by libfabric never came", str(seen))
        time.sleep(0.2)
    return seen["mb"]


def with_libfabric():
    try:
        ctypes.CDLL("libfabric.so.1")
    except OSError as error:
        raise Skip(f"libfabric is not installed (Debian: libfabric1): {error}") from None


def libfabric(context, talk):
    """Large data go by libfabric, beside TCP, where a provider is asked for; also over a link that stood still for a while. Without one, and where it is switched off, TCP
    carries all, and says why."""
    with_libfabric()
    with Hosts(2) as hosts:
        where = ["--host", f"localhost:1,{hosts.names[1]}:1"]
        job = Job(context, hosts, [*where, "-x", "GARONNE_OFI=tcp", talk, "0", "4000000"])
        with job:
            job.wait_for_ranks(talk, 2)
            before = brought_by_fabric(context, hosts, job, 50)
            seen = fabric_of(context, hosts, job)
            expect(not seen["open"] or seen["provider"].startswith("tcp"), "another provider", str(seen))
            hosts.cut(2)
            time.sleep(5)
            hosts.mend(2)
            brought_by_fabric(context, hosts, job, before + 50)
        job.end_well(talk, 2 * SILENCE_S)
        for said, reason in (("off", "it is switched off"), ("auto", "libfabric: "), ("no-such-provider", "no provider that serves")):
            job = Job(context, hosts, [*where, "-x", f"GARONNE_OFI={said}", talk, "0", "4000000"])
            with job:
                job.wait_for_ranks(talk, 2)
                until = time.monotonic() + PATIENCE_S
                # Large data move, so the ranks have long set their signal's handler.
                while not ("bulk data" in (told := why_gate(context, hosts, job)) and reason in told):
                    expect(time.monotonic() < until, f"GARONNE_OFI={said}", told)
                    time.sleep(0.2)
            job.end_well(talk, SILENCE_S, f"GARONNE_OFI={said}: ")
        code, output = run(context, hosts, [*where, "-x", "GARONNE_OFI=tcp udp", talk, "1"])
        expect(code != 0 and "G0225" in output, f"exit code {code}", output)


def libfabric_fails(context, talk):
    """While large data go by libfabric a rank is killed, or its host vanishes: the job ends, and names the cause."""
    with_libfabric()
    with Hosts(2) as hosts:
        for how in ("kill", "cut"):
            job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", "-x", "GARONNE_OFI=tcp", talk, "0", "4000000"])
            with job:
                job.wait_for_ranks(talk, 2)
                brought_by_fabric(context, hosts, job, 20)
                if how == "kill":
                    os.kill(max(job.ranks(talk)), signal.SIGKILL)
                else:
                    hosts.cut(2)
            code, output = job.end(limit=within(HOST_SILENT_S))
            expect(code != 0 and (how == "kill" or "G0217" in output), f"{how}: exit code {code}", output)


def link_flaps(context, talk):
    """A link that is down for some seconds in the middle of messages: nothing is lost, and the job ends well."""
    with Hosts(2) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:2,{hosts.names[1]}:2", talk, "1500"])
        job.wait_for_ranks(talk, 4)
        for dark_s in (2.5, 5):
            time.sleep(0.3)
            hosts.cut(2)
            time.sleep(dark_s)
            hosts.mend(2)
        code, output = job.end(limit=2 * SILENCE_S)
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)


def link_down_at_the_start(context, talk):
    """A host's own link is down when its agent calls, so that nothing leads anywhere: the job begins when it is up again."""
    with Hosts(2) as hosts:
        namespaces.ip("-n", hosts.names[1], "link", "set", "net0", "down")
        job = Job(context, hosts, ["--host", f"localhost,{hosts.names[1]}", talk, "5"])
        time.sleep(3)
        namespaces.ip("-n", hosts.names[1], "link", "set", "net0", "up")
        code, output = job.end()
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)


def link_is_cut(context, talk):
    """A host that vanishes without a word: the job ends and names it; what runs there ends by itself."""
    with Hosts(2) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:2,{hosts.names[1]}:2", talk, "0"])
        job.wait_for_ranks(talk, 4)
        hosts.cut(2)
        code, output = job.end(limit=within(HOST_SILENT_S))
        expect(code != 0 and "G0217" in output and hosts.names[1] in output, f"exit code {code}", output)


def first_agent_stands_still(context, talk):
    """The agent of the job's own host is stopped until the other host's has taken it for gone: it says so by its own clock, and blames nobody."""
    with Hosts(2) as hosts:
        other = hosts.names[1]
        job = Job(context, hosts, ["--host", f"localhost,{other}", talk, "0"])
        with job:
            job.wait_for_ranks(talk, 2)
            guard, = children_of(launcher_of(job))
            agent, = children_of(guard)
            os.kill(agent, signal.SIGSTOP)
            until = time.monotonic() + within(HOST_SILENT_S)
            while job.ranks(talk) and any(on_host(pid, other) for pid in job.ranks(talk)):
                expect(time.monotonic() < until, "the other agent waits for ever", "")
                time.sleep(0.1)
            os.kill(agent, signal.SIGCONT)
        code, output = job.end()
        expect(code != 0 and "host 'localhost' stood still" in output and other in output, f"exit code {code}", output)
        expect("error[G0245]" in output and "G0217" not in output, "another host is blamed", output)


def kills(context, talk):
    """Any process of the job, at any moment: the job ends with an error, and nothing is left on any host."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))
    dice = random.Random(seed)
    with Hosts(3) as hosts:
        where = ["--host", f"localhost:1,{hosts.names[1]}:2,{hosts.names[2]}:1"]
        for number in range(SOAK_ROUNDS if context.soak else ROUNDS):
            job = Job(context, hosts, [*where, talk, "0"])
            time.sleep(dice.uniform(0, 0.8))
            victims = sorted(job.alive().items())
            # Every kind as often as others, however many there are of it.
            kinds = {}
            for pid, command in victims:
                kind = "agent" if "garonne agent" in command else "launcher" if " run --launcher" in command else "rank" if command.startswith(str(talk)) else "other"
                kinds.setdefault(kind, []).append((pid, command))
            if not kinds:
                job.sweep()
                continue
            command = kill_one(dice, kinds)
            try:
                code, output = job.end(limit=SILENCE_S)
            except Failure as failure:
                raise Failure(f"GARONNE_TEST_SEED={seed}, round {number}, after the death of {command}: {failure}") from None
            expect(code != 0, f"GARONNE_TEST_SEED={seed}, round {number}: success after the death of {command}", output)
