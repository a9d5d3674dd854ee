"""`garonne bench flows`: many small messages, small blocks beside large ones, latency beside bulk: what an optimising library can arrange.

The multi-segment ping-pong and the indexed datatype of Mad-MPI, a flow of small messages beside bulk traffic, and plain messages, where there is nothing to
arrange; between two hosts (network namespaces) over TCP, with bare sockets as the floor of the same run, and over shared memory. flows.c says what each is.
Samples during which cores moved
are shown as unsteady. In the data `ranks` is the number of messages under way, and the ranks are two.
"""

import contextlib
import dataclasses
import re

import between
import namespaces
import report
from options import BYTES_MAX, Parser, add_options, numbers, some_of
from session import Session
from stats import Samples, ratio_interval

PLACES = ["tcp", "shm"]
NETWORKS = ["tcp", "ethernet"]
# Interface of the namespaces, as the setting names it.
BY_ETHERNET = {"GARONNE_ETHERNET": "net0"}
# Names of what is no MPI of others.
OURS = ("garonne", "garonne-ethernet", "floor", "packets")
KINDS = ["pingpong", "series", "types", "stream", "beside"]
# flows.c has communicators for series that long.
SERIES_MAX = 64
SERIES, SEGMENTS = [1, 2, 4, 8, 16, 32, SERIES_MAX], [4, 64, 1024]
PAIRS, BLOCK = [1, 2, 8, 64], 256 * 1024
SIZES, STREAM_SIZE, WINDOW, BULK_FLOWS = [8, 1024, 8192, 65536, 262144, 1 << 20], 1 << 20, 8, 2
# A window of short messages, whose rate counts.
RATE_WINDOW, RATE_SIZE = 64, 8
LINE = re.compile(r"^sample (\w+) (\d+) (\d+) (\S+) (\S+) (\S+)$", re.M)

MEANINGS = {
    "pingpong": "Half round trip of one message",
    "series": "Half round trip of a series of messages on as many communicators",
    "indexed": "Half round trip of pairs of blocks of 64 B and 256 KB with gaps, as one message",
    "plain": "The same bytes without gaps",
    "stream": "Time per message out of a window",
    "idle": "99th percentile of half round trips of 8 B, nothing else under way",
    "beside": "The same beside messages of 1 MB in the same direction",
}


