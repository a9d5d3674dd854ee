"""OpenMP: programs of `gcc -fopenmp` with Garonne's libgomp.so.1, and GCC's own tests of libgomp from the distribution's source.

The long form fetches GCC's tests and runs all that are not listed here with a reason; the short one runs a part where they are there.
"""

import re
import shutil

from ..runner import Case, Failure, Skip, check

PACKAGE, VERSION = "gcc-12-source", "12"
# Folders of tests, and the compiler of each.
FOLDERS = {"libgomp.c": "gcc", "libgomp.c-c++-common": "gcc", "libgomp.c++": "g++", "libgomp.fortran": "gfortran"}
ENDINGS = {".c", ".C", ".f90", ".F90", ".f03", ".f", ".F"}

# Tests that do not run, by a part of their path, and why.
SKIPPED = {
    "libgomp.c/affinity-1.c": "needs files of a configured build of GCC",
    "libgomp.c/async_target-1.c": "GCC 12.2 does not compile it",
    "libgomp.c/pr66714.c": "has no main program: it is linked for a device",
    "libgomp.c/pr104783": "crashes with GCC 12.2's own library too",
    "libgomp.c-c++-common/pause-2.c": "wants omp_pause_resource to end threads, which the standard leaves open",
    "libgomp.c-c++-common/function-not-offloaded-aux.c": "a part of another test",
    "libgomp.c-c++-common/target-same-name-1-a.c": "a part of another test",
    "libgomp.c-c++-common/target-same-name-1-b.c": "a part of another test",
    "libgomp.c++/affinity-1.C": "needs files of a configured build of GCC",
    "libgomp.c++/pr66714": "has no main program: it is linked for a device",
}
# Tests that ask for what is not there: a device, another processor.
WITHOUT = ("offload_device", "offload_target", "nvptx", "gcn", "amdgcn", "alpha", "ia64", "powerpc", "sparc")
# Part of the names of tests that the short form runs.
SHORT = ("task-1.c", "depend-3.c", "doacross-1.c", "nestedfn-1.c", "sort-1.c", "cancel-parallel-1.c", "taskloop-1.c", "lock-1.c", "target-1.c",
         "collapse-1.c", "reduction-5.c", "appendix-a/a.18.1.c", "copyin-1.c", "nqueens-1.c", "priority.c", "teams-1.c")


def suite(context):
    context.installed()
    yield Case("openmp/constructs", lambda: constructs(context))
    for compiler in ("gcc", "g++", "gfortran"):
        if not shutil.which(compiler):
            return
    source = context.state / "sources/libgomp-tests"
    if context.soak:
        fetch(context, source)
    if not (source / "libgomp.c").exists():
        return
    for folder, compiler in FOLDERS.items():
        for path in sorted((source / folder).rglob("*")):
            name = f"{folder}/{path.name}"
            is_part = folder == "libgomp.fortran" and path.suffix == ".c"
            if path.suffix in ENDINGS and not is_part and (context.soak or path.name in SHORT):
                yield Case(f"openmp/{name}", lambda path=path, name=name, compiler=compiler: run_test(context, path, name, compiler))


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


def fetch(context, source):
    """GCC's source as the distribution packs it; only the tests of libgomp are kept."""
    if (source / "libgomp.c").exists():
        return
    place = context.work / "gcc-source"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    check(context.execute("openmp fetch", ["apt-get", "download", PACKAGE], timeout=600, cwd=place))
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


def run_test(context, path, name, compiler):
    for part, reason in SKIPPED.items():
        if part in name:
            raise Skip(reason)
    text = path.read_text(errors="replace")
    kind = re.search(r"dg-do\s+(\w+)(.*)", text)
    if kind and kind[1] != "run":
        raise Skip(f"it is for dg-do {kind[1]} alone")
    wishes = " ".join(re.findall(r"dg-(?:do|require-effective-target)[^\n]*", text))
    for word in WITHOUT:
        if word in wishes:
            raise Skip(f"it needs {word}")
    options = []
    for words, condition in re.findall(r'dg-(?:additional-)?options\s+"([^"]*)"(\s*\{[^}]*\})?', text):
        if "target" not in condition or re.search(r"target\s+\*-\*-\*", condition):
            options += [word for word in words.split() if not word.startswith("-foffload")]
    more = [path.parent / word for words in re.findall(r'dg-additional-sources\s+"?([^"}]+?)"?\s*\}', text) for word in words.split()]
    environment = context.environment() | dict(re.findall(r'dg-set-target-env-var\s+(\S+)\s+"([^"]*)"', text))
    place = context.work / "openmp" / name.replace("/", "_")
    place.mkdir(parents=True, exist_ok=True)
    program = place / "program"
    roots = ["-I", path.parent, "-I", path.parent.parent]
    build = [compiler, "-fopenmp", "-O2", "-w", *roots, path, *more, *options, "-o", program, "-lm"]
    built = context.execute(f"openmp build {name}", build, timeout=600, cwd=place)
    check(built)
    environment["LD_LIBRARY_PATH"] = str(context.prefix / "lib/openmp")
    result = context.execute(f"openmp {name}", [program], timeout=600, env=environment, cwd=place)
    shutil.rmtree(place, ignore_errors=True)
    if "dg-shouldfail" in text:
        if result.code == 0 and not result.timed_out:
            raise Failure(f"it should fail (log: {result.log})")
        return
    check(result)
