"""`garonne bench ways`: large messages between two hosts that have two networks in common, by each alone and by both.

The hosts are network namespaces, the networks wires that `tc` limits to the rates that are given. A job measures 4 messages of BYTES out of a window (flows.c, stream) with the one
wire, with the other, and with both; what both give together by the sum of what each gives alone is what is to be known. Then the same between two hosts of which each has one of the
wires to a third host, and none to the other: there Garonne's agents pass connections on, and what the slower wire gives alone is what can be had. Once more where nobody can call either, so that both call the third and meet there. Needs root.
"""

import contextlib
import statistics

import between
import namespaces
import peers
import report
from flows import LINE
from options import BYTES_MAX, Parser, add_options, numbers
from session import Session
from stats import Samples, ratio_interval

WINDOW = 4
AIM, AIM_THROUGH = 0.9, 0.8
# Ways through a host between, and what is said of them.
THROUGH = {"through": "which has one wire to each", "met": "which both call, and which can call neither"}


def arguments(argv):
    parser = Parser(prog="garonne bench ways", description=__doc__.split("\n\n")[0].partition(": ")[2])
    add_options(parser, rounds=2, samples=5, sample_ms=3.0, out="garonne-bench/ways")
    parser.add_argument("--rates", metavar="PAIRS", default="400:400,400:100,400:40", help="megabits per second of both wires, pairs by comma (default %(default)s)")
    parser.add_argument("--sizes", type=numbers(1, BYTES_MAX), metavar="BYTES", help="of a message, by comma (default 1000000,4000000)")
    args = parser.parse_args(argv)
    try:
        args.rates = [tuple(int(rate) for rate in pair.split(":")) for pair in args.rates.split(",")]
        assert all(len(pair) == 2 and min(pair) > 0 for pair in args.rates)
    except (ValueError, AssertionError):
        parser.error(f"--rates: '{args.rates}' is no list by comma of pairs such as 400:100")
    args.sizes = args.sizes or ([1000000] if args.quick else [1000000, 4000000])
    if args.quick:
        args.rates = args.rates[1:2] or args.rates
    return args


class Ways(Session):
    def __init__(self, args):
        super().__init__(args)
        self.samples = Samples()
        # (rates of the pair, rates of the wires that are there, bytes, name): nanoseconds per message
        self.times = {}

    def one(self, pair, wires, programs):
        """Jobs of all MPIs where these wires are there."""
        devices = [f"net{wire}" for wire in range(len(wires))]
        with contextlib.ExitStack() as stack:
            two = between.Between(stack.enter_context(namespaces.Wires([f"{rate}mbit" for rate in wires])), devices)
            for peer, program in programs:
                try:
                    able = two.peer(peer, self.state, self.args.wheels)
                except peers.Unavailable as why:
                    self.note(str(why))
                    continue
                words = [f"stream:{WINDOW}:{size}" for size in self.args.sizes]
                for _, _, size, ns, *_ in LINE.findall(self.run(able, program, 2, [*self.sample_words(), *words])):
                    self.times.setdefault((pair, wires, int(size), peer.name), []).append(float(ns))

    def through(self, pair, how, programs):
        """Jobs of Garonne on two hosts that reach each other through a third one only, which calls them or is called by both."""
        with namespaces.Chain([f"{rate}mbit" for rate in pair], uncalled=how == "met") as hosts:
            ends = between.Between(hosts, without=1)
            for peer, program in programs:
                if peer.name == "garonne":
                    able = ends.peer(peer, self.state, self.args.wheels)
                    words = [f"stream:{WINDOW}:{size}" for size in self.args.sizes]
                    for _, _, size, ns, *_ in LINE.findall(self.run(able, program, 2, [*self.sample_words(), *words])):
                        self.times.setdefault((pair, how, int(size), peer.name), []).append(float(ns))

    def measure(self):
        programs = self.build("flows.c")
        try:
            for turn in range(self.args.rounds):
                self.say(f"round {turn + 1} of {self.args.rounds}")
                for pair in self.args.rates:
                    for wires in ((pair[0],), (pair[1],), pair):
                        self.one(pair, wires, programs)
                    self.through(pair, "through", programs)
                    try:
                        self.through(pair, "met", programs)
                    except namespaces.Impossible as why:
                        self.note(f"no two that meet at a third: {why}")
        except namespaces.Refused as why:
            self.note(f"nothing is measured: {why}")

    def rows(self):
        """What each MPI reaches, in megabytes per second, and the share of the sum."""
        rows = []
        for (pair, wires, size, name), both in self.times.items():
            alone = [self.times.get((pair, (rate,), size, name)) for rate in pair]
            if wires in THROUGH or len(wires) != 2 or not all(alone):
                continue
            # The sum of the rates is a rate of its own, with the noise of both.
            together = [1 / (1 / a + 1 / b) for a in alone[0] for b in alone[1]]
            interval = ratio_interval(together, both)
            rates = [size * 1e3 / statistics.median(times) for times in (*alone, both)]
            share = dict(zip(("median", "low", "high"), interval)) if interval else None
            rows.append({"rates": list(pair), "bytes": size, "name": name, "mb_per_s": rates, "share": share})
        return rows


    def rows_through(self, how):
        """What is reached through a host between, in this way, beside what the slower wire gives alone."""
        rows = []
        for (pair, wires, size, name), through in self.times.items():
            alone = self.times.get((pair, (min(pair),), size, name))
            if wires == how and alone:
                interval = ratio_interval(alone, through)
                rates = [size * 1e3 / statistics.median(times) for times in (alone, through)]
                share = dict(zip(("median", "low", "high"), interval)) if interval else None
                rows.append({"rates": list(pair), "bytes": size, "name": name, "mb_per_s": rates, "share": share})
        return rows


def share_of(row, aim):
    if not row["share"]:
        return "too few samples"
    said = "{median:.2f} [{low:.2f}, {high:.2f}]".format(**row["share"])
    return said if row["name"] != "garonne" or row["share"]["median"] >= aim else f"{said}, missed"


def tables(data):
    lines = report.title(data, "Two networks at once")[:5]
    lines += ["| wires, Mbit/s | bytes | | one alone, MB/s | the other | both | of the sum (95 % interval) |", "|---|---|---|---|---|---|---|"]
    for row in data["rows"]:
        rates = " | ".join(f"{rate:.1f}" for rate in row["mb_per_s"])
        lines.append(f"| {row['rates'][0]}, {row['rates'][1]} | {row['bytes']} | {row['name']} | {rates} | {share_of(row, AIM)} |")
    for how, said in THROUGH.items():
        lines += ["", f"Through a host between, {said}:", ""]
        lines += ["| wires, Mbit/s | bytes | | slower alone, MB/s | through | of the slower (95 % interval) |", "|---|---|---|---|---|---|"]
        for row in data[how]:
            rates = " | ".join(f"{rate:.1f}" for rate in row["mb_per_s"])
            lines.append(f"| {row['rates'][0]}, {row['rates'][1]} | {row['bytes']} | {row['name']} | {rates} | {share_of(row, AIM_THROUGH)} |")
    return report.finish(data, [*lines, ""])


def main(argv):
    bench = Ways(arguments(argv))
    bench.measure()
    data = {**report.head(bench, bench.samples), "aims": [AIM, AIM_THROUGH], "rows": bench.rows(), **{how: bench.rows_through(how) for how in THROUGH}}
    return bench.keep(data, tables(data), {})
