"""A plain `./configure CC=mpicc && make` project made with autoconf and automake; what wrappers answer to tools."""

import shutil

from ..runner import Case, Failure, check


def suite(context):
    context.installed()
    yield Case("configure/CC=mpicc", lambda: configure(context))
    if not context.foreign:
        yield Case("configure/wrapper answers", lambda: wrapper_answers(context))


def configure(context):
    place = context.work / "configure"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(context.root / "tests/clients/configure", place)
    check(context.execute("configure autoreconf", ["autoreconf", "-i"], timeout=120, cwd=place))
    result = context.execute("configure configure", ["./configure", f"CC={context.mpicc()}"], timeout=120, cwd=place)
    check(result)
    if "checking for MPI_Init... yes" not in result.output or "size of MPI_Aint... 8" not in result.output:
        raise Failure(f"configure did not accept it (log: {result.log})")
    check(context.execute("configure make", ["make"], timeout=120, cwd=place))
    ran = context.execute("configure run", context.launcher(3) + [str(place / "client")], timeout=60)
    check(ran)
    if "sum 3" not in ran.output:
        raise Failure(f"wrong answer (log: {ran.log})")


def wrapper_answers(context):
    """Each line: a command and words that its answer must have."""
    prefix = context.prefix
    for command, words in [
        (["mpicc", "-show"], [f"-I{prefix}/include", "-lmpi_abi"]),
        (["mpicc", "-show", "-c", "x.c"], ["-c x.c", f"-I{prefix}/include"]),
        (["mpicc", "-showme"], ["-lmpi_abi"]),
        (["mpicc", "-showme:compile"], [f"-I{prefix}/include"]),
        (["mpicc", "--showme:link"], [f"-L{prefix}/lib"]),
        (["mpicc", "-showme:incdirs"], [f"{prefix}/include"]),
        (["mpicc", "-showme:libs"], ["mpi_abi"]),
        (["mpicc", "-showme:version"], ["Garonne"]),
        (["mpicc", "-compile-info"], ["-c"]),
        (["mpicc", "--version"], ["cc"]),
        (["mpicxx", "-show"], ["c++", "-lmpi_abi"]),
        (["mpic++", "-showme:command"], ["c++"]),
        (["mpiexec", "--version"], ["Garonne"]),
        (["mpirun", "--version"], ["Garonne"]),
        (["garonne", "--version"], ["garonne"]),
    ]:
        result = context.execute(" ".join(command), [prefix / "bin" / command[0], *command[1:]], timeout=30)
        check(result)
        answer = result.output.split("\n", 1)[1]
        missing = [word for word in words if word.lower() not in answer.lower()]
        if missing:
            raise Failure(f"`{' '.join(command)}` answers without {missing}:\n{answer}")
