"""From samples to what is read: JSON, Markdown tables, SVG plots. Nothing is measured here."""

import collections
import html
import json
import math
import os
import pathlib
import platform
import shlex
import statistics
import sys

from stats import quartiles, ratio_interval

COLOURS = {"garonne": "#0a5", "mpich": "#c60", "mpich-async": "#fa4", "openmpi": "#06c", "openmpi-ucx": "#609", "intel": "#c03", "intel-async": "#f69", "ranks-as-threads": "#5c8"}

# What a row's name means, for the headings of tables.
MEANINGS = {
    "pingpong": "Half round trip",
    "fresh": "Half round trip of what its sender has just written and its receiver then reads, with the writing and the reading",
    "rate": "Time per message, window of 64",
    "contiguous": "Half round trip, as one contiguous datatype",
    "indexed": "Half round trip, indexed datatype of one block of 64 B and one of 256 KB",
    "vector8": "Half round trip, vector of 8 B blocks with gaps of the same length",
    "vector64": "Half round trip, vector of 64 B blocks with gaps of the same length",
}


def sample_rows(samples):
    """Of all samples: quartiles of each MPI, and the ratio of Garonne's median to each other's."""
    rows = []
    for key, by_name in sorted(samples.of.items(), key=lambda item: (item[0].what, item[0].ranks, item[0].bytes, item[0].regime)):
        entry = {"what": key.what, "ranks": key.ranks, "bytes": key.bytes, "regime": key.regime, "ns": {}, "ratio": {}}
        for name, values in by_name.items():
            low, middle, high = quartiles(values)
            entry["ns"][name] = {"lower_quartile": low, "median": middle, "upper_quartile": high, "samples": len(values)}
            if name not in ("garonne", "floor") and "garonne" in by_name:
                interval = ratio_interval(by_name["garonne"], values)
                if interval:
                    entry["ratio"][name] = {"median": interval[0], "low": interval[1], "high": interval[2]}
        rows.append(entry)
    return rows


def head(session, samples):
    """What every part's data begin with."""
    args = session.args
    return {
        "machine": machine(),
        "command": shlex.join(["garonne", "bench", *sys.argv[1:]]),
        "settings": {"rounds": args.rounds, "samples": args.samples, "sample_ms": args.sample_ms},
        "handoff_ns": {label: statistics.median(values) for label, values in samples.handoffs.items() if values},
        "dropped_samples": dict(samples.dropped),
        "notes": session.notes,
    }


def data(bench):
    return {
        **head(bench, bench.samples),
        "rows": sample_rows(bench.samples),
        "launch_ms": {str(n): {name: quartiles(v) for name, v in by.items()} for n, by in bench.launch.items()},
        "memory_kb_per_rank": {str(n): {name: statistics.median(v) for name, v in by.items()} for n, by in bench.memory.items()},
    }


def machine():
    return {"cpus": os.cpu_count(), "model": cpu_model(), "kernel": platform.release()}


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def time_text(ns):
    for limit, scale, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if ns < limit:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def percent_text(share):
    return f"{round(100 * max(share, -9.99))} %"


def verdict(interval):
    """`below` only when the whole interval is; that is the promise of the tables."""
    if interval is None:
        return "unmeasured"
    return f"{interval['median']:.2f} [{interval['low']:.2f}, {interval['high']:.2f}] {verdict_word(interval)}"


def verdict_word(interval):
    return "below" if interval["high"] < 1 else "above" if interval["low"] > 1 else "equal"


def tables(result):
    lines = title(result, "Benchmarks") + summary(result["rows"]) + kind_tables(result["rows"])
    lines += simple_table("Launch, MPI_Init and MPI_Finalize, ms (median)", {n: {k: f"{v[1]:.1f}" for k, v in by.items()} for n, by in result["launch_ms"].items()})
    lines += simple_table("Memory per rank (PSS), MB", {n: {k: f"{v / 1024:.2f}" for k, v in by.items()} for n, by in result["memory_kb_per_rank"].items()})
    floor = [row for row in result["rows"] if "floor" in row["ns"]]
    if floor:
        lines += ["## Floor of this machine", "", "| what | bytes | regime | median |", "|---|---|---|---|"]
        lines += [f"| {r['what']} | {r['bytes']} | {r['regime']} | {cell(r, 'floor')} |" for r in floor] + [""]
    return finish(result, lines)


def summary(rows):
    """How often Garonne is below, level with and above each peer, over all rows where both were measured."""
    counts = {}
    for row in rows:
        for name, interval in row["ratio"].items():
            counts.setdefault(name, collections.Counter())[verdict_word(interval)] += 1
    if not counts:
        return []
    lines = ["| against | below | equal | above |", "|---|---|---|---|"]
    lines += [f"| {name} | {found['below']} | {found['equal']} | {found['above']} |" for name, found in sorted(counts.items())]
    return [*lines, ""]


