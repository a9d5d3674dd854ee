"""Parallel HDF5's own parallel tests, in a soak alone, since building them takes minutes."""

from .. import hdf5_build
from ..runner import Case, Failure, check

RANKS = 4
LIMIT_S = 1500
# How each says that it has found nothing.
PROGRAMS = {
    "t_mpi": "MPI tests finished with no errors", "testphdf5": "PHDF5 tests finished with no errors",
    "t_cache": "metadata cache tests finished with no failures",
}


def suite(context):
    if not context.soak:
        return
    place = hdf5_build.built(context)
    for directory, *targets in ["test", "libh5test.la"], ["testpar", *PROGRAMS, "t_pflush1", "t_pflush2"]:
        check(context.execute(f"hdf5 build {directory}", ["make", "-j2", "-C", directory, *targets], timeout=3000, cwd=place))
    for name, words in PROGRAMS.items():
        yield Case(f"hdf5/{name} on {RANKS}", lambda name=name, words=words: program(context, place, name, words), alone=True)
    yield Case(f"hdf5/t_pflush on {RANKS}", lambda: flushed(context, place), alone=True)


def run(context, place, name):
    return context.execute(f"hdf5 {name}", [*context.launcher(RANKS), f"./{name}"], LIMIT_S, cwd=place / "testpar")


def program(context, place, name, words):
    result = run(context, place, name)
    check(result)
    if words not in result.output:
        raise Failure(f"it does not say '{words}' (log: {result.log})")


def flushed(context, place):
    """The first program flushes files and ends without MPI_Finalize, so with an error; the second reads them."""
    run(context, place, "t_pflush1")
    check(run(context, place, "t_pflush2"))
