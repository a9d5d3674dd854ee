"""Fortran: programs of tests/fortran in the three interfaces, what mpifort answers, and MPICH's own Fortran programs.

Own programs are built by gfortran and by each flang in PATH; a soak fetches two.

MPICH's programs are those of its directories f77, f90 and f08. tests/fortran/mpich.txt says which do not run, each with its reason. `./x test fortran` runs the directories of SHORT, `./x soak fortran` all.
"""

import pathlib
import re
import shutil
import zlib

from ..foreign_programs import packages
from ..runner import Case, Failure, Skip, check
from . import mpich_tests

LIMIT_S = 60
# check.f90 is a module of the others.
SHARED = "check"
DIRECTORIES = [f"{form}/{directory}" for form, names in {
    "f77": "attr coll comm datatype ext info init io profile pt2pt rma spawn topo",
    "f90": "attr coll comm datatype ext f90types info init io misc profile pt2pt rma spawn timer topo",
    "f08": "attr coll comm datatype ext info init io misc profile pt2pt rma spawn subarray timer topo",
}.items() for directory in names.split()]
SHORT = {"f77/pt2pt", "f77/attr", "f77/io", "f90/f90types", "f90/coll", "f90/io", "f08/attr", "f08/coll", "f08/io", "f08/subarray", "f08/pt2pt"}
CONFIGURE = ["--enable-strictmpi", "--disable-cxx", "--enable-fortran=all"]
# MPICH's configure offers its f08 directory to MPICH alone: these lines of util/Makefile build what the programs there share.
F08_LINES = re.compile(r"^#(?=am__append_4|am_libmtest_f08|libmtest_f08)", re.M)


def suite(context):
    context.installed()
    if not shutil.which("gfortran"):
        yield Case("fortran", lambda: unavailable())
        return
    for name in compilers(context):
        yield from own_programs(context, name)
    if not context.foreign:
        yield Case("fortran/errors name a line of the program", lambda: errors(context))
        yield Case("fortran/a C tool sees calls of Fortran", lambda: tool(context))
        yield Case("fortran/mpifort", lambda: wrapper(context))
        yield Case("fortran/integers of 8 bytes are refused", lambda: wide_integers(context))
        yield Case("fortran/garonne fortran --check", lambda: self_check(context), alone=True)
        yield Case("fortran/find_package(MPI)", lambda: find_package(context))
        yield Case("fortran/macros of autoconf", lambda: autoconf(context))
    yield from mpich_programs(context)


def unavailable():
    raise Skip("gfortran is not installed")


# Packages of compilers that `./x soak` fetches, and the program in each.
FETCHED = {"flang-19": "flang-new", "flang-22": "flang"}


def compilers(context):
    """gfortran, those of flang that are in PATH, and in a soak those of FETCHED."""
    versions = range(30, 18, -1)
    flangs = [f"flang-{version}" for version in versions] + [f"flang-new-{version}" for version in versions] + ["flang", "flang-new"]
    names = ["gfortran", *[name for name in flangs if shutil.which(name)]]
    return names + [str(fetched(context, name)) for name in FETCHED if context.soak and name not in names]


def fetched(context, package):
    """A script that runs a package's compiler from a root of its own."""
    debian = packages.Debian(context.state / "flang")
    debian.fetch([package])
    version = package.split("-")[1]
    usr = debian.root / "usr"
    (libraries,) = usr.glob("lib/*-linux-gnu")
    script = context.work / "fortran/bin" / package
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\nLD_LIBRARY_PATH={libraries}:{usr}/lib/llvm-{version}/lib exec {usr}/lib/llvm-{version}/bin/{FETCHED[package]} \"$@\"\n")
    script.chmod(0o755)
    return script


def mpifort(context, name="gfortran"):
    """The command that compiles with this compiler."""
    return [str(context.prefix / "bin" / "mpifort"), *([] if name == "gfortran" else [f"-fc={name}"])]


