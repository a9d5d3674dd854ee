"""Jobs on hosts that are network namespaces, whose ranks talk in plain Ethernet frames: our C programs across them, that nothing goes by TCP meanwhile, switches that drop
frames or the long ones among them, somebody hostile on the segment, and what is said where Ethernet cannot be had."""

import json
import random
import re
import subprocess
import sys
import time

from ..jobs_on_hosts import Job, launcher_of, run
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts, namespaces
from ..runner import Case
from ..unusual_hosts import rules
from . import c as programs

# Programs of tests/c and on how many ranks; the whole only where there is time.
ACROSS = {"p2p": [2], "collectives": [4]}
MORE = {"background": [2, 5], "communicators": [3], "datatypes": [2], "errors": [2], "files": [2], "one_sided": [3], "partitioned": [3], "reordered": [8], "results": [4],
        "sessions": [3], "threads": [3], "windows": [4]}
BY_ETHERNET = ("-x", "GARONNE_ETHERNET=net0")


def suite(context):
    if context.foreign:
        return  # the launcher opens the sockets
    context.installed()
    with Hosts(2):
        pass  # says once why not, if hosts cannot be made
    binaries = context.work / "ethernet"
    binaries.mkdir(exist_ok=True)
    talk = binaries / "talk"
    context.build_program("ethernet", "tests/hosts/talk.c", talk)
    for name, counts in {**ACROSS, **(MORE if context.soak else {})}.items():
        program = binaries / name
        programs.build(context, context.root / "tests" / "c" / f"{name}.c", program)
        for ranks in counts:
            yield Case(f"ethernet/{name} on {ranks}", lambda program=program, ranks=ranks: across(context, program, ranks))
    for case in (nothing_by_tcp, without_rights, jumbo_frames, refusals, no_frames_pass, frames_stop_and_come_back, switches_that_carry_less, cut_links, a_host_that_dies, somebody_hostile):
        yield Case(f"ethernet/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk))


def on(hosts, slots=1):
    return ["--map-by", "node", "--host", f"localhost:{slots},{hosts.names[1]}:{slots}"]


def across(context, program, ranks):
    with Hosts(2) as hosts:
        code, output = run(context, hosts, ["-n", ranks, *on(hosts, ranks), *BY_ETHERNET, program], limit=3 * PATIENCE_S)
        expect(code == 0, f"exit code {code}", output)


def bytes_by_ip(name):
    """Bytes of IP packets that a host has received."""
    done = subprocess.run(["ip", "netns", "exec", name, "cat", "/proc/net/netstat"], capture_output=True, text=True, check=True)
    names, values = [line.split() for line in done.stdout.splitlines() if line.startswith("IpExt:")]
    return int(values[names.index("InOctets")])


def brought(context, hosts, words, start=()):
    """Bytes that IP brings to the second host during rounds of messages of 300 KB."""
    before = bytes_by_ip(hosts.names[1])
    command = ["ip", "netns", "exec", hosts.names[0], *start, context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec", "-n", 2, *on(hosts), *words]
    done = subprocess.run(list(map(str, command)), env=context.environment(), capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
    expect(done.returncode == 0, f"exit code {done.returncode}", done.stdout + done.stderr)
    return bytes_by_ip(hosts.names[1]) - before


def nothing_by_tcp(context, talk):
    """What IP brings is the talk of the agents, which does not grow with the messages."""
    with Hosts(2) as hosts:
        by_tcp, by_ethernet = (brought(context, hosts, [*words, talk, 10]) for words in ((), BY_ETHERNET))
        expect(by_tcp > 1_000_000 and by_ethernet < by_tcp / 20, f"IP brought {by_tcp} bytes without Ethernet and {by_ethernet} with it", "")


def without_rights(context, talk):
    """Whoever may not open packet sockets uses TCP."""
    with Hosts(2) as hosts:
        by_tcp = brought(context, hosts, [*BY_ETHERNET, talk, 10], ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
        expect(by_tcp > 1_000_000, f"IP brought {by_tcp} bytes", "")


def jumbo_frames(context, talk):
    with Hosts(2) as hosts:
        namespaces.set_mtu(hosts, 9000)
        code, output = run(context, hosts, ["-n", 2, *on(hosts), "-x", "GARONNE_ETHERNET=net0,frame=9000", talk, 5, 2000000])
        expect(code == 0, f"exit code {code}", output)


def refusals(context, talk):
    """An interface that is not there, frames that it does not take, and encryption, each named."""
    with Hosts(2) as hosts:
        for words, what in (
            (("-x", "GARONNE_ETHERNET=nothing7"), "no interface nothing7"),
            (("-x", "GARONNE_ETHERNET=net0,frame=9000"), "net0 takes frames of 1500 bytes"),
            (("-x", "GARONNE_ETHERNET=lo"), "no frames by lo"),
            ((*BY_ETHERNET, "-x", "GARONNE_ENCRYPT=1"), "not encrypted yet"),
        ):
            code, output = run(context, hosts, ["-n", 2, *on(hosts), *words, talk, 1])
            expect(code != 0 and re.search("G0225", output) and what in output, f"exit code {code}, and nothing says: {what}", output)


def drop_on_the_way(hosts, match):
    """The switch drops frames that match, and says so to nobody; empty: it passes all."""
    rule = f"{match} drop" if match else ""
    rules(hosts.switch, f"""
        table bridge ethernet
        delete table bridge ethernet
        table bridge ethernet {{
            chain through {{
                type filter hook forward priority 0;
                {rule}
            }}
        }}""")


def gates(context, hosts, job, rank=0):
    """What `garonne why gate` says of each peer of a rank, on its host; nothing before the rank is there."""
    command = ["ip", "netns", "exec", hosts.names[rank], context.prefix / "bin" / "garonne", "why", "gate", rank, *([launcher_of(job)] if rank == 0 else []), "--json"]
    done = subprocess.run(list(map(str, command)), env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "MPI_Init yet" in done.stderr or "no job of yours" in done.stderr + done.stdout:
        return []
    expect(done.returncode == 0, f"exit code {done.returncode}", done.stdout + done.stderr)
    return json.loads(done.stdout)


def wait_for(what, context, hosts, job, is_so, rank=0):
    """Waits until a rank's gates are so, and returns them."""
    until = time.monotonic() + PATIENCE_S
    while not ((seen := gates(context, hosts, job, rank)) and is_so(seen)):
        expect(time.monotonic() < until and job.process.poll() is None, f"never: {what}", str(seen))
        time.sleep(0.1)
    return seen


def counted(seen, what):
    """Frames of the first gate; none before the two have talked in frames."""
    return (seen[0]["frames"] or {}).get(what, 0)


def by_tcp(seen):
    return all(gate["carried_by"] == "TCP" and "no frames arrive" in gate["why"] for gate in seen)


def in_frames(seen):
    return all(gate["carried_by"] == "frames" and gate["why"] is None for gate in seen)


def no_frames_pass(context, talk):
    """A switch that drops frames of this type: TCP carries all, and the reason is said."""
    with Hosts(2) as hosts:
        drop_on_the_way(hosts, "ether type 0x88b5")
        code, output = run(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 10])
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        with Job(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 0]) as job:
            job.wait_for_ranks(talk, 2)
            wait_for("TCP carries frames", context, hosts, job, by_tcp)
            job.end_well(talk)


def frames_stop_and_come_back(context, talk):
    """The switch drops frames of this type from some time on, and passes them again later."""
    with Hosts(2) as hosts, Job(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 0]) as job:
        job.wait_for_ranks(talk, 2)
        wait_for("frames pass", context, hosts, job, lambda seen: in_frames(seen) and counted(seen, "received") > 100)
        for _ in range(2):
            drop_on_the_way(hosts, "ether type 0x88b5")
            wait_for("TCP carries frames", context, hosts, job, by_tcp)
            drop_on_the_way(hosts, "")
            wait_for("frames pass again", context, hosts, job, in_frames)
        job.end_well(talk)


def switches_that_carry_less(context, talk):
    """Interfaces of 9000 bytes: jumbo frames are found by themselves; and left where the switch drops them, which nobody says, or interfaces change."""
    longest = lambda least, most: lambda seen: in_frames(seen) and all(least <= gate["frame_bytes"] <= most for gate in seen)
    with Hosts(2) as hosts:
        namespaces.set_mtu(hosts, 9000)
        with Job(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 0]) as job:
            job.wait_for_ranks(talk, 2)
            wait_for("jumbo frames", context, hosts, job, longest(9000, 9000))
            drop_on_the_way(hosts, "ether type 0x88b5 meta length > 1600")
            wait_for("shorter frames", context, hosts, job, longest(1400, 1600))
            drop_on_the_way(hosts, "")
            wait_for("jumbo frames again", context, hosts, job, longest(9000, 9000))
            namespaces.set_mtu(hosts, 1500)
            wait_for("what interfaces take", context, hosts, job, longest(1400, 1500))
            job.end_well(talk)
        namespaces.set_mtu(hosts, 9000)
        drop_on_the_way(hosts, "ether type 0x88b5 meta length > 1600")
        with Job(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 0]) as job:
            job.wait_for_ranks(talk, 2)
            wait_for("what arrives and not what interfaces say", context, hosts, job, lambda seen: longest(1500, 1600)(seen) and counted(seen, "received") > 100)
            job.end_well(talk)


