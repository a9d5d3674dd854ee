"""`garonne bench collectives --overlap`: how much of each nonblocking collective hides behind computing, by the formula of IMB-NBC.

    overlap = (T_pure + T_cpu - T_ovrl) / min(T_pure, T_cpu), from 0 to 1

for 2 and 4 ranks and all sizes, for every MPI in turns; with `--comp-ms` for computing that takes a given time instead (waits.py). All ranks compute at the same time; where they have all cores between them, only
waiting hides, not copying (ideal.py).
"""

import collections
import os
import re
import statistics

import ideal
import report
import waits
from options import INT_MAX, RANKS_MAX, RANKS_MIN, Parser, add_comp_ms, add_options, numbers, some_of
from session import Session
from stats import Key, Samples, quartiles
from waits import Sample

NAMES = ["ibcast", "iallreduce", "ialltoall", "ialltoallv", "igather", "igatherv", "iscatter", "iscatterv", "iallgather", "iallgatherv", "ireduce", "ibarrier"]
# Those that a program initialises once and starts again and again.
PERSISTENT = ["bcast_init", "allreduce_init", "alltoall_init", "barrier_init"]
ALL = NAMES + PERSISTENT
SIZES = [8, 1024, 8192, 32768, 262144, 1 << 20, 4 << 20]
QUICK_SIZES = [8, 32768]
# Where computing takes long, every size is minutes of it.
LONG_SIZES = [8, 65536, 1 << 20]
DOUBLE = 8
LINE = re.compile(r"^nbc (\w+) (\d+) (?:(\d+)ms|(pure|overlap)) (.+) (\S+) (\S+)$", re.M)


