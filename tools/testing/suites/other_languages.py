"""Fortran and C++ of other MPIs: programs compiled by the distribution's Open MPI and MPICH, run over our libraries of their ABIs.

The programs are those of tests/foreign, and tests/fortran/callbacks.f90. Open MPI's Fortran routines are ours; its module libraries, its
C++ library and MPICH's Fortran and C++ libraries are the distribution's.
"""

import pathlib
import re
import sys

from ..runner import Case, Skip, check

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
import packages  # noqa: E402
import peers  # noqa: E402

LIMIT_S = 60
PACKAGES = {"openmpi": ["libopenmpi-dev", "openmpi-bin"], "mpich": ["libmpich-dev", "mpich"]}
# Sources of a program, and the compiler.
FORTRAN = ["-g", "-ffree-line-length-none", "-ffixed-line-length-132", "-fallow-argument-mismatch", "-w"]
PROGRAMS = {
    "routines": (["tests/foreign/routines.f"], "mpifort"),
    "callbacks": (["tests/fortran/check.f90", "tests/fortran/callbacks.f90"], "mpifort"),
    "classes": (["tests/foreign/classes.cpp"], "mpicxx"),
}


def suite(context):
    if context.foreign:
        return
    context.installed()
    debian = packages.Debian(context.state / "binaries")
    for family in PACKAGES:
        for name in PROGRAMS:
            yield Case(f"other-languages/{name}, {family}", lambda family=family, name=name: case(context, debian, family, name))
    yield Case("other-languages/common blocks in several objects, openmpi", lambda: several_objects(context, debian))


def fetch(debian, family):
    try:
        debian.fetch(PACKAGES[family])
        debian.check()
    except peers.Unavailable as why:
        raise Skip(f"its packages cannot be had or used here: {why}") from why


def case(context, debian, family, name):
    fetch(debian, family)
    program = build(context, debian, family, name)
    ranks = int(re.search(r"ranks: (\d+)", (context.root / PROGRAMS[name][0][-1]).read_text()).group(1))
    env = context.environment({"LD_LIBRARY_PATH": str(context.prefix / "lib/foreign")})
    check(context.execute(f"other-languages {name} {family}", debian.command([*context.launcher(ranks), program]), timeout=LIMIT_S, env=env))


def build(context, debian, family, name):
    sources, compiler = PROGRAMS[name]
    place = context.work / "other-languages" / family
    place.mkdir(parents=True, exist_ok=True)
    flags = FORTRAN if compiler == "mpifort" else ["-g", "-w", *(["-DTHROWS"] if family == "mpich" else [])]
    words = [f"{compiler}.{family}", *flags, *(str(context.root / source) for source in sources), "-o", str(place / name)]
    # The compiler's wrapper is the distribution's, and so are the libraries that it links.
    check(context.execute(f"other-languages build {name} {family}", debian.command(words), timeout=120, cwd=place))
    return str(place / name)


def several_objects(context, debian):
    """Libraries that a C program loads, each with common blocks of Open MPI's mpif.h of its own."""
    fetch(debian, "openmpi")
    source, place = context.root / "tests/fortran/objects", context.work / "other-languages/openmpi/objects"
    place.mkdir(parents=True, exist_ok=True)
    library = ["mpifort.openmpi", *FORTRAN, "-shared", "-fPIC", source / "loaded.f", "-o"]
    for target, words in {"a.so": library, "b.so": library, "c.so": [*library[:-1], "-Wl,-Bsymbolic", "-o"],
                          "loads": ["mpicc.openmpi", "-w", source / "loads.c", "-ldl", "-o"]}.items():
        check(context.execute(f"other-languages build {target}", debian.command([*map(str, words), target]), timeout=120, cwd=place))
    env = context.environment({"LD_LIBRARY_PATH": str(context.prefix / "lib/foreign")})
    words = [*context.launcher(2), "./loads", "./a.so", "./b.so", "./c.so"]
    check(context.execute("other-languages objects openmpi", debian.command(words), timeout=LIMIT_S, env=env, cwd=place))
