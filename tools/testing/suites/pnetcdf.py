"""PnetCDF from the distribution's source package, built with our mpicc: its own tests, by one process each (`make check`) and on 4 ranks (`make ptest`),
a case for each of its directories that has any. In a soak alone, since the build takes minutes. Fortran and C++ are left out.
"""

import re
import shutil

from ..foreign_programs import packages, peers
from ..runner import Case, Failure, Outcome, Skip, check

# The source package has no configure; what makes it is unpacked beside the machine's own programs.
AUTOTOOLS = ["autoconf", "automake", "libtool"]
CONFIGURE = ["--disable-fortran", "--disable-cxx", "CFLAGS=-O1 -w"]
# Directories by the target that runs something there, and how many processes each program has then.
DIRECTORIES = {"check": ["C", "nc_test", "cdf_format", "testcases", "nonblocking"], "ptest": ["C", "cdf_format", "header", "testcases", "nonblocking"]}
RANKS = {"check": 1, "ptest": 4}
# How each target tells of a program, and of one that is left out.
PASSED = {"check": re.compile(r"^PASS: (.+)$", re.M), "ptest": re.compile(r"^\*\*\* TESTING (.+?) *-+ pass$", re.M)}
LEFT_OUT = {"check": re.compile(r"^SKIP: (.+)$", re.M), "ptest": re.compile(r"^\*\*\* TESTING (.+?) *-+ skip$", re.M)}
LIMIT_S = 900


def suite(context):
    if not context.soak:
        return
    context.installed()
    source, place = context.state / "sources/pnetcdf", context.work / f"pnetcdf-{context.key()}"
    check(context.execute("pnetcdf fetch", ["python3", "tools/debian_source.py", "pnetcdf", source], timeout=300))
    if not (place / "ready").exists():
        build(context, source, place)
    for target, directories in DIRECTORIES.items():
        for directory in directories:
            yield Case(f"pnetcdf/{directory} on {RANKS[target]}", lambda directory=directory, target=target: run(context, place, directory, target), alone=True)


def build(context, source, place):
    debian = packages.Debian(context.state / "autotools")
    try:
        debian.fetch(AUTOTOOLS)
        debian.check()
    except peers.Unavailable as why:
        raise Skip(f"what makes its configure cannot be had or used here: {why}") from why
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    launcher = " ".join(context.launcher(0)[:-1])
    configure = ["./configure", *CONFIGURE, f"MPICC={context.mpicc()}", f"TESTMPIRUN={launcher} NP"]
    for what, command in ("autoreconf", debian.command(["autoreconf", "-fi"])), ("configure", configure), ("build", ["make", "-j2"]), ("build tests", ["make", "-j2", "tests"]):
        check(context.execute(f"pnetcdf {what}", command, timeout=1800, cwd=place))
    (place / "ready").touch()


def run(context, place, directory, target):
    """Counts the programs that passed; at least one must."""
    name = f"pnetcdf/{directory} on {RANKS[target]}"
    result = context.execute(f"pnetcdf {directory} {target}", ["make", "-C", f"test/{directory}", target], LIMIT_S, cwd=place)
    check(result)
    passed, left_out = PASSED[target].findall(result.output), LEFT_OUT[target].findall(result.output)
    if not passed:
        raise Failure(f"none of its programs ran (log: {result.log})")
    return [Outcome(name, "passed", count=len(passed)), *(Outcome(f"{name}: {program}", "skipped", "PnetCDF's own: it does not run it in this configuration") for program in left_out)]
