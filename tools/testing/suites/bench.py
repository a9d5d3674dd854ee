"""The benchmarks: what they compute from times, and that each part runs and reports what it says, on tiny sizes. Never how fast. The examples that show overlap, too."""

import json
import re
import shutil
import sys

from ..runner import Case, Failure, check

TINY = ["--quick", "--rounds", "1", "--samples", "2", "--sample-ms", "0.1"]
LIMIT_S = 120


def suite(context):
    yield Case("bench/figures", lambda: figures(context))
    yield Case("bench/floor", lambda: floor(context))
    if context.foreign:
        return
    context.installed()
    yield Case("bench/heat2d in three forms", lambda: heat(context))
    yield Case("bench/halo3d", lambda: halo(context))
    yield Case("bench/computing of no length", lambda: refused(context))
    for name, words, expected in PARTS:
        yield Case(f"bench/{name}", lambda name=name, words=words, expected=expected: part(context, name, words, expected))


def figures(context):
    check(context.execute("bench figures", [sys.executable, "-m", "unittest", "discover", "-s", "tests/bench"], timeout=60))


def floor(context):
    """Every way of copying has its sample, and where the kernel lets nobody into another's memory the others still do."""
    for source in ("bench/floor.c", "tests/bench/forbidding.c"):
        program = context.work / source.rpartition("/")[2].removesuffix(".c")
        check(context.execute(f"bench build {program.name}", ["cc", "-O2", context.root / source, "-o", program], timeout=60))
    kernels = {"readv", "writev"}
    for name, words, expected in (("floor", [], {"memcpy", "strided", "stage"} | kernels), ("floor forbidden", [context.work / "forbidding"], {"memcpy", "strided", "stage"})):
        shared = context.work / "floor-map"
        shared.write_bytes(b"")
        result = context.execute(f"bench {name}", [*words, context.work / "floor", shared, "1", "64"], timeout=LIMIT_S)
        check(result)
        found = set(re.findall(r"^sample (\w+) 64 ", result.output, re.M))
        if found != expected:
            raise Failure(f"{name} has samples of {sorted(found)}, not of {sorted(expected)}")


def example(context, name):
    program = context.work / name
    check(context.execute(f"bench build {name}", [context.mpicc(), "-O2", context.root / f"examples/{name}.c", "-o", program, "-lm"], timeout=60))
    return program


def heat(context):
    """Blocking, nonblocking and persistent exchange give the same plate."""
    program, pictures = example(context, "heat2d"), set()
    for form in ("blocking", "nonblocking", "persistent"):
        picture = context.work / f"heat-{form}.png"
        check(context.execute(f"bench heat2d {form}", [*context.launcher(3), program, "-m", form, "-n", "90", "-s", "60", "-o", picture], timeout=LIMIT_S))
        pictures.add(picture.read_bytes())
    if len(pictures) != 1:
        raise Failure("the three forms of heat2d do not give the same picture")


def halo(context):
    program = example(context, "halo3d")
    result = context.execute("bench halo3d", [*context.launcher(4), program, "-n", "24", "-s", "4"], timeout=LIMIT_S)
    check(result)
    if "the cells are the same" not in result.output:
        raise Failure(result.output)


def overlap(data):
    """Every side and both lengths of computing, with the ideal beside what was measured."""
    found = {(row["side"], row["percent"]) for row in data["rows"]}
    yield "sides", found == {(side, percent) for side in ("sender", "receiver", "both") for percent in (0, 100)}
    yield "times", all(row["of"]["garonne"]["total_ns"][1] > 0 for row in data["rows"])
    yield "ideal", all(row["of"]["garonne"]["ideal_paper_ratio"] > 0 for row in data["rows"] if row["percent"] > 0 and row["of"]["garonne"]["ideal_paper_ratio"] is not None)
    known = [row["of"]["garonne"] for row in data["rows"] if row["of"]["garonne"]["ideal_paper_ratio"] is not None]
    yield "ideal of a lone side", all(of["lone_paper_ratio"] <= of["ideal_paper_ratio"] and of["of_lone"] >= of["of_ideal"] for of in known)
    yield "worst waits", all(row["of"]["garonne"]["wait_worst_ns"] >= row["of"]["garonne"]["wait_ns"] for row in data["rows"])
    yield "slowdown", {row["mode"] for row in data["slowdown"]} == {"sleeping", "waiting", "traffic"}


