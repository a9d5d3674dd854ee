"""Ranks that die while others go on: errors, acknowledgements, revocation, agreement, shrinking."""

from ..runner import Case, Failure, check
from . import mpich_abi, openmpi_abi

SCENES = {"alone": 0, "point-to-point": 1, "any-source": 1, "collectives": 1, "revoke": 0, "shrink": 2}


def suite(context):
    context.installed()
    place = context.work / "faults"
    place.mkdir(exist_ok=True)
    program = place / "faults"
    source = context.root / "tests/faults/faults.c"
    check(context.execute("faults build", [context.mpicc(), "-O1", "-Wall", source, "-o", program], timeout=60))
    ranks = context.launcher
    survive = [*ranks(4), "--survive"]
    for scene, deaths in SCENES.items():
        yield case(context, scene, [*survive, program, scene], f"{scene}: done", deaths)
    yield case(context, "alone, without --survive", [*ranks(3), program, "alone"], "alone: done", 0)
    yield case(context, "alone, without a launcher", [program, "alone"], "alone: done", 0)
    if not context.foreign:
        for abi in (mpich_abi.family(context), openmpi_abi.family(context)):
            converted = abi.build(context, place, source, name=f"faults_{abi.name}")
            for scene, deaths in SCENES.items():
                yield case(context, f"{scene}, through {abi.library}", [*survive, converted, scene], f"{scene}: done", deaths)


def case(context, name, command, done, deaths):
    def run():
        result = context.execute(f"faults/{name}", list(map(str, command)), timeout=60)
        if result.code != 0 or done not in result.output or result.output.count("was killed by SIGKILL") != deaths:
            raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")

    return Case(f"faults/{name}", run)
