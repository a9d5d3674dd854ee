"""OpenMP: programs of `gcc -fopenmp` with Garonne's libgomp.so.1, GCC's own tests of libgomp from the distribution's source,
and programs of the distribution.

The short form runs some of GCC's tests, the long one all. Tests that do not run say why themselves, fail with GCC's own library too, or are listed here.
"""

import os
import re
import shutil

from .. import dejagnu, openmp_programs
from ..runner import Case, Failure, Skip, check

PACKAGE, VERSION = "gcc-12-source", "12"
LIMIT_S = 300
# Threads of the system that a rank of the hybrid program may have while 23 threads wait in MPI, on a machine of few CPUs.
HYBRID_THREADS_MAX = 20 if (os.cpu_count() or 1) <= 8 else 0
# Folders of tests, and the compilers that each is for.
FOLDERS = {"libgomp.c": ["gcc"], "libgomp.c-c++-common": ["gcc", "g++"], "libgomp.c++": ["g++"], "libgomp.fortran": ["gfortran"]}
LANGUAGES = {"gcc": "c", "g++": "c++", "gfortran": "fortran"}
ENDINGS = {".c", ".C", ".f90", ".F90", ".f03", ".f", ".F"}

# Tests that do not run, by a part of their path, and why.
SKIPPED = {
    "libgomp.c-c++-common/pause-2.c": "wants omp_pause_resource to end threads, which the standard leaves open",
}
# Names of tests that the short form runs.
SHORT = ("task-1.c", "depend-3.c", "doacross-1.c", "nestedfn-1.c", "sort-1.c", "cancel-parallel-1.c", "taskloop-1.c", "lock-1.c", "target-1.c",
         "collapse-1.c", "reduction-5.c", "appendix-a/a.18.1.c", "copyin-1.c", "nqueens-1.c", "priority.c", "teams-1.c", "task-1.C", "taskloop-6.C", "udr1.f90", "task1.f90")
# What GCC's configured build says in its header, which a few tests read.
CONFIG = "#define HAVE_UNISTD_H 1\n#define HAVE_PTHREAD_AFFINITY_NP 1\n#define HAVE_SYS_TIME_H 1\n"


def suite(context):
    context.installed()
    yield Case("openmp/constructs", lambda: constructs(context))
    yield Case("openmp/replay of teams", lambda: replay(context))
    yield from hybrid(context)
    yield from openmp_programs.cases(context)
    yield from gcc_tests(context)


def gcc_tests(context):
    source = context.state / "sources/libgomp-tests"
    try:
        fetch(context, source)
    except Failure as failure:
        yield Case("openmp/libgomp", lambda why=failure: cannot(why))
        return
    facts = dejagnu.facts_of_machine()
    for folder, compilers in FOLDERS.items():
        for path in sorted((source / folder).rglob("*")):
            inner = str(path.relative_to(source / folder))
            is_part = folder == "libgomp.fortran" and path.suffix == ".c"
            if path.suffix not in ENDINGS or is_part or not (context.soak or inner in SHORT):
                continue
            for compiler in filter(shutil.which, compilers):
                name = f"{folder}/{inner}" + (" as C++" if compiler == "g++" and path.suffix == ".c" else "")
                yield Case(f"openmp/{name}", lambda path=path, name=name, compiler=compiler: gcc_test(context, facts, path, name, compiler))


def cannot(why):
    raise Skip(f"GCC's tests cannot be had here: {why}")


def hybrid(context):
    """MPI calls of OpenMP threads, with more threads than CPUs: a call that waits suspends its thread, and its worker goes on."""
    place = context.work / "openmp"
    place.mkdir(parents=True, exist_ok=True)
    program = place / "hybrid"
    check(context.execute("openmp build hybrid", [context.mpicc(), "-O1", "-Wall", "-Wextra", "-fopenmp", context.root / "tests/openmp/hybrid.c", "-o", program], timeout=60))
    command = [context.prefix / "bin/garonne", "omp", "run", "--", *context.launcher(2), program, HYBRID_THREADS_MAX]

    def run(name, environment):
        result = context.execute(f"openmp/{name}", list(map(str, command)), timeout=180, env=context.environment() | environment)
        if result.code != 0 or result.output.count("all is well") != 2:
            raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
    for name, environment in {"threads and tasks that wait in MPI": {}, "in one shard": {"GARONNE_SHARDS": "1"}}.items():
        yield Case(f"openmp/{name}", lambda name=name, environment=environment: run(name, environment))


