"""`garonne bench overlap`: how much of a message hides behind computing, on the sender, the receiver, both; and what background progress costs.

The paper's benchmark (PIOMan, section V.C) over sizes, shapes and lengths of computing, for every MPI in turns, against what the machine
allows at best (ideal.py, with the copying that floor.c measures in the same run and regime). With `--comp-ms` the computing takes a given time instead (waits.py). Samples are judged as in bench.py; where no steady one exists, as
with peers whose progress threads spin on the cores that are measured, unsteady ones are shown, and marked so.
"""

import collections
import contextlib
import dataclasses
import html
import json
import os
import pathlib
import re
import statistics

import between
import ideal
import idle
import report
import waits
from options import BYTES_MAX, LENGTHS_MAX, Parser, add_comp_ms, add_options, numbers, refuse, some_of
from session import Session
from stats import Samples, quartiles, ratio_interval, regime
from waits import Sample

SIZES = [8, 64, 1024, 4096, 16384, 32768, 65536, 262144, 1 << 20, 4 << 20, 16 << 20]
QUICK_SIZES = [8, 32768, 1 << 20]
PERCENTS = [0, 25, 50, 75, 100, 150, 200]
QUICK_PERCENTS = [0, 100, 200]
# Where computing takes long, every size is minutes of it.
LONG_SIZES = [1024, 65536, 1 << 20, 4 << 20]
# The longest is a thousand times what the message takes.
PERCENT_MAX = 100000
SHAPES = ["contiguous", "strided"]
PLACES = ["shm", "tcp"]
# Messages under way while it is counted what sockets take of the processors.
SOCKETS_WINDOW = 1
# Which samples speak for an MPI: the steadiest kind there is.
LABELS = ["near", "far", "unsteady"]
# The floor's ways by which the kernel copies for who computes, and by which who computes does its own part of a copy, one after the other.
LONE_WAYS = {"sender": (("readv",), ("stage",)), "receiver": (("writev",), ("memcpy",)), "both": (("readv", "writev"), ("stage", "memcpy"))}
LINE = re.compile(r"^overlap (\w+) (\w+) (\d+) (\d+)(ms|) (.+) (\S+) (\S+)$", re.M)


@dataclasses.dataclass(frozen=True)
class Case:
    side: str
    shape: str
    bytes: int
    # How long is computed: in percent of T_comm, or, if that is not 0, in milliseconds.
    percent: int
    comp_ms: int = 0


def arguments(argv):
    parser = Parser(prog="garonne bench overlap", description=__doc__.split("\n\n")[0].partition(": ")[2])
    add_options(parser, rounds=3, samples=6, sample_ms=1.0, out="garonne-bench/overlap")
    parser.add_argument("--over", choices=PLACES, default="shm", help="shm: both ranks on this host (default); tcp: one on each of two hosts, which are network namespaces")
    parser.add_argument("--sizes", type=numbers(1, BYTES_MAX), metavar="BYTES", help="by comma (default: 8 bytes to 16 MB)")
    parser.add_argument("--percents", type=numbers(0, PERCENT_MAX, LENGTHS_MAX), metavar="PERCENTS", help="lengths of the computing in percent of T_comm")
    add_comp_ms(parser)
    parser.add_argument("--sides", type=some_of(ideal.SIDES), default=list(ideal.SIDES), help="who computes, by comma: sender, receiver, both")
    parser.add_argument("--shapes", type=some_of(SHAPES), default=SHAPES, help="by comma: contiguous, strided")
    parser.add_argument("--no-slowdown", action="store_true", help="leave out what traffic and waiting ranks cost a computing thread")
    parser.add_argument("--add", action="store_true", help="add to the samples that lie in the output directory already")
    args = parser.parse_args(argv)
    waits.refuse_endless(parser, args)
    args.sizes = args.sizes or (QUICK_SIZES if args.quick else LONG_SIZES if args.comp_ms else SIZES)
    args.percents = args.percents or ([] if args.comp_ms else QUICK_PERCENTS if args.quick else PERCENTS)
    # What waiting ranks cost is a matter of one host, and of another run than how long waits are.
    args.no_slowdown |= args.over == "tcp" or not args.percents
    return args