def cut_links(context, talk):
    """The link of a host is cut twice for a second: nothing is lost."""
    with Hosts(3) as hosts, Job(context, hosts, ["-n", 6, *on(hosts, 2)[:-1], ",".join(f"{name}:2" for name in ["localhost", *hosts.names[1:]]), *BY_ETHERNET, talk, 0]) as job:
        job.wait_for_ranks(talk, 6)
        for _ in range(2):
            before = wait_for("frames come", context, hosts, job, lambda seen: any(gate.get("carried_by") == "frames" for gate in seen))
            hosts.cut(2)
            time.sleep(1)
            hosts.mend(2)
            of = lambda seen: max((gate["frames"] or {}).get("received", 0) for gate in seen if gate["over"] == "Ethernet")
            wait_for("frames come again", context, hosts, job, lambda seen, least=of(before) + 500: of(seen) > least)
        job.end_well(talk)


def a_host_that_dies(context, talk):
    """A rank of another host is killed: the job ends and names it."""
    with Hosts(2) as hosts, Job(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 0]) as job:
        job.wait_for_ranks(talk, 2)
        wait_for("frames come", context, hosts, job, lambda seen: counted(seen, "received") > 100)
        there = subprocess.run(["ip", "netns", "pids", hosts.names[1]], capture_output=True, text=True, check=True).stdout.split()
        victims = [pid for pid in job.ranks(talk) if str(pid) in there]
        expect(len(victims) == 1, f"not one rank there: {victims}", str(job.alive()))
        subprocess.run(["kill", "-9", str(victims[0])], check=True)
        code, output = job.end()
        expect(code != 0 and "rank 1" in output, f"exit code {code}", output)


