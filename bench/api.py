"""`garonne bench api`: messages of the endpoints of `garonne.h`, beside MPI over the same engine, and beside the interfaces of UCX and libfabric.

Between two ranks of a job, over shared memory: MPI (bench.c), `ucx_perftest` and `fi_pingpong` over theirs. Between two processes that connect by
URI, over TCP on loopback: both tools over TCP, which do not encrypt as Garonne does. The tools are Debian's; where the machine lacks them they are
fetched into a private directory. They report one figure a run and no hand-off of a cache line, so all samples of a row are compared, from near and
far cores alike.
"""

import os
import re
import subprocess
import time

import packages
import report
from options import Parser, add_options, some_of
from peers import Unavailable
from ports import free_port
from session import Session
from stats import Samples

SIZES = {"pingpong": [8, 64, 1024, 4096, 16384, 65536, 262144, 1 << 20], "rate": [8, 1024, 8192, 65536]}
QUICK = {"pingpong": [8, 65536], "rate": [8]}
KINDS = [*SIZES, *(f"pair_{name}" for name in SIZES)]
MEANINGS = {"pingpong": "Half round trip, two ranks of a job", "rate": "Time per message, window of 64, two ranks of a job",
            "pair_pingpong": "Half round trip, connected by URI (TCP on loopback, encrypted by Garonne)",
            "pair_rate": "Time per message, window of 64, connected by URI (TCP on loopback, encrypted by Garonne)"}