def flags(name):
    if name == "gfortran":
        return ["-g", "-Wall", "-fcheck=all", "-ffree-line-length-none", "-ffixed-line-length-132"]
    return ["-g", "-ffixed-line-length=132"]


# Options that give REAL and DOUBLE PRECISION other sizes.
WIDER = {"": [], " with -fdefault-real-8": ["-fdefault-real-8"], " with both -fdefault-...-8": ["-fdefault-real-8", "-fdefault-double-8"]}
INTERFACES = {"mpif.h": "WITH_HEADER", "mpi": "WITH_MODULE", "mpi_f08": "WITH_MODULE_F08"}
# Options that give procedures and common blocks other symbols, and the symbol of a procedure then.
MANGLINGS = {"-fsecond-underscore": "uses_sentinels__", "-fno-underscoring": "uses_sentinels"}


def own_programs(context, compiler):
    name = pathlib.Path(compiler).name
    place, build = context.root / "tests/fortran", context.work / f"fortran/{name}"
    build.mkdir(parents=True, exist_ok=True)
    command = mpifort(context, compiler)
    check(context.execute(f"fortran {name} check", [*command, "-c", place / f"{SHARED}.f90"], timeout=120, cwd=build))
    for source in sorted([*place.glob("*.f90"), *place.glob("*.f")]):
        ranks = re.search(r"ranks: ([\d ]+)", source.read_text())
        for title, more in (WIDER if source.stem == "wide_reals" else {"": []}).items() if ranks else ():
            words = [*command, *flags(name), *more, source, f"{SHARED}.o"]
            yield program_case(context, f"fortran/{name}/{source.stem}{title}", words, build, map(int, ranks.group(1).split()))
    for source in sorted((place / "kernels").glob("*.F90")):
        for interface, macro in INTERFACES.items():
            if source.stem == "mg" and interface == "mpi" and "flang" in name and "version 19" in context.execute(f"fortran {name} version", [compiler, "--version"], 60).output:
                yield Case(f"fortran/{name}/mg with mpi", lambda: flang_19())
                continue
            words = [*command, "-O2", f"-D{macro}", source]
            yield program_case(context, f"fortran/{name}/{source.stem} with {interface}", words, build, [1, 2, 4] if context.soak else [4])
    yield Case(f"fortran/{name}/common blocks in several objects", lambda: several_objects(context, compiler, build / "objects", [], "uses_sentinels_"))
    for option, symbol in MANGLINGS.items() if name == "gfortran" else ():
        yield Case(f"fortran/{name}/{option}", lambda option=option, symbol=symbol: several_objects(context, compiler, build / option, [option], symbol))


def flang_19():
    raise Skip("flang 19 passes sections of arrays to routines of the module mpi without copying them")


def program_case(context, name, words, build, ranks):
    """Builds a program and runs it on each of these numbers of ranks."""
    ranks = list(ranks)

    def run():
        program = build / re.sub(r"\W+", "_", name)
        check(context.execute(f"{name} build", [*words, "-o", program], timeout=120, cwd=build))
        for count in ranks:
            check(context.execute(f"{name} on {count}", context.launcher(count) + [str(program)], timeout=LIMIT_S))

    return Case(name, run)


