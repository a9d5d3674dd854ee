#!/usr/bin/env python3
"""`garonne bench`: measures this machine's floor, Garonne and other MPIs, side by side, and says who is below whom.

Written in Python because it fetches Python wheels, and its own work is statistics and drawing; what is timed is C
(bench.c, floor.c), built from the same sources with each MPI. Jobs of all MPIs take turns, each a second or so; within a
job every short sample has the bare hand-off of a cache line measured right before and after it. Virtual cores move: a
sample counts only if the two agree, is labelled near or far by them, and is compared only within its label.
"""

import importlib
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report  # noqa: E402
from options import Parser, add_options, some_of  # noqa: E402
from session import JOB_LIMIT_S, Session, end_on_signals  # noqa: E402
from stats import Samples  # noqa: E402

# Parts with their own options: `garonne bench PART`, and the module of each.
PARTS = {"overlap": "overlap", "collectives": "nonblocking", "oversubscribed": "oversubscribed", "threads": "threads", "flows": "flows", "ways": "ways", "binaries": "binaries", **{name: name for name in ("rma", "spawn", "partitioned", "survive", "openmp", "api")}, "io": "files", "sockets": "virtual_sockets", "posix": "posix_programs"}
SMALL, MIDDLE = [8], [64, 256, 1024, 4096, 8192, 16384, 65536]
LARGE = [262144, 1 << 20, 4 << 20, 16 << 20]
FRESH = [4096, 8192, 16384, 65536, 262144, 1 << 20]
COLLECTIVES = ["allreduce", "bcast", "alltoall", "allgather"]
GROUPS = ["latency", "bandwidth", "fresh", "rate", "types", "collectives", "large collectives", "launch", "memory", "floor"]


def plan(quick):
    """(group, ranks, measurements) of the table of figures: each line is one job per MPI and round."""
    large = [65536, 1 << 20] if quick else [65536, 262144, 1 << 20, 4 << 20, 16 << 20]
    counts = [2, 4] if quick else [2, 4, 16, 64]
    yield "latency", 2, [f"pingpong:{n}" for n in SMALL + (MIDDLE if not quick else [4096])]
    yield "bandwidth", 2, [f"pingpong:{n}" for n in (LARGE if not quick else [1 << 20])]
    # A job of its own: what one learns of a length from buffers that nobody writes says nothing here, nor the other way round.
    yield "fresh", 2, [f"fresh:{n}" for n in (FRESH if not quick else [65536])]
    yield "rate", 2, ["rate:8"]
    yield "types", 2, ["contiguous:262208", "indexed:262208", "contiguous:65536", "vector8:65536", "vector64:65536"]
    for ranks in counts:
        yield "collectives", ranks, ["barrier", "allreduce:8", "bcast:8", "alltoall:1024"]
    for ranks in [2] if quick else [2, 4]:
        yield "large collectives", ranks, [f"{what}:{n}" for what in COLLECTIVES for n in large]
    yield "memory", 4 if quick else 64, ["memory"]


def arguments(argv):
    parser = Parser(prog="garonne bench", description=__doc__.split("\n\n")[0].partition(": ")[2],
                                     epilog=f"Further parts, each with its own --help: garonne bench {' | '.join([*PARTS, 'tasks'])}")
    add_options(parser, rounds=6, samples=12, sample_ms=2.0, out="garonne-bench")
    parser.add_argument("--only", metavar="GROUPS", type=some_of(GROUPS), default=GROUPS, help=f"some of: {', '.join(GROUPS)}")
    return parser.parse_args(argv)


class Bench(Session):
    def __init__(self, args):
        super().__init__(args)
        self.samples, self.memory, self.launch = Samples(), {}, {}
        self.programs = {}

    def wanted(self, group):
        return group in self.args.only

    def prepare(self):
        self.programs = {peer.name: (peer, program) for peer, program in self.build("bench.c")}
        self.build_floor()

    def job(self, peer, program, ranks, words):
        """Runs one job and takes in what it printed."""
        printed = self.run(peer, program, ranks, [*self.sample_words(), *words])
        crowded = ranks > (os.cpu_count() or 1)
        for what, size, ns, before, after in re.findall(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", printed, re.M):
            self.samples.add(peer.name, what, ranks, int(size), float(ns), float(before), float(after), crowded)
        for count, kb in re.findall(r"^memory (\d+) (\S+)$", printed, re.M):
            self.memory.setdefault(int(count), {}).setdefault(peer.name, []).append(float(kb))

    def floor(self):
        printed = self.run_floor(SMALL + MIDDLE + (LARGE if not self.args.quick else []))
        for what, size, ns, before, after in re.findall(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", printed, re.M):
            self.samples.add("floor", what, 2, int(size), float(ns), float(before), float(after), crowded=False)

    def launches(self, ranks):
        """Start, MPI_Init and MPI_Finalize of each MPI; /bin/true under our launcher and by bare fork and exec."""
        entries = [(name, peer.command(ranks, program, []), peer.environment()) for name, (peer, program) in self.programs.items()]
        our, _ = self.programs["garonne"]
        entries.append(("/bin/true, garonne run", our.command(ranks, "/bin/true", []), our.environment()))
        for name, command, env in entries:
            started = time.monotonic_ns()
            try:
                done = subprocess.run(command, env=env, capture_output=True, timeout=JOB_LIMIT_S, check=False)
            except subprocess.TimeoutExpired:
                self.count(name, False)
                self.note(f"{name}: launching {ranks} ranks took more than {JOB_LIMIT_S} s")
                continue
            self.count(name, done.returncode == 0)
            if done.returncode != 0:
                self.note(f"{name}: launching {ranks} ranks failed: {' '.join(done.stderr.decode(errors='replace').strip().splitlines()[-1:])}")
            else:
                self.launch.setdefault(ranks, {}).setdefault(name, []).append((time.monotonic_ns() - started) / 1e6)
        started = time.monotonic_ns()
        children = [os.posix_spawn("/bin/true", ["true"], os.environ) for _ in range(ranks)]
        for child in children:
            os.waitpid(child, 0)
        self.launch.setdefault(ranks, {}).setdefault("/bin/true, fork and exec", []).append((time.monotonic_ns() - started) / 1e6)

    def measure(self):
        lines = [line for line in plan(self.args.quick) if self.wanted(line[0])]
        for turn in range(self.args.rounds):
            self.say(f"round {turn + 1} of {self.args.rounds}")
            if self.wanted("floor"):
                self.floor()
            for _, ranks, words in lines:
                for peer, program in self.programs.values():
                    self.job(peer, program, ranks, words)
            if self.wanted("launch"):
                for ranks in (2,) if self.args.quick else (2, 64):
                    self.launches(ranks)


def main():
    if len(sys.argv) > 1 and sys.argv[1] in PARTS:
        end_on_signals()
        return importlib.import_module(PARTS[sys.argv[1]]).main(sys.argv[2:])
    args = arguments(sys.argv[1:])
    end_on_signals()
    bench = Bench(args)
    bench.prepare()
    bench.measure()
    data = report.data(bench)
    return bench.keep(data, report.tables(data), report.plots(data))


if __name__ == "__main__":
    sys.exit(main())
