"""A good guest in its process: forks and programs that a rank starts, the library's own thread, debuggers, checkers of memory, sanitizers."""

import os
import re
import shutil

from ..runner import Case, Failure, Skip, check

# Valgrind makes everything some thirty times slower.
LIMIT_S = 240
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
NAMESPACE = ["unshare", "-Urm"]
# Only root can become somebody else; anybody else is an ordinary user already.
ORDINARY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
# Output goes to a pipe first, since the log is a file as well.
NO_FILES = 'set -o pipefail; (ulimit -f 0 && "$@") 2>&1 | cat'
HANDS = {"GARONNE_BACKGROUND": "1"}
SANITIZERS = {"address": ["talks", "forks"], "undefined": ["talks"], "thread": ["talks", "forks"]}

# How a program in Rust ends that nobody taught better.
IN_RUSTS_WORDS = re.compile(r"memory allocation of \d+ bytes failed|panicked at")

# What sanitizers and debuggers say of a kernel or a container in which they cannot work at all.
TROUBLE = ["unexpected memory mapping", "Shadow memory range interleaves", "LeakSanitizer has encountered a fatal error",
           "ptrace: Operation not permitted", "Could not trace the inferior process"]


def suite(context):
    if context.foreign:
        return  # what others do with MPI in a forked child is theirs
    context.installed()
    for program in ("talks", "forks", "hands", "tasks", "astray", "exhausted", "closes"):
        check(build(context, program))
    for ranks in (1, 2, 4):
        yield job(context, f"forks on {ranks}", ranks, [program_of(context, "forks")], "ok")
    for ranks in (1, 2, 4):
        for words in ([], ["talked"]):
            yield job(context, f"all descriptors closed on {ranks}{''.join(words and [' that have talked'])}", ranks, [program_of(context, "closes"), *words], "ok")
    hands = program_of(context, "hands")
    for ranks in (2, 4):
        yield job(context, f"the library's thread on {ranks}", ranks, [hands], "ok", HANDS)
    yield Case("guest/no thread for the library", lambda: no_thread(context, "hands"))
    yield job(context, "tasks where MPI waits", 2, [program_of(context, "tasks")], "ok")
    yield Case("guest/tasks gone astray without MPI", lambda: alone(context, [program_of(context, "astray")]))
    yield job(context, "tasks gone astray", 2, [program_of(context, "astray"), "mpi"], "ok")
    yield Case("guest/no thread for tasks", lambda: no_thread(context, "tasks"))
    yield Case("guest/no end but the library's thread", lambda: no_end(context))
    talks = program_of(context, "talks")
    yield job(context, "under gdb", 2, ["gdb", "-batch", "-ex", "run", "-ex", "thread apply all bt", "--args", talks], "good")
    yield job(context, "under valgrind", 2, ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", talks], "good")
    yield poor(context, "64 ranks with 256 descriptors and 8 MB of locked memory", "ulimit -n 256 && ulimit -l 8192", 64)
    yield poor(context, "a /dev/shm of 1 MB in a user namespace", "mount -t tmpfs -o size=1m tmpfs /dev/shm", 4, NAMESPACE)
    yield poor(context, "an ordinary user", "true", 4, ORDINARY)
    for what in ("types", "infos", "communicators", "requests", "peers"):
        yield Case(f"process-hygiene/no addresses for more {what}", lambda what=what: exhausted(context, what))
    yield Case("guest/few addresses for a job", lambda: few_addresses(context))
    yield Case("guest/few processes for a job", lambda: few_processes(context))
    yield Case("guest/no room for files", lambda: no_files(context))
    for sanitizer, programs in SANITIZERS.items():
        for program in programs:
            yield sanitized(context, sanitizer, program)


def no_thread(context, program):
    """A rank that is given no thread does what it would do without, and tasks run where it waits."""
    command = [*ORDINARY, *context.launcher(2), program_of(context, program), "refused"]
    result = context.execute(f"process-hygiene no thread for {program}", command, timeout=LIMIT_S, env=context.environment(HANDS))
    check(result)
    if result.output.count("ok") != 2:
        raise Failure(f"not all ranks came to a good end (log: {result.log})")


def alone(context, command):
    """A process that nobody launched, and that calls no MPI."""
    result = context.execute("guest alone", command, timeout=LIMIT_S, env=context.environment())
    check(result)
    if "ok" not in result.output:
        raise Failure(f"it came to no good end (log: {result.log})")


def no_end(context):
    """A rank that leaves by exit() beside the library's thread ends, and is told of as any other that does so."""
    command = [*context.launcher(2), program_of(context, "hands"), "exit"]
    result = context.execute("guest no end", command, timeout=LIMIT_S, env=context.environment(HANDS))
    if result.timed_out or result.code != 3 or "ok" not in result.output:
        raise Failure(f"exit code {result.code}\n{result.output}")


def exhausted(context, what):
    """A rank that reaches its limit on addresses says which limit that is, or what MPI could not have."""
    ranks = 2 if what == "peers" else 1
    result = context.execute(f"process-hygiene exhausted {what}", [*context.launcher(ranks), program_of(context, "exhausted"), what], timeout=LIMIT_S)
    said = "cannot map" if what == "peers" else "G0304"
    named = said in result.output and "ulimit -v" in result.output or ranks == 1 and "no memory" in result.output
    if result.timed_out or result.code == 0 or not named or IN_RUSTS_WORDS.search(result.output):
        raise Failure(f"exit code {result.code}\n{result.output}")


def few_addresses(context):
    """Whatever `ulimit -v` leaves to ranks, or to the launcher with them: a job runs, or something says in plain words what is missing."""
    talks = program_of(context, "talks")
    for scope in ('ulimit -v "$0" && "$@"', '"${@:1:4}" bash -c "ulimit -v $0 && exec ${*:5}"'):
        for kb in (*range(8000, 16000, 1000), *range(16000, 20000, 100), *range(20000, 60000, 4000)):
            result = context.execute("guest few addresses", ["bash", "-c", scope, str(kb), *context.launcher(2), talks], timeout=LIMIT_S)
            said = result.code == 0 or re.search(r"error|rror while loading|ulimit -v|Cannot allocate memory|cannot execute", result.output) or not result.output
            if result.timed_out or not said or IN_RUSTS_WORDS.search(result.output):
                raise Failure(f"with {kb} KB: exit code {result.code}\n{result.output}")
        # Where a job runs with few addresses it runs with more: what is optional takes none that messages need.
        for kb in range(76000, 124000, 4000):
            result = context.execute("guest few addresses", ["bash", "-c", scope, str(kb), *context.launcher(2), talks], timeout=LIMIT_S)
            if result.code or result.output.count("good") != 2:
                raise Failure(f"with {kb} KB: exit code {result.code}\n{result.output}")


def few_processes(context):
    """However few processes a user may have (which root may have any number of): a job runs, or says by which limit it does not."""
    for number in range(1, 6):
        limited = [*ORDINARY, "bash", "-c", 'ulimit -u "$0" && exec "$@"', str(number)]
        result = context.execute("guest few processes", [*limited, *context.launcher(2), program_of(context, "talks")], timeout=LIMIT_S)
        said = "G0303" in result.output and "`ulimit -u`" in result.output
        if result.timed_out or (result.code != 0) != said or number == 1 and not said:
            raise Failure(f"with {number} processes: exit code {result.code}\n{result.output}")


def no_files(context):
    """A limit on the size of files holds for memory files, too: the job says so, and its agent does not die of it."""
    result = context.execute("guest no files", ["bash", "-c", NO_FILES, "bash", *context.launcher(2), program_of(context, "talks")], timeout=LIMIT_S)
    if result.code in (0, None) or "G0301" not in result.output:
        raise Failure(f"exit code {result.code}\n{result.output}")


def program_of(context, name):
    return str(context.work / "process-hygiene" / name)


def build(context, program, name=None, more=()):
    (context.work / "process-hygiene").mkdir(exist_ok=True)
    source = context.root / "tests/guest" / f"{program}.c"
    command = [context.mpicc(), *FLAGS, *more, str(source), "-o", program_of(context, name or program)]
    return context.execute(f"process-hygiene build {name or program}", command, timeout=60)


def run(context, name, ranks, command, word, env=None):
    result = context.execute(f"process-hygiene {name}", context.launcher(ranks) + command, timeout=LIMIT_S, env=context.environment(env))
    for trouble in TROUBLE:
        if trouble in result.output:
            raise Skip(f"not possible here: {trouble}")
    check(result)
    if word not in result.output:
        raise Failure(f"'{word}' was not said (log: {result.log})")


def job(context, name, ranks, command, word, env=None):
    def case():
        if not shutil.which(command[0]):
            raise Skip(f"{command[0]} is not installed")
        run(context, name, ranks, command, word, env)

    return Case(f"process-hygiene/{name}", case)


def poor(context, name, preparation, ranks, wrapper=()):
    """The program after a preparation that takes something away, where the system lets us do that."""
    def case():
        talks = program_of(context, "talks")
        if context.execute(f"process-hygiene probe {name}", [*wrapper, "sh", "-c", f"{preparation} && test -x {talks}"], timeout=20).code != 0:
            raise Skip(f"not permitted here: {' '.join([*wrapper, preparation])}")
        command = " ".join(context.launcher(ranks) + [talks])
        result = context.execute(f"process-hygiene {name}", [*wrapper, "sh", "-c", f"{preparation} && {command}"], timeout=LIMIT_S)
        check(result)
        if result.output.count("good") < ranks:
            raise Failure(f"not all ranks came to a good end (log: {result.log})")

    return Case(f"process-hygiene/{name}", case)


def sanitized(context, sanitizer, program):
    name = f"{program} with the {sanitizer} sanitizer"

    def case():
        built = build(context, program, f"{program}-{sanitizer}", [f"-fsanitize={sanitizer}"])
        if built.code != 0:
            raise Skip(f"the compiler has no {sanitizer} sanitizer here")
        run(context, name, 2, [program_of(context, f"{program}-{sanitizer}")], "good" if program == "talks" else "ok")

    return Case(f"process-hygiene/{name}", case)
