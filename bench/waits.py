"""Computing beside communication for a given time (`--comp-ms`): how much is hidden in each of both parts, and the worst wait beside the median one.

Used by overlap.py and nonblocking.py, whose C programs print the same times. A time of computing that is a share of T_comm is mostly far below what it takes until somebody other
than the program advances its messages; what happens then shows only where it computes for long. Medians hide what happens rarely, so the longest wait of all samples,
those that are dropped from medians as well, is always shown.
"""

import dataclasses
import math
import statistics

import report
from session import JOB_LIMIT_S

# Of the C programs: exchanges of a row at least and at most, those before it that do not count, and rows of computing alone at most.
REPEATS_MIN, REPEATS_MAX, WARM, ALONE_MAX = 5, 500, 2, 15
# What a job is planned to take at most: an MPI that takes three times as long is still waited for.
JOB_PLANNED_S = JOB_LIMIT_S / 3


@dataclasses.dataclass(frozen=True)
class Sample:
    """Nanoseconds: what rows of one sample took, as overlap.c and nonblocking.c say. `comm_worst` is 0 where it is not known."""

    comm: float
    comm_worst: float
    comp: float
    disturbed: float
    total: float
    calls: float
    within: float
    wait: float
    wait_worst: float

    @property
    def exposed(self):
        """What the message adds to the computing; at least the clock's resolution, so that ratios are defined."""
        return max(self.total - self.comp, 1.0)


def case_seconds(args):
    """What the computing of one case takes in one job."""
    total = 0.0
    for ms in args.comp_ms:
        repeats = min(max(REPEATS_MIN, int(args.sample_ms / ms)), REPEATS_MAX)
        total += (repeats + WARM + min(repeats, ALONE_MAX)) * ms
    return args.samples * total / 1e3


def refuse_endless(parser, args):
    """Says at once that a case takes longer than a job may."""
    if case_seconds(args) > JOB_PLANNED_S:
        parser.error(f"--comp-ms: {args.samples} samples of such computing take {case_seconds(args):.0f} s, and a job has {JOB_PLANNED_S:.0f} s; it takes fewer --samples or shorter times")


def jobs(args, cases):
    """The cases in lists of which each is one job."""
    each = max(1, math.floor(JOB_PLANNED_S / case_seconds(args)))
    return [cases[i : i + each] for i in range(0, len(cases), each)]


def words(args):
    """The times of computing, as the C programs take them."""
    return ",".join(f"{ms}ms" for ms in args.comp_ms)


def figures(samples, every):
    """What the tables say of samples of one regime; worst ones are those of `every` sample."""
    middle = statistics.median
    return {
        "samples": len(samples),
        "comm_ns": middle(s.comm for s in samples),
        "hidden": middle(1 - s.calls / s.comm for s in samples),
        "wait_ns": middle(s.wait for s in samples),
        "wait_worst_ns": max(s.wait_worst for s in every),
        "longer_ns": middle(s.within - s.comp for s in samples),
        "disturbed_ns": max(s.disturbed for s in every),
    }


LEGEND = [
    "Hidden: 1 - the time in calls of the operation, beside so much computing, by that with nothing to compute. Wait: in MPI_Wait, the median and the longest of all (also of samples that are",
    "dropped from medians). Disturbed: how much longer than its median the computing alone took at worst, when no MPI had anything to do: the cores were taken away that long, so a wait of that length",
    "says nothing. Longer: what the computing takes beside the operation, less what it takes alone: what others, such as a helper, took of its core. Less than its own scatter it says nothing.",
]


def micro(ns):
    return f"{ns / 1e3:.1f}"


def table(rows, columns, alone):
    """A line for each row and MPI; `columns` are (heading, function of a row) before those of the times, `alone` what the time with nothing to compute is called."""
    lines = ["| " + " | ".join(heading for heading, _ in columns) + f" | computing, ms | MPI | samples | {alone}, µs | hidden | wait, µs | worst wait, µs | disturbed, µs | longer, µs |",
             "|---|" + "---|" * (len(columns) + 8)]
    for row in rows:
        for name in sorted(row["of"], key=lambda name: (name != "garonne", name)):
            of = row["of"][name]
            cells = [*(str(value(row)) for _, value in columns), str(row["comp_ms"]), name, str(of["samples"]) + (f" ({of['regime']})" if "regime" in of else ""),
                     micro(of["comm_ns"]), report.percent_text(of["hidden"]), *(micro(of[key]) for key in ("wait_ns", "wait_worst_ns", "disturbed_ns", "longer_ns"))]
            lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]
