"""`garonne bench collectives --overlap`: how much of each nonblocking collective hides behind computing, by the formula of IMB-NBC.

    overlap = (T_pure + T_cpu - T_ovrl) / min(T_pure, T_cpu), from 0 to 1

for 2 and 4 ranks and all sizes, for every MPI in turns. All ranks compute at the same time; where they have all cores between them, only
waiting hides, not copying (ideal.py).
"""

import collections
import os
import re
import statistics

import ideal
import report
from options import INT_MAX, RANKS_MAX, RANKS_MIN, Parser, add_options, numbers, some_of
from session import Session
from stats import Key, Samples, quartiles

NAMES = ["ibcast", "iallreduce", "ialltoall", "ialltoallv", "igather", "igatherv", "iscatter", "iscatterv", "iallgather", "iallgatherv", "ireduce", "ibarrier"]
SIZES = [8, 1024, 8192, 32768, 262144, 1 << 20, 4 << 20]
QUICK_SIZES = [8, 32768]
DOUBLE = 8
LINE = re.compile(r"^nbc (\w+) (\d+) (\S+) (\S+) (\S+) (\S+) (\S+)$", re.M)


def arguments(argv):
    parser = Parser(prog="garonne bench collectives", description=__doc__.split("\n\n")[0].partition(": ")[2])
    parser.add_argument("--overlap", action="store_true", help="the overlap of nonblocking collectives (blocking ones: garonne bench --only collectives)")
    add_options(parser, rounds=3, samples=6, sample_ms=2.0, out="garonne-bench/collectives")
    parser.add_argument("--names", type=some_of(NAMES), default=NAMES, help="some of them, by comma")
    parser.add_argument("--sizes", type=numbers(1), metavar="BYTES", help="of one block, by comma (default: 8 bytes to 4 MB)")
    parser.add_argument("--ranks", type=numbers(RANKS_MIN, RANKS_MAX), default=[2, 4], help="by comma (default 2,4)")
    args = parser.parse_args(argv)
    if not args.overlap:
        parser.error("say --overlap; blocking collectives are measured by: garonne bench --only collectives")
    args.sizes = args.sizes or (QUICK_SIZES if args.quick else SIZES)
    # What a rank gets of all others lies in one buffer, at places that are counted by an int; reductions add doubles.
    if max(args.sizes) * max(args.ranks) > INT_MAX:
        parser.error(f"--sizes: with {max(args.ranks)} ranks it takes at most {INT_MAX // max(args.ranks)} bytes of one block")
    if any(size % DOUBLE for size in args.sizes) and any("reduce" in name for name in args.names):
        parser.error(f"--sizes: ireduce and iallreduce take doubles, so it takes multiples of {DOUBLE} bytes with them")
    return args


def words(names, sizes):
    """A barrier has no size."""
    return [f"{name}:{size}" for name in names if name != "ibarrier" for size in sizes] + (["ibarrier:0"] if "ibarrier" in names else [])


class Nonblocking(Session):
    """`pure` times go to `samples`; what the formula says of each sample to `overlaps`."""

    def __init__(self, args):
        super().__init__(args)
        self.samples = Samples()
        self.overlaps = collections.defaultdict(lambda: collections.defaultdict(list))

    def take(self, name, ranks, printed):
        crowded = ranks > (os.cpu_count() or 1)
        for what, size, *values in LINE.findall(printed):
            pure, cpu, both, before, after = map(float, values)
            self.samples.add(name, what, ranks, int(size), pure, before, after, crowded)
            if both > 0:
                # A share of one run's own times: comparable whatever the regime.
                self.overlaps[Key(what, ranks, int(size), "all")][name].append((ideal.nbc(pure, cpu, both), pure, cpu, both))

    def measure(self):
        programs = self.build("nonblocking.c")
        for turn in range(self.args.rounds):
            self.say(f"round {turn + 1} of {self.args.rounds}")
            for ranks in self.args.ranks:
                for name in self.args.names:
                    for peer, program in programs:
                        self.take(peer.name, ranks, self.run(peer, program, ranks, [*self.sample_words(), "overlap", *words([name], self.args.sizes)]))

    def rows(self):
        for key, by_name in sorted(self.overlaps.items(), key=lambda item: (NAMES.index(item[0].what), item[0].ranks, item[0].bytes)):
            of = {}
            for name, samples in by_name.items():
                shares = [share for share, *_ in samples]
                pure, cpu, both = (statistics.median(sample[i] for sample in samples) for i in (1, 2, 3))
                of[name] = {"overlap": quartiles(shares), "pure_ns": pure, "cpu_ns": cpu, "overlapped_ns": both, "samples": len(samples)}
            yield {"what": key.what, "ranks": key.ranks, "bytes": key.bytes, "of": of}


def tables(data):
    rows = data["rows"]
    names = sorted({name for row in rows for name in row["of"]}, key=lambda name: (name != "garonne", name))
    lines = report.title(data, "Overlap of nonblocking collectives (IMB-NBC)")
    lines += ["Overlap: (T_pure + T_cpu - T_ovrl) / the shorter of T_pure and T_cpu, from 0 to 100 %, median over samples; in brackets T_pure.", "",
              "| call | ranks | bytes | " + " | ".join(names) + " |", "|---|---|---|" + "---|" * len(names)]
    for row in rows:
        cells = [f"{round(100 * row['of'][n]['overlap'][1])} % ({report.time_text(row['of'][n]['pure_ns'])})" if n in row["of"] else "unmeasured" for n in names]
        lines.append(f"| {row['what']} | {row['ranks']} | {row['bytes']} | " + " | ".join(cells) + " |")
    return report.finish(data, [*lines, ""])


def main(argv):
    bench = Nonblocking(arguments(argv))
    bench.measure()
    data = {**report.head(bench, bench.samples), "rows": list(bench.rows())}
    return bench.keep(data, tables(data), {})