HOSTILE_S = 3


def somebody_hostile(context, talk):
    """Frames of the job are repeated, changed and forged on the segment: all are dropped and counted, and messages stay right."""
    seed = random.getrandbits(32)
    with Hosts(2) as hosts, Job(context, hosts, ["-n", 2, *on(hosts), *BY_ETHERNET, talk, 0]) as job:
        job.wait_for_ranks(talk, 2)
        wait_for("frames come", context, hosts, job, lambda seen: counted(seen, "received") > 100, rank=1)
        # What host 1 sends comes in by its port, and goes out to host 2 by the other.
        command = ["ip", "netns", "exec", hosts.switch, sys.executable, context.root / "tests/hosts/inject.py", "port1", "port2", HOSTILE_S, seed]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        expect(done.returncode == 0, f"exit code {done.returncode}", done.stdout + done.stderr)
        counts = [int(count) for count in re.findall(r": (\d+)", done.stdout)]
        expect(len(counts) == 5 and min(counts) > 50, f"seed {seed}: too few frames to be a test", done.stdout)
        enough = lambda seen: all(counted(seen, what) > 20 for what in ("malformed", "forged", "came_again"))
        wait_for(f"hostile frames are counted (seed {seed})", context, hosts, job, enough, rank=1)
        job.end_well(talk, about=f"seed {seed}: ")