def waits(rows, keys, expected):
    """A row for each of `expected`, with its hidden share and its worst wait, which is no less than the median one, as the median of medians is no more than the longest of all."""
    yield "rows", {tuple(row[key] for key in keys) for row in rows} == expected
    figures = [row["of"]["garonne"] for row in rows]
    yield "worst waits", all(of["wait_worst_ns"] >= of["wait_ns"] and of["wait_worst_ns"] > 0 for of in figures)
    yield "what the machine does", all(of["disturbed_ns"] >= 0 for of in figures)
    yield "hidden", all(of["hidden"] < 1.1 for of in figures)


def long_overlap(data):
    yield "no shares of T_comm", not data["rows"] and not data["slowdown"]
    yield from waits(data["long"], ("side", "bytes", "comp_ms"), {(side, 65536, ms) for side in ("sender", "receiver", "both") for ms in (1, 5)})


def long_collectives(data):
    yield "no shares of T_pure", not data["rows"]
    yield from waits(data["long"], ("what", "ranks", "bytes", "comp_ms"), {(what, 2, size, 5) for what, size in (("ireduce", 65536), ("ibarrier", 0))})


def collectives(data):
    yield "calls", {(row["what"], row["ranks"]) for row in data["rows"]} == {("ibcast", 2), ("ibarrier", 2), ("ialltoallv", 2)}
    yield "shares", all(0 <= share <= 1 for row in data["rows"] for share in row["of"]["garonne"]["overlap"])
    yield "worst waits", all(row["of"]["garonne"]["wait_worst_ns"] > 0 for row in data["rows"])


def oversubscribed(data):
    yield "idle", {row["mode"] for row in data["idle"]} == {"sleeping", "waiting", "idle"}
    yield "calls", not any("failed" in note or "did not" in note for note in data["notes"])


def threads(data):
    yield "kinds", {row["what"] for row in data["rows"]} == {"latency", "asleep", "beside", "probing", "choosing", "mixing", "sending", "distinct", "shared", "hinted", "mixed", "alone", "gathered"}
    yield "notes", not any("failed" in note or "did not" in note for note in data["notes"])


def flows(data):
    """Everything on one host; over TCP too, with its floor, where there can be hosts."""
    kinds = {"pingpong", "series", "indexed", "plain", "stream", "idle", "beside"}
    yield "one host", {row["what"] for row in data["shm"]} == kinds
    refused = any("nothing is measured over TCP" in note for note in data["notes"])
    yield "two hosts", refused or {row["what"] for row in data["tcp"] if "garonne" in row["ns"]} == kinds
    yield "bare sockets", refused or {row["what"] for row in data["tcp"] if "floor" in row["ns"]} == {"pingpong", "stream"}
    yield "notes", not any("failed" in note or "did not" in note for note in data["notes"])


def ways(data):
    refused = any("nothing is measured" in note for note in data["notes"])
    yield "rows", refused or [(row["rates"], row["bytes"], row["name"]) for row in data["rows"]] == [([400, 100], 1000000, "garonne")]
    yield "rates", all(min(row["mb_per_s"]) > 0 for row in data["rows"])
    yield "notes", not any("failed" in note or "did not" in note for note in data["notes"])


def binaries(data):
    refused = any("cannot be had" in note for note in data["notes"])
    yield "rows", refused or [(row["what"], set(row["ns"])) for row in data["rows"]] == [("lammps", {"garonne", "own MPI"})]
    yield "notes", not any("failed" in note for note in data["notes"])


def openmp(data):
    """Each construct with both libraries, and the solver of unequal zones."""
    kinds = {"parallel", "for", "barrier", "single", "critical", "reduction", "task", "nested", "zones"}
    yield "kinds", {row["what"] for row in data["rows"]} == kinds
    yield "libraries", all(set(row["ns"]) == {"garonne", "gcc"} and min(row["ns"].values()) > 0 for row in data["rows"])
    yield "notes", not data["notes"]


def posix(data):
    """Each program that is there, both ways."""
    missing = {note.split()[0] for note in data["notes"] if "is not installed" in note}
    yield "programs", {row["what"].split()[0] for row in data["rows"]} == {"pigz", "xz", "sysbench"} - missing
    yield "kinds", all(set(row["median"]) == {"kernel", "fibers"} and min(row["median"].values()) > 0 for row in data["rows"])
    yield "notes", not any("failed" in note or "did not" in note for note in data["notes"])


