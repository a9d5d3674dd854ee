"""`garonne bench openmp`: what OpenMP's constructs cost, with Garonne's libgomp.so.1, GCC's and LLVM's. One program, built once, runs with each in turns.

GCC's library is the compiler's own. LLVM's is Debian's libomp5, which has the entry points of GCC's; it is fetched into a private directory.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys

import packages
import report
from options import HERE, Parser, milliseconds, number, some_of, try_out
from peers import Unavailable
from stats import ratio_interval

CONSTRUCTS = ("parallel", "for", "barrier", "single", "critical", "reduction", "task")
THREADS = (1, 2, 4, 16)
NESTED = ((2, 2), (4, 4), (8, 8), (16, 8))
# Rows of Table 5.1 of Goglin's habilitation.
ZONES = ((1, 1), (4, 4), (16, 1), (16, 2), (16, 4), (16, 8), (32, 1), (32, 2), (32, 4), (32, 8))
PLAN = {**{name: [(threads, 1) for threads in THREADS] for name in CONSTRUCTS}, "nested": list(NESTED), "zones": list(ZONES)}
QUICK = {**{name: [(2, 1)] for name in CONSTRUCTS}, "nested": [(2, 2)], "zones": [(1, 1), (4, 4)]}
# A library that needs more for one line is noted as such.
JOB_LIMIT_S = 60
PACKAGE = "libomp5"
LINE = re.compile(r"^sample (\w+) (\d+) (\d+) (\S+)$", re.M)


def arguments(argv):
    parser = Parser(prog="garonne bench openmp", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--rounds", type=number(1), default=3, help="turns of every library (default 3)")
    parser.add_argument("--samples", type=number(1), default=5, help="samples per measurement and turn (default 5)")
    parser.add_argument("--sample-ms", type=milliseconds, default=5.0, help="length of a sample (default 5)")
    parser.add_argument("--only", type=some_of(list(PLAN)), default=list(PLAN), metavar="KINDS", help=f"some of: {', '.join(PLAN)}")
    parser.add_argument("--libraries", type=some_of(["garonne", "gcc", "llvm"]), default=["garonne", "gcc", "llvm"], metavar="NAMES", help="some of: garonne, gcc, llvm")
    parser.add_argument("--quick", action="store_true", help="few numbers of threads: to see that it works")
    parser.add_argument("--out", metavar="DIR", default="garonne-bench/openmp", help="where table and data go (default garonne-bench/openmp)")
    parser.add_argument("--json", action="store_true", help="print the data instead of the table")
    parser.add_argument("--prefix", default=str(HERE.parents[2]), help="the installation whose library is taken")
    return parser.parse_args(argv)


class OpenMP:
    """Libraries by name, and what was measured with each: {(what, outer, inner): {library: [ns]}}."""

    def __init__(self, args):
        self.args, self.samples, self.notes = args, {}, []
        try_out(args.out, ("bench.json", "bench.md"))
        cache = os.environ.get("GARONNE_STATE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "garonne")
        self.state = pathlib.Path(cache).resolve() / "bench"
        self.state.mkdir(parents=True, exist_ok=True)
        self.program = self.state / "openmp"
        new = self.state / f"openmp-{os.getpid()}"
        built = subprocess.run(["gcc", "-O2", "-fopenmp", str(HERE / "openmp.c"), "-o", str(new)], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            sys.exit(f"error: gcc -fopenmp does not build the program: {built.stderr[-500:]}")
        new.rename(self.program)
        self.libraries = {name: folder for name in args.libraries if (folder := self.folder(name)) is not None}

    def folder(self, name):
        """The folder that the loader is told for a library; empty: what the compiler took. None: it cannot be had."""
        if name == "gcc":
            return ""
        if name == "garonne":
            folder = pathlib.Path(self.args.prefix) / "lib/openmp"
            if (folder / "libgomp.so.1").exists():
                return str(folder)
            sys.exit(f"error: {folder}/libgomp.so.1 is not installed")
        try:
            debian = packages.Debian(self.state)
            debian.fetch([PACKAGE])
        except Unavailable as why:
            self.note(f"LLVM's library cannot be had: {why}")
            return None
        # The package may be the machine's own.
        found = [path for root in (debian.root, pathlib.Path("/")) for path in root.glob("usr/lib/llvm-*/lib/libomp.so.5")]
        if not found:
            self.note(f"{PACKAGE} has no libomp.so.5")
            return None
        folder = self.state / "libomp"
        folder.mkdir(exist_ok=True)
        link = folder / "libgomp.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(found[0].resolve())
        return str(folder)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    def measure(self):
        plan = QUICK if self.args.quick else PLAN
        sums = set()
        for turn in range(self.args.rounds):
            print(f"round {turn + 1} of {self.args.rounds}", file=sys.stderr, flush=True)
            for what in self.args.only:
                for outer, inner in plan[what]:
                    for name, folder in self.libraries.items():
                        self.job(name, folder, what, outer, inner, sums)
        if len(sums) > 1:
            sys.exit(f"error: the solver's results differ: {sums}")

    def job(self, name, folder, what, outer, inner, sums):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
        environment["LD_LIBRARY_PATH"] = folder
        command = [str(self.program), str(self.args.samples), str(self.args.sample_ms * 1e6), f"{what}:{outer}x{inner}"]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            self.note(f"{name}: {what} {outer} x {inner} took more than {JOB_LIMIT_S} s")
            return
        if done.returncode != 0:
            self.note(f"{name}: {what} {outer} x {inner} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
            return
        sums.update(re.findall(r"^check (\S+)$", done.stdout, re.M))
        for _, _, _, ns in LINE.findall(done.stdout):
            self.samples.setdefault((what, outer, inner), {}).setdefault(name, []).append(float(ns))

    def rows(self):
        """A row for each measurement: medians, and the ratio to the quicker of the others with its interval."""
        rows = []
        for (what, outer, inner), found in self.samples.items():
            row = {"what": what, "outer": outer, "inner": inner, "ns": {name: statistics.median(values) for name, values in found.items()}}
            others = [name for name in found if name != "garonne"]
            if "garonne" in found and others:
                best = min(others, key=row["ns"].get)
                row["best"], row["ratio"] = best, ratio_interval(found["garonne"], found[best])
            rows.append(row)
        return rows


def table(bench, rows):
    names = list(bench.libraries)
    lines = ["# OpenMP", "", f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the end; {bench.args.rounds} rounds of {bench.args.samples} samples. Medians; "
             "the ratio is to the quicker of the others, with its 95 % interval.", "",
             "| what | threads | " + " | ".join(f"{name}, us" for name in names) + " | ratio |", "|---|---|" + "--:|" * (len(names) + 1)]
    for row in rows:
        threads = f"{row['outer']} x {row['inner']}" if row["what"] in ("nested", "zones") else str(row["outer"])
        cells = [f"{row['ns'][name] / 1000:,.2f}" if name in row["ns"] else "-" for name in names]
        ratio = row.get("ratio")
        cells.append(f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f}) {row['best']}" if ratio else "-")
        lines.append(f"| {row['what']} | {threads} | {' | '.join(cells)} |")
    return "\n".join([*lines, *([""] + [f"- {note}" for note in bench.notes] if bench.notes else [])]) + "\n"


def main(argv):
    bench = OpenMP(arguments(argv))
    bench.measure()
    rows = bench.rows()
    data, text = {"rows": rows, "notes": bench.notes, "load": os.getloadavg()}, table(bench, rows)
    report.write(bench.args, data, text)
    return 0 if any("garonne" in row["ns"] for row in rows) else 1
