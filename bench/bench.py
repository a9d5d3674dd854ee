#!/usr/bin/env python3
"""`garonne bench`: measures this machine's floor, Garonne and other MPIs, side by side, and says who is below whom.

Written in Python because it fetches Python wheels, and its own work is statistics and drawing; what is timed is C
(bench.c, floor.c), built from the same sources with each MPI. Jobs of all MPIs take turns, each a second or so; within a
job every short sample has the bare hand-off of a cache line measured right before and after it. Virtual cores move: a
sample counts only if the two agree, is labelled near or far by them, and is compared only within its label.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402
import report  # noqa: E402
from stats import Samples  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SMALL, MIDDLE = [8], [64, 256, 1024, 4096, 8192, 16384, 65536]
LARGE = [262144, 1 << 20, 4 << 20, 16 << 20]
COLLECTIVES = ["allreduce", "bcast", "alltoall", "allgather"]
JOB_LIMIT_S = 180


def plan(quick):
    """(group, ranks, measurements) of the table of figures: each line is one job per MPI and round."""
    large = [65536, 1 << 20] if quick else [65536, 262144, 1 << 20, 4 << 20, 16 << 20]
    counts = [2, 4] if quick else [2, 4, 16, 64]
    yield "latency", 2, [f"pingpong:{n}" for n in SMALL + (MIDDLE if not quick else [4096])]
    yield "bandwidth", 2, [f"pingpong:{n}" for n in (LARGE if not quick else [1 << 20])]
    yield "rate", 2, ["rate:8"]
    yield "types", 2, ["contiguous:262208", "indexed:262208", "contiguous:65536", "vector8:65536", "vector64:65536"]
    for ranks in counts:
        yield "collectives", ranks, ["barrier", "allreduce:8", "bcast:8", "alltoall:1024"]
    for ranks in [2] if quick else [2, 4]:
        yield "large collectives", ranks, [f"{what}:{n}" for what in COLLECTIVES for n in large]
    yield "memory", 4 if quick else 64, ["memory"]


def known_peers(text):
    """The names of an option's value."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in peers.NAMES:
            raise argparse.ArgumentTypeError(f"there is no MPI named '{name}' here; there are {', '.join(peers.NAMES)}")
    return names


def arguments():
    parser = argparse.ArgumentParser(prog="garonne bench", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--against", metavar="NAMES", type=known_peers, default=[], help=f"other MPIs, by comma: {','.join(peers.NAMES)}")
    parser.add_argument("--rounds", type=int, default=6, help="turns of every MPI (default 6)")
    parser.add_argument("--samples", type=int, default=12, help="samples per measurement and turn (default 12)")
    parser.add_argument("--sample-ms", type=float, default=2.0, help="length of a sample (default 2)")
    parser.add_argument("--quick", action="store_true", help="few sizes and ranks: to see that it works")
    parser.add_argument("--only", metavar="GROUPS", default="", help="some of: latency, bandwidth, rate, types, collectives, large collectives, launch, memory, floor")
    parser.add_argument("--wheels", metavar="DIR", help="take the peers' wheels from here instead of the network")
    parser.add_argument("--out", metavar="DIR", default="garonne-bench", help="where tables, plots and data go")
    parser.add_argument("--json", action="store_true", help="print the data instead of the tables")
    parser.add_argument("--prefix", default=str(HERE.parents[2]), help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        cache = os.environ.get("GARONNE_STATE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "garonne")
        self.state = pathlib.Path(cache).resolve() / "bench"
        self.state.mkdir(parents=True, exist_ok=True)
        self.map = tempfile.NamedTemporaryFile(prefix="garonne-bench-")
        self.samples, self.memory, self.launch, self.notes = Samples(), {}, {}, []
        self.programs = {}
        self.groups = [word.strip() for word in args.only.split(",") if word.strip()]

    def wanted(self, group):
        return not self.groups or group in self.groups

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def prepare(self):
        everybody = [peers.ours(pathlib.Path(self.args.prefix))]
        for name in self.args.against:
            try:
                everybody.append(peers.peer(name, self.state, self.args.wheels))
            except peers.Unavailable as why:
                self.note(str(why))
        for peer in everybody:
            target = self.state / f"bench-{peer.name}"
            try:
                peer.compile(HERE / "bench.c", target)
                self.programs[peer.name] = (peer, target)
            except peers.Unavailable as why:
                self.note(str(why))
        subprocess.run(["cc", "-O2", str(HERE / "floor.c"), "-o", str(self.state / "floor")], check=True)

    def note(self, text):
        self.notes.append(text)
        self.say(f"note: {text}")

    def job(self, peer, program, ranks, words):
        """Runs one job and takes in what it printed; a job that fails is noted, not hidden."""
        with open(self.map.name, "r+b") as shared:
            shared.truncate(0)
        command = peer.command(ranks, program, [self.map.name, str(self.args.samples), str(self.args.sample_ms * 1e6), *words])
        try:
            done = subprocess.run(command, env=peer.environment(), capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            self.note(f"{peer.name} on {ranks} ranks did not finish {' '.join(words)} in {JOB_LIMIT_S} s")
            return
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            self.note(f"{peer.name} on {ranks} ranks failed at {' '.join(words)}: {' '.join(last)}")
        crowded = ranks > (os.cpu_count() or 1)
        for what, size, ns, before, after in re.findall(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", done.stdout, re.M):
            self.samples.add(peer.name, what, ranks, int(size), float(ns), float(before), float(after), crowded)
        for count, kb in re.findall(r"^memory (\d+) (\S+)$", done.stdout, re.M):
            self.memory.setdefault(int(count), {}).setdefault(peer.name, []).append(float(kb))

    def floor(self):
        with open(self.map.name, "r+b") as shared:
            shared.truncate(0)
        sizes = [str(n) for n in SMALL + MIDDLE + (LARGE if not self.args.quick else [])]
        done = subprocess.run([str(self.state / "floor"), self.map.name, str(self.args.samples), *sizes], capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False)
        for what, size, ns, before, after in re.findall(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", done.stdout, re.M):
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
                self.note(f"{name}: launching {ranks} ranks took more than {JOB_LIMIT_S} s")
                continue
            if done.returncode == 0:
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


def end_on_signals():
    """Signals end it as a normal exit does, so that the running job ends too and no temporary file stays behind."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: sys.exit(128 + received))


def main():
    args = arguments()
    end_on_signals()
    bench = Bench(args)
    bench.prepare()
    if "garonne" not in bench.programs:
        sys.exit("error: the benchmark could not be built with Garonne itself")
    bench.measure()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    data = report.data(bench)
    (out / "bench.json").write_text(json.dumps(data, indent=1))
    text = report.tables(data)
    (out / "bench.md").write_text(text)
    report.plots(data, out)
    print(json.dumps(data) if args.json else text)
    bench.say(f"tables, plots and data: {out}/")


if __name__ == "__main__":
    main()
