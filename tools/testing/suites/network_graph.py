"""The network's topology: eight hosts on a tree of four bridges whose links between bridges are slow, found by LLDP and by measuring; files that lie; what changed since the last time.

Bridges do not speak LLDP: a small speaker sends their frames from each of their ports.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys

from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Judged, namespaces
from ..runner import Case

ETHERTYPE = 0x88CC
# Between bridges; the other links have no limit.
SLOW = "60mbit"
# Rounds of a collective, and a share of bytes on a link that is once, with headers, acknowledgements and what a job needs besides.
ROUNDS, ONCE = 20, 1.4
# Hosts below four bridges.
EIGHT = [[f"n{index}", f"n{index + 1}"] for index in range(0, 8, 2)]
# How long hosts listen. A speaker repeats itself often.
LISTEN, EVERY_S = "1s", 0.05


def suite(context):
    if context.foreign:
        return
    context.installed()
    for case in (files_that_lie, changes_are_told, fabric_is_drawn):
        yield Case(f"network-graph/{case.__name__.replace('_', ' ')}", lambda case=case: case(context))
    with Tree(1, 1):
        pass  # says once why not, if hosts cannot be made
    program = context.work / "collective_rounds"
    context.build_program("network-graph", "tests/hosts/collective_rounds.c", program)
    sizes = ((4, 8),) if context.soak else ((2, 4),)
    for bridges, hosts in sizes:
        if context.soak:
            yield Case(f"network-graph/collectives on {bridges} bridges and {hosts} hosts", lambda bridges=bridges, hosts=hosts: collectives(context, program, bridges, hosts))
        for case in (heard, measured):
            yield Case(f"network-graph/{case.__name__} on {bridges} bridges and {hosts} hosts", lambda case=case, bridges=bridges, hosts=hosts: case(context, bridges, hosts))


class Tree(Judged):
    """Hosts on bridges, each bridge in a namespace of its own; the others hang on the first by slow links."""

    def __init__(self, bridges, hosts):
        super().__init__(hosts)
        self.bridges = [f"{self.stem}bridge{index}" for index in range(1, bridges + 1)]
        self.each = hosts // bridges

    def build(self):
        for index, bridge in enumerate(self.bridges, 1):
            namespaces.ip("netns", "add", bridge)
            namespaces.bridge(bridge)
            # The other end of the link must be there.
            if index > 1:
                self.join(index)
        for at, (name, address) in enumerate(zip(self.names, self.addresses)):
            namespaces.add(name)
            namespaces.attach(self.bridges[at // self.each], name, address, port=f"port{at + 1}")

    def join(self, index):
        first, other = self.bridges[0], self.bridges[index - 1]
        namespaces.ip("link", "add", f"down{index}", "netns", first, "type", "veth", "peer", "name", "trunk", "netns", other)
        for name, device in ((first, f"down{index}"), (other, "trunk")):
            namespaces.ip("-n", name, "link", "set", device, "master", "br0", "up")
            namespaces.shape(name, device, SLOW)

    def __exit__(self, *details):
        super().__exit__(*details)
        for name in self.bridges:
            namespaces.ip("netns", "delete", name, may_fail=True)

    def counters(self):
        """For each slow link the bytes that went down and up so far."""
        found = []
        for index in range(2, len(self.bridges) + 1):
            shown = namespaces.ip("-n", self.bridges[0], "-s", "-j", "link", "show", "dev", f"down{index}").stdout
            counted = json.loads(shown)[0]["stats64"]
            found += [counted["tx"]["bytes"], counted["rx"]["bytes"]]
        return found

    def expected(self):
        """The bridge of each host, as lists of hosts."""
        return [self.names[at : at + self.each] for at in range(0, len(self.names), self.each)]


class Speaker:
    """Sends the frames of LLDP that a switch sends, from all ports of a bridge."""

    def __init__(self, namespace, name):
        program = [sys.executable, "-c", f"from testing.suites.network_graph import speak; speak({name!r})"]
        environment = dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).resolve().parents[2]))
        self.process = subprocess.Popen(["ip", "netns", "exec", namespace, *program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        expect(self.process.stdout.readline() == b"speaks\n", "the speaker of LLDP", name)

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


def speak(name):
    """Runs in the namespace of a bridge until its input ends."""
    import select

    ports = [port for _, port in socket.if_nameindex() if port not in ("lo", "br0")]
    sockets = []
    for port in ports:
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sender.bind((port, ETHERTYPE))
        sockets.append((sender, frame(name, port)))
    while True:
        for sender, data in sockets:
            sender.send(data)
        if ports is not None:
            print("speaks", flush=True)
            ports = None
        if select.select([sys.stdin], [], [], EVERY_S)[0]:
            return


def frame(name, port):
    """Chassis, port, time to live, name, capabilities of a bridge."""

    def field(kind, value):
        return struct.pack("!H", kind << 9 | len(value)) + value

    unit = field(1, b"\x07" + name.encode()) + field(2, b"\x05" + port.encode()) + field(3, struct.pack("!H", 120))
    unit += field(5, name.encode()) + field(7, struct.pack("!HH", 4, 4)) + field(0, b"")
    return bytes.fromhex("0180c200000e020000000001") + struct.pack("!H", ETHERTYPE) + unit


class Cache:
    """A cache directory of its own, and `garonne` with it."""

    def __init__(self, context, name):
        self.context = context
        self.directory = context.work / f"network-graph-{name}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)

    def environment(self):
        return self.context.environment({"XDG_CACHE_HOME": str(self.directory)})

    def run(self, *words, host=None):
        within = ["ip", "netns", "exec", host] if host else []
        environment = self.environment()
        command = [*within, self.context.prefix / "bin" / "garonne", "net", *map(str, words)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)

    def graph(self, *words, host=None):
        done = self.run("discover", "--json", *words, host=host)
        expect(done.returncode == 0, f"garonne net discover {words}: exit code {done.returncode}", done.stdout + done.stderr)
        return json.loads(done.stdout)["graph"]

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path


def below(graph, names):
    """The hosts directly below each switch, in order."""
    links = [(link["one"]["name"], link["other"]["name"]) for link in graph["links"]]
    of = lambda switch: sorted((a if b == switch else b for a, b in links if switch in (a, b)), key=lambda name: (name not in names, name))
    found = ([host for host in of(switch) if host in graph["hosts"]] for switch in graph["switches"])
    return sorted((hosts for hosts in found if hosts), key=lambda hosts: names.index(hosts[0]))


def heard(context, bridges, hosts):
    """Each host hears its bridge, and each bridge the others: all together are the tree."""
    cache = Cache(context, f"heard-{hosts}")
    with Tree(bridges, hosts) as tree:
        speakers = []
        try:
            for index, namespace in enumerate(tree.bridges, 1):
                speakers.append(Speaker(namespace, f"bridge{index}"))

            def listen(index, namespace):
                file = cache.directory / f"bridge{index}.json"
                cache.graph("--lldp", "--for", LISTEN, "--switch", "--name", f"bridge{index}", "--save", file, "--dry-run", host=namespace)
                return "--file", file

            with concurrent.futures.ThreadPoolExecutor() as pool:
                files = [word for words in pool.map(listen, range(1, bridges + 1), tree.bridges) for word in words]
            among = ["--host", ",".join(tree.names), "--launcher", "ip netns exec"]
            graph = cache.graph("--lldp", "--for", LISTEN, *among, *files, host=tree.names[0])
        finally:
            for speaker in speakers:
                speaker.end()
        expect(below(graph, tree.names) == tree.expected(), "hosts by bridge", json.dumps(graph))
        between = [(link["one"], link["other"]) for link in graph["links"] if link["one"]["name"] in graph["switches"] and link["other"]["name"] in graph["switches"]]
        wanted = [({"name": "bridge1", "port": f"down{index}"}, {"name": f"bridge{index}", "port": "trunk"}) for index in range(2, bridges + 1)]
        expect(between == wanted, "links between bridges", json.dumps(graph))
        shown = cache.run("show")
        first = "switch bridge1\n" if bridges > 2 else "switch bridge"
        expect(shown.returncode == 0 and shown.stdout.startswith(first), "the tree", shown.stdout + shown.stderr)


def measured(context, bridges, hosts):
    """Hosts of one bridge are near each other, and that is all that a measurement shows."""
    cache = Cache(context, f"measured-{hosts}")
    with Tree(bridges, hosts) as tree:
        among = ["--host", ",".join(tree.names), "--launcher", "ip netns exec"]
        graph = cache.graph("--measure", *among, host=tree.names[0])
        expect(below(graph, tree.names) == tree.expected(), "hosts by group", json.dumps(graph))
        top = [link for link in graph["links"] if "group" in (link["one"]["name"], link["other"]["name"])]
        expect(len(top) == bridges and all(link["mb_per_s"] < 12 for link in top), "rates of slow links", json.dumps(top))


def topology(expected):
    """Slurm's file of such a tree."""
    switches = {1: f" Switches=bridge[2-{len(expected)}]"}
    return "".join(f"SwitchName=bridge{index} Nodes={','.join(names)}{switches.get(index, '')}\n" for index, names in enumerate(expected, 1))


