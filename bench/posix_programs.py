"""`garonne bench posix`: programs of POSIX threads on fibers (`garonne threads run`) beside the kernel's threads. Each program runs both ways in turns.

Programs are the machine's own: pigz, xz, sysbench. One that is not there is left out, and said.
"""

import hashlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import report
from options import HERE, Parser, number, some_of, try_out
from stats import ratio_interval

PROGRAMS = ("pigz", "xz", "sysbench")
JOB_LIMIT_S = 300


def arguments(argv):
    parser = Parser(prog="garonne bench posix", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--rounds", type=number(1), default=9, help="turns of every program, each with both kinds of threads (default 9)")
    parser.add_argument("--only", type=some_of(list(PROGRAMS)), default=list(PROGRAMS), metavar="NAMES", help=f"some of: {', '.join(PROGRAMS)}")
    parser.add_argument("--quick", action="store_true", help="little work: to see that it works")
    parser.add_argument("--out", metavar="DIR", default="garonne-bench/posix", help="where table and data go (default garonne-bench/posix)")
    parser.add_argument("--json", action="store_true", help="print the data instead of the table")
    parser.add_argument("--prefix", default=str(HERE.parents[2]), help="the installation whose library is taken")
    return parser.parse_args(argv)


def plan(data, cpus, quick):
    """(program, what is shown, threads, words): threads that fit the CPUs, and eight times more."""
    part = 20 if quick else 1
    for threads in (cpus, 8 * cpus):
        yield "pigz", "pigz -p", threads, ["pigz", "-p", str(threads), "-c", data]
        yield "xz", "xz -1 -T", threads, ["xz", "-1", f"-T{threads}", "--block-size=1MiB", "-c", data]
        common = ["--time=600", f"--threads={threads}"]
        yield "sysbench", "sysbench threads", threads, ["sysbench", "threads", *common, f"--events={6000 // part}", "--thread-locks=2", "--thread-yields=100", "run"]
        locks = 2_000_000 // part // threads
        yield "sysbench", "sysbench mutex", threads, ["sysbench", "mutex", *common, "--mutex-num=16", f"--mutex-locks={locks}", "--mutex-loops=100", "run"]


def input_file(path, size):
    """Bytes that compress somewhat, alike in each run."""
    block = b"".join(hashlib.sha256(str(i % 997).encode()).digest() + b"a word and another one " for i in range(4096))
    path.write_bytes((block * (size // len(block) + 1))[:size])


class Programs:
    """Times of programs in seconds: {(what, threads): {"kernel" or "fibers": [s]}}."""

    def __init__(self, args):
        self.args, self.times, self.notes = args, {}, []
        try_out(args.out, ("bench.json", "bench.md"))
        self.library = pathlib.Path(args.prefix) / "lib/threads/libgaronne_pthread.so.1"
        if not self.library.exists():
            sys.exit(f"error: {self.library} is not installed")

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    def measure(self):
        data = pathlib.Path(self.args.out) / "input"
        input_file(data, (1 << 20) if self.args.quick else (24 << 20))
        cpus = len(os.sched_getaffinity(0))
        for turn in range(self.args.rounds):
            print(f"round {turn + 1} of {self.args.rounds}", file=sys.stderr, flush=True)
            for program, what, threads, words in plan(str(data), cpus, self.args.quick):
                if program not in self.args.only:
                    continue
                if not shutil.which(program):
                    self.note(f"{program} is not installed")
                    continue
                # Neither is always the first.
                kinds = ("kernel", "fibers") if turn % 2 == 0 else ("fibers", "kernel")
                for kind in kinds:
                    self.job(what, threads, kind, words)
        data.unlink()

    def job(self, what, threads, kind, words):
        environment = dict(os.environ)
        environment.pop("LD_PRELOAD", None)
        if kind == "fibers":
            environment["LD_PRELOAD"] = str(self.library)
        begin = time.monotonic()
        try:
            done = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=JOB_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            self.note(f"{what} {threads} with {kind}: did not end in {JOB_LIMIT_S} s")
            return
        taken = time.monotonic() - begin
        if done.returncode != 0:
            self.note(f"{what} {threads} with {kind} failed with {done.returncode}: {done.stderr.strip()[-200:]}")
            return
        self.times.setdefault((what, threads), {}).setdefault(kind, []).append(taken)

    def rows(self):
        """A row for each program and number of threads: medians and least times, and the ratio with its interval."""
        rows = []
        for (what, threads), found in self.times.items():
            row = {"what": what, "threads": threads, "median": {kind: statistics.median(times) for kind, times in found.items()}}
            row["least"] = {kind: min(times) for kind, times in found.items()}
            if len(found) == 2:
                row["ratio"] = ratio_interval(found["fibers"], found["kernel"])
                row["least_ratio"] = row["least"]["fibers"] / row["least"]["kernel"]
            rows.append(row)
        return rows


def table(bench, rows):
    lines = ["# POSIX threads on fibers", "", f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f} at the end; {bench.args.rounds} rounds. "
             "Medians of whole runs; the ratio with its 95 % interval, and that of the quickest runs.", "",
             "| program | threads | kernel, s | fibers, s | ratio | of the quickest |", "|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        cells = [f"{row['median'][kind]:.3f}" if kind in row["median"] else "-" for kind in ("kernel", "fibers")]
        ratio = row.get("ratio")
        cells.append(f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})" if ratio else "-")
        cells.append(f"{row['least_ratio']:.2f}" if "least_ratio" in row else "-")
        lines.append(f"| {row['what']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join([*lines, *([""] + [f"- {note}" for note in bench.notes] if bench.notes else [])]) + "\n"


def main(argv):
    bench = Programs(arguments(argv))
    bench.measure()
    rows = bench.rows()
    data, text = {"rows": rows, "notes": bench.notes, "load": os.getloadavg()}, table(bench, rows)
    report.write(bench.args, data, text)
    return 0 if any("fibers" in row["median"] for row in rows) else 1
