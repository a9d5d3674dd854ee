"""Programs of POSIX threads that run on fibers by `garonne_pthread_names.h`, and wait in MPI with more threads than workers."""

from ..runner import Case, Failure, check

# Threads of the system that a rank may have: workers, those that replace sleeping ones, and the library's own. The program has a hundred.
THREADS_MAX = 40
SAID = "all is well"


def suite(context):
    if context.foreign:
        return
    context.installed()
    place = context.work / "fibers"
    place.mkdir(exist_ok=True)
    source = context.root / "tests/fibers/chain.c"
    lib, include = context.prefix / "lib", context.prefix / "include"
    compiler = [context.mpicc(), "-O1", "-Wall", "-Wextra"]
    fibers, threads = place / "chain", place / "chain_threads"
    names = ["-include", include / "garonne_pthread_names.h", "-L", lib, "-lgaronne_threads", f"-Wl,-rpath,{lib}"]
    check(context.execute("fibers build", [*compiler, source, "-o", fibers, *names], timeout=60))
    check(context.execute("fibers build with threads", [*compiler, source, "-o", threads, "-lpthread"], timeout=60))
    ranks = context.launcher
    yield case(context, "a hundred fibers of two ranks wait for each other", [*ranks(2), fibers, THREADS_MAX])
    yield case(context, "a hundred threads do as well", [*ranks(2), threads])
    yield case(context, "in one shard", [*ranks(2), fibers, THREADS_MAX], {"GARONNE_SHARDS": "1"})


def case(context, name, command, environment=None):
    def run():
        result = context.execute(f"fibers/{name}", list(map(str, command)), timeout=180, env=context.environment() | (environment or {}))
        if result.code != 0 or result.output.count(SAID) != 2:
            raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
    return Case(f"fibers/{name}", run)