class Overlap(Session):
    FILES = (*Session.FILES, "samples.json")

    def __init__(self, args):
        super().__init__(args)
        self.floor, self.slowdown = Samples(), idle.Shares()
        # case -> MPI -> label -> samples
        self.of = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
        self.kept = pathlib.Path(args.out) / "samples.json"
        self.apart = None

    def measure(self):
        programs, waiting = self.build("overlap.c"), [] if self.args.no_slowdown else self.build("idle.c")
        with contextlib.ExitStack() as stack:
            two, jobs = None, [(self.args.sides, programs)]
            if self.args.over == "tcp":
                two, jobs = self.between_hosts(programs, stack)
            else:
                self.build_floor()
            for turn in range(self.args.rounds):
                self.say(f"round {turn + 1} of {self.args.rounds}")
                if self.args.percents:
                    self.take_floor(between.bare_sockets(self, two, [f"cpu:{SOCKETS_WINDOW}:{size}" for size in self.args.sizes]) if two else self.run_floor(self.args.sizes))
                for sides, able in jobs:
                    cases = [f"{side}:{shape}:{size}" for size in self.args.sizes for shape in self.args.shapes for side in sides]
                    for lengths, some in self.jobs(cases):
                        for peer, program in able:
                            self.take(peer.name, self.run(peer, program, 2, [*self.sample_words(), lengths, *some]))
                for peer, program in waiting:
                    for ranks in (2, 4):
                        idle.measure(self, self.slowdown, (peer, program), ranks, ["sleeping", "waiting", "traffic"])

    def jobs(self, cases):
        """[(lengths of computing, cases)]: those in percent in one job, those in milliseconds in jobs that are no longer than planned."""
        found = [(",".join(map(str, self.args.percents)), cases)] if self.args.percents else []
        if self.args.comp_ms:
            found += [(waits.words(self.args), some) for some in waits.jobs(self.args, cases)]
        return found

    def between_hosts(self, programs, stack):
        """Two hosts, and which programs measure which sides there. Where one side computes, either host has all cores, of which one is idle; where both do, each has one."""
        two, able = between.two_hosts(self, programs, stack)
        one_sided = [side for side in self.args.sides if side != "both"]
        jobs = [(one_sided, able)] if one_sided else []
        if two and "both" in self.args.sides:
            cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
            self.apart = between.Between(two.hosts, cores=[cores[0], cores[1 % len(cores)]])
            jobs.append((["both"], self.apart.able(self, programs)))
        return two, jobs

    def take_floor(self, printed):
        for what, size, ns, before, after in re.findall(r"^sample (\w+)(?: \d+)? (\d+) (\S+) (\S+) (\S+)$", printed, re.M):
            self.floor.add_any("floor", what, 2, int(size), float(ns), float(before), float(after))

    def take(self, name, printed):
        for side, shape, size, length, unit, times, *handoffs in LINE.findall(printed):
            before, after = map(float, handoffs)
            label = regime(before, after) or "unsteady"
            if label != "unsteady":
                self.floor.handoffs[label] += [before, after]
            case = Case(side, shape, int(size), *((0, int(length)) if unit else (int(length), 0)))
            self.of[case][name][label].append(Sample(*map(float, times.split())))

    def ideal(self, case, cores, label):
        """A function from a sample of a regime to the least that its total could be, and the core time of moving the bytes; None and None if the floor was not measured in that regime."""
        if self.args.over == "tcp":
            put, get = self.least(("put",), case.bytes, label), self.least(("get",), case.bytes, label)
            if put is None or get is None:
                return None, None
            return lambda s: ideal.total_between(case.side, cores, s.comm, s.comp, ideal.Kernel(put, get)), put + get
        work = self.least(("strided",) if case.shape == "strided" else ("memcpy", "readv"), case.bytes, label)
        return (lambda s: ideal.total(case.side, cores, s.comm, s.comp, work), work) if work is not None else (None, None)

    def lone(self, case, label):
        """What copies take between memories that are not common; None where that is not known, or no such thing: between hosts, of blocks, of small messages."""
        if self.args.over == "tcp" or case.shape != "contiguous" or case.bytes < ideal.LONE_FROM:
            return None
        kernel, own = LONE_WAYS[case.side]
        kernel, own = self.least(kernel, case.bytes, label), [self.least((way,), case.bytes, label) for way in own]
        return ideal.Lone(kernel, sum(own)) if kernel is not None and None not in own else None

    def ideal_lone(self, case, cores, label):
        """As `ideal`, between memories that are not common."""
        best, work = self.ideal(case, cores, label)
        lone = self.lone(case, label)
        return best if best is None or lone is None else lambda s: ideal.total_lone(case.side, cores, s.comm, s.comp, work, lone)

    def least(self, ways, size, label):
        """The quickest of some ways of the floor, of samples of the same regime: cores that are far from each other copy more slowly what the other wrote. None: it was not measured."""
        best = []
        for key, by_name in self.floor.of.items():
            if key.what in ways and key.bytes == size and key.regime == label:
                best.append(statistics.median(by_name["floor"]))
        return min(best, default=None)

    def save(self):
        raw = [[*dataclasses.astuple(case), name, label, [dataclasses.astuple(s) for s in samples]]
               for case, by_name in self.of.items() for name, labels in by_name.items() for label, samples in labels.items()]
        floor = [[*dataclasses.astuple(key), values["floor"]] for key, values in self.floor.of.items()]
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self.kept.write_text(json.dumps({"samples": raw, "floor": floor, "slowdown": self.slowdown.raw(), "handoffs": self.floor.handoffs, "notes": self.notes}))

    def load(self):
        if not self.kept.exists():
            return
        try:
            self.take_kept(json.loads(self.kept.read_text()))
        except (ValueError, KeyError, TypeError):
            refuse(f"--add takes what an earlier run of this version left in the output directory; {self.kept} is none of that")

    def take_kept(self, old):
        for *case, name, label, samples in old["samples"]:
            self.of[Case(*case)][name][label] += [Sample(*s) for s in samples]
        for what, ranks, size, label, values in old["floor"]:
            self.floor.put(what, ranks, size, label, "floor", values)
        for label, values in old["handoffs"].items():
            self.floor.handoffs[label] += values
        self.slowdown.add_raw(old["slowdown"])
        self.notes += old["notes"]

    def rows(self):
        """Of computing that is a share of T_comm."""
        cores = report.machine()["cpus"]
        for case, entry, by_name, steadiest in self.cases(lambda case: case.comp_ms == 0):
            for name, label in steadiest.items():
                best, work = self.ideal(case, cores, label)
                lone = self.lone(case, label)
                entry["of"][name] = {**figures(by_name[name][label], label, best, self.ideal_lone(case, cores, label)), "work_ns": work,
                                     "lone_ns": dataclasses.asdict(lone) if lone else None, **worst(by_name[name])}
                if name != "garonne" and steadiest.get("garonne") == label:
                    # T_comp differs from MPI to MPI, as it is a share of each one's T_comm; what is left of the message beside it can be compared.
                    interval = ratio_interval([s.exposed for s in by_name["garonne"][label]], [s.exposed for s in by_name[name][label]])
                    entry["of"][name]["ratio"] = dict(zip(("median", "low", "high"), interval)) if interval else None
            yield entry

    def long_rows(self):
        """Of computing for a given time."""
        for _, entry, by_name, steadiest in self.cases(lambda case: case.comp_ms > 0):
            for name, label in steadiest.items():
                entry["of"][name] = {"regime": label, **waits.figures(by_name[name][label], every(by_name[name]))}
            yield entry

    def cases(self, wanted):
        """(case, what its row begins with, its samples, and which of them speak for each MPI)."""
        for case, by_name in sorted(self.of.items(), key=lambda item: dataclasses.astuple(item[0])):
            if wanted(case):
                yield case, {**dataclasses.asdict(case), "of": {}}, by_name, {name: next(label for label in LABELS if labels[label]) for name, labels in by_name.items()}


