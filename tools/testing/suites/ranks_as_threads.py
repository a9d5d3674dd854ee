"""Several ranks in a process, each a thread with its own copy of the program: `garonne run --ranks-per-process`."""

import platform

from ..runner import Case, Failure, Skip, check
from . import mpich_tests

LIMIT_S = 120
# Programs of tests/c that run this way too, with their ranks and how many share a process. The long form runs all that need no process of their own.
PROGRAMS = {"p2p": (4, 4), "collectives": (5, 2), "one_sided": (5, 5), "window_memory": (4, 2)}
LONG = {"windows": (4, 0), "passive_target": (5, 3), "notified": (3, 0), "topologies": (4, 2), "persistent": (3, 3), "communicators": (4, 4), "datatypes": (2, 2), "neighbors": (4, 4), "partitioned": (3, 3), "files": (4, 2), "threads": (3, 3), "flood": (2, 2), "callbacks": (2, 2)}
# How the last of four ranks ends, the exit code of the job, and what is said of it.
ENDS = {"crash": (139, "rank 3 ", "SIGSEGV"), "exit": (7, "rank 3 ", "exit status 7"), "leave": (1, "rank 3 ", "before MPI_Finalize"), "abort": (134, "rank 3 ", "SIGABRT")}


def suite(context):
    if context.foreign:
        return
    context.installed()
    if platform.machine() != "x86_64":
        yield Case("ranks-as-threads/programs", skipped)
        return
    place = context.work / "ranks_as_threads"
    place.mkdir(exist_ok=True)
    program = place / "own_globals"
    build(context, "tests/ranks-as-threads/own_globals.c", program)
    for ranks, each in ((4, 4), (5, 2), (3, 0), (64, 16)):
        yield Case(f"ranks-as-threads/own variables of {ranks} by {each}", lambda ranks=ranks, each=each: own_variables(context, program, ranks, each))
    for how in ENDS:
        yield Case(f"ranks-as-threads/one rank ends by {how}", lambda how=how: ends(context, program, how))
    yield Case("ranks-as-threads/what cannot run so is refused", lambda: refused(context, place))
    yield Case("ranks-as-threads/one copy without the kernel", lambda: one_copy(context, place))
    yield Case("ranks-as-threads/libraries loaded later", lambda: modules(context, place))
    for name, (ranks, each) in (PROGRAMS | (LONG if context.soak else {})).items():
        yield Case(f"ranks-as-threads/{name} on {ranks} by {each}", lambda name=name, ranks=ranks, each=each: conformance(context, place, name, ranks, each))
    yield from mpich(context)


def skipped():
    raise Skip("programs with thread-local variables run so on x86-64 alone")


def build(context, source, program, *flags):
    check(context.execute(f"ranks-as-threads build {program.name}", [context.mpicc(), "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", *flags, context.root / source, "-o", program, "-lm", "-lpthread"], timeout=60))


def run(context, name, ranks, each, *words):
    return context.execute(f"ranks-as-threads/{name}", [*context.launcher(ranks), "--ranks-per-process", str(each), *map(str, words)], timeout=LIMIT_S, cwd=context.work / "ranks_as_threads")


def own_variables(context, program, ranks, each):
    done = run(context, f"own {ranks} by {each}", ranks, each, program, "together" if each in (0, ranks) else "apart")
    lines = done.output.splitlines()
    wanted = [text for rank in range(ranks) for text in (f"rank {rank} of {ranks} is well", f"end of {rank}", f"destructor of {rank}")]
    lacking = [text for text in wanted if lines.count(text) != 1]
    if done.code != 0 or lacking:
        raise Failure(f"it ended with {done.code} (log: {done.log}); not said once: {lacking[:5]}\n{done.output[-1500:]}")


def ends(context, program, how):
    code, *words = ENDS[how]
    done = run(context, f"ends by {how}", 4, 4, program, how)
    lacking = [word for word in words if word not in done.output]
    if done.code != code or lacking:
        raise Failure(f"it ended with {done.code}, not {code} (log: {done.log}); not said: {lacking}\n{done.output[-1500:]}")


def refused(context, place):
    source = "tests/ranks-as-threads/own_globals.c"
    fixed = place / "own_globals_fixed"
    build(context, source, fixed, "-no-pie", "-fno-pie")
    script = place / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    for program, word in ((fixed, "fixed addresses"), (script, "script")):
        done = run(context, f"refuses {program.name}", 2, 2, program)
        if done.code != 127 or word not in done.output:
            raise Failure(f"{program} ended with {done.code} and does not say {word!r} (log: {done.log})\n{done.output[-1000:]}")


def one_copy(context, place):
    """The program forbids the calls by which the kernel copies between processes. By processes it must end with SIGSYS: otherwise it would not be seen that ranks of one process do without."""
    program = place / "one_copy"
    build(context, "tests/ranks-as-threads/one_copy.c", program)
    done = run(context, "one copy", 4, 0, program)
    if "no filter of system calls here" in done.output:
        raise Skip("system calls cannot be filtered here (seccomp)")
    check(done)
    said = done.output.count("needs no copies by the kernel")
    if said != 4:
        raise Failure(f"{said} of 4 ranks came to their end (log: {done.log})")
    other = context.execute("ranks-as-threads/one copy by processes", [*context.launcher(4), program], timeout=LIMIT_S)
    if other.code == 0 or "SIGSYS" not in other.output:
        raise Failure(f"processes use no copies by the kernel, so that the case shows nothing (log: {other.log})")


def modules(context, place):
    module, program = place / "module.so", place / "modules"
    check(context.execute("ranks-as-threads build module.so", [context.mpicc(), "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", context.root / "tests/ranks-as-threads/module.c", "-o", module], timeout=60))
    build(context, "tests/ranks-as-threads/modules.c", program, "-rdynamic", "-ldl")
    for ranks, each in ((4, 0), (5, 2)):
        done = run(context, f"modules {ranks} by {each}", ranks, each, program, module)
        check(done)
        said = done.output.count("has modules of its own")
        if said != ranks:
            raise Failure(f"{said} of {ranks} ranks came to their end (log: {done.log})")


def mpich(context):
    """MPICH's own test programs with all their ranks in one process: those of tests/mpich/ranks-as-threads.txt, in the long form all. Why some do not run so stands in tests/mpich/ranks-as-threads-skips.txt."""
    place, programs, reasons = mpich_tests.prepared(context, "ranks-as-threads.txt")
    tests = context.state / "sources/mpich/test/mpi"
    own = mpich_tests.Reasons(context, tests, mpich_tests.all_programs(tests, place), "ranks-as-threads", "tests/mpich/ranks-as-threads-skips.txt")
    yield Case("ranks-as-threads/skipped programs of MPICH", lambda: own.outcomes(programs))
    for program in programs:
        if not reasons.of(program) and not own.of(program):
            title = program.title.replace("mpich-tests/", "ranks-as-threads/mpich ", 1)
            yield mpich_tests.program_case(context, place, program, lambda ranks: [*context.launcher(ranks), "--ranks-per-process", "0"], title)


def conformance(context, place, name, ranks, each):
    build(context, f"tests/c/{name}.c", place / name)
    check(run(context, name, ranks, each, place / name))
