"""MUMPS, the parallel direct solver, from the distribution's source package, built with mpifort: its own examples, and a driver of ours.

Only `./x soak` runs it: building takes some minutes. ScaLAPACK, which MUMPS uses for the root of a large tree, is not a source package that can be
had everywhere: MUMPS' own stand-ins end a program that calls it. tests/fortran/mumps/grid.F turns that off.
"""

import os
import re
import shutil

from ..runner import Case, Failure, Skip, check

RANKS = (1, 2, 3, 4)
BUILD_LIMIT_S = 1800
LIMIT_S = 300
# What MUMPS' build reads from Makefile.inc: orderings by its own PORD alone.
SETTINGS = """\
LPORDDIR = $(topdir)/PORD/lib/
IPORD = -I$(topdir)/PORD/include/
LPORD = -L$(LPORDDIR) -lpord
ORDERINGSF = -Dpord
ORDERINGSC = $(ORDERINGSF)
LORDERINGS = $(LPORD)
IORDERINGSF =
IORDERINGSC = $(IPORD)
LIBEXT = .a
LIBEXT_SHARED = .so
SONAME = -soname
FPIC_OPT = -fPIC
OUTC = -o 
OUTF = -o 
RM = rm -f
CC = {prefix}/bin/mpicc
FC = {prefix}/bin/mpifort
FL = {prefix}/bin/mpifort
AR = ar rc 
RANLIB = ranlib
LIBS = $(topdir)/lib/scalapack.o -llapack
LIBSEQNEEDED =
INCS =
LIBBLAS = -lblas
LIBOTHERS = -lpthread
CDEFS = -DAdd_
OPTF = -O1 -w -std=legacy
OPTC = -O1 -w
OPTL = -O1
"""


def suite(context):
    context.installed()
    if not context.soak:
        yield Case("mumps", lambda: only_soak())
        return
    if not shutil.which("gfortran"):
        yield Case("mumps", lambda: no_compiler())
        return
    place = built(context)
    for ranks in RANKS:
        yield Case(f"mumps/dsimpletest on {ranks}", lambda ranks=ranks: simple_test(context, place, ranks), alone=True)
        yield Case(f"mumps/c_example on {ranks}", lambda ranks=ranks: c_example(context, place, ranks), alone=True)
        yield Case(f"mumps/a grid on {ranks}", lambda ranks=ranks: grid(context, place, ranks), alone=True)


def only_soak():
    raise Skip("only ./x soak builds MUMPS")


def no_compiler():
    raise Skip("gfortran is not installed")


def built(context):
    source = context.state / "sources/mumps"
    check(context.execute("mumps fetch", ["python3", "tools/debian_source.py", "mumps", source], timeout=600))
    place = context.work / f"mumps-{context.key()}"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        (place / "Makefile.inc").write_text(SETTINGS.format(prefix=context.prefix))
        # Behind the stand-ins for MPI there are those for ScaLAPACK.
        text = (place / "libseq/mpi.f").read_text()
        begin = text.lower().index("subroutine blacs_gridinit")
        (place / "scalapack.f").write_text(text[text.rindex("\n", 0, begin) + 1:])
        mpifort = context.prefix / "bin/mpifort"
        check(context.execute("mumps scalapack", [mpifort, "-w", "-std=legacy", "-c", "scalapack.f", "-o", "lib/scalapack.o"], timeout=120, cwd=place))
        check(context.execute("mumps build", ["make", f"-j{os.cpu_count()}", "d"], timeout=BUILD_LIMIT_S, cwd=place))
        libraries = ["-Llib", "-ldmumps", "-lmumps_common", "-LPORD/lib", "-lpord", "lib/scalapack.o", "-llapack", "-lblas", "-lpthread"]
        driver = [mpifort, "-O1", "-w", "-ffixed-line-length-132", "-Iinclude", context.root / "tests/fortran/mumps/grid.F", "-o", "examples/grid"]
        check(context.execute("mumps driver", [*driver, *libraries], timeout=120, cwd=place))
        (place / "ready").touch()
    return place / "examples"


def run(context, place, ranks, program, stdin=None):
    result = context.execute(f"mumps {program} on {ranks}", context.launcher(ranks) + [str(place / program)], timeout=LIMIT_S, cwd=place, stdin=stdin)
    check(result)
    return result


def expect(result, is_right):
    if not is_right:
        raise Failure(f"the solution is not what it must be (log: {result.log})")


def simple_test(context, place, ranks):
    with open(place / "input_simpletest_real", "rb") as stdin:
        result = run(context, place, ranks, "dsimpletest", stdin=stdin)
    solution = re.search(r"Solution is((?:\s+[\d.E+-]+){5})", result.output)
    expect(result, solution and all(abs(float(word) - at) < 1e-9 for at, word in enumerate(solution.group(1).split(), 1)))


def c_example(context, place, ranks):
    result = run(context, place, ranks, "c_example")
    expect(result, re.search(r"Solution is : \(\s+1\.00\s+2\.00\)", result.output))


def grid(context, place, ranks):
    result = run(context, place, ranks, "grid")
    expect(result, "solved" in result.output.split())