def arguments(argv):
    parser = Parser(prog="garonne bench collectives", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--overlap", action="store_true", help="the overlap of nonblocking collectives (blocking ones: garonne bench --only collectives)")
    add_options(parser, rounds=3, samples=6, sample_ms=2.0, out="garonne-bench/collectives")
    parser.add_argument("--names", type=some_of(ALL), default=NAMES, help=f"some of them, by comma; on demand also {', '.join(PERSISTENT)}")
    parser.add_argument("--sizes", type=numbers(1), metavar="BYTES", help="of one block, by comma (default: 8 bytes to 4 MB)")
    parser.add_argument("--ranks", type=numbers(RANKS_MIN, RANKS_MAX), default=[2, 4], help="by comma (default 2,4)")
    add_comp_ms(parser)
    args = parser.parse_args(argv)
    if not args.overlap:
        parser.error("say --overlap; blocking collectives are measured by: garonne bench --only collectives")
    waits.refuse_endless(parser, args)
    args.sizes = args.sizes or (QUICK_SIZES if args.quick else LONG_SIZES if args.comp_ms else SIZES)
    # What a rank gets of all others lies in one buffer, at places that are counted by an int; reductions add doubles.
    if max(args.sizes) * max(args.ranks) > INT_MAX:
        parser.error(f"--sizes: with {max(args.ranks)} ranks it takes at most {INT_MAX // max(args.ranks)} bytes of one block")
    if any(size % DOUBLE for size in args.sizes) and any("reduce" in name for name in args.names):
        parser.error(f"--sizes: reductions take doubles, so it takes multiples of {DOUBLE} bytes with them")
    return args


def words(names, sizes):
    """A barrier has no size."""
    return [f"{name}:{size}" for name in names for size in ([0] if "barrier" in name else sizes)]


class Nonblocking(Session):
    """`pure` times go to `samples`; those beside computing as long as that takes to `overlaps`, and those beside computing for a given time to `long`."""

    def __init__(self, args):
        super().__init__(args)
        self.samples = Samples()
        self.overlaps = collections.defaultdict(lambda: collections.defaultdict(list))
        self.long = collections.defaultdict(lambda: collections.defaultdict(list))

    def take(self, name, ranks, printed):
        crowded = ranks > (os.cpu_count() or 1)
        for what, size, comp_ms, word, times, *handoffs in LINE.findall(printed):
            before, after = map(float, handoffs)
            pure, *beside = map(float, times.split())
            sample, key = Sample(pure, 0.0, *beside), Key(what, ranks, int(size), "all")
            # A share of one run's own times: comparable whatever the regime.
            if comp_ms:
                self.long[key, int(comp_ms)][name].append(sample)
                continue
            self.samples.add(name, what, ranks, int(size), pure, before, after, crowded)
            if word == "overlap":
                self.overlaps[key][name].append(sample)

    def measure(self):
        programs = self.build("nonblocking.c")
        lengths = waits.words(self.args) if self.args.comp_ms else "overlap"
        for turn in range(self.args.rounds):
            self.say(f"round {turn + 1} of {self.args.rounds}")
            for ranks in self.args.ranks:
                for name in self.args.names:
                    cases = words([name], self.args.sizes)
                    for some in waits.jobs(self.args, cases) if self.args.comp_ms else [cases]:
                        for peer, program in programs:
                            self.take(peer.name, ranks, self.run(peer, program, ranks, [*self.sample_words(), lengths, *some]))

    def rows(self):
        for key, by_name in sorted(self.overlaps.items(), key=lambda item: order(item[0])):
            yield {"what": key.what, "ranks": key.ranks, "bytes": key.bytes, "of": {name: figures(samples) for name, samples in by_name.items()}}

    def long_rows(self):
        for (key, comp_ms), by_name in sorted(self.long.items(), key=lambda item: (order(item[0][0]), item[0][1])):
            yield {"what": key.what, "ranks": key.ranks, "bytes": key.bytes, "comp_ms": comp_ms, "of": {name: waits.figures(samples, samples) for name, samples in by_name.items()}}


def order(key):
    return ALL.index(key.what), key.ranks, key.bytes


def figures(samples):
    middle = statistics.median
    return {
        "overlap": quartiles([ideal.nbc(s.comm, s.comp, s.total) for s in samples]), "samples": len(samples),
        "pure_ns": middle(s.comm for s in samples), "cpu_ns": middle(s.comp for s in samples), "overlapped_ns": middle(s.total for s in samples),
        "wait_ns": middle(s.wait for s in samples), "wait_worst_ns": max(s.wait_worst for s in samples),
    }


def tables(data):
    lines = report.title(data, "Overlap of nonblocking collectives (IMB-NBC)")
    return report.finish(data, lines + (long_table(data["long"]) if data["long"] else share_table(data["rows"])))


def long_table(rows):
    columns = [("call", lambda row: row["what"]), ("ranks", lambda row: row["ranks"]), ("bytes", lambda row: row["bytes"])]
    return ["## Computing for a given time", "", "T_pure is the time of a call that is waited for at once. All times are those of the rank where they are longest. Ranks that share a core compute one after the other, as",
            "long together as is said, so the wait of one then has the computing of another in it.", *waits.LEGEND, "", *waits.table(rows, columns, "T_pure")]


def share_table(rows):
    names = sorted({name for row in rows for name in row["of"]}, key=lambda name: (name != "garonne", name))
    lines = ["Overlap: (T_pure + T_cpu - T_ovrl) / the shorter of T_pure and T_cpu, from 0 to 100 %, median over samples; in brackets T_pure; then the time in MPI_Wait beside",
             "computing, median and, after the stroke, the longest of all, of the rank where it is longest.", "",
             "| call | ranks | bytes | " + " | ".join(names) + " |", "|---|---|---|" + "---|" * len(names)]
    for row in rows:
        lines.append(f"| {row['what']} | {row['ranks']} | {row['bytes']} | " + " | ".join(cell_text(row["of"].get(name)) for name in names) + " |")
    return [*lines, ""]


def cell_text(cell):
    if cell is None:
        return "unmeasured"
    text = report.time_text
    return f"{report.percent_text(cell['overlap'][1])} ({text(cell['pure_ns'])}); {text(cell['wait_ns'])} / {text(cell['wait_worst_ns'])}"


def main(argv):
    bench = Nonblocking(arguments(argv))
    bench.measure()
    data = {**report.head(bench, bench.samples), "rows": list(bench.rows()), "long": list(bench.long_rows())}
    return bench.keep(data, tables(data), {})