def every(labels):
    return [sample for samples in labels.values() for sample in samples]


def worst(labels):
    """What no regime excuses: the longest of all samples."""
    return {"comm_worst_ns": max(s.comm_worst for s in every(labels)), "wait_worst_ns": max(s.wait_worst for s in every(labels))}


def by_ideal(samples, ideal_of, names):
    """The paper's ratio of an ideal, its T_total by the measured one, and what it hides, under `names`; None where it is not known."""
    middle, best = statistics.median, [ideal_of(s) for s in samples] if ideal_of else []
    if not best:
        return dict.fromkeys(names)
    of_each = (lambda s, t: ideal.paper_ratio(s.comp, t)), (lambda s, t: t / s.total), (lambda s, t: ideal.hidden(s.comm, s.comp, t))
    return {name: middle(of(s, t) for s, t in zip(samples, best)) for name, of in zip(names, of_each)}


def figures(samples, label, ideal_of, lone_of=None):
    """What the tables say of samples of one regime, beside what `ideal_of` a sample says its total could have been (None: that is not known), and `lone_of` it where a lone side has but the kernel's copy (None: as `ideal_of`)."""
    middle = statistics.median
    return {
        "regime": label, "samples": len(samples),
        "comm_ns": quartiles([s.comm for s in samples]), "comp_ns": middle(s.comp for s in samples), "total_ns": quartiles([s.total for s in samples]),
        "exposed_ns": middle(s.exposed for s in samples),
        "paper_ratio": middle(ideal.paper_ratio(s.comp, s.total) for s in samples),
        "hidden": middle(ideal.hidden(s.comm, s.comp, s.total) for s in samples),
        "wait_ns": middle(s.wait for s in samples),
        **by_ideal(samples, ideal_of, ("ideal_paper_ratio", "of_ideal", "ideal_hidden")),
        **by_ideal(samples, lone_of or ideal_of, ("lone_paper_ratio", "of_lone", "lone_hidden")),
    }


