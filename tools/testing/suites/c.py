"""The conformance programs of tests/c, in C and C++: one per chapter of the standard, on the numbers of ranks that each declares."""

import re

from ..runner import Case, check

# With a sanitizer's or a debugger's slowness in mind; a program may declare its own.
LIMIT_S = 60
FLAGS = ["-Wall", "-Wextra", "-Werror", "-O1", "-g"]


def suite(context):
    context.installed()
    binaries = context.work / "c"
    binaries.mkdir(exist_ok=True)
    place = context.root / "tests" / "c"
    for source in sorted([*place.glob("*.c"), *place.glob("*.cpp")]):
        if context.foreign and "MPIX_" in source.read_text():
            continue  # what only we have
        head = source.read_text().split("*/", 1)[0]
        ranks = [int(n) for n in re.search(r"ranks: ([\d ]+)", head).group(1).split()]
        limit = re.search(r"limit: (\d+)", head)
        program = binaries / source.stem
        build(context, source, program)
        for n in ranks:
            yield program_case(context, program, n, int(limit.group(1)) if limit else LIMIT_S)
    if not context.foreign:
        example = binaries / "halo_notify"
        build(context, context.root / "examples/halo_notify.c", example)
        for ranks in (1, 4):
            yield Case(f"c/example halo_notify on {ranks}", lambda ranks=ranks: check(context.execute("c/halo_notify", [*context.launcher(ranks), str(example), "100", "300"], timeout=LIMIT_S)))


def build(context, source, program):
    if program.exists():
        program.unlink()
    compiler = [context.mpicxx(), "-std=gnu++17"] if source.suffix == ".cpp" else [context.mpicc(), "-std=gnu11"]
    command = [*compiler, *FLAGS, str(source), "-o", str(program), "-lm", "-lpthread"]
    check(context.execute(f"c build {source.stem}", command, timeout=60))


def program_case(context, program, ranks, limit):
    name = f"c/{program.name} on {ranks}"

    def run():
        check(context.execute(name, context.launcher(ranks) + [str(program)], timeout=limit))

    return Case(name, run)
