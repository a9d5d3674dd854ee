"""Processes that start while a program runs: spawn, ports, published names, and what ends with what."""

from ..runner import Case, Failure, check
from . import mpich_abi, openmpi_abi

DONE = "the first world is done"


def suite(context):
    context.installed()
    place = context.work / "processes"
    place.mkdir(exist_ok=True)
    program = place / "processes"
    source = context.root / "tests/processes/processes.c"
    check(context.execute("processes build", [context.mpicc(), "-O1", "-Wall", source, "-o", program], timeout=60))
    ranks = context.launcher
    yield case(context, "four started by two", [*ranks(2), program, "talk"], [DONE])
    yield case(context, "started without a launcher", [program, "talk"], [DONE])
    yield case(context, "a program that is not there", [*ranks(1), program, "missing"], [DONE])
    yield case(context, "a started process that is killed", [*ranks(1), program, "child-killed"], [DONE, "G0206"])
    yield case(context, "a parent that is killed", [*ranks(1), program, "parent-killed"], ["G0206"], 128 + 9)
    yield case(context, "a started process that ends last", [*ranks(1), program, "late"], ["the started process ends last"])
    yield case(context, "ports and published names", [*ranks(4), program, "ports"], [DONE])
    yield case(context, "two that have a socket", [*ranks(2), program, "join"], [DONE])
    if not context.foreign:
        for abi in (mpich_abi.family(context), openmpi_abi.family(context)):
            converted = abi.build(context, place, source, name=f"processes_{abi.name}")
            yield case(context, f"four started by two, through {abi.library}", [*ranks(2), converted, "talk"], [DONE])
    again = "repeat-long" if context.soak else "repeat"
    yield case(context, "started and disconnected again and again", [*ranks(1), program, again], [DONE])


def case(context, name, command, words, code=0):
    def run():
        result = context.execute(f"processes/{name}", list(map(str, command)), timeout=180 if context.soak else 60)
        if result.code != code:
            raise Failure(f"it ended with {result.code} and not {code} (log: {result.log})\n{result.output[-1000:]}")
        for word in words:
            if word not in result.output:
                raise Failure(f"'{word}' was not said (log: {result.log})\n{result.output[-1000:]}")

    return Case(f"processes/{name}", run)