def constructs(context):
    """The program of the crate's own tests, through the installed command."""
    program = context.work / "openmp_constructs"
    source = "crates/api/libgomp/tests/constructs.c"
    check(context.execute("openmp build", ["gcc", "-O2", "-fopenmp", source, "-o", program], timeout=300))
    for threads in ("1", "2", "7"):
        environment = {**context.environment(), "OMP_NUM_THREADS": threads, "OMP_CANCELLATION": "true"}
        command = [context.prefix / "bin/garonne", "omp", "run", "--", program]
        result = context.execute(f"openmp {threads}", command, timeout=300, env=environment)
        check(result)
        if result.output.splitlines()[-1:] != ["all is well"]:
            raise Failure(f"{threads} threads: {result.output[-500:]} (log: {result.log})")


def replay(context):
    """What a bubble scheduler decides for nested teams becomes a page; each inner team is a box of the page's data, in one of the outer team."""
    program, trace, page = (context.work / f"openmp_nested{ending}" for ending in ("", ".jsonl", ".html"))
    check(context.execute("openmp build nested", ["gcc", "-O2", "-fopenmp", "crates/api/libgomp/tests/nested.c", "-o", program], timeout=300))
    environment = {**context.environment(), "GARONNE_BUBBLES": "affinity", "GARONNE_BUBBLES_TRACE": str(trace)}
    check(context.execute("openmp nested", [context.prefix / "bin/garonne", "omp", "run", "--", program], timeout=300, env=environment))
    check(context.execute("openmp replay", [context.prefix / "bin/garonne", "bubbles", "replay", trace, "-o", page], timeout=300))
    shown = page.read_text()
    for level in (1, 2):
        if not re.search(rf"team of 8, level {level}\b", shown):
            raise Failure(f"{page} shows no team of level {level}")


def fetch(context, source):
    """GCC's source as the distribution packs it; only the tests of libgomp are kept."""
    if (source / "libgomp.c").exists():
        return
    place = context.work / "gcc-source"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    check(context.execute("openmp fetch", ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", PACKAGE], timeout=600, cwd=place))
    [package] = place.glob("*.deb")
    unpack = f"dpkg-deb --fsys-tarfile {package} | tar xOf - --wildcards './usr/src/gcc-{VERSION}/gcc-{VERSION}*.tar.xz' | " \
             "tar xJf - --wildcards '*/libgomp/*'"
    check(context.execute("openmp unpack", ["bash", "-c", unpack], timeout=600, cwd=place))
    [tests] = place.glob("*/libgomp/testsuite")
    # Tests of entry points include this header.
    shutil.copy(tests.parent / "libgomp_g.h", tests)
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(source, ignore_errors=True)
    shutil.move(tests, source)
    shutil.rmtree(place)


def gcc_test(context, facts, path, name, compiler):
    test = dejagnu.Test(path.read_text(errors="replace"), facts | {LANGUAGES[compiler]})
    reason = test.skip or next((reason for part, reason in SKIPPED.items() if part in name), "")
    if reason:
        raise Skip(reason)
    place = context.work / "openmp" / re.sub(r"\W+", "_", name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "config.h").write_text(CONFIG)
    try:
        build_and_run(context, test, path, name, compiler, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def build_and_run(context, test, path, name, compiler, place):
    program = place / "program"
    roots = [f"-I{folder}" for folder in (path.parent, path.parent.parent, path.parent.parent.parent, place)]
    sources = [path, *(path.parent / source for source in test.sources)]
    build = [compiler, "-fopenmp", "-w", *roots, *sources, *test.options, "-o", program, "-lm"]
    built = context.execute(f"openmp build {name}", build, timeout=600, cwd=place)
    if built.code != 0 and "undefined reference to `main'" in built.output:
        raise Skip("it has no main program")
    check(built)
    if test.kind == "link":
        return
    environment = context.environment() | test.environment
    own = environment | {"LD_LIBRARY_PATH": str(context.prefix / "lib/openmp")}
    result = context.execute(f"openmp {name}", [program], timeout=LIMIT_S, env=own, cwd=place)
    if not passes(test, result):
        theirs = context.execute(f"openmp {name} with GCC's library", [program], timeout=LIMIT_S, env=environment, cwd=place)
        if not passes(test, theirs):
            raise Skip("it fails with GCC's own library too")
        wished = f"its output lacks {test.output}" if test.output and not test.is_told(result.output) else f"it ended with {result.code}"
        raise Failure(f"{wished} (log: {result.log})\n{result.output[-1000:]}")


def passes(test, result):
    return not result.timed_out and (result.code != 0) == test.should_fail and test.is_told(result.output)
