"""`garonne bench threads`: several threads in MPI: latency with many receiving threads, message rates of pairs, collectives, sends beside blocked receives.

The multi-threaded latency test of the PIOMan paper (section V.B) and what belongs to it, for every MPI in turns; threads.c says what each kind is.
"""

import re

import report
from options import Parser, add_options, some_of
from session import Session
from stats import Samples

RECEIVERS, PAIRS = [1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16]
KINDS = {"latency": RECEIVERS, "asleep": [1], "beside": [0, *RECEIVERS], "probing": [1, 16, 64], "choosing": [1, 16, 64], "mixing": [1, 16, 64], "sending": [0, 1, 8, 64], "distinct": PAIRS, "shared": PAIRS, "hinted": PAIRS, "mixed": PAIRS, "alone": PAIRS, "gathered": PAIRS}
QUICK = {"latency": [1, 4], "asleep": [1], "beside": [0, 4], "probing": [4], "choosing": [4], "mixing": [4], "sending": [0, 4], "distinct": [1, 2], "shared": [2], "hinted": [2], "mixed": [2], "alone": [2], "gathered": [2]}
# One job is one line of the table: an MPI that cannot do one kind is not asked for the next number of threads for ever.
JOB_LIMIT_S = 30
LINE = re.compile(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", re.M)


def arguments(argv):
    parser = Parser(prog="garonne bench threads", description=__doc__.split("\n\n")[0].partition(": ")[2])
    add_options(parser, rounds=2, samples=6, sample_ms=3.0, out="garonne-bench/threads")
    parser.add_argument("--only", type=some_of(list(KINDS)), default=list(KINDS), metavar="KINDS", help=f"some of: {', '.join(KINDS)}")
    return parser.parse_args(argv)


class Threads(Session):
    def __init__(self, args):
        super().__init__(args)
        self.samples = Samples()

    def measure(self):
        programs = self.build("threads.c")
        plan = QUICK if self.args.quick else KINDS
        for turn in range(self.args.rounds):
            self.say(f"round {turn + 1} of {self.args.rounds}")
            for kind in self.args.only:
                for peer, program in programs:
                    words = [f"{kind}:{threads}" for threads in plan[kind]]
                    printed = self.run(peer, program, 2, [*self.sample_words(), *words], JOB_LIMIT_S)
                    for what, threads, ns, before, after in LINE.findall(printed):
                        self.samples.add_any(peer.name, what, 2, int(threads), float(ns), float(before), float(after))


def pictures(rows):
    result = {}
    for kind, label in dict.fromkeys((row["what"], row["regime"]) for row in rows):
        lines = {}
        for row in rows:
            if (row["what"], row["regime"]) == (kind, label) and row["bytes"] > 0:
                for name, entry in row["ns"].items():
                    lines.setdefault(name, []).append((row["bytes"], entry["lower_quartile"], entry["median"], entry["upper_quartile"]))
        if any(len(points) > 1 for points in lines.values()):
            result[f"threads-{kind}-{label}.svg"] = report.plot(f"{kind}: threads across, {label}", lines)
    return result


def main(argv):
    bench = Threads(arguments(argv))
    bench.measure()
    data = {**report.head(bench, bench.samples), "rows": report.sample_rows(bench.samples)}
    lines = report.title(data, "Several threads in MPI") + report.kind_tables(data["rows"], "threads")
    return bench.keep(data, report.finish(data, lines), pictures(data["rows"]))