def arguments(argv):
    parser = Parser(prog="garonne bench flows", description=__doc__.split("\n\n")[0].partition(": ")[2])
    add_options(parser, rounds=3, samples=6, sample_ms=3.0, out="garonne-bench/flows")
    parser.add_argument("--over", type=some_of(PLACES), default=PLACES, metavar="PLACES", help="tcp, shm or both, by comma")
    parser.add_argument("--network", choices=NETWORKS, default="tcp", help="ethernet: our ranks on two hosts by plain Ethernet too, beside TCP in the same rounds")
    parser.add_argument("--mtu", type=int, default=0, metavar="BYTES", help="of the interfaces between the hosts; without it what the system gives them")
    parser.add_argument("--only", type=some_of(KINDS), default=KINDS, metavar="KINDS", help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--counts", type=numbers(1, SERIES_MAX), metavar="K", help="lengths of series, by comma")
    parser.add_argument("--sizes", type=numbers(1, BYTES_MAX), metavar="BYTES", help="lengths of plain messages, alone and out of a window, by comma")
    return parser.parse_args(argv)


def plan(args):
    """(kind, words for flows.c): each line is one job per MPI and round."""
    quick = args.quick
    sizes = args.sizes or ([8, 1 << 20] if quick else SIZES)
    yield "pingpong", [f"pingpong:1:{size}" for size in sizes]
    yield "series", [f"series:{k}:{size}" for size in ([4] if quick else SEGMENTS) for k in args.counts or ([1, 16] if quick else SERIES)]
    yield "types", [f"{what}:{pairs}:{BLOCK}" for pairs in ([1] if quick else PAIRS) for what in ("indexed", "plain")]
    yield "stream", [f"stream:{WINDOW}:{size}" for size in args.sizes or [STREAM_SIZE]] + ([f"stream:{RATE_WINDOW}:{RATE_SIZE}"] if args.network == "ethernet" else [])
    yield "beside", ["idle:1:8", f"beside:{BULK_FLOWS}:8"]


def by_ethernet(peer, program):
    """Our ranks by Ethernet frames, as one more MPI."""
    return dataclasses.replace(peer, name="garonne-ethernet", env={**peer.env, **BY_ETHERNET}), program


class Flows(Session):
    def __init__(self, args):
        super().__init__(args)
        self.samples = {place: Samples() for place in PLACES}

    def take(self, place, name, printed):
        for what, number, size, *values in LINE.findall(printed):
            self.samples[place].add_any(name, what, int(number), int(size), *map(float, values))

    def bare_sockets(self, two, words):
        """The floor between hosts, for what there is one."""
        words = [word for word in words if word.startswith(("pingpong", "stream"))]
        if words:
            self.take("tcp", "floor", between.bare_sockets(self, two, words))
            if self.args.network == "ethernet":
                self.take("tcp", "packets", between.bare_sockets(self, two, words, frames=True))

    def measure(self):
        programs = self.build("flows.c")
        with contextlib.ExitStack() as stack:
            two, far = between.two_hosts(self, programs, stack) if "tcp" in self.args.over else (None, [])
            if two and self.args.mtu:
                namespaces.set_mtu(two.hosts, self.args.mtu)
            if self.args.network == "ethernet":
                far = [*far, *(by_ethernet(peer, program) for peer, program in far if peer.name == "garonne")]
            near = programs if "shm" in self.args.over else []
            for turn in range(self.args.rounds):
                self.say(f"round {turn + 1} of {self.args.rounds}")
                for kind, words in plan(self.args):
                    if kind not in self.args.only:
                        continue
                    if two:
                        self.bare_sockets(two, words)
                    for place, able in (("tcp", far), ("shm", near)):
                        for peer, program in able:
                            self.take(place, peer.name, self.run(peer, program, 2, [*self.sample_words(), *words]))


def compare(rows, ours, theirs):
    """Ratio of two measurements of one MPI or two, over all regimes that both have: [(regime, interval)]. Each is (what, number, bytes, name)."""
    found = {}
    for key, by_name in rows.items():
        for side, (what, number, size, name) in (("ours", ours), ("theirs", theirs)):
            if (key.what, key.ranks, key.bytes) == (what, number, size) and name in by_name:
                found.setdefault(key.regime, {})[side] = by_name[name]
    for regime, sides in sorted(found.items()):
        if len(sides) == 2:
            interval = ratio_interval(sides["ours"], sides["theirs"])
            if interval:
                yield regime, dict(zip(("median", "low", "high"), interval))


def aims(rows, place, names):
    """What is aimed at, and how far this run is from it: (text, regime, name, interval, limit)."""
    wanted = [("series of 16 messages of 4 B by", ("series", 16, 4), ("series", 16, 4), [name for name in names if name not in OURS], 1 / 1.7 if place == "tcp" else 1)]
    wanted += [(f"indexed by plain, {pairs} pairs of", ("indexed", 0, pairs), ("plain", 0, pairs), ["garonne"], 1.1) for pairs in PAIRS]
    wanted.append(("99th percentile beside bulk traffic by idle of", ("beside", 0, BULK_FLOWS), ("idle", 0, 1), ["garonne"], 2))
    if place == "tcp":
        wanted.append(("half round trip of 8 B by", ("pingpong", 1, 8), ("pingpong", 1, 8), ["floor"], 1.15))
        wanted.append(("time per message of 1 MB by", ("stream", WINDOW, STREAM_SIZE), ("stream", WINDOW, STREAM_SIZE), ["floor"], 1 / 0.95))
    for text, ours, theirs, others, limit in wanted:
        for other in others:
            for regime, interval in compare(rows, (*ours, "garonne"), (*theirs, other)):
                yield {"what": f"{text} {other}", "place": place, "regime": regime, "ratio": interval, "limit": limit}
    if place == "tcp" and "garonne-ethernet" in names:
        yield from ethernet_aims(rows, [name for name in names if name == "garonne" or name not in OURS])


def ethernet_aims(rows, others):
    """What is aimed at by Ethernet, beside TCP and the peers of the same run."""
    half, bulk, rate = ("pingpong", 1, 8), ("stream", WINDOW, STREAM_SIZE), ("stream", RATE_WINDOW, RATE_SIZE)
    for text, what, limit, of in (
        ("half round trip of 8 B", half, 0.6, others),
        ("time per message of 1 MB", bulk, 1, others),
        ("time per message of 8 B", rate, 0.5, others),
        ("half round trip of 8 B", half, 1.15, ["packets"]),
        ("time per message of 1 MB", bulk, 1 / 0.9, ["packets"]),
    ):
        for other in of:
            by = "bare packet sockets" if other == "packets" else f"{other} by TCP"
            for regime, interval in compare(rows, (*what, "garonne-ethernet"), (*what, other)):
                yield {"what": f"{text} by Ethernet by that of {by}", "place": "tcp", "regime": regime, "ratio": interval, "limit": limit}


def tables(data):
    lines = report.title(data, "Flows of messages")
    lines += ["## Aims", "", "| Garonne's | over | regime | ratio | aim |", "|---|---|---|---|---|"]
    for aim in data["aims"]:
        word = "reached" if aim["ratio"]["median"] <= aim["limit"] else "missed"
        ratio = "{median:.2f} [{low:.2f}, {high:.2f}]".format(**aim["ratio"])
        lines.append(f"| {aim['what']} | {aim['place']} | {aim['regime']} | {ratio} | {aim['limit']:.2f} {word} |")
    for place, title in (("tcp", "Between two hosts, over TCP"), ("shm", "On one host")):
        if data[place]:
            lines += ["", f"# {title}", ""] + report.kind_tables(data[place], meanings=MEANINGS, first="messages")
            floor = [row for row in data[place] if "floor" in row["ns"]]
            if floor:
                lines += ["## Bare sockets", "", "| what | messages | bytes | regime | median |", "|---|---|---|---|---|"]
                lines += [f"| {r['what']} | {r['ranks']} | {r['bytes']} | {r['regime']} | {report.cell(r, 'floor')} |" for r in floor] + [""]
    return report.finish(data, lines)


def main(argv):
    bench = Flows(arguments(argv))
    bench.measure()
    both = Samples()
    for samples in bench.samples.values():
        both.dropped += samples.dropped
        for label, values in samples.handoffs.items():
            both.handoffs[label] += values
    data = {**report.head(bench, both), "aims": []}
    for place, samples in bench.samples.items():
        data[place] = report.sample_rows(samples)
        names = sorted({name for by_name in samples.of.values() for name in by_name})
        data["aims"] += list(aims(samples.of, place, names))
    return bench.keep(data, tables(data), {})
