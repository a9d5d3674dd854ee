"""What an operation costs, in instructions, does not grow with the number of others of its kind.

tests/growth/many.c makes many of each kind (requests, communicators, keys, ...) in a function of its own. Callgrind counts what these
functions take with MANY of them and with ten times as many: the second may cost ten times the first, and the little that larger
tables add. Something that is walked for each operation would cost a hundred times as much.
"""

import re
import shutil

from ..runner import Case, Failure, Skip, check

MANY, MORE = 10_000, 100_000
# How much more the larger number may cost for each operation: tables that double, and trees that get a level deeper.
GROWTH = 1.6
LIMIT_S = 400


def suite(context):
    context.installed()
    yield Case("growth/many operations of each kind", lambda: run(context))


def run(context):
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    work = context.work / "growth"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    program, source = work / "many", context.root / "tests" / "growth" / "many.c"
    command = [context.mpicc(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", source, "-o", program]
    check(context.execute("growth build", command, timeout=60))
    kinds = re.findall(r"^KIND (\w+)", source.read_text(), re.M)
    few, more = (measure(context, work, program, many) for many in (MANY, MORE))
    worst = []
    for kind in kinds:
        if kind not in few or kind not in more:
            raise Failure(f"{kind} is not among the functions that main calls")
        each, then = few[kind] / MANY, more[kind] / MORE
        print(f"    {kind}: {each:.0f} instructions for each of {MANY}, {then:.0f} for each of {MORE}", flush=True)
        if then > GROWTH * each:
            worst.append(f"{kind} costs {each:.0f} instructions for each of {MANY}, and {then:.0f} for each of {MORE}")
    if worst:
        raise Failure("; ".join(worst))


def measure(context, work, program, many):
    """The instructions of each function that `main` calls through its table, with so many operations."""
    out = work / f"callgrind.{many}"
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}.%p"]
    done = context.execute(f"scaling {many}", context.launcher(1) + tool + [program, many], timeout=LIMIT_S)
    check(done)
    return {kind: cost for path in work.glob(f"{out.name}.*") for kind, cost in costs_below_main(path).items()}


def costs_below_main(path):
    """The instructions of each function that `main` calls, with all that it calls, from a callgrind file."""
    names, costs, function, callee, calls = {}, {}, None, None, False
    for line in path.read_text().splitlines():
        if match := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?$", line):
            called, number, name = match.groups()
            if name:
                names[number] = name
            if called:
                callee = names[number]
            else:
                function = names[number]
        elif line.startswith("calls="):
            calls = True
        elif calls:
            calls = False
            if function == "main":
                costs[callee] = costs.get(callee, 0) + int(line.split()[1])
    return costs