def tables(data):
    lines = report.title(data, "Overlap of communication and computing")
    if data["rows"]:
        lines += share_tables(data["rows"])
    if data["long"]:
        lines += long_tables(data["long"])
    lines += idle.tables(data["slowdown"], "A computing thread beside traffic and waiting ranks")
    return report.finish(data, lines)


def long_tables(rows):
    lines = ["## Computing for a given time", "", "T_comm is the median of exchanges with nothing to compute, on the side that computes otherwise (the later one for both); with both computing, each wait is the longer one.", *waits.LEGEND, ""]
    columns = [("bytes", lambda row: row["bytes"])]
    for side, shape in dict.fromkeys((row["side"], row["shape"]) for row in rows):
        lines += [f"### {shape}, computing on {side}", "", *waits.table([row for row in rows if (row["side"], row["shape"]) == (side, shape)], columns, "T_comm")]
    return lines


def share_tables(rows):
    order = lambda name: (name != "garonne", name)
    lines = ["T_comm: start to end of a message with nothing to compute, on the side that computes otherwise (the later one for both); in brackets the longest exchange of all. Ratio: T_comp / T_total, as in",
              "the PIOMan paper. Of ideal: T_total of this machine's ideal model by the measured one. Hidden: (T_comm + T_comp - T_total) / the shorter",
              "of both. Exposed: T_total - T_comp, what the message costs beside the computing, and in brackets Garonne's by this MPI's. T_comp is the percentage of the MPI's own",
              "T_comm that heads the column: where T_comm is milliseconds, a large share hidden means little. Unsteady: the hand-off changed during the samples.",
             "Wait: the time in MPI_Wait, of the side that computes (the longer one for both), and in brackets the longest wait of all, also of samples that are dropped from medians.",
             "The ideal takes what copying costs from the floor's samples of the row's own regime, which two processes on the same two cores took in this run: what a core needs to copy lines that the",
             "other wrote depends on how far apart they are at the time. Where no sample of the floor has that regime the ideal is not known, and shown as ?.",
             "Two ideals, where they differ: the one that is aimed at, in which the side that does not compute copies as well as both; and after the semicolon that between memories that are not common: it copies through the kernel alone, and where both compute each byte is copied by the kernel or twice, at the pace that the floor has for it (ideal.py).",
             f"Bold: of the first at least what is aimed at, {' '.join(f'{side} {aim}' for side, aim in ideal.AIMS.items())}.", ""]
    percents = [p for p in sorted({row["percent"] for row in rows}) if p >= 100] or sorted({row["percent"] for row in rows})[-1:]
    for side, shape in dict.fromkeys((row["side"], row["shape"]) for row in rows):
        lines += [f"## {shape}, computing on {side}", "",
                  "| bytes | MPI | regime | T_comm | " + " | ".join(f"ratio {p} % (ideal) | of ideal | hidden (ideal) | exposed (ratio) | wait (worst)" for p in percents) + " |",
                  "|---|---|---|---|" + "---|---|---|---|---|" * len(percents)]
        mine = {(row["bytes"], row["percent"]): row["of"] for row in rows if (row["side"], row["shape"]) == (side, shape)}
        for size in sorted({size for size, _ in mine}):
            names = sorted({name for (s, _), of in mine.items() if s == size for name in of}, key=order)
            for name in names:
                cells = [mine.get((size, p), {}).get(name) for p in percents]
                known = next((cell for cell in cells if cell), None)
                if known:
                    lines.append(f"| {size} | {name} | {known['regime']} | {report.time_text(known['comm_ns'][1])} ({report.time_text(known['comm_worst_ns'])}) | " + " | ".join(cell_text(cell, side) for cell in cells) + " |")
        lines.append("")
    return lines