def title(result, what):
    handoffs = ", ".join(f"{label} {value:.0f} ns" for label, value in result["handoff_ns"].items())
    return [f"# {what} on {result['machine']['cpus']} x {result['machine']['model']}", "",
            "```", result["command"], "```", "",
            f"Bare hand-off, one way: {handoffs or 'not measured'}. Times are medians (quartiles in bench.json); a ratio is Garonne's median",
            "by the peer's, with its 95 % bootstrap interval, within one regime. A regime that did not occur is unmeasured.", ""]


def finish(result, lines):
    return "\n".join([*lines, *(f"- {note}" for note in result["notes"])]) + "\n"


def write(args, data, text):
    """Writes data and table under --out, and prints what was asked for."""
    out = pathlib.Path(args.out)
    (out / "bench.json").write_text(json.dumps(data, indent=1))
    (out / "bench.md").write_text(text)
    print(json.dumps(data, indent=1) if args.json else text)


def kind_tables(rows, column="bytes", meanings=None, first="ranks"):
    """One table per kind of measurement; `column` is what its number counts, `first` what the number before it does."""
    meanings = meanings or MEANINGS
    names = sorted({name for row in rows for name in row["ns"] if name not in ("garonne", "floor", "packets")})
    lines = []
    for kind in dict.fromkeys(row["what"] for row in rows if "garonne" in row["ns"]):
        lines += [f"## {meanings.get(kind, kind)}", "", f"| {first} | {column} | regime | garonne | " + "".join(f"{n} | ratio | " for n in names),
                  "|---|---|---|---|" + "---|---|" * len(names)]
        for row in (r for r in rows if r["what"] == kind and r["ns"]):
            cells = [str(row["ranks"]), str(row["bytes"]), row["regime"], cell(row, "garonne")]
            for name in names:
                cells += [cell(row, name), verdict(row["ratio"].get(name))]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def cell(row, name):
    entry = row["ns"].get(name)
    return time_text(entry["median"]) if entry else "unmeasured"


def simple_table(title, by_ranks):
    if not by_ranks:
        return []
    names = sorted({name for values in by_ranks.values() for name in values}, key=lambda n: (n != "garonne", n))
    lines = [f"## {title}", "", "| ranks | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    lines += ["| " + " | ".join([n, *(values.get(name, "unmeasured") for name in names)]) + " |" for n, values in by_ranks.items()]
    return [*lines, ""]


def plots(result):
    """Pictures by file name: one plot per measurement with sizes, number of ranks and regime."""
    groups, pictures = {}, {}
    for row in result["rows"]:
        if row["bytes"] > 0:
            groups.setdefault((row["what"], row["ranks"], row["regime"]), []).append(row)
    for (what, ranks, label), rows in groups.items():
        lines = {}
        for row in rows:
            for name, entry in row["ns"].items():
                lines.setdefault(name, []).append((row["bytes"], entry["lower_quartile"], entry["median"], entry["upper_quartile"]))
        if any(len(points) > 1 for points in lines.values()):
            pictures[f"{what}-{ranks}-{label}.svg"] = plot(f"{what}, {ranks} ranks, {label}", lines)
    return pictures


def size_text(size):
    return f"{size}" if size < 1024 else f"{size // 1024}K" if size < 1 << 20 else f"{size >> 20}M"


def plot(title, lines):
    """Log-log: bytes (or what else is counted) across, ns per operation up; median lines over a band from quartile to quartile."""
    width, height, margin = 720, 440, 60
    xs = [math.log2(p[0]) for points in lines.values() for p in points]
    ys = [math.log10(max(v, 1e-3)) for points in lines.values() for p in points for v in p[1:]]
    x0, x1, y0, y1 = min(xs), max(max(xs), min(xs) + 1), math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)

    def place(size, ns):
        x = margin + (math.log2(size) - x0) / (x1 - x0) * (width - 2 * margin)
        y = height - margin - (math.log10(max(ns, 1e-3)) - y0) / (y1 - y0) * (height - 2 * margin)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/><text x="{margin}" y="24" font-size="15">{html.escape(title)}</text>']
    for power in range(y0, y1 + 1):
        y = place(2 ** x0, 10.0 ** power).split(",")[1]
        parts.append(f'<path d="M{margin} {y}H{width - margin}" stroke="#ddd"/><text x="4" y="{y}">{time_text(10.0 ** power)}</text>')
    for size in sorted({p[0] for points in lines.values() for p in points}):
        x = place(size, 10.0 ** y0).split(",")[0]
        parts.append(f'<text x="{x}" y="{height - margin + 18}" text-anchor="middle">{size_text(size)}</text>')
    for row, (name, points) in enumerate(sorted(lines.items())):
        colour = COLOURS.get(name, "#777")
        points.sort()
        band = [place(p[0], p[1]) for p in points] + [place(p[0], p[3]) for p in reversed(points)]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.15"/>')
        parts.append(f'<polyline points="{" ".join(place(p[0], p[2]) for p in points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{width - margin - 90}" y="{margin + 16 * row}" fill="{colour}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])
