"""A part whose C program prints a line a sample: rounds of all kinds, in each all MPIs in turns. Used by rma.py, files.py, spawn.py, partitioned.py and survive.py."""

import re

import report
from options import Parser, add_options, some_of
from session import Session
from stats import Samples

# One job is one line of the table: an MPI that cannot do one kind is not waited for longer.
JOB_LIMIT_S = 60
# Jobs in which a rank dies hang with some MPIs, and take a second with others.
DEADLY_LIMIT_S = 20
LINE = re.compile(r"^sample (\w+) (\d+) (\S+) (\S+) (\S+)$", re.M)


def arguments(argv, name, doc, kinds, **defaults):
    parser = Parser(prog=f"garonne bench {name}", description=doc.split("\n\n")[0].partition(": ")[2])
    add_options(parser, out=f"garonne-bench/{name}", **defaults)
    parser.add_argument("--only", type=some_of(list(kinds)), default=list(kinds), metavar="KINDS", help=f"some of: {', '.join(kinds)}")
    return parser.parse_args(argv)


def run(args, source, ranks, kinds, title, meanings, column="bytes", as_started=lambda peer: peer, deadly=()):
    """`ranks`: how many, or a function of the kind that says so; `kinds`: numbers of each kind; `as_started`: a peer with the options of this part; `deadly`: kinds whose jobs are good if they print samples,
    whatever they end with. The exit code of the benchmark."""
    bench = Session(args)
    samples, programs = Samples(), bench.build(source)
    for turn in range(args.rounds):
        bench.say(f"round {turn + 1} of {args.rounds}")
        for kind in args.only:
            size = ranks(kind) if callable(ranks) else ranks
            for number in kinds[kind]:
                for peer, program in programs:
                    printed = bench.run(as_started(peer), program, size, [*bench.sample_words(), f"{kind}:{number}"], DEADLY_LIMIT_S if kind in deadly else JOB_LIMIT_S, LINE if kind in deadly else None)
                    for what, count, ns, before, after in LINE.findall(printed):
                        samples.add_any(peer.name, what, size, int(count), float(ns), float(before), float(after))
    data = {**report.head(bench, samples), "rows": report.sample_rows(samples)}
    lines = report.title(data, title) + report.kind_tables(data["rows"], column, meanings)
    return bench.keep(data, report.finish(data, lines), {})
