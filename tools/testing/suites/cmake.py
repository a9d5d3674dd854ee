"""A C and C++ program through CMake's own find_package(MPI), found by PATH alone, and run by its test driver."""

import shutil

from ..runner import Case, Failure, check


def suite(context):
    context.installed()
    yield Case("cmake/find_package(MPI) for C and C++", lambda: build_and_run(context))
    if not context.foreign:
        yield Case("cmake/pkg-config", lambda: with_pkg_config(context))


def build_and_run(context):
    source, build = context.root / "tests/clients/cmake", context.work / "cmake"
    shutil.rmtree(build, ignore_errors=True)
    configured = context.execute("cmake configure", ["cmake", "-S", source, "-B", build], timeout=120)
    check(configured)
    if str(context.prefix) not in configured.output:
        raise Failure(f"another MPI was found (log: {configured.log})")
    check(context.execute("cmake build", ["cmake", "--build", build], timeout=120))
    check(context.execute("cmake test", ["ctest", "--test-dir", build, "--output-on-failure", "--timeout", "60"], timeout=90))


def with_pkg_config(context):
    program = context.work / "by_pkg_config"
    command = f"cc -O1 {context.root}/tests/clients/override/program.c -o {program} $(pkg-config --cflags --libs mpi)"
    check(context.execute("cmake pkg-config", ["sh", "-c", command], timeout=60))
    check(context.execute("cmake pkg-config run", context.launcher(2) + [str(program)], timeout=60))
