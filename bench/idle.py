"""What waiting ranks and traffic cost: the jobs of idle.c and what is said about them. Used by overlap.py and oversubscribed.py."""

import re
import statistics

LINE = re.compile(r"^idle (\w+) (\d+) (\d+) (\d+) (\d+) (\d+)$", re.M)
# Long enough that many ticks of the kernel's clock lie in a sample, and that falling asleep does not count.
SAMPLE_NS = 200e6
SAMPLES = 3
FIELDS = ("wall", "thread", "process", "others")


class Shares:
    """(mode, ranks) -> MPI -> times of samples."""

    def __init__(self):
        self.of = {}

    def add(self, mode, ranks, name, values):
        self.of.setdefault((mode, ranks), {}).setdefault(name, []).append(values)

    def raw(self):
        return [[mode, ranks, by_name] for (mode, ranks), by_name in self.of.items()]

    def add_raw(self, raw):
        for mode, ranks, by_name in raw:
            for name, samples in by_name.items():
                for values in samples:
                    self.add(mode, ranks, name, values)

    def data(self):
        """Per cent: what the computing thread lost of its core, and against sleeping others; CPU of its process beside it; CPU of the others."""
        result = []
        for (mode, ranks), by_name in sorted(self.of.items(), key=lambda item: (item[0][1], item[0][0])):
            for name, samples in sorted(by_name.items(), key=lambda item: (item[0] != "garonne", item[0])):
                middle = {field: [sample[i] for sample in samples] for i, field in enumerate(FIELDS)}
                entry = {"mode": mode, "ranks": ranks, "name": name, "samples": len(samples)}
                asleep = self.of.get(("sleeping", ranks), {}).get(name)
                if mode != "idle":
                    entry["lost_percent"] = statistics.median(100 * (1 - min(1, t / w)) for w, t in zip(middle["wall"], middle["thread"]))
                    entry["beside_percent"] = statistics.median(100 * max(0, p - t) / w for w, t, p in zip(middle["wall"], middle["thread"], middle["process"]))
                    if asleep and mode != "sleeping":
                        entry["slower_percent"] = 100 * (statistics.median(middle["wall"]) / statistics.median(s[0] for s in asleep) - 1)
                entry["others_percent"] = statistics.median(100 * o / w for w, o in zip(middle["wall"], middle["others"]))
                result.append(entry)
        return result


def measure(session, shares, built, ranks, modes, sample_ns=None):
    """One job; with `--quick` its samples are short."""
    peer, program = built
    length = 20e6 if session.args.quick else sample_ns or SAMPLE_NS
    printed = session.run(peer, program, ranks, [min(SAMPLES, session.args.samples), length, *modes])
    for mode, count, *values in LINE.findall(printed):
        shares.add(mode, int(count), peer.name, [float(v) for v in values])


def tables(data, title):
    if not data:
        return []
    lines = [f"## {title}", "",
             "Per cent of a core. Lost: time in which the computing thread did not run. Slower: its time against the same with the others asleep outside MPI",
             "(this carries the machine's noise). Beside it: other threads of its process. Others: all other ranks together.", "",
             "| ranks | the others | MPI | lost | slower | beside it | others |", "|---|---|---|---|---|---|---|"]
    for row in data:
        cells = [f"{row[key]:.2f}" if key in row else "" for key in ("lost_percent", "slower_percent", "beside_percent", "others_percent")]
        lines.append(f"| {row['ranks']} | {row['mode']} | {row['name']} | " + " | ".join(cells) + " |")
    return [*lines, ""]