def api(data):
    """Both kinds of endpoints, the first one beside MPI over the same engine."""
    found = {(row["what"], row["bytes"]): set(row["ns"]) for row in data["rows"]}
    yield "rows", set(found) == {("pingpong", 8), ("pingpong", 65536), ("rate", 8), ("pair_pingpong", 8), ("pair_pingpong", 65536), ("pair_rate", 8)}
    yield "engine", all({"garonne", "engine"} <= names for (what, _), names in found.items() if not what.startswith("pair"))
    refused = any("cannot be had" in note for note in data["notes"])
    yield "tools", refused or ("ucx-shm" in found["rate", 8] and "ucx-tcp" in found["pair_pingpong", 8] and "libfabric-tcp" in found["pair_pingpong", 8])


def kinds_of(kinds):
    """A row of each kind, and no job that failed."""

    def report(data):
        yield "rows", {row["what"] for row in data["rows"] if "garonne" in row["ns"]} == set(kinds)
        yield "times", all(row["ns"]["garonne"]["median"] > 0 for row in data["rows"])
        yield "notes", not any("failed" in note or "did not" in note for note in data["notes"])

    return report


RMA = [f"{window}_{what}" for window in ("allocate", "shared", "create", "dynamic") for what in ("put", "fetch", "rate", "lock", "contend", "count", "fence", "pscw", "computing", "free")]
# Second rows of what several ranks do at once.
RMA_BEST = [f"{kind}_best" for kind in RMA if kind.endswith(("_contend", "_count"))]

# Samples during which cores moved are dropped, so rows by regime may be missing on a busy machine; what is checked is there always.
PARTS = [
    ("overlap", ["overlap", *TINY, "--sizes", "64,32768", "--percents", "0,100", "--shapes", "contiguous,strided"], overlap),
    ("collectives", ["collectives", "--overlap", *TINY, "--ranks", "2", "--sizes", "64", "--names", "ibcast,ialltoallv,ibarrier"], collectives),
    ("overlap of long computing", ["overlap", *TINY, "--sizes", "65536", "--comp-ms", "1,5", "--shapes", "contiguous"], long_overlap),
    ("collectives beside long computing", ["collectives", "--overlap", *TINY, "--ranks", "2", "--sizes", "65536", "--names", "ireduce,ibarrier", "--comp-ms", "5"], long_collectives),
    ("oversubscribed", ["oversubscribed", *TINY], oversubscribed),
    ("threads", ["threads", *TINY], threads),
    ("flows", ["flows", *TINY], flows),
    ("ways", ["ways", *TINY], ways),
    ("rma", ["rma", *TINY, "--only", ",".join(RMA)], kinds_of([*RMA, *RMA_BEST])),
    ("spawn", ["spawn", *TINY], kinds_of(["spawn", "connect"])),
    ("io", ["io", *TINY], kinds_of(["write", "read", "alone_write", "alone_read", "open"])),
    ("partitioned", ["partitioned", *TINY], kinds_of(["rest", "first"])),
    ("survive", ["survive", *TINY], kinds_of(["agree", "notice", "shrink"])),
    ("api", ["api", *TINY], api),
    ("openmp", ["openmp", "--quick", "--rounds", "1", "--samples", "2", "--sample-ms", "0.1", "--libraries", "garonne,gcc"], openmp),
    ("posix", ["posix", "--quick", "--rounds", "1"], posix),
    ("binaries", ["binaries", "--quick", "--rounds", "1", "--only", "lammps"], binaries),
]


def refused(context):
    """One line that names the option, the exit code of every refusal, and nothing measured."""
    for part in (["overlap"], ["collectives", "--overlap"]):
        result = context.execute(f"bench {part[0]} --comp-ms 0", [context.prefix / "bin/garonne", "bench", *part, "--comp-ms", "5,0"], timeout=LIMIT_S)
        # The log begins with the command itself.
        said = "\n".join(result.output.strip().splitlines()[1:])
        if result.code != 2 or not re.fullmatch(r"error: --comp-ms: '5,0' is no list by comma of whole numbers from 1 to 1000 \(see .*\)", said):
            raise Failure(f"exit code {result.code}, and it says: {said}")


def part(context, name, words, expected):
    out = context.work / f"bench-{name.replace(' ', '-')}"
    shutil.rmtree(out, ignore_errors=True)
    command = [context.prefix / "bin/garonne", "bench", *words, "--out", out]
    check(context.execute(f"bench {name}", command, timeout=LIMIT_S))
    data = json.loads((out / "bench.json").read_text())
    wrong = [what for what, good in expected(data) if not good]
    if wrong or not (out / "bench.md").read_text().startswith("# "):
        raise Failure(f"the report lacks {wrong}; notes: {data['notes']} (see {out})")
    if name == "overlap" and not list(out.glob("overlap-*.svg")):
        raise Failure(f"no heat map in {out}")