def several_objects(context, compiler, build, options, symbol):
    """Common blocks of mpif.h in a program, and in libraries that it loads: each object has its own, unless the linker takes the program's."""
    source = context.root / "tests/fortran/objects"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    name = pathlib.Path(compiler).name
    command, names = [*mpifort(context, compiler), *flags(compiler), *options], [f"-DNAME={symbol}"]

    def made(target, *words):
        check(context.execute(f"fortran {name} objects {build.name} {target}", [*map(str, words), "-o", target], timeout=120, cwd=build))

    for library in "ab":
        made(f"{library}.so", *command, "-shared", "-fPIC", source / "loaded.f")
        made(f"{library}-symbolic.so", *command, "-shared", "-fPIC", "-Wl,-Bsymbolic", source / "loaded.f")
    made("loads", context.mpicc(), *names, source / "loads.c")
    made("own.o", context.mpicc(), *names, "-DOWN", "-c", source / "loads.c")
    made("loaded.o", *command, "-c", source / "loaded.f")
    # What gfortran's checks at run time call.
    checks = ["-lgfortran"] if "gfortran" in name else []
    made("own", context.mpicc(), "own.o", "loaded.o", f"-L{context.prefix}/lib", "-lmpifort_abi", *checks)
    for number, words in enumerate([["loads", "a.so", "b.so"], ["own", "a.so", "b.so"], ["own", "a-symbolic.so", "b-symbolic.so"]]):
        words = [f"./{word}" for word in words]
        check(context.execute(f"fortran {name} objects {build.name} {number}", context.launcher(2) + words, timeout=LIMIT_S, cwd=build))


def errors(context):
    """The fourth line of each program is wrong."""
    build = context.work / "fortran"
    window = "type(MPI_Win) :: w; type(MPI_Request) :: r; integer :: m(8); call MPI_Init(); call MPI_Win_create(m, 32_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, w)"
    programs = {
        "wrong_rank": ("call MPI_Init()", "call MPI_Send(1, 1, MPI_INTEGER, 5, 0, MPI_COMM_WORLD)"),
        "wrong_target": (window, "call MPI_Put(m, 1, MPI_INTEGER, 5, 0_MPI_ADDRESS_KIND, 1, MPI_INTEGER, w)"),
        "no_epoch": (window, "call MPI_Win_unlock(0, w)"),
        # The elements of the section do not follow each other, and have another size than the datatype.
        "wrong_section": (window, "call MPI_Rput(m(1:7:2), 3, MPI_DOUBLE_PRECISION, 0, 0_MPI_ADDRESS_KIND, 3, MPI_DOUBLE_PRECISION, w, r)"),
    }
    for name, (begins, fails) in programs.items():
        source = build / f"{name}.f90"
        source.write_text(f"program {name}\n  use mpi_f08\n  {begins}\n  {fails}\n  call MPI_Finalize()\nend program\n")
        check(context.execute(f"fortran build {name}", [*mpifort(context), "-g", "-ffree-line-length-none", source, "-o", build / name], timeout=120))
        result = context.execute(f"fortran {name}", context.launcher(1) + [str(build / name)], timeout=LIMIT_S)
        if result.code == 0 or f"{name}.f90:4" not in result.output:
            raise Failure(f"the error does not name {name}.f90:4 (log: {result.log})\n{result.output}")


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
    check(context.execute("fortran build sends", [*mpifort(context), program, "-o", build / "sends"], timeout=120))
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
        result = context.execute(f"fortran mpifort {name}", [*mpifort(context), *map(str, words)], timeout=120, env=context.environment(environment), cwd=build)
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
    strange = build / "strange"
    strange.write_text("#!/bin/sh\necho Strange Fortran 77\n")
    strange.chmod(0o755)
    has(said("strange", f"-fc={strange}", source, code=1), "it says: Strange Fortran 77")
    has(said("option", "-showme:nothing", code=1), "unknown option")
    # A compiler for which a module is too much.
    old = build / "old-gfortran"
    old.write_text("#!/bin/sh\ncase \"$*\" in *mpi_f08.f90*) echo 'type(..) is not known'; exit 1 ;; esac\nexec gfortran \"$@\"\n")
    old.chmod(0o755)
    has(said("old compiler", f"-fc={old}", source, code=1), "type(..) is not known", "cannot compile the modules mpi and mpi_f08", "gfortran 12")
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