def cell_text(cell, side):
    if cell is None:
        return "unmeasured | | | |"
    ratio = f" ({report.verdict(cell['ratio'])})" if "ratio" in cell else ""
    aimed = lambda share: f"**{share:.2f}**" if share >= ideal.AIMS[side] else f"{share:.2f}"
    return (f"{cell['paper_ratio']:.2f} ({ideals_text(cell, '{}_paper_ratio', '{:.2f}'.format)}) | {ideals_text(cell, 'of_{}', '{:.2f}'.format, aimed)} | "
            f"{report.percent_text(cell['hidden'])} ({ideals_text(cell, '{}_hidden', report.percent_text)}) | {report.time_text(cell['exposed_ns'])}{ratio} | "
            f"{report.time_text(cell['wait_ns'])} ({report.time_text(cell['wait_worst_ns'])})")


def ideals_text(cell, key, text, first=None):
    """A figure by the ideal of equal hands, and by that of a lone copier where the ideals differ."""
    lone, equal = (cell[key.format(name)] for name in ("lone", "ideal"))
    return known_text(equal, first or text) + (f"; {known_text(lone, text)}" if ideals_differ(cell) else "")


def ideals_differ(cell):
    return cell["lone_hidden"] != cell["ideal_hidden"] or cell["of_lone"] != cell["of_ideal"]


def known_text(value, text):
    return "?" if value is None else text(value)


def colour(share):
    """From red (nothing hidden) over yellow to green (all of it)."""
    share = max(0.0, min(1.0, share))
    low, high, part = ((214, 69, 65), (250, 220, 110), share * 2) if share < 0.5 else ((250, 220, 110), (60, 160, 90), share * 2 - 1)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high))