def collectives(context, program, bridges, hosts):
    """Links between bridges carry 64 KB once in each direction when the graph is known, and more when it is not."""
    cache = Cache(context, f"collectives-{hosts}")
    with Tree(bridges, hosts) as tree:

        def crossed(kind):
            """Bytes for each link and direction, as a share of what one crossing in each round takes."""
            before = tree.counters()
            command = ["ip", "netns", "exec", tree.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec", "--host", ",".join(f"{name}:1" for name in tree.names), program, kind, ROUNDS]
            done = subprocess.run(list(map(str, command)), env=cache.environment(), capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)
            expect(done.returncode == 0 and "are right" in done.stdout, f"exit code {done.returncode}", done.stdout + done.stderr)
            return [(after - earlier) / (ROUNDS * 65536) for after, earlier in zip(tree.counters(), before)]

        unknown = crossed("allreduce")
        expect(max(unknown) > ONCE, "links carry no more without the graph", str(unknown))
        cache.graph("--slurm", cache.write("topology.conf", topology(tree.expected())))
        down, up = split(crossed("bcast"))
        expect(all(0.9 < share < ONCE for share in down) and all(share < 0.5 for share in up), "bcast: what crossed each link", f"{down} {up}")
        down, up = split(crossed("allreduce"))
        expect(all(0.9 < share < ONCE for share in down + up), "allreduce: what crossed each link", f"{down} {up}")


def split(shares):
    return shares[::2], shares[1::2]


def files_that_lie(context):
    cache = Cache(context, "lies")
    matrix = {"hosts": ["a", "b"], "latency_us": [[0, 1], [1, 0]], "mb_per_s": [[0, 1], [1, 0]]}
    good = cache.write("good.conf", topology(EIGHT))
    cases = (
        ("--slurm", "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n", "line 2: 'n1' is below 'a' in line 1 already"),
        ("--slurm", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "is below itself"),
        ("--slurm", "\x00\x01", "not KEY=VALUE"),
        ("--ibnetdiscover", "Ca 1 \"H-1\"\n[1] \"S-2\"[3]\n", "no part of the text describes 'S-2'"),
        ("--file", '{"format": 7, "hosts": [], "switches": [], "links": []}', "format 7"),
        ("--file", '{"format": 1, "hosts": ["a"], "switches": ["a"], "links": []}', "a host in one place and a switch in another"),
        ("--file", '{"format": 1, "hosts": ["a"]', "no graph of a network"),
        ("--matrix", json.dumps(matrix).replace("[0, 1]", "[0, NaN]"), "no matrix of measurements"),
        ("--matrix", json.dumps(matrix | {"mb_per_s": [[0, -1], [1, 0]]}), "'mb_per_s' from a to b is -1"),
        ("--matrix", json.dumps(matrix | {"latency_us": [[0, 1]]}), "2 hosts need 2 rows"),
    )
    for option, text, word in cases:
        done = cache.run("discover", option, cache.write("bad", text))
        expect(done.returncode == 1 and word in done.stderr and not done.stdout, f"{option} {text!r}: exit code {done.returncode}", done.stdout + done.stderr)
    lies = cache.write("lies.json", '{"format": 1, "hosts": ["bridge2"], "switches": [], "links": []}')
    done = cache.run("discover", "--slurm", good, "--file", lies)
    expect(done.returncode == 1 and "contradicts the other sources" in done.stderr, f"exit code {done.returncode}", done.stdout + done.stderr)
    done = cache.run("show")
    expect(done.returncode == 1 and "no network is known yet" in done.stderr, "nothing was kept", done.stdout + done.stderr)


def changes_are_told(context):
    cache = Cache(context, "changes")
    text = topology(EIGHT).replace("\n", " LinkSpeed=10G\n")
    done = cache.run("discover", "--slurm", cache.write("before.conf", text))
    expect(done.returncode == 0 and "switch bridge1\n" in done.stdout and "since" not in done.stdout, "the first time", done.stdout + done.stderr)
    done = cache.run("discover", "--slurm", cache.write("same.conf", text))
    expect(done.returncode == 0 and "nothing has changed" in done.stdout, "the second time", done.stdout + done.stderr)
    later = text.replace("Nodes=n2,n3 LinkSpeed=10G", "Nodes=n2 LinkSpeed=1G")
    done = cache.run("discover", "--slurm", cache.write("later.conf", later))
    wanted = ("host n3 has disappeared", "link bridge2 - n2 fell from 10 Gbit/s to 1.0 Gbit/s")
    expect(done.returncode == 0 and all(line in done.stdout for line in wanted), "what changed", done.stdout + done.stderr)


def fabric_is_drawn(context):
    cache = Cache(context, "drawn")
    fabric = '''\
Switch	8 "S-01"		# "leaf1" base port 0 lid 3 lmc 0
[1]	"S-02"[2]		# "core" lid 6 4xEDR
[4]	"H-03"[1](3) 		# "node<2> mlx5_0" lid 16 4xEDR

Switch	8 "S-02"		# "core" base port 0 lid 6 lmc 0
[2]	"S-01"[1]		# "leaf1" lid 3 4xEDR

Ca	2 "H-03"		# "node<2> mlx5_0"
[1](3) 	"S-01"[4]		# lid 16 lmc 1 "leaf1" lid 3 4xEDR
'''
    done = cache.run("discover", "--ibnetdiscover", cache.write("fabric", fabric))
    expect(done.returncode == 0 and "host node<2>, 100 Gbit/s" in done.stdout, "text", done.stdout + done.stderr)
    drawing = cache.directory / "network.svg"
    done = cache.run("show", "--svg", drawing)
    expect(done.returncode == 0, "garonne net show --svg", done.stdout + done.stderr)
    text = drawing.read_text()
    expect(text.startswith("<svg") and all(word in text for word in ("switch leaf1", "switch core", "node&lt;2&gt;")), "the drawing", text)
