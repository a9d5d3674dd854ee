"""StarPU from the distribution's source package, built with our mpicc: the tests of its MPI layer on 4 ranks, a case each. In a soak alone, since the
build takes minutes. Without its documents, examples, Fortran, CUDA and OpenCL.
"""

import os
import re
import shutil

from ..runner import Case, Failure, Skip, check

OFF = ["opencl", "cuda", "build-doc", "build-doc-pdf", "build-examples", "socl", "starpufft", "starpurm", "fortran"]
# Messages of four processes with three threads each on few cores: a minute or two on a busy machine.
LIMIT_S = 900
# What automake's tests end with when they are not for this machine.
SKIPPED = 77
# Tests that StarPU expects to fail: they call abort on purpose.
MEANT_TO_FAIL = {"policy_register_toomany", "policy_unregister", "starpu_redefine"}


def suite(context):
    if not context.soak or context.foreign:
        return
    context.installed()
    source, place = context.state / "sources/starpu", context.work / f"starpu-{context.key()}"
    check(context.execute("starpu fetch", ["python3", "tools/debian_source.py", "starpu", source], timeout=300))
    if not shutil.which("pkg-config"):
        raise Skip("pkg-config is not installed, which finds hwloc for StarPU")
    if not (place / "ready").exists():
        build(context, source, place)
    for name in names(place):
        yield Case(f"starpu/{name}", lambda name=name: run(context, place, name), alone=True)


def build(context, source, place):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    binaries = context.prefix / "bin"
    configure = ["./configure", *(f"--disable-{what}" for what in OFF), "--enable-mpi-check", f"--with-mpicc={binaries / 'mpicc'}", f"--with-mpiexec={binaries / 'mpiexec'}", "CFLAGS=-O1 -w"]
    steps = [("configure", configure), ("core", ["make", "-j2", "-C", "src"]), ("MPI layer", ["make", "-j2", "-C", "mpi/src"]), ("tests", ["make", "-j2", "-C", "mpi/tests", "check", "TESTS="])]
    for what, command in steps:
        check(context.execute(f"starpu {what}", command, timeout=1800, cwd=place))
    (place / "ready").touch()


def names(place):
    """The tests that the build has chosen: those of them that are programs."""
    text = (place / "mpi/tests/Makefile.am").read_text()
    lists = re.findall(r"^starpu_mpi_TESTS \+=((?:.*\\\n)*.*)", text, re.M)
    found = {word for words in lists for word in words.replace("\\", " ").split()}
    return sorted(name for name in found - MEANT_TO_FAIL if os.access(place / "mpi/tests" / name, os.X_OK))


def run(context, place, name):
    # Workers of four processes on a few cores; calibrations of earlier machines are no matter.
    environment = context.environment({"STARPU_NCPU": "1", "STARPU_HOME": str(place / "home"), "STARPU_WORKERS_NOBIND": "1", "STARPU_MAIN_THREAD_BIND": "0", "STARPU_SILENT": "1"})
    command = [context.prefix / "bin" / "mpiexec", "-np", "4", f"./{name}"]
    result = context.execute(f"starpu {name}", command, LIMIT_S, env=environment, cwd=place / "mpi/tests")
    if result.code == SKIPPED:
        raise Skip("the test says that it is not for this machine")
    if result.code != 0:
        raise Failure(f"exit code {result.code} (log: {result.log})")
