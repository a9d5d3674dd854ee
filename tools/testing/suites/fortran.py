"""Fortran: programs of tests/fortran in the three interfaces, what mpifort answers, and MPICH's own Fortran programs.

MPICH's programs are those of its directories f77, f90 and f08 that need neither windows, files nor new processes. tests/fortran/mpich.txt says which do not
run, each with its reason; `./x test fortran` runs the directories of SHORT, `./x soak fortran` all.
"""

import re
import shutil

from ..runner import Case, Failure, Skip, check
from . import mpich_tests

LIMIT_S = 60
# check.f90 is a module of the others.
SHARED = "check"
DIRECTORIES = [f"{form}/{directory}" for form, names in {
    "f77": "attr coll comm datatype ext info init pt2pt topo",
    "f90": "attr coll comm datatype ext f90types info init misc profile pt2pt timer topo",
    "f08": "attr coll comm datatype ext info init misc profile pt2pt subarray timer topo",
}.items() for directory in names.split()]
SHORT = {"f77/pt2pt", "f77/attr", "f90/f90types", "f90/coll", "f08/attr", "f08/coll", "f08/subarray", "f08/pt2pt"}
# MPICH's configure offers its f08 directory to MPICH alone: these lines of util/Makefile build what the programs there share.
F08_LINES = re.compile(r"^#(?=am__append_4|am_libmtest_f08|libmtest_f08)", re.M)


def suite(context):
    context.installed()
    if not shutil.which("gfortran"):
        yield Case("fortran", lambda: unavailable())
        return
    yield from own_programs(context)
    if not context.foreign:
        yield Case("fortran/errors name a line of the program", lambda: errors(context))
        yield Case("fortran/a C tool sees calls of Fortran", lambda: tool(context))
        yield Case("fortran/mpifort", lambda: wrapper(context))
        yield Case("fortran/find_package(MPI)", lambda: find_package(context))
    yield from mpich_programs(context)


def unavailable():
    raise Skip("gfortran is not installed")


def compiler(context):
    return str(context.prefix / "bin" / "mpifort")


def own_programs(context):
    place, build = context.root / "tests/fortran", context.work / "fortran"
    build.mkdir(exist_ok=True)
    check(context.execute("fortran build check", [compiler(context), "-c", place / f"{SHARED}.f90"], timeout=120, cwd=build))
    for source in sorted([*place.glob("*.f90"), *place.glob("*.f")]):
        if source.stem == SHARED:
            continue
        ranks = re.search(r"ranks: ([\d ]+)", source.read_text()).group(1).split()
        flags = ["-g", "-Wall", "-fcheck=all", "-ffree-line-length-none", "-ffixed-line-length-132"]
        command = [compiler(context), *flags, source, f"{SHARED}.o", "-o", source.stem]
        check(context.execute(f"fortran build {source.stem}", command, timeout=120, cwd=build))
        for count in map(int, ranks):
            yield program_case(context, build / source.stem, count)


def program_case(context, program, ranks):
    name = f"fortran/{program.name} on {ranks}"
    return Case(name, lambda: check(context.execute(name, context.launcher(ranks) + [str(program)], timeout=LIMIT_S)))


def errors(context):
    build = context.work / "fortran"
    source = build / "wrong_rank.f90"
    source.write_text("program wrong_rank\n  use mpi_f08\n  call MPI_Init()\n  call MPI_Send(1, 1, MPI_INTEGER, 5, 0, MPI_COMM_WORLD)\n"
                      "  call MPI_Finalize()\nend program\n")
    check(context.execute("fortran build wrong_rank", [compiler(context), "-g", source, "-o", build / "wrong_rank"], timeout=120))
    result = context.execute("fortran wrong_rank", context.launcher(1) + [str(build / "wrong_rank")], timeout=LIMIT_S)
    if result.code == 0 or "wrong_rank.f90:4" not in result.output:
        raise Failure(f"the error does not name wrong_rank.f90:4 (log: {result.log})\n{result.output}")


def tool(context):
    """A library in front that counts calls of MPI_Send, and hands them on."""
    build = context.work / "fortran"
    source = build / "tool.c"
    source.write_text("#include <mpi.h>\n#include <stdio.h>\nstatic int calls;\n"
                      "int MPI_Send(const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm c) { calls++; return PMPI_Send(b, n, t, d, g, c); }\n"
                      "int MPI_Finalize(void) { fprintf(stderr, \"tool saw %d\\n\", calls); return PMPI_Finalize(); }\n")
    check(context.execute("fortran build tool", [context.mpicc(), "-shared", "-fPIC", source, "-o", build / "tool.so"], timeout=60))
    program = build / "sends.f90"
    program.write_text("program sends\n  use mpi\n  integer :: i, n, e, s(MPI_STATUS_SIZE)\n  call MPI_Init(e)\n  do i = 1, 3\n"
                       "    call MPI_Sendrecv(i, 1, MPI_INTEGER, MPI_PROC_NULL, 0, n, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, s, e)\n"
                       "    call MPI_Send(i, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, e)\n"
                       "    call PMPI_Send(i, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, e)\n  end do\n  call MPI_Finalize(e)\nend program\n")
    check(context.execute("fortran build sends", [compiler(context), program, "-o", build / "sends"], timeout=120))
    command = [*context.launcher(1), "env", f"LD_PRELOAD={build / 'tool.so'}", str(build / "sends")]
    result = context.execute("fortran tool", command, timeout=LIMIT_S)
    check(result)
    if "tool saw 3" not in result.output:
        raise Failure(f"the tool did not see the program's three calls (log: {result.log})\n{result.output}")