TOOLS = {"ucx": ("ucx-utils", "ucx_perftest"), "libfabric": ("libfabric-bin", "fi_pingpong")}
TOOL_LIMIT_S = 30
LINE = re.compile(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", re.M)


def arguments(argv):
    parser = Parser(prog="garonne bench api", description=__doc__.split("\n\n")[0].partition(": ")[2])
    add_options(parser, rounds=4, samples=6, sample_ms=2.0, out="garonne-bench/api")
    parser.add_argument("--only", type=some_of(KINDS), default=KINDS, metavar="KINDS", help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--tools", type=some_of(list(TOOLS)), default=list(TOOLS), metavar="NAMES", help=f"some of: {', '.join(TOOLS)}")
    return parser.parse_args(argv)


class Api(Session):
    def __init__(self, args):
        super().__init__(args)
        self.samples, self.debian = Samples(), packages.Debian(self.state)
        self.tools = [name for name in args.tools if self.has(name)]

    def has(self, name):
        package, tool = TOOLS[name]
        try:
            self.debian.fetch([package])
            self.debian.version(package)
            return True
        except Unavailable as why:
            self.note(f"{tool} cannot be had: {why}")
            return False

    def put(self, what, size, name, ns):
        self.samples.put(what, 2, size, "any", name, [ns])

    def endpoints(self, garonne):
        """The program of garonne.h."""
        target = self.state / "api-garonne"
        flags = [f"-I{garonne.root}/include", f"-L{garonne.root}/lib", f"-Wl,-rpath,{garonne.root}/lib"]
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "api.c")
        self.make(target, lambda new: subprocess.run(["cc", "-O2", source, "-o", str(new), *flags, "-lgaronne"], check=True))
        return target

    def measure(self):
        (garonne, mpi), *_ = self.build("bench.c")
        endpoints, plan = self.endpoints(garonne), QUICK if self.args.quick else SIZES
        for turn in range(self.args.rounds):
            self.say(f"round {turn + 1} of {self.args.rounds}")
            for kind in self.args.only:
                what, is_pair = kind.removeprefix("pair_"), kind.startswith("pair_")
                for size in plan[what]:
                    words = [*self.sample_words(), f"{kind}:{size}"]
                    self.take("garonne", self.run(garonne, endpoints, 1 if is_pair else 2, words))
                    if not is_pair:
                        self.take("engine", self.run(garonne, mpi, 2, words))
                    for tool in self.tools:
                        self.tool(tool, kind, what, size, "tcp" if is_pair else "shm")

    def take(self, name, printed):
        for what, size, ns, _, _ in LINE.findall(printed):
            self.put(what, int(size), name, float(ns))

    def tool(self, tool, kind, what, size, way):
        """`samples` runs of a tool, each about as long as a sample."""
        if tool == "libfabric" and what == "rate":
            return  # it measures nothing of the kind
        name, guess = f"{tool}-{way}", self.guess(kind, size)
        times = max(100, int(self.args.sample_ms * 1e6 / guess))
        for _ in range(self.args.samples):
            ns = self.ucx(what, size, way, times) if tool == "ucx" else self.libfabric(size, way, times)
            if ns is not None:
                self.put(kind, size, name, ns)

    def guess(self, kind, size):
        """How long one operation takes, roughly: as long as Garonne's."""
        values = self.samples.of.get(next((key for key in self.samples.of if (key.what, key.bytes) == (kind, size)), None), {})
        return min(values.get("garonne", [1e4]))

    def ucx(self, what, size, way, times):
        env = {"UCX_TLS": "posix,cma,self" if way == "shm" else "tcp,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        test = ["-t", "ucp_am_lat" if what == "pingpong" else "ucp_am_bw", "-s", str(size), "-n", str(times), "-w", str(max(10, times // 10)), "-f", "-v"]
        printed = self.two("ucx", lambda port: ["ucx_perftest", "-p", port], lambda port: ["ucx_perftest", "127.0.0.1", "-p", port, *test], env)
        values = re.search(r"^ *\d+,([\d.]+),([\d.]+),([\d.]+),", printed, re.M)
        if not values:
            return None
        # Microseconds: the mean of all operations, as Garonne's samples are.
        return float(values[3]) * 1000

    def libfabric(self, size, way, times):
        words = ["-p", "shm" if way == "shm" else "tcp;ofi_rxm", "-e", "rdm", "-I", str(times), "-S", str(size)]
        printed = self.two("libfabric", lambda port: ["fi_pingpong", *words, "-B", port], lambda port: ["fi_pingpong", *words, "-P", port, "127.0.0.1"], {})
        # bytes, sent, acknowledged, total, time, MB/s, µs a transfer, millions of transfers a second
        values = re.search(r"^\S+\s+\S+\s+=?\S+\s+\S+\s+\S+\s+\S+\s+(\d\S*)\s+\S+\s*$", printed, re.M)
        return float(values[1]) * 1000 if values else None

    def two(self, name, server, client, env):
        """What the client of two programs printed; each is on its own core, as the ranks of the other programs are."""
        port, cores = str(free_port()), sorted(os.sched_getaffinity(0))
        env = {**os.environ, **env}

        def on(core, words):
            return self.debian.command(["taskset", "-c", str(core), *words])

        with subprocess.Popen(on(cores[0], server(port)), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as serving:
            try:
                self.listening(port, serving)
                done = subprocess.run(on(cores[-1], client(port)), env=env, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False)
                if done.returncode != 0:
                    self.note(f"{name}: {' '.join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:])}")
                    return ""
                return done.stdout
            except subprocess.TimeoutExpired:
                self.note(f"{name}: {' '.join(client(port))} took more than {TOOL_LIMIT_S} s")
                return ""
            finally:
                serving.kill()

    def listening(self, port, serving):
        """Waits until somebody listens there, without connecting: a server takes one client."""
        wanted = f":{int(port):04X}"
        until = time.monotonic() + TOOL_LIMIT_S
        while time.monotonic() < until and serving.poll() is None:
            for table in ("/proc/net/tcp", "/proc/net/tcp6"):
                with open(table, encoding="ascii") as lines:
                    if any(words[1].endswith(wanted) and words[3] == "0A" for words in map(str.split, lines) if len(words) > 3):
                        return
            time.sleep(0.002)


def main(argv):
    bench = Api(arguments(argv))
    bench.measure()
    data = {**report.head(bench, bench.samples), "rows": report.sample_rows(bench.samples)}
    lines = report.title(data, "Endpoints")
    for is_pair in (False, True):  # each beside those that it is compared with
        lines += report.kind_tables([row for row in data["rows"] if row["what"].startswith("pair_") == is_pair], meanings=MEANINGS)
    return bench.keep(data, report.finish(data, lines), {})
