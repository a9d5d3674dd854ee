"""Hosts whose networks are not as one would wish: behind translators of addresses, beside or behind a tunnel that is not what it seems, with names that lead astray and no name server."""

import json
import os
import subprocess
import time

from ..time_limits import CONNECTION_SILENT_S, HOST_SILENT_S
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Chain, Hosts, OneWay, Parted, Six, Wires, namespaces
from ..unusual_hosts import Named, Translated, Tunnelled
from ..runner import Case
from .hosts import SILENCE_S, Job, run
from .joining import LARGE, wait_until
from .joining import Job as Joined


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    place = context.work / "odd"
    place.mkdir(exist_ok=True)
    talk = place / "talk"
    context.build_program("unusual-networks", "tests/hosts/talk.c", talk)
    # The longest first. That two behind translators have nowhere to meet is nearly what `joining/two that cannot meet` shows.
    cases = [two_translated, tunnel_that_loses, translator_forgets, two_translated_and_started, two_that_refuse, met_at_a_guest, translated_guest, translated_and_started, published, dead_tunnel, tunnel_alone, names_lead_astray, key_with_names, last_network_of_another, gateway_after_drain, came_later_alone, drain_that_parts, drain_beside_a_dead_link, link_local_alone, who_passes_on, rank_of_another_host, launcher_without_ranks]
    for case in cases + [nowhere_to_meet] * context.soak:
        yield Case(f"unusual-networks/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk), waits=True)


def said(context, name, *words):
    """Exit code and words of `garonne` on a host, once a rank there has called MPI_Init."""
    command = ["ip", "netns", "exec", name, context.prefix / "bin" / "garonne", *map(str, words)]
    until = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        output = done.stdout + done.stderr
        if not ("MPI_Init yet" in output or "no job of yours" in output) or time.monotonic() > until:
            return done.returncode, output
        time.sleep(0.2)


def peers(name, local=""):
    """Whom the processes of a host have connections with, by addresses."""
    ss = ["ip", "netns", "exec", name, "ss", "-Htn", "state", "established"]
    lines = subprocess.run(ss, capture_output=True, text=True, check=True).stdout.splitlines()
    ends = [[word.rpartition(":")[0].strip("[]").removeprefix("::ffff:") for word in line.split()[2:4]] for line in lines]
    return [there for here, there in ends if here.startswith(local)]


def all_is_well(codes, outputs):
    expect(not any(codes) and "all is well" in outputs[0], f"exit codes {codes}", "".join(outputs))


def end_joined(job, talk, limit=SILENCE_S):
    job.stop(talk)
    all_is_well(*job.end(limit))


def translated_guest(context, talk):
    """A host behind a translator joins: what it has are calls of its own, which come from the router's address."""
    with Translated(2) as hosts:
        job = Joined(context, hosts, ["-n", 4, talk, 0, LARGE], [2])
        job.wait_for_ranks(talk, 4)
        # Four pairs of ranks with a connection for packets each, two of them with one for large data; and the agents' line.
        wait_until("connections", lambda: len(peers(hosts.names[0])) >= 7, lambda: peers(hosts.names[0]))
        seen = set(peers(hosts.names[0], hosts.addresses[0]))
        expect(seen == {"10.77.0.102"}, "the translator has not translated", str(seen))
        end_joined(job, talk)


def translated_and_started(context, talk):
    """The same where `garonne run` starts the agent: no key is needed for that."""
    with Translated(2) as hosts:
        started(context, hosts, talk, f"localhost:2,{hosts.names[1]}:2")


def started(context, hosts, talk, where):
    """Talk of ranks on hosts whose agents `garonne run` starts; then again encrypted."""
    code, output = run(context, hosts, ["--host", where, talk, 20, LARGE])
    expect(code == 0 and "all is well" in output, f"exit code {code}", output)
    code, output = run(context, hosts, ["--host", where, "-x", "GARONNE_ENCRYPT=1", talk, 5])
    expect(code == 0 and "all is well" in output, f"exit code {code} with encryption", output)


def links(context, name, rank, peer):
    """The open connections of a rank with another, on whose host it is asked."""
    code, output = said(context, name, "why", "gate", rank, "--json")
    expect(code == 0, f"exit code {code}", output)
    return [link for gate in json.loads(output) if gate["peer"] == peer for link in gate.get("connections", []) if link["open"]]


def meet(context, hosts, ranks, via):
    """Waits until two ranks have both connections, for packets and for large data, by a node where they meet; both say so. `ranks`: each with its host's index."""
    for (rank, host), (peer, _) in (ranks, ranks[::-1]):
        name = hosts.names[host]
        wait_until("connections", lambda: len(links(context, name, rank, peer)) >= 2, lambda: links(context, name, rank, peer))
        seen = links(context, name, rank, peer)
        expect(all(link["through_node"] == via and not link["straight"] for link in seen), f"rank {rank} does not say where it meets rank {peer}", str(seen))
        expect(f"(node {via} passes it on)" in said(context, name, "why", "gate", rank)[1], "not said to people", "")


def two_translated(context, talk):
    """Two hosts, each behind a translator of its own, in networks of the same numbers, which look like one that they have in common. Nobody can call either; both call the job's own host, and meet there.
    Both translators start anew while they talk, one after the other, and one is off for longer than a connection lasts without a word."""
    with Translated(3) as hosts:
        job = Joined(context, hosts, ["-n", 3, talk, 0, LARGE], [1, 1])
        job.wait_for_ranks(talk, 3)
        meet(context, hosts, [(1, 1), (2, 2)], 0)
        for index in (2, 3):
            hosts.forget(index)
            time.sleep(3)
        hosts.off(2)
        time.sleep(CONNECTION_SILENT_S + 2)
        hosts.on(2)
        time.sleep(CONNECTION_SILENT_S)
        meet(context, hosts, [(1, 1), (2, 2)], 0)
        end_joined(job, talk)


def two_translated_and_started(context, talk):
    """The same where `garonne run` starts the agents; encrypted, too."""
    with Translated(3) as hosts:
        started(context, hosts, talk, f"localhost:1,{hosts.names[1]}:2,{hosts.names[2]}:2")


def two_that_refuse(context, talk):
    """Two hosts whose agents `garonne run` starts, and in front of which calls are answered by a refusal, which elsewhere means that a rank has ended."""
    with OneWay(3, closed=[2, 3], refusing=True) as hosts:
        started(context, hosts, talk, f"localhost:1,{hosts.names[1]}:2,{hosts.names[2]}:2")


def met_at_a_guest(context, talk):
    """The job's own host is behind a translator, which passes calls on at one port, and a guest behind another: they meet at a second guest, which takes calls."""
    with Translated(3) as hosts:
        hosts.translate(2, passed_on="40000")
        hosts.names[:2] = hosts.names[1::-1]  # the job's host is the translated one
        job = Joined(context, hosts, ["-n", 3, "--join-address", "10.77.0.102", "--join-port", "40000", talk, 0, LARGE], [1, 1])
        job.wait_for_ranks(talk, 3)
        meet(context, hosts, [(0, 0), (2, 2)], 1)
        end_joined(job, talk)


def nowhere_to_meet(context, talk):
    """The job's own host and its guests are behind translators, of which one passes calls on at the port of the key alone: an error that names two of them."""
    with Translated(4) as hosts:
        hosts.translate(2, passed_on="40000")
        del hosts.names[0]
        try:
            codes, outputs = Joined(context, hosts, ["-n", 3, "--join-address", "10.77.0.102", "--join-port", "40000", talk, 5], [1, 1]).end(SILENCE_S)
        finally:
            hosts.names.insert(0, f"{hosts.stem}1")
        expect(codes[0] != 0 and "G0229" in outputs[0] and ("'h2'" in outputs[0] or "'h3'" in outputs[0]), f"exit codes {codes}", "".join(outputs))


def published(context, talk):
    """The job's own host is behind a translator, which passes calls on at one port; hosts are told to call there, and the job's ranks call theirs."""
    with Translated(2) as hosts:
        hosts.translate(2, passed_on="40000")
        hosts.names.reverse()  # the job's host is the translated one
        job = Joined(context, hosts, ["-n", 4, "--join-address", "10.77.0.102", "--join-port", "40000", talk, 20, LARGE], [2])
        all_is_well(*job.end(SILENCE_S))


def translator_forgets(context, talk):
    """A router that starts anew knows of no connection any more: all are made again, and nothing is lost."""
    with Translated(2) as hosts:
        job = Joined(context, hosts, ["-n", 4, talk, 0], [2])
        job.wait_for_ranks(talk, 4)
        wait_until("connections", lambda: len(peers(hosts.names[0])) >= 5, lambda: peers(hosts.names[0]))
        time.sleep(1)
        hosts.forget(2)
        # Longer than anything is waited for that has gone, and shorter than a host is.
        time.sleep(15)
        end_joined(job, talk)


def with_tunnel(context, talk, hosts):
    """Ranks of two hosts with large messages under way; the job is to go on by the plain network."""
    job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:2", talk, 12, LARGE])
    code, output = job.end(2 * SILENCE_S)
    expect(code == 0 and "all is well" in output, f"exit code {code}", output)
    expect(hosts.tunnelled() > 0, "nobody has tried the tunnel, so this is no test", output)


def dead_tunnel(context, talk):
    """A tunnel that both hosts have an end of, in a network that comes before the plain one, and that leads nowhere."""
    with Tunnelled(1400) as hosts:
        hosts.swallow("udp dport 4789")
        with_tunnel(context, talk, hosts)


def tunnel_that_loses(context, talk):
    """The same; here packets of up to 1300 bytes come through, so that calls are taken, and longer ones are lost without a word."""
    with Tunnelled(1400) as hosts:
        hosts.swallow("udp dport 4789 meta length > 1350")
        with_tunnel(context, talk, hosts)


def tunnel_alone(context, talk):
    """The plain network carries nothing but the tunnel, whose packets are shorter."""
    with Tunnelled(1280) as hosts:
        hosts.swallow("ip protocol tcp")
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:2", talk, 0, LARGE])
        with job:
            job.wait_for_ranks(talk, 3)
            wait_until("connections", lambda: len(peers(hosts.names[0], "10.76.0.1")) >= 4, lambda: peers(hosts.names[0]))
            expect("10.77.0.2" not in peers(hosts.names[0]), "the plain network carries something else", "")
        job.end_well(talk, SILENCE_S)


def astray(hosts):
    """Every host takes itself for another address, the others for addresses where nobody is, and this machine's name for nobody's."""
    own = os.uname().nodename
    wrong = {name: f"10.99.0.{index}" for index, name in enumerate(hosts.names, 1)}
    files = {}
    for name in hosts.names:
        lines = [f"{address} {other}" for other, address in wrong.items() if other != name]
        files[name] = {"hosts": "\n".join([f"127.0.1.1 {name} localhost", f"10.99.0.99 {own}", *lines]) + "\n", "hostname": f"{name}\n"}
    return files


def names_lead_astray(context, talk):
    """A wrong /etc/hosts and no name server: addresses are the interfaces', and nobody is asked for any."""
    with Named(3, astray) as hosts:
        answer = subprocess.run(["ip", "netns", "exec", hosts.names[0], "getent", "ahostsv4", hosts.names[1]], capture_output=True, text=True, check=False).stdout
        expect("10.99.0.2" in answer, "names do not lead astray, so this is no test", answer)
        subprocess.run(["ip", "netns", "exec", hosts.names[0], "getent", "hosts", "nobody.invalid"], capture_output=True, check=False)
        expect(hosts.questions > 0, "the name server hears nothing, so this is no test", "")
        asked = hosts.questions
        # As on hosts of their own, each has a name.
        named = ["unshare", "-u", "sh", "-c", 'hostname "$0"; exec "$@"']
        command = ["ip", "netns", "exec", hosts.names[0], *named, hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec"]
        code, output = MarkedJob([*command, "--host", ",".join(f"{name}:2" for name in hosts.names), talk, 20], context.environment()).end()
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        all_is_well(*Joined(context, hosts, ["-n", 6, talk, 20], [2, 2]).end(SILENCE_S))
        expect(hosts.questions == asked, f"{hosts.questions - asked} questions to the name server", "")


def key_with_names(context, talk):
    """A key with a name that leads astray: another address in it serves; alone it is an error that says where was tried."""
    with Named(2, astray) as hosts:
        name = hosts.names[0]
        for unknown in (name, "nobody.invalid"):
            all_is_well(*Joined(context, hosts, ["-n", 2, "--join-address", f"{unknown},10.77.0.1", talk, 5], [1]).end(SILENCE_S))
            job = Joined(context, hosts, ["-n", 2, "--join-timeout", 2, "--join-address", unknown, talk, 5], [1])
            codes, outputs = job.end(SILENCE_S)
            expect(0 not in codes and (unknown if unknown != name else "10.99.0.1") in outputs[1], f"exit codes {codes}", "".join(outputs))


def last_network_of_another(context, talk):
    """A host with two networks is asked to leave alone one that is all that another host has: that is refused by the other's name, wherever one asks, and nothing changes."""

    def in_use(name, network):
        rows = json.loads(said(context, name, "network", "--json")[1])
        return {row["network"]: row["in_use"] for row in rows}[network]

    with Chain([None, None]) as hosts:
        middle, other = hosts.names[0], hosts.names[2]
        job = Job(context, hosts, ["--host", f"localhost:1,{other}:1", talk, "0", LARGE])
        with job:
            job.wait_for_ranks(talk, 2)
            for name, whose in ((middle, f"of host '{other}'"), (other, "of this host")):
                code, output = said(context, name, "network", "drain", "10.77.1.0/24")
                expect(code == 1 and f"10.77.1.0/24 is the last network {whose} in use" in output, f"exit code {code} on {name}", output)
                expect(in_use(name, "10.77.1.0/24"), f"{name} leaves alone what was refused", output)
            # The one in the middle has one more, which nobody else of the job is on.
            code, output = said(context, middle, "network", "drain", "10.77.0.0/24")
            expect(code == 0 and "left alone from now on" in output and not in_use(middle, "10.77.0.0/24"), f"exit code {code}", output)
            code, output = said(context, middle, "network", "drain", "net1")
            expect(code == 1 and "the last network of this host" in output, f"exit code {code}", output)
        job.end_well(talk, SILENCE_S)


def gateway_after_drain(context, talk):
    """The only network that two hosts have in common is left alone in the middle of messages: a third one leads between them from then on, nothing is lost, and the network may go."""

    def by_wire(name):
        return [address for address in peers(name) if address.startswith("10.77.2.")]

    with Chain([None, None]) as hosts:
        ends = hosts.names[1:]
        namespaces.ip("link", "add", "net2", "netns", ends[0], "type", "veth", "peer", "name", "net2", "netns", ends[1])
        for index, name in enumerate(ends, 1):
            namespaces.ip("-n", name, "address", "add", f"10.77.2.{index}/24", "dev", "net2")
            namespaces.ip("-n", name, "link", "set", "net2", "up")
            # What has no way there is told so at once, and the network in common is the next to be tried.
            namespaces.ip("-n", name, "route", "del", "default")
        job = Job(context, hosts, ["--host", f"localhost:1,{ends[0]}:1,{ends[1]}:1", talk, "0", "3000000"])
        with job:
            job.wait_for_ranks(talk, 3)
            # Packets, and large data.
            wait_until("messages by the network in common", lambda: len(by_wire(ends[0])) >= 2, lambda: peers(ends[0]))
            code, output = said(context, ends[0], "network", "drain", "10.77.2.0/24")
            expect(code == 0 and "left alone from now on" in output, f"exit code {code}", output)
            # To the first host: the agent's line, the rank's two connections, and two that are passed on.
            wait_until("connections that are passed on", lambda: peers(ends[0]).count("10.77.0.1") >= 5, lambda: peers(ends[0]))
            expect(not by_wire(ends[0]) and not by_wire(ends[1]), "a network is used that is to be left alone", str(peers(ends[0])))
            namespaces.ip("-n", ends[0], "link", "del", "net2")
            time.sleep(2)
            # The way that is left is not taken away behind that.
            code, output = said(context, ends[0], "network", "drain", "10.77.0.0/24")
            expect(code == 1 and "G0232" in output and "the last network of this host in use" in output, f"exit code {code}", output)
        job.end_well(talk, 2 * SILENCE_S)


def came_later_alone(context, talk):
    """Two hosts get a wire each to the job's own, and then lose the network with which all of them began: agents and the host between go by the wires as ranks do."""
    with Hosts(3) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1,{hosts.names[2]}:1", talk, "0", "100000"])
        with job:
            job.wait_for_ranks(talk, 3)
            for wire in (1, 2):
                ends = (hosts.names[0], hosts.names[wire])
                namespaces.ip("link", "add", f"net{wire}", "netns", ends[0], "type", "veth", "peer", "name", f"net{wire}", "netns", ends[1])
                for index, name in enumerate(ends, 1):
                    namespaces.ip("-n", name, "address", "add", f"10.80.{wire}.{index}/24", "dev", f"net{wire}")
                    namespaces.ip("-n", name, "link", "set", f"net{wire}", "up")
                code, output = said(context, hosts.names[0], "network", "add", f"net{wire}")
                expect(code == 0, f"exit code {code}", output)
            code, output = said(context, hosts.names[1], "network", "drain", "10.77.0.0/24")
            expect(code == 0 and "left alone from now on" in output, f"exit code {code}", output)
            # To the first host: the agent's line, the rank's connection, and one that is passed on; and one more for each peer from which data come that found no room at once.
            def by_wire_alone(wire):
                there = peers(hosts.names[wire])
                return len(there) >= 3 and set(there) == {f"10.80.{wire}.1"}

            for wire in (1, 2):
                wait_until("connections by the wire alone", lambda wire=wire: by_wire_alone(wire), lambda wire=wire: peers(hosts.names[wire]))
            for index in (1, 2, 3):
                hosts.cut(index)
            # Longer than an agent waits for one of which it hears nothing.
            time.sleep(HOST_SILENT_S + 5)
        job.end_well(talk, SILENCE_S)


def drain_that_parts(context, talk):
    """Two hosts with a network in common, and one each that is no other's of the job: the first is not left alone, and both are named. Nor is one that is the last of those that the job may use, and no part is used of what is left alone."""
    with Wires([None]) as hosts:
        for index, name in enumerate(hosts.names, 1):
            namespaces.ip("-n", name, "link", "add", "own", "type", "bridge")
            namespaces.ip("-n", name, "address", "add", f"10.88.{index}.1/24", "dev", "own")
            namespaces.ip("-n", name, "link", "set", "own", "up")
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "100000"])
        with job:
            job.wait_for_ranks(talk, 2)
            for name in hosts.names:
                code, output = said(context, name, "network", "drain", "10.77.0.0/24")
                expect(code == 1 and "G0232" in output and "nothing has changed" in output, f"exit code {code}", output)
                expect("10.77.0.0/24 is all that host 'localhost' and host" in output and hosts.names[1] in output, "not both are named", output)
            rows = json.loads(said(context, hosts.names[0], "network", "--json")[1])
            expect(all(row["in_use"] for row in rows), "a network is left alone", str(rows))
            # What nobody else is on may be left alone.
            code, output = said(context, hosts.names[0], "network", "drain", "own")
            expect(code == 0, f"exit code {code}", output)
        job.end_well(talk, SILENCE_S)
    with Wires([None, None, None]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "100000"])
        with job:
            job.wait_for_ranks(talk, 2)
            for words, changed, used in [
                # As a whole, of which no part is used again.
                (["drain", "10.77.0.0/23"], True, [False, False, True]),
                (["add", "net1"], False, [False, False, True]),
                (["add", "10.77.0.0/23"], True, [True, True, True]),
                # In parts, all of which are.
                (["drain", "net0"], True, [False, True, True]),
                (["add", "10.77.0.0/23"], True, [True, True, True]),
            ]:
                code, output = said(context, hosts.names[1], "network", *words)
                expect((code == 0) == changed and ("G0232" in output) != changed, f"exit code {code} of {words}", output)
                rows = json.loads(said(context, hosts.names[1], "network", "--json")[1])
                expect([row["in_use"] for row in rows] == used, f"after {words}", str(rows))
        job.end_well(talk, SILENCE_S)
    with Wires([None, None]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", "-x", "GARONNE_NETWORKS=net0", talk, "0", "100000"])
        with job:
            job.wait_for_ranks(talk, 2)
            for name in hosts.names:
                code, output = said(context, name, "network", "drain", "net0")
                expect(code == 1 and "10.77.0.0/24 is the last network of this host in use (GARONNE_NETWORKS forbids others)" in output, f"exit code {code}", output)
            # What the job may not use is no loss.
            code, output = said(context, hosts.names[1], "network", "drain", "net1")
            expect(code == 0, f"exit code {code}", output)
        job.end_well(talk, SILENCE_S)


def drain_beside_a_dead_link(context, talk):
    """Two hosts with two networks in common, of which one has lost its link on one of them: the other is not left alone before the link is back."""
    with Parted(2) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0", "100000"])
        with job:
            job.wait_for_ranks(talk, 2)

            def drained(by):
                code, output = said(context, by, "network", "drain", "10.77.0.0/24")
                refused = code == 1 and "G0232" in output and "10.77.0.0/24 is the last network" in output
                expect(code == 0 or refused, f"exit code {code}", output)
                return code == 0

            link = ("-n", hosts.switch, "link", "set", "port1-2")
            namespaces.ip(*link, "down")
            for name in hosts.names:
                expect(not drained(name), "the only network with a link is left alone", str(peers(name)))
            namespaces.ip(*link, "up")
            # Devices say so a while later.
            wait_until("the network left alone", lambda: drained(hosts.names[0]), lambda: peers(hosts.names[0]))
        job.end_well(talk, SILENCE_S)


def link_local_alone(context, talk):
    """The job's own host has no address but such as mean nothing without an interface's name: whoever started the job is told so, with these."""
    with Six(2) as hosts:
        namespaces.ip("-n", hosts.names[0], "address", "del", "fd00:77::1/64", "dev", "net0")
        code, output = run(context, hosts, ["--host", f"localhost,{hosts.names[1]}", talk, "1"])
        expect(code != 0 and "G0216" in output and "the launcher's host has no address that other hosts can use" in output, f"exit code {code}", output)
        expect("only link-local ones (fe80::" in output, "they are not named", output)


def who_passes_on(context, talk):
    """A host in the middle passes connections on: both ends say so, whichever has called."""
    with Chain([None, None]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1,{hosts.names[2]}:1", talk, "0", LARGE])
        with job:
            job.wait_for_ranks(talk, 3)

            def links(rank):
                """Connections with the rank that is on neither this host nor the one in the middle."""
                code, output = said(context, hosts.names[rank], "why", "gate", rank, "--json")
                expect(code == 0, f"exit code {code}", output)
                gates = {gate["peer"]: gate.get("connections", []) for gate in json.loads(output)}
                expect(all(link["straight"] for link in gates[0]), "a connection to the host in the middle is not straight", output)
                return [link for link in gates[3 - rank] if link["open"]]

            wait_until("connections that are passed on", lambda: links(1) and links(2))
            for rank in (1, 2):
                expect(all(link["through_node"] == 0 and not link["straight"] for link in links(rank)), f"rank {rank} does not say who passes them on", str(links(rank)))
                expect("(node 0 passes it on)" in said(context, hosts.names[rank], "why", "gate", rank)[1], "not said to people", "")
        job.end_well(talk, SILENCE_S)


def rank_of_another_host(context, talk):
    """Who asks for the gates of a rank of another host is told them by that host."""
    with Chain([None, None]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:1", talk, "0"])
        with job:
            job.wait_for_ranks(talk, 2)
            for here, there in ((0, 1), (1, 0)):
                code, output = said(context, hosts.names[here], "why", "gate", there)
                name = "localhost" if there == 0 else hosts.names[1]
                expect(code == 0 and f"on host '{name}':\nrank {there}, on node {there} of 2\n" in output, f"exit code {code}", output)
            code, output = said(context, hosts.names[0], "why", "gate", 2)
            expect(code == 1 and "no rank 2: the job has 2" in output, f"exit code {code}", output)
        job.end_well(talk, SILENCE_S)


def launcher_without_ranks(context, talk):
    """A job is started, seen and managed from a host that has none of its ranks and is not on their network."""
    fast = "10.78.0.0/24"
    with Hosts(3) as hosts:
        own, *others = hosts.names
        hosts.add("fast", "10.78.0")
        namespaces.ip("-n", own, "link", "del", "fast")
        where = ["--host", f"{others[0]}:1,{others[1]}:1"]
        code, output = run(context, hosts, [*where, "-x", f"GARONNE_NETWORKS={fast}", talk, 5])
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        job = Job(context, hosts, [*where, talk, "0", "100000"])
        with job:
            job.wait_for_ranks(talk, 2)

            def networks(in_use):
                code, output = said(context, own, "network", "--json")
                expect(code == 0, f"exit code {code}", output)
                rows = [row["host"] for row in json.loads(output) if row["network"] == fast and row["in_use"] == in_use]
                return sorted(rows) == sorted(others)

            wait_until("both hosts", lambda: networks(True))
            for rank, name in enumerate(others):
                wait_until("the rank", lambda rank=rank: said(context, own, "why", "gate", rank)[0] == 0)
                code, output = said(context, own, "why", "gate", rank)
                expect(code == 0 and f"on host '{name}':\nrank {rank}, on node {rank + 1} of 3\n" in output, f"exit code {code}", output)
            code, output = said(context, own, "why", "background")
            expect(code == 0 and all(f"on host '{name}':\nrank {rank}: " in output for rank, name in enumerate(others)), f"exit code {code}", output)
            code, output = said(context, own, "why", "paces")
            expect(code == 0 and all(f"on host '{name}':\n" in output for name in others), f"exit code {code}", output)
            code, output = said(context, own, "network", "drain", fast)
            expect(code == 0 and "left alone" in output, f"exit code {code}", output)
            wait_until("both hosts to leave it alone", lambda: networks(False))
            code, output = said(context, own, "network", "add", fast)
            expect(code == 0 and "is used" in output, f"exit code {code}", output)
            wait_until("both hosts to use it", lambda: networks(True))
            for what in ("drain", "add"):
                code, output = said(context, own, "network", what, "10.99.0.0/24")
                expect(code == 1 and "no host of the job has an address in 10.99.0.0/24" in output, f"exit code {code}", output)
            code, output = said(context, own, "network", "drain", "10.77.0.0/24")
            expect(code == 1 and output.startswith("error[G0232]: "), f"exit code {code}", output)
        job.end_well(talk, SILENCE_S)
