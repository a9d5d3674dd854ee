"""The conformance programs of tests/c in the ABI of the MPICH family, over the installed libmpi.so.12.
"""

import re
import shutil
import subprocess

from .. import family_headers
from ..runner import Case, Failure, check
from .c import FLAGS, LIMIT_S

# Of the numbers of ranks that a program declares, the smallest of these is run.
RANKS = range(2, 5)
# What the error of each mistake must say, with the line that has the mark in tests/mpich-abi/mistake.c.
MISTAKES = {1: ("rank", "MPI_Send"), 2: ("tag", "MPI_Recv"), 3: ("communicator", "MPI_Barrier"),
            5: ("handle", "0x101 is no communicator: it is a handle of the MPI 5 standard ABI")}

# The header of this MPICH says the same as the tables.
MPICH = "5.0.2"
# Checks of the header beside constants and prototypes.
LAYOUT = ["EQUAL(sizeof(MPI_Status), 20);", *(f"EQUAL(offsetof(MPI_Status, {field}), {offset});" for field, offset in (
    ("count_lo", 0), ("count_hi_and_cancelled", 4), ("MPI_SOURCE", 8), ("MPI_TAG", 12), ("MPI_ERROR", 16))),
    *(f"EQUAL(sizeof({handle}), {size});" for handle, size in (
        ("MPI_Comm", 4), ("MPI_Datatype", 4), ("MPI_Request", 4), ("MPI_Message", 4), ("MPI_Op", 4), ("MPI_Session", 4), ("MPI_File", 8)))]


def suite(context):
    if context.foreign:
        return
    context.installed()
    place = context.work / "mpich-abi"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for source in sorted([*(context.root / "tests/c").glob("*.c"), *(context.root / "tests/c").glob("*.cpp")]):
        head = source.read_text().split("*/", 1)[0]
        declared = [int(n) for n in re.search(r"ranks: ([\d ]+)", head).group(1).split()]
        limit = re.search(r"limit: (\d+)", head)
        ranks = min((n for n in declared if n in RANKS), default=declared[0])
        program = build(context, place, source)
        yield program_case(context, program, ranks, int(limit.group(1)) if limit else LIMIT_S)
    yield program_case(context, build(context, place, context.root / "tests/mpich-abi/values.c"), 2, LIMIT_S)
    mistake = build(context, place, context.root / "tests/mpich-abi/mistake.c")
    for number, (mark, call) in MISTAKES.items():
        yield Case(f"mpich-abi/error names the call: {mark}", lambda number=number, mark=mark, call=call: names_the_call(context, mistake, number, mark, call))
    yield Case("mpich-abi/values and prototypes are those of MPICH's mpi.h", lambda: own_header(context))
    yield Case("mpich-abi/error handler gets own numbers", lambda: own_numbers(context, mistake))
    yield Case("mpich-abi/Debian's name of the library", lambda: debian_name(context, mistake))


def foreign(context):
    return context.prefix / "lib/foreign"


def environment(context):
    return context.environment({"LD_LIBRARY_PATH": str(foreign(context))})


def command(context, source, program, *libraries):
    compiler = ["c++", "-std=gnu++17"] if source.suffix == ".cpp" else ["cc", "-std=gnu11"]
    include = context.root / "crates/mpi/abi-mpich/include"
    return [*compiler, *FLAGS, f"-I{include}", str(source), "-o", str(program), f"-L{foreign(context)}", *libraries, "-lm", "-lpthread"]


def build(context, place, source):
    program = place / source.stem
    check(context.execute(f"mpich-abi build {source.stem}", command(context, source, program, "-l:libmpi.so.12"), timeout=60))
    return program


def program_case(context, program, ranks, limit):
    name = f"mpich-abi/{program.name} on {ranks}"
    return Case(name, lambda: check(context.execute(name, context.launcher(ranks) + [str(program)], timeout=limit, env=environment(context))))


def own_header(context):
    headers = family_headers.fetched(context, "mpich", MPICH)
    crates = context.root / "crates/mpi"
    parts = ((crates / "abi-gen/abi/mpich.txt").read_text(), (crates / "abi-mpich/include/mpi.h").read_text(), LAYOUT, set())
    family_headers.compare(context, "mpich-abi header", headers, parts, [f"-L{foreign(context)}", "-l:libmpi.so.12"])


def names_the_call(context, program, number, mark, call):
    result = context.execute(f"mpich-abi mistake {number}", context.launcher(1) + [str(program), str(number)], timeout=LIMIT_S, env=environment(context))
    source = context.root / "tests/mpich-abi/mistake.c"
    lines = source.read_text().splitlines()
    line = 1 + next(at for at, text in enumerate(lines) if f"/* {mark} */" in text)
    wanted = [call, f"mistake.c:{line}"]
    missing = [word for word in wanted if word not in result.output]
    if missing or result.code == 0:
        raise Failure(f"exit code {result.code}, and the error does not say {missing} (log: {result.log})")


def own_numbers(context, program):
    result = context.execute("mpich-abi mistake 4", context.launcher(1) + [str(program), "4"], timeout=LIMIT_S, env=environment(context))
    if "exit status 7" not in result.output:
        raise Failure(f"the handler did not get MPI_COMM_SELF and an error of class MPI_ERR_RANK (log: {result.log})")


def debian_name(context, program):
    """A program that was linked with Debian's libmpich.so.12, which has the functions itself, runs, too."""
    renamed, source = program.with_name("needs_libmpich"), context.root / "tests/mpich-abi/mistake.c"
    debian = program.with_name("libmpich.so.12")
    functions = sorted(set(re.findall(r"\bMPI_[A-Z][a-z_]+(?=\()", source.read_text())))
    debian.with_suffix(".c").write_text("".join(f"void {name}(void) {{}}\n" for name in functions))
    check(context.execute("mpich-abi build libmpich", ["cc", "-shared", "-fPIC", "-Wl,-soname,libmpich.so.12", debian.with_suffix(".c"), "-o", debian], timeout=60))
    check(context.execute("mpich-abi build for libmpich", command(context, source, renamed, debian), timeout=60))
    needed = subprocess.run(["readelf", "-d", str(renamed)], capture_output=True, text=True, check=True).stdout
    if "[libmpich.so.12]" not in needed or "[libmpi.so.12]" in needed:
        raise Failure(f"the program does not need libmpich.so.12 alone:\n{needed}")
    result = context.execute("mpich-abi libmpich", context.launcher(1) + [str(renamed), "0"], timeout=LIMIT_S, env=environment(context))
    check(result)
