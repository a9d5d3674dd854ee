"""Processes that start while a program runs: spawn, ports, published names, and what ends with what."""

import os

from ..jobs_on_hosts import run as run_on_hosts
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Hosts
from ..other_launchers import Slurm
from ..runner import Case, Failure, check
from . import mpich_abi, openmpi_abi

DONE = "the first world is done"
# What the accepting and the connecting job do, and the exit codes of both; None: any failure.
MEETINGS = [("both end well", "accept", "connect", 0, 0), ("one is killed, and the other returns the error", "accept-killed", "connect-killed", 137, 0),
            ("one is killed, and the other ends", "accept-killed", "connect-fatal", 137, None), ("one is killed after both have disconnected", "accept-gone", "connect-gone", 137, 0),
            ("one has left, and the other returns the error", "accept-left", "connect-left", 0, 0)]

# Where the first job runs, on which of three hosts the started processes are to run, with how many each, and the mode.
PLACES = {"all elsewhere": ([0, 0], {1: 2, 2: 2}, "placed"), "all on one": ([0, 0], {1: 4}, "placed"), "here and there": ([0, 0], {0: 2, 2: 2}, "placed"),
          "started by two hosts": ([1, 2], {2: 2, 0: 2}, "placed"), "ended last by another host": ([2, 1], {}, "late")}


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
    yield case(context, "a program that is not there", [*ranks(2), program, "missing"], [DONE])
    yield case(context, "fewer than asked", [*ranks(2), program, "soft"], [DONE])
    yield case(context, "in a directory, by a path", [*ranks(2), program, "placed"], [DONE, " in /\n"])
    yield case(context, "a started process that is killed", [*ranks(1), program, "child-killed"], [DONE, "G0206"])
    yield case(context, "a started process that is killed, seen by all", [*ranks(3), program, "child-killed"], [DONE, "G0206"])
    yield case(context, "a parent that is killed", [*ranks(1), program, "parent-killed"], ["G0206"], 128 + 9)
    yield case(context, "a started process that ends last", [*ranks(1), program, "late"], ["the started process ends last"])
    yield case(context, "ports and published names", [*ranks(4), program, "ports"], [DONE])
    yield case(context, "two that have a socket", [*ranks(2), program, "join"], [DONE])
    if not context.foreign:
        for abi in (mpich_abi.family(context), openmpi_abi.family(context)):
            converted = abi.build(context, place, source, name=f"processes_{abi.name}")
            yield case(context, f"four started by two, through {abi.library}", [*ranks(2), converted, "talk"], [DONE])
            yield case(context, f"a program that is not there, through {abi.library}", [*ranks(2), converted, "missing"], [DONE])
        yield Case("processes/under slurm", lambda: under_slurm(context, program))
        for name, *how in MEETINGS:
            yield Case(f"processes/two jobs: {name}", lambda name=name, how=how: two_jobs(context, program, name, how))
        for name, how in PLACES.items():
            yield Case(f"processes/on other hosts: {name}", lambda how=how: on_other_hosts(context, program, *how))
        yield Case("processes/in jobs of two hosts", lambda: in_jobs_of_two_hosts(context, program))
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


def two_jobs(context, program, name, how):
    meeting(context, program, name, *how)


def meeting(context, program, name, accepts, connects, accepted, connected, starts=None, service=None):
    """Two jobs of two ranks, which meet at a port; `starts`: the beginning of each command. Returns the output of the connecting one."""
    port = context.work / "processes" / f"port-{os.getpid()}-{accepts}-{connects}"
    port.unlink(missing_ok=True)
    environment = context.environment({"PORT_FILE": str(port), **({"SERVICE": service} if service else {})})
    first, second = starts or (context.launcher(2), context.launcher(2))
    one = MarkedJob([*map(str, first), str(program), accepts], environment)
    two = MarkedJob([*map(str, second), str(program), connects], environment)
    (code, output), (first_code, first_output) = two.end(PATIENCE_S), one.end(PATIENCE_S)
    for role, found, wanted, text in (("accepts", first_code, accepted, first_output), ("connects", code, connected, output)):
        expect(found == wanted if wanted is not None else found != 0, f"{name}: the job that {role} ended with {found}", text)
        expect((DONE in text) == (wanted == 0), f"{name}: the job that {role} did not end as it should", text)
    port.unlink(missing_ok=True)
    return output


def on_other_hosts(context, program, first, then, mode):
    """`first`: where the ranks of the first job run; `then`: how many of the started ones run where. Nothing is left when the command returns."""
    with Hosts(3) as hosts:
        place = lambda at: "localhost" if at == 0 else hosts.names[at]
        where = ["--map-by", "node", "-n", len(first), "--host", ",".join(map(place, first))] if any(first) else ["-n", len(first)]
        if then:
            where += ["-genv", "SPAWN_HOSTS", ",".join(f"{hosts.names[at]}:{count}" for at, count in then.items())]
        code, output = run_on_hosts(context, hosts, [*where, program, mode])
        expect(code == 0 and DONE in output, f"exit code {code}", output)
        for at, count in then.items():
            expect(output.count(f"started on {hosts.names[at]} in /\n") == count, f"not {count} run on {hosts.names[at]}", output)
        expect(then or "the started process ends last" in output, "the started process was ended", output)


def under_slurm(context, program):
    """Ranks of `srun` start processes, and those of `garonne run` in an allocation, where they come to all its nodes."""
    run = lambda *words: MarkedJob(list(map(str, words)), context.environment(slurm.environment)).end()
    with Slurm(context) as slurm:
        srun = ["srun", "--quiet", "--mpi=pmi2", "--overcommit", "-N2", "-n2"]
        for mode, said in (("talk", DONE), ("missing", DONE), ("child-killed", "G0206"), ("late", "the started process ends last")):
            code, output = run(*srun, program, mode)
            expect(code == 0 and said in output, f"exit code {code} of {mode} by srun", output)
        code, output = run("salloc", "--quiet", "-N2", "--ntasks-per-node=1", context.prefix / "bin/garonne", "run", "-n", 2, program, "placed")
        expect(code == 0 and DONE in output, f"exit code {code} in an allocation", output)
        expect(all(f"started on {node} in /" in output for node in ("gn1", "gn2")), "the started ones are not on both nodes", output)


def in_jobs_of_two_hosts(context, program):
    """A job of each host, and jobs that both have ranks of; a name is found on its host alone, and elsewhere it is said how to go on."""
    run_on = lambda hosts, at, *words: ["ip", "netns", "exec", hosts.names[at], context.prefix / "bin/garonne", "run", "--launcher", "ip netns exec", *words]
    service = f"a service of {os.getpid()}"
    with Hosts(2) as hosts:
        output = meeting(context, program, "apart", "accept", "connect", 0, 0, [run_on(hosts, at, "-n", 2) for at in (0, 1)], service)
        expect("give MPI_Comm_connect the port itself" in output, "it is not said how to go on", output)
        both = ["--map-by", "node", "-n", 2, "--host"]
        crossed = [run_on(hosts, at, *both, f"localhost,{hosts.names[1 - at]}") for at in (0, 1)]
        output = meeting(context, program, "crossed", "accept", "connect", 0, 0, crossed, service)
        output = meeting(context, program, "near", "accept", "connect", 0, 0, [run_on(hosts, 1, "-n", 2)] * 2, service)
        expect("the name is found" in output, "the name is not found on its own host", output)
        meeting(context, program, "killed", "accept-killed", "connect-killed", 137, 0, [run_on(hosts, at, "-n", 2) for at in (0, 1)])
