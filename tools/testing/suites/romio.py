"""ROMIO's own test programs, from MPICH's source package, built with our mpicc as they are.

Which run, on how many ranks and how they get the name of their file, says runtests.in there; PROGRAMS repeats it, with the programs that
it leaves out. `./x test romio` runs those of SHORT, `./x soak romio` all.
"""

import dataclasses
import shutil

from ..runner import TAIL_LINES, Case, Failure, Outcome, Skip, check

# Names that programs older than MPI 2.1 use.
RENAMED = ["-DMPIO_Request=MPI_Request", "-DMPIO_Wait=MPI_Wait", "-DMPIO_Test=MPI_Test"]
# The programs' limit on a busy machine: the slowest takes some seconds.
LIMIT_S = 180
NAMED, PLAIN = ["-fname"], []


@dataclasses.dataclass
class Program:
    """How a program is started and what it says at its end."""

    ranks: int
    # What stands before the file's name.
    words: list[str] = dataclasses.field(default_factory=lambda: NAMED)
    # It says "No Errors"; otherwise none of its lines may have one of these words.
    no_errors: bool = True
    wrong: tuple[str, ...] = ()
    # Bytes that it needs on the disk.
    room: int = 0


PROGRAMS = {
    "simple": Program(4), "async": Program(4), "async-multiple": Program(4), "atomicity": Program(4), "coll_test": Program(4), "creat_excl": Program(4),
    "excl": Program(4), "file_info": Program(4), "i_noncontig": Program(2), "noncontig": Program(2), "noncontig_coll": Program(2),
    "noncontig_coll2": Program(4), "aggregation1": Program(4, ["-h", "-f"]), "aggregation2": Program(4, PLAIN), "hindexed": Program(4, PLAIN),
    "misc": Program(4, no_errors=False, wrong=("should be", "error")), "shared_fp": Program(4), "ordered_fp": Program(4), "split_coll": Program(4),
    "psimple": Program(4), "error": Program(1), "status": Program(1), "types_with_zeros": Program(2, PLAIN), "darray_read": Program(4, PLAIN),
    "external32": Program(1, no_errors=False, wrong=("error", "unexpected", "aborted")),
    "perf": Program(4, no_errors=False, wrong=("error",)),
    "large_array": Program(4, no_errors=False, wrong=("readbuf=", "error"), room=6 << 30),
    "large_file": Program(1, no_errors=False, wrong=("should be", "error"), room=6 << 30),
    "big_extents": Program(1, PLAIN, no_errors=False, wrong=("failed", "expected"), room=1 << 30),
}
REASONS = {
    "coll_perf": "the test's own: it checks nothing, and times 14 GB",
    "syshints": "the test's own: it reads a file of hints by a variable of ROMIO's",
}
SHORT = {"simple", "async", "coll_test", "excl", "file_info", "noncontig", "noncontig_coll2", "aggregation1", "hindexed", "misc", "shared_fp", "ordered_fp",
         "split_coll", "psimple", "error", "status", "types_with_zeros", "darray_read", "external32"}


def suite(context):
    context.installed()
    source = context.state / "sources/mpich"
    check(context.execute("romio fetch", ["python3", "tools/debian_source.py", "mpich", source], timeout=600))
    place = context.work / "romio"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    yield Case("romio/skipped", lambda: [Outcome("romio", "skipped", reason) for reason in REASONS.values()])
    for name, program in PROGRAMS.items():
        if name not in REASONS and (context.soak or name in SHORT):
            yield case(context, source / "src/mpi/romio/test", place, name, program)


def built(context, tests, place, name):
    source = tests / f"{name}.c"
    if not source.exists():
        # A template: how a 64-bit number is printed.
        source = place / f"{name}.c"
        source.write_text((tests / f"{name}.c.in").read_text().replace("@LL@", "lld"))
    executable = place / name
    check(context.execute(f"romio build {name}", [context.mpicc(), "-O1", "-g", "-w", *RENAMED, "-include", context.root / "tests/mpich/bounds.h", source, "-o", executable, "-lm"], timeout=120))
    return executable


def case(context, tests, place, name, program):
    def run():
        if shutil.disk_usage(place).free < 2 * program.room:
            raise Skip("there is not enough room on the disk")
        executable, directory = built(context, tests, place, name), place / f"{name}.d"
        directory.mkdir()
        command = [*context.launcher(program.ranks), str(executable), *program.words, "file"]
        result = context.execute(f"romio {name}", command, timeout=LIMIT_S, cwd=directory)
        shutil.rmtree(directory)
        check(result)
        lines = [line.strip() for line in result.output.splitlines()[1:] if line.strip()]
        if program.no_errors:
            bad = "no errors" not in map(str.lower, lines) or set(map(str.lower, lines)) - {"no errors"}
        else:
            bad = any(word in line for line in lines for word in program.wrong)
        if bad:
            raise Failure(f"it finds errors (log: {result.log})\n" + "\n".join(lines[-TAIL_LINES:]))

    return Case(f"romio/{name} on {program.ranks}", run, alone=program.room > 0)