def wrapper(context):
    """What mpifort answers, and what it refuses."""
    build = context.work / "fortran"
    source = build / "empty.f90"
    source.write_text("program empty\n  use mpi_f08\nend program\n")

    def said(name, *words, code=0, **environment):
        result = context.execute(f"fortran mpifort {name}", [compiler(context), *map(str, words)], timeout=120, env=context.environment(environment), cwd=build)
        if result.code != code:
            raise Failure(f"exit code {result.code} instead of {code} (log: {result.log})\n{result.output}")
        return result.output

    def has(text, *parts):
        missing = [part for part in parts if part not in text]
        if missing:
            raise Failure(f"{missing} not in: {text}")

    has(said("link", "-showme:link"), "-lmpifort_abi", "-lmpi_abi")
    has(said("compile", "-showme:compile"), f"-I{context.prefix}/include", "-fallow-argument-mismatch")
    has(said("show", "-show", "-c", source), "gfortran", "-c")
    has(said("version", "-showme:version"), "Garonne", "Fortran")
    has(said("integers", "-fdefault-integer-8", source, code=1), "-fdefault-integer-8", "INTEGER has 4 bytes")
    has(said("compiler", "-fc=/nowhere/fc", source, code=1), "/nowhere/fc")
    has(said("no fortran", "-fc=true", source, code=1), "no Fortran compiler that this version knows")
    has(said("option", "-showme:nothing", code=1), "unknown option")
    # A prefix that cannot be written: modules go to the cache.
    cache = build / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    copy = build / "prefix of others"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(context.prefix, copy, symlinks=True)
    shutil.rmtree(copy / "lib/garonne/fortran", ignore_errors=True)
    (copy / "lib/garonne").mkdir(exist_ok=True)
    (copy / "lib/garonne/fortran").write_text("in the way")
    command = [copy / "bin/mpifort", source, "-o", build / "empty"]
    check(context.execute("fortran moved prefix", command, timeout=120, env=context.environment({"XDG_CACHE_HOME": str(cache)})))
    if len(list(cache.glob("garonne/fortran/*/mpi_f08.mod"))) != 1:
        raise Failure(f"no modules in {cache}")


def find_package(context):
    build, source = context.work / "fortran/cmake", context.root / "tests/clients/cmake_fortran"
    shutil.rmtree(build, ignore_errors=True)
    configured = context.execute("fortran cmake", ["cmake", "-S", source, "-B", build], timeout=180)
    check(configured)
    if str(context.prefix) not in configured.output:
        raise Failure(f"another MPI was found (log: {configured.log})")
    check(context.execute("fortran cmake build", ["cmake", "--build", build], timeout=180))
    for name in ("header", "module", "module_f08"):
        check(context.execute(f"fortran cmake {name}", context.launcher(2) + [str(build / name)], timeout=LIMIT_S))


def mpich_programs(context):
    source = context.state / "sources/mpich"
    check(context.execute("fortran fetch", ["python3", "tools/debian_source.py", "mpich", source], timeout=600))
    tests, place = source / "test/mpi", context.work / f"mpich-fortran-{context.key()}"
    configure(context, tests, place)
    every = [program for directory in DIRECTORIES for program in mpich_tests.listed(tests, place, directory)]
    reasons = mpich_tests.Reasons(context, tests, every, "fortran", "tests/fortran/mpich.txt")
    programs = [program for program in every if context.soak or program.directory in SHORT]
    yield Case("fortran/mpich skipped", lambda: reasons.outcomes(programs))
    wanted = [program for program in programs if not reasons.of(program)]
    mpich_tests.build(context, place, wanted)
    for program in wanted:
        yield mpich_tests.program_case(context, place, program, title=program.title.replace("mpich-tests/", "fortran/mpich/", 1))


def configure(context, tests, place):
    if (place / "ready").exists():
        return
    place.mkdir(exist_ok=True)
    options = ["--enable-strictmpi", "--disable-cxx", "--disable-romio", "--disable-spawn", "--enable-fortran=all", f"--with-mpi={context.prefix}",
               f"CC={context.mpicc()}", f"FC={compiler(context)}", f"F77={context.prefix}/bin/mpif77"]
    check(context.execute("fortran configure", [tests / "configure", *options], timeout=600, cwd=place))
    makefile = place / "util/Makefile"
    makefile.write_text(F08_LINES.sub("", makefile.read_text()))
    check(context.execute("fortran build util", ["make", "-j2", "-C", "util"], timeout=300, cwd=place))
    check(context.execute("fortran build util f08", ["make", "-C", "util", "libmtest_f08.la"], timeout=300, cwd=place))
    (place / "ready").touch()

