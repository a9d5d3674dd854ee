"""h5py from PyPI's source, built on our parallel HDF5 and on mpi4py that is built on our mpicc: its parallel tests on 4 ranks, and its whole suite by all ranks at once
(`--with-mpi`), as h5py's own configuration for MPI runs it. In a soak alone, since building takes minutes. Each rank is a run of pytest.
"""

import os
import re
import shutil
import tempfile

from .. import hdf5_build
from ..runner import Case, Failure, Outcome, check

VERSION = "3.14.0"
# What builds it and what runs its tests.
TOOLS = ["Cython==3.1.4", "setuptools==80.9.0", "wheel", "pkgconfig==1.6.0", "pytest==8.4.2", "pytest-mpi==0.6"]
RANKS = 4
# The parallel tests of a rank.
PARALLEL = 4
LIMIT_S = 600
WHOLE_LIMIT_S = 3000
# What it expects of files without permission to write, which root may write.
NOT_BY_ROOT = "test_append_permissions"
# It gives ten processes and ten threads a minute, which are too many by all ranks at once: it runs on one.
CROWDED = "test_fork_with_threads"


def suite(context):
    if not context.soak:
        return
    place = hdf5_build.built(context)
    check(context.execute("h5py mpi4py", ["tools/mpi4py.sh", context.prefix], timeout=1500))
    build(context, place)
    yield Case(f"h5py/parallel tests on {RANKS}", lambda: counted(context, "parallel tests", RANKS, ["-m", "mpi"], PARALLEL), alone=True)
    yield Case(f"h5py/files of all ranks on {RANKS}", lambda: files(context), alone=True)
    yield Case(f"h5py/whole on {RANKS}", lambda: whole(context), alone=True)
    yield Case("h5py/forks with threads on 1", lambda: counted(context, "forks with threads", 1, ["-k", CROWDED], 1), alone=True)


def python(context):
    return context.state / "venv/bin/python"


def build(context, place):
    """Into the environment of mpi4py, anew where that or HDF5 is another."""
    stamp, pip = context.state / "venv/h5py.key", [python(context), "-m", "pip", "--disable-pip-version-check"]
    key = f"{VERSION} {place} {(context.state / 'venv/mpi4py.key').read_text()}"
    if stamp.exists() and stamp.read_text() == key:
        return
    check(context.execute("h5py tools", [*pip, "install", "-q", *TOOLS], timeout=600))
    sdist = context.state / "sdist" / f"h5py-{VERSION}.tar.gz"
    if not sdist.exists():
        check(context.execute("h5py fetch", [*pip, "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", "h5py", f"h5py=={VERSION}", "-d", sdist.parent], timeout=600))
    env = context.environment({"CC": context.mpicc(), "CFLAGS": "-O1 -g0 -w", "HDF5_MPI": "ON", "HDF5_DIR": str(place / "installed"), "H5PY_SETUP_REQUIRES": "0"})
    wheels = context.work / "h5py-wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    check(context.execute("h5py build", [*pip, "wheel", "--no-deps", "--no-build-isolation", sdist, "-w", wheels], timeout=1800, env=env))
    check(context.execute("h5py install", [*pip, "install", "-q", "--force-reinstall", "--no-deps", *wheels.glob("h5py-*.whl")], timeout=300))
    stamp.write_text(key)


def run(context, name, ranks, words, limit_s=LIMIT_S):
    with tempfile.TemporaryDirectory(prefix="garonne-h5py-", ignore_cleanup_errors=True) as place:
        env = context.environment({"MPI4PY_LIBMPI": str(context.prefix / "lib/libmpi_abi.so.1"), "TMPDIR": place})
        result = context.execute(f"h5py {name}", [*context.launcher(ranks), python(context), *words], limit_s, env=env, cwd=place)
    check(result)
    return result


def counted(context, name, ranks, words, least, limit_s=LIMIT_S):
    """Every rank must say that all passed, and that so many did at least."""
    result = run(context, name, ranks, ["-m", "pytest", "-p", "no:cacheprovider", "-q", "--with-mpi", "--pyargs", "h5py", *words], limit_s)
    passed = [int(count) for count in re.findall(r"(\d+) passed", result.output)]
    if len(passed) != ranks or min(passed) < least or re.search(r"\d+ (failed|error)", result.output):
        raise Failure(f"tests that passed, by rank: {passed} (log: {result.log})")
    return [Outcome(f"h5py/{name} on {ranks}", "passed", count=min(passed))]


def whole(context):
    as_root = os.geteuid() == 0
    left_out = [CROWDED, *([NOT_BY_ROOT] if as_root else [])]
    outcomes = counted(context, "whole", RANKS, ["-k", " and ".join(f"not {test}" for test in left_out)], PARALLEL, WHOLE_LIMIT_S)
    return outcomes + ([Outcome(f"h5py/whole on {RANKS}", "skipped", f"{NOT_BY_ROOT}: the test's own: root may write what it expects to be refused")] if as_root else [])


def files(context):
    """Slabs and chunks, written by some ranks and read by others, as in the row of docs/user/binaries.md."""
    result = run(context, "files", RANKS, [context.root / "tests/binaries/h5py/check.py", str(RANKS)])
    if f"all ranks found what others wrote: {RANKS}" not in result.output:
        raise Failure(f"it did not come to its end (log: {result.log})")
