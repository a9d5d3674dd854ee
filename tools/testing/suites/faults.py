"""Ranks that die while others go on: errors, acknowledgements, revocation, agreement, shrinking; on one host and on two."""

import itertools

from ..jobs_on_hosts import run as run_on_hosts
from ..namespaces import Hosts
from ..runner import Case, Failure, check
from . import mpich_abi, openmpi_abi

# Scenes of tests/faults/faults.c, and how many ranks die in each.
SCENES = {"alone": 0, "point-to-point": 1, "any-source": 1, "collectives": 1, "revoke": 0, "shrink": 2, "lock-holder": 1, "lock-all-holder": 1, "file-write": 1, "file-iwrite": 1, "accumulate-holder": 1, "exposures": 1, "accesses": 1,
          "groups": 1, "partial-groups": 1, "facing-groups": 1, "partitions": 1, "spawned": 1}
KILLED = "was killed by SIGKILL"
# How many ranks are killed under the stencil.
KILLS, SOAK_KILLS = 25, 1000


def suite(context):
    context.installed()
    place = context.work / "faults"
    place.mkdir(exist_ok=True)
    program, stencil, respawn = place / "faults", place / "heat_survive", place / "heat_respawn"
    source = context.root / "tests/faults/faults.c"
    for what, into in ((source, program), (context.root / "examples/heat_survive.c", stencil), (context.root / "examples/heat_respawn.c", respawn)):
        check(context.execute(f"{into.name} build", [context.mpicc(), "-O1", "-Wall", what, "-o", into], timeout=60))
    ranks = context.launcher
    survive = [*ranks(4), "--survive"]
    for scene, deaths in SCENES.items():
        yield case(context, scene, [*survive, program, scene], f"{scene}: done", deaths)
    yield case(context, "alone, without --survive", [*ranks(3), program, "alone"], "alone: done", 0)
    yield case(context, "alone, without a launcher", [program, "alone"], "alone: done", 0)
    yield Case("faults/nobody is left", lambda: nobody_left(context, ranks(2)))
    yield Case("faults/a stencil whose ranks are killed", lambda: killed(context, [*ranks(6), "--survive"], stencil))
    yield Case("faults/a stencil whose dead are replaced", lambda: killed(context, [*ranks(4), "--survive"], respawn, KILLS // 3))
    if context.foreign:
        return
    for abi in (mpich_abi.family(context), openmpi_abi.family(context)):
        converted = abi.build(context, place, source, name=f"faults_{abi.name}")
        for scene, deaths in SCENES.items():
            yield case(context, f"{scene}, through {abi.library}", [*survive, converted, scene], f"{scene}: done", deaths)
    for scene, deaths in SCENES.items():
        yield Case(f"faults/{scene}, on two hosts", lambda scene=scene, deaths=deaths: across(context, program, scene, deaths))
    yield Case("faults/a death before others begin, on two hosts", lambda: early_death(context, program, place / "about to die"))
    yield Case("faults/a stencil on two hosts whose ranks are killed", lambda: killed_across(context, stencil))


def judge(code, output, done, deaths, log=""):
    if code != 0 or done not in output or output.count(KILLED) != deaths:
        raise Failure(f"it ended with {code}, {output.count(KILLED)} were killed {log}\n{output[-1000:]}")


def case(context, name, command, done, deaths):
    def run():
        result = context.execute(f"faults/{name}", list(map(str, command)), timeout=60)
        judge(result.code, result.output, done, deaths, f"(log: {result.log})")

    return Case(f"faults/{name}", run)


def nobody_left(context, launcher):
    """The exit code is that of the first death where all are dead."""
    command = [*map(str, launcher), "--survive", "sh", "-c", "kill -9 $$"]
    result = context.execute("faults/nobody left", command, timeout=60)
    if result.code != 128 + 9 or result.output.count(KILLED) != 2:
        raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")


def killed(context, launcher, stencil, kills=KILLS):
    deaths = 0
    for seed in itertools.count(1):
        name = f"faults/{stencil.name}" if seed % 50 else f"faults/{stencil.name} {seed}"
        result = context.execute(name, [*map(str, launcher), str(stencil), "1000", "600", str(seed)], timeout=120)
        if result.code != 0 or "the answer is right" not in result.output:
            raise Failure(f"seed {seed}: it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
        deaths += result.output.count(KILLED)
        if deaths >= (SOAK_KILLS if context.soak else kills):
            return


def early_death(context, program, file):
    file.unlink(missing_ok=True)
    across(context, program, "early-death", 1, file)


def across(context, program, scene, deaths, *more):
    with Hosts(2) as hosts:
        where = ["-n", 4, "--map-by", "node", "--host", f"localhost,{hosts.names[1]}", "--survive"]
        judge(*run_on_hosts(context, hosts, [*where, program, scene, *more]), f"{scene}: done", deaths)


def killed_across(context, stencil):
    with Hosts(2) as hosts:
        where = ["-n", 6, "--map-by", "node", "--host", f"localhost,{hosts.names[1]}", "--survive"]
        deaths = 0
        for seed in itertools.count(1):
            code, output = run_on_hosts(context, hosts, [*where, stencil, "1000", "300", seed])
            if code != 0 or "the answer is right" not in output:
                raise Failure(f"seed {seed}: it ended with {code}\n{output[-1000:]}")
            deaths += output.count(KILLED)
            if deaths >= (SOAK_KILLS // 10 if context.soak else KILLS // 5):
                return
