"""ELPA, the parallel eigenvalue solver, from the distribution's source package: its own test programs.

Only `./x soak` runs it: building takes some minutes. ELPA needs ScaLAPACK, whose source cannot be had everywhere, so that it is built with the
distribution's Open MPI and ScaLAPACK, and runs as programs of that ABI.
"""

import os
import pathlib
import shutil
import sys

from ..runner import Case, Failure, Skip, check

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
import packages  # noqa: E402

BUILD_LIMIT_S = 3600
LIMIT_S = 120
RANKS = 4
# Size of the matrix, number of eigenvectors, size of a block.
SIZES = ["150", "50", "16"]
# By this exit status a program says that a test does not fit its build.
SKIPPED = 77
PACKAGES = ["openmpi-bin", "libopenmpi-dev", "libscalapack-openmpi-dev", "gfortran", "liblapack-dev"]
# The kernels in portable code alone: those of a processor's vectors are not about MPI.
CONFIGURE = [
    "FC=mpif90.openmpi", "CC=mpicc.openmpi", "CXX=mpicxx.openmpi", "FCFLAGS=-O1", "CFLAGS=-O1", "CXXFLAGS=-O1",
    "SCALAPACK_LDFLAGS=-lscalapack-openmpi -llapack -lblas", "SCALAPACK_FCFLAGS=", "--disable-shared", "--enable-static", "--disable-sse",
    "--disable-sse-assembly", "--disable-avx", "--disable-avx2", "--disable-avx512", "--enable-autotune-redistribute-matrix=no",
]


def suite(context):
    context.installed()
    if not context.soak:
        yield Case("elpa", lambda: only_soak())
        return
    debian = packages.Debian(context.state / "binaries")
    try:
        debian.fetch(PACKAGES)
    except packages.Unavailable as error:
        yield Case("elpa", lambda why=str(error): unavailable(why))
        return
    place = built(context, debian)
    for program in sorted(path for path in place.glob("validate_*") if path.suffix == "" and path.is_file()):
        yield Case(f"elpa/{program.name}", lambda program=program: run(context, debian, program), alone=True)


def only_soak():
    raise Skip("only ./x soak builds ELPA")


def unavailable(why):
    raise Skip(f"a package cannot be had: {why}")


def built(context, debian):
    """The directory of the test programs. None of them is built with Garonne, so that one build serves all."""
    source = context.state / "sources/elpa"
    check(context.execute("elpa fetch", ["python3", "tools/debian_source.py", "elpa", source], timeout=600))
    place = context.state / "elpa"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        # Its macros put the names of files into lines of Fortran, which may not become long.
        shutil.copytree(source, place)
        check(context.execute("elpa configure", debian.command(["./configure", *CONFIGURE]), timeout=BUILD_LIMIT_S, cwd=place))
        for target in ([], ["check", "TESTS="]):
            name = " ".join(["elpa build", *target[:1]])
            check(context.execute(name, debian.command(["make", f"-j{os.cpu_count()}", *target]), timeout=BUILD_LIMIT_S, cwd=place))
        (place / "ready").touch()
    return place


def run(context, debian, program):
    command = debian.command([*context.launcher(RANKS), program, *SIZES])
    result = context.execute(f"elpa {program.name}", command, timeout=LIMIT_S, cwd=program.parent)
    if result.code == SKIPPED:
        raise Skip("not for this build: ends with exit status 77")
    if result.code != 0 or result.timed_out:
        raise Failure(f"exit code {result.code} (log: {result.log})")
