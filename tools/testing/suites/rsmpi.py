"""The `mpi` crate (rsmpi) 0.8, compiled against our mpicc (it reads `mpicc -show` and mpi.h), and run."""

from ..runner import Case, Failure, check

# bindgen and its dependencies are most of it.
BUILD_LIMIT_S = 900


def suite(context):
    context.installed()
    target = context.state / f"rsmpi-{context.key()}"
    env = context.environment({"MPICC": context.mpicc(), "CARGO_TARGET_DIR": str(target)})
    client = context.root / "tests/clients/rsmpi"
    build = ["cargo", "build", "--locked", "--manifest-path", client / "Cargo.toml"]
    check(context.execute("rsmpi build", build, timeout=BUILD_LIMIT_S, env=env))
    for ranks in (1, 3):
        yield rsmpi_case(context, target / "debug/client", ranks)


def rsmpi_case(context, program, ranks):
    def run():
        # rustc gives no rpath; an installation outside the system's own places is found this way.
        env = context.environment({"LD_LIBRARY_PATH": str(context.prefix / "lib")})
        result = context.execute(f"rsmpi {ranks}", context.launcher(ranks) + [str(program)], timeout=60, env=env)
        check(result)
        if f"rsmpi: {ranks} ranks agree" not in result.output:
            raise Failure(f"it did not finish its checks (log: {result.log})")

    return Case(f"rsmpi/client on {ranks}", run)
