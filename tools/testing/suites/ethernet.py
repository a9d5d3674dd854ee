"""Jobs on hosts that are network namespaces, whose ranks talk in plain Ethernet frames: our C programs and a part of mpi4py's suite across them, that nothing goes by TCP
meanwhile, and what is said where Ethernet cannot be had."""

import re
import subprocess

from ..jobs_on_hosts import run
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts, namespaces
from ..runner import Case
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
    for case in (nothing_by_tcp, without_rights, jumbo_frames, refusals):
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
        for name in hosts.names:
            namespaces.ip("-n", name, "link", "set", "net0", "mtu", "9000")
        for port in (1, 2):
            namespaces.ip("-n", hosts.switch, "link", "set", f"port{port}", "mtu", "9000")
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
