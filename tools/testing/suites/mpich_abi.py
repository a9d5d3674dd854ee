"""The conformance programs of tests/c in the ABI of the MPICH family, over the installed libmpi.so.12.
"""

import dataclasses
import re
import subprocess

from .. import family_headers
from ..abi_programs import Abi
from ..runner import Case, Failure, check
from . import openmpi_abi
from .c import LIMIT_S

# What the error of each mistake must say, with the line that has the mark in tests/mpich-abi/mistake.c.
MISTAKES = {1: ("rank", "MPI_Send"), 2: ("tag", "MPI_Recv"), 3: ("communicator", "MPI_Barrier"), 6: ("extension", "MPIX_Grequest_start is not implemented"),
            5: ("handle", "0x101 is no communicator: it is a handle of the MPI 5 standard ABI")}

# The header of this MPICH says the same as the tables.
MPICH = "5.0.2"
# Checks of the header beside constants and prototypes.
LAYOUT = ["EQUAL(sizeof(MPI_Status), 20);", *(f"EQUAL(offsetof(MPI_Status, {field}), {offset});" for field, offset in (
    ("count_lo", 0), ("count_hi_and_cancelled", 4), ("MPI_SOURCE", 8), ("MPI_TAG", 12), ("MPI_ERROR", 16))),
    *(f"EQUAL(sizeof({handle}), {size});" for handle, size in (
        ("MPI_Comm", 4), ("MPI_Datatype", 4), ("MPI_Request", 4), ("MPI_Message", 4), ("MPI_Op", 4), ("MPI_Session", 4), ("MPI_File", 8)))]


def family(context):
    return Abi("mpich-abi", context.root / "crates/mpi/abi-mpich/include", "libmpi.so.12")


def suite(context):
    if context.foreign:
        return
    context.installed()
    abi = family(context)
    place = abi.place(context)
    yield from abi.conformance(context, place)
    yield abi.case(context, abi.build(context, place, context.root / "tests/mpich-abi/values.c"), 2)
    source = context.root / "tests/mpich-abi/mistake.c"
    mistake = abi.build(context, place, source)
    for number, (mark, call) in MISTAKES.items():
        yield Case(f"mpich-abi/error names the call: {mark}", lambda number=number, mark=mark, call=call: abi.mistake(context, mistake, source, number, mark, [call]))
    yield Case("mpich-abi/values and prototypes are those of MPICH's mpi.h", lambda: own_header(context, abi))
    yield Case("mpich-abi/error handler gets own numbers", lambda: own_numbers(context, abi, mistake))
    child = abi.build(context, place, context.root / "tests/openmpi-abi/child.c")
    yield Case("mpich-abi/another MPI first in LD_LIBRARY_PATH", lambda: openmpi_abi.found_first(context, place, "mpich", child))
    yield Case("mpich-abi/Debian's name of the library", lambda: debian_name(context, abi, place, source))


def own_header(context, abi):
    headers = family_headers.fetched(context, "mpich", MPICH)
    parts = ((context.root / "crates/mpi/abi-gen/abi/mpich.txt").read_text(), (abi.include / "mpi.h").read_text(), LAYOUT, set())
    family_headers.compare(context, "mpich-abi header", headers, parts, [f"-L{abi.foreign(context)}", f"-l:{abi.library}"])


def own_numbers(context, abi, program):
    result = context.execute("mpich-abi mistake 4", context.launcher(1) + [str(program), "4"], timeout=LIMIT_S, env=abi.environment(context))
    if "exit status 7" not in result.output:
        raise Failure(f"the handler did not get MPI_COMM_SELF and an error of class MPI_ERR_RANK (log: {result.log})")


def debian_name(context, abi, place, source):
    """A program that was linked with Debian's libmpich.so.12, which has the functions itself, runs, too."""
    renamed, debian = place / "needs_libmpich", place / "libmpich.so.12"
    functions = sorted(set(re.findall(r"\bMPI_[A-Z][a-z_]+(?=\()", source.read_text())))
    debian.with_suffix(".c").write_text("".join(f"void {name}(void) {{}}\n" for name in functions))
    check(context.execute("mpich-abi build libmpich", ["cc", "-shared", "-fPIC", "-Wl,-soname,libmpich.so.12", debian.with_suffix(".c"), "-o", debian], timeout=60))
    command = dataclasses.replace(abi, library=str(debian)).command(context, source, renamed)
    check(context.execute("mpich-abi build for libmpich", command, timeout=60))
    needed = subprocess.run(["readelf", "-d", str(renamed)], capture_output=True, text=True, check=True).stdout
    if "[libmpich.so.12]" not in needed or "[libmpi.so.12]" in needed:
        raise Failure(f"the program does not need libmpich.so.12 alone:\n{needed}")
    told = context.execute("mpich-abi doctor", [context.prefix / "bin/garonne", "doctor", renamed], timeout=LIMIT_S)
    if told.code or "uses MPICH's ABI" not in told.output or "another MPI's" in told.output:
        raise Failure(f"the doctor does not take Debian's name for Garonne's library (log: {told.log})")
    result = context.execute("mpich-abi libmpich", context.launcher(1) + [str(renamed), "0"], timeout=LIMIT_S, env=abi.environment(context))
    check(result)
