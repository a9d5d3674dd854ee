"""`garonne bench oversubscribed`: more ranks than cores. Nonblocking collectives, the CPU that idle ranks use, and what waiting ranks cost a computing one.

For every MPI in turns; Open MPI is told that it is oversubscribed (peers.py), the others have no such setting.
"""

import idle
import nonblocking
import report
from options import RANKS_MAX, RANKS_MIN, Parser, add_options, numbers

CALLS = ["ibarrier:0", "iallreduce:8", "ibcast:8", "ialltoall:64", "iallgather:8"]
# An idle job is watched this long.
IDLE_NS = 1e9
# A peer that is slower than this is noted as such: two of the MPIs need minutes for what others do in a second.
JOB_LIMIT_S = 60


def arguments(argv):
    parser = Parser(prog="garonne bench oversubscribed", description=__doc__.split("\n\n")[0].partition(": ")[2])
    add_options(parser, rounds=2, samples=5, sample_ms=5.0, out="garonne-bench/oversubscribed")
    parser.add_argument("--ranks", type=numbers(RANKS_MIN, RANKS_MAX), help="by comma (default 2,4,8,16,32,64)")
    parser.add_argument("--only", choices=["collectives", "idle"], help="one of both")
    args = parser.parse_args(argv)
    args.ranks = args.ranks or ([2, 4] if args.quick else [2, 4, 8, 16, 32, 64])
    return args


def main(argv):
    args = arguments(argv)
    bench, shares = nonblocking.Nonblocking(args), idle.Shares()
    calls = bench.build("nonblocking.c") if args.only != "idle" else []
    waits = bench.build("idle.c") if args.only != "collectives" else []
    for turn in range(args.rounds):
        bench.say(f"round {turn + 1} of {args.rounds}")
        for ranks in args.ranks:
            for peer, program in calls:
                bench.take(peer.name, ranks, bench.run(peer, program, ranks, [*bench.sample_words(), "pure", *CALLS], JOB_LIMIT_S))
        for peer, program in waits:
            for modes, length in ((["sleeping", "waiting"], None), (["idle"], IDLE_NS)):
                idle.measure(bench, shares, (peer, program), max(args.ranks), modes, length)
    data = {**report.head(bench, bench.samples), "rows": report.sample_rows(bench.samples), "idle": shares.data()}
    lines = report.title(data, "More ranks than cores") + report.kind_tables(data["rows"]) + idle.tables(data["idle"], "Waiting ranks")
    return bench.keep(data, report.finish(data, lines), {})
