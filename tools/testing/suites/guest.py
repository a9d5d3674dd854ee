"""A good guest in its process: forks and programs that a rank starts, debuggers, checkers of memory, sanitizers."""

import shutil

from ..runner import Case, Failure, Skip, check

# Valgrind makes everything some thirty times slower.
LIMIT_S = 240
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
SANITIZERS = {"address": ["talks", "forks"], "undefined": ["talks"], "thread": ["talks", "forks"]}


def suite(context):
    context.installed()
    for program in ("talks", "forks"):
        build(context, program)
    for ranks in (1, 2, 4):
        yield job(context, f"forks on {ranks}", ranks, [program_of(context, "forks")], "ok")
    talks = program_of(context, "talks")
    yield job(context, "under gdb", 2, ["gdb", "-batch", "-ex", "run", "--args", talks], "good")
    yield job(context, "under valgrind", 2, ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite", talks], "good")
    for sanitizer, programs in SANITIZERS.items():
        for program in programs:
            yield sanitized(context, sanitizer, program)


def program_of(context, name):
    return str(context.work / "guest" / name)


def build(context, program, name=None, more=()):
    (context.work / "guest").mkdir(exist_ok=True)
    source = context.root / "tests/guest" / f"{program}.c"
    command = [context.mpicc(), *FLAGS, *more, str(source), "-o", program_of(context, name or program)]
    return context.execute(f"guest build {name or program}", command, timeout=60)


def run(context, name, ranks, command, word):
    result = context.execute(f"guest {name}", context.launcher(ranks) + command, timeout=LIMIT_S)
    check(result)
    if word not in result.output:
        raise Failure(f"'{word}' was not said (log: {result.log})")


def job(context, name, ranks, command, word):
    def case():
        if not shutil.which(command[0]):
            raise Skip(f"{command[0]} is not installed")
        run(context, name, ranks, command, word)

    return Case(f"guest/{name}", case)


def sanitized(context, sanitizer, program):
    name = f"{program} with the {sanitizer} sanitizer"

    def case():
        built = build(context, program, f"{program}-{sanitizer}", [f"-fsanitize={sanitizer}"])
        if built.code != 0:
            raise Skip(f"the compiler has no {sanitizer} sanitizer here")
        run(context, name, 2, [program_of(context, f"{program}-{sanitizer}")], "good" if program == "talks" else "ok")

    return Case(f"guest/{name}", case)