CELL, LEFT, TOP, GAP = (46, 20), 120, 70, 26


def heat_map(rows, shape):
    """Panels: one line per MPI and one for each ideal, one column per side; within, T_comp across and bytes down, coloured by what is hidden."""
    rows = [row for row in rows if row["shape"] == shape and row["percent"] > 0]
    sides = [side for side in ideal.SIDES if any(row["side"] == side for row in rows)]
    names = sorted({name for row in rows for name in row["of"]}, key=lambda name: (name != "garonne", name))
    sizes, percents = sorted({row["bytes"] for row in rows}), sorted({row["percent"] for row in rows})
    width, height = len(percents) * CELL[0] + 60, len(sizes) * CELL[1] + GAP + 18
    ideals, lone = {"ideal": "ideal_hidden"}, ""
    if any(ideals_differ(cell) for row in rows for cell in row["of"].values()):
        ideals, lone = {"ideal, lone": "lone_hidden", **ideals}, "ideal: with hands that are equal; lone: the two memories are not common, so that there is the kernel to copy by, or two copies"
    full = (LEFT + len(sides) * width, TOP + (len(names) + len(ideals)) * height)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full[0]} {full[1]}" font-family="sans-serif" font-size="11">',
             f'<rect width="{full[0]}" height="{full[1]}" fill="white"/><text x="10" y="24" font-size="15">Hidden communication, {html.escape(shape)}: '
             'percent of the shorter of T_comm and T_comp</text><text x="10" y="42">across: T_comp in percent of T_comm; down: bytes; '
             f'the ideal is that of this machine for Garonne\'s T_comm</text><text x="10" y="56">{lone}</text>']
    for line, name in enumerate([*names, *ideals]):
        top = TOP + line * height
        parts.append(f'<text x="10" y="{top + height / 2}" font-weight="bold">{html.escape(name)}</text>')
        for column, side in enumerate(sides):
            left = LEFT + column * width
            parts.append(f'<text x="{left}" y="{top}">{side} computes</text>')
            cells = {(row["bytes"], row["percent"]): row["of"].get("garonne" if name in ideals else name) for row in rows if row["side"] == side}
            key = ideals.get(name, "hidden")
            parts += panel(cells, key, (left, top + 4), (sizes, percents))
    return "\n".join([*parts, "</svg>\n"])


def panel(cells, key, corner, axes):
    sizes, percents = axes
    for y, size in enumerate(sizes):
        base = corner[1] + y * CELL[1]
        yield f'<text x="{corner[0] - 4}" y="{base + 14}" text-anchor="end" fill="#666">{report.size_text(size)}</text>'
        for x, percent in enumerate(percents):
            cell, left = cells.get((size, percent)), corner[0] + x * CELL[0]
            fill, text = (colour(cell[key]), f"{round(100 * max(cell[key], -9.99))}") if cell and cell[key] is not None else ("#eee", "")
            yield f'<rect x="{left}" y="{base}" width="{CELL[0] - 1}" height="{CELL[1] - 1}" fill="{fill}"/>'
            yield f'<text x="{left + CELL[0] / 2}" y="{base + 14}" text-anchor="middle">{text}</text>'
    for x, percent in enumerate(percents):
        yield f'<text x="{corner[0] + (x + 0.5) * CELL[0]}" y="{corner[1] + len(sizes) * CELL[1] + 12}" text-anchor="middle" fill="#666">{percent}</text>'


def main(argv):
    bench = Overlap(arguments(argv))
    if bench.args.add:
        bench.load()
    bench.measure()
    bench.save()
    data = {**report.head(bench, bench.floor), "rows": list(bench.rows()), "long": list(bench.long_rows()), "slowdown": bench.slowdown.data()}
    shapes = dict.fromkeys(row["shape"] for row in data["rows"])
    return bench.keep(data, tables(data), {f"overlap-{shape}.svg": heat_map(data["rows"], shape) for shape in shapes})