def wide_integers(context):
    """With options such as -fdefault-integer-8, which build systems may give a compiler without asking mpifort: the interfaces themselves refuse."""
    build = context.work / "fortran"
    uses = {"mpif.h": "include 'mpif.h'", "mpi": "use mpi", "mpi_f08": "use mpi_f08"}
    for compiler in compilers(context):
        name = pathlib.Path(compiler).name
        found = context.execute(f"fortran {name} flags", [*mpifort(context, compiler), "-showme:incdirs"], timeout=120)
        check(found)
        directories = [f"-I{directory}" for directory in found.output.split("\n", 1)[1].split()]
        for number, (interface, use) in enumerate(uses.items()):
            source = build / f"integers{number}.f90"
            source.write_text(f"program integers\n  {use}\n  integer :: ierror\n  call MPI_Init(ierror)\nend program\n")
            for options, succeeds in ([], True), (["-fdefault-integer-8"], False):
                words = [compiler, *directories, *options, "-c", source, "-o", build / "integers.o"]
                result = context.execute(f"fortran {name} integers {number} {len(options)}", words, timeout=60, cwd=build)
                if (result.code == 0) != succeeds:
                    raise Failure(f"{compiler} {'refuses' if succeeds else 'takes'} {interface} {' '.join(options)} (log: {result.log})\n{result.output}")


def self_check(context):
    """What `garonne fortran --check` says of a compiler that works, of one that breaks a program, and of what is no compiler."""
    garonne = context.prefix / "bin/garonne"
    good = context.execute("fortran check", [garonne, "fortran", "--check"], timeout=300)
    check(good)
    if "GNU Fortran" not in good.output or not re.search(r"^all \d+ programs work$", good.output, re.M) or "mpi_f08" not in good.output:
        raise Failure(f"it does not say that all works (log: {good.log})\n{good.output}")
    broken = context.work / "fortran/broken compiler"
    broken.write_text("#!/bin/sh\ncase \"$*\" in *sections.f90*) echo sections are too much; exit 3 ;; esac\nexec gfortran \"$@\"\n")
    broken.chmod(0o755)
    link = context.work / "fortran/broken-gfortran"
    link.unlink(missing_ok=True)
    link.symlink_to(broken)
    for name, compiler, words in [("broken", link, ["FAILED  sections: does not compile", "sections are too much", "1 of"]), ("none", "true", ["cannot be used"]), ("missing", "ifx-that-is-not-there", ["error: there is no compiler ifx-that-is-not-there"])]:
        bad = context.execute(f"fortran check {name}", [garonne, "fortran", "--check", "--fc", compiler], timeout=300)
        if bad.code != 1 or any(word not in bad.output for word in words):
            raise Failure(f"it says other than {words} of {name} (log: {bad.log})\n{bad.output}")


def autoconf(context):
    build = context.work / "fortran/autoconf"
    shutil.rmtree(build, ignore_errors=True)
    shutil.copytree(context.root / "tests/clients/configure_fortran", build)
    for source in (context.root / "tests/clients/cmake_fortran").glob("*.f90"):
        shutil.copy(source, build)
    for words in ["autoreconf", "-fi"], ["./configure"], ["make"]:
        check(context.execute(f"fortran autoconf {words[0].strip('./')}", words, timeout=180, cwd=build))
    for name in ("header", "module", "module_f08"):
        check(context.execute(f"fortran autoconf {name}", context.launcher(2) + [str(build / name)], timeout=LIMIT_S))


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
    tests, place = source / "test/mpi", context.work / f"mpich-fortran-{context.key()}-{zlib.crc32(str(CONFIGURE).encode()):x}"
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
    options = [f"--with-mpi={context.prefix}", f"CC={context.mpicc()}", f"FC={context.prefix}/bin/mpifort", f"F77={context.prefix}/bin/mpif77"]
    check(context.execute("fortran configure", [tests / "configure", *CONFIGURE, *options], timeout=600, cwd=place))
    makefile = place / "util/Makefile"
    makefile.write_text(F08_LINES.sub("", makefile.read_text()))
    check(context.execute("fortran build util", ["make", "-j2", "-C", "util"], timeout=300, cwd=place))
    check(context.execute("fortran build util f08", ["make", "-C", "util", "libmtest_f08.la"], timeout=300, cwd=place))
    (place / "ready").touch()

