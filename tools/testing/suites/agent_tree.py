"""Jobs whose agents report to each other in levels: on hosts that are network namespaces, under another launcher, and on hundreds of hosts that are all this machine. Few agents to a
parent (GARONNE_FAN_OUT) make many levels of few hosts. What `garonne run` does there is in crates/tools/cli/tests/agent_tree.rs.
"""

import os
import random
import signal
import time

from ..other_launchers import Hydra
from ..time_limits import HOST_SILENT_S, within
from ..marked_jobs import PATIENCE_S, MarkedJob, expect, kill_one
from ..namespaces import Hosts
from ..runner import Case
from .launchers import program

ROUNDS, SOAK_ROUNDS = 4, 100
# Agents that find their line silent end what runs on their host after 20 s, and those below them then.
SILENCE_S = 90
MANY = 300


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    (context.work / "launchers").mkdir(exist_ok=True)
    talk = program(context, "hosts", "talk")
    yield Case("levels/between namespaces", lambda: between_namespaces(context, talk))
    yield Case("levels/hydra", lambda: hydra(context, talk))
    yield Case("levels/kills at any moment", lambda: kills(context, talk))
    if context.soak:
        yield Case("levels/an inner host is cut off", lambda: cut_off(context, talk))
        meet = program(context, "hosts", "meet")
        yield Case(f"agent-tree/{MANY} hosts", lambda: many(context, meet), alone=True)


def on(context, hosts, words, fan_out=2):
    """`garonne run` on the first of some namespaces, with a rank on each of the others."""
    command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec", "--host", ",".join(hosts.names[1:]), *words]
    return MarkedJob(command, context.environment({"GARONNE_FAN_OUT": str(fan_out)}))


def between_namespaces(context, talk):
    with Hosts(6) as hosts:
        code, output = on(context, hosts, [talk, "5"]).end()
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
        # The agent in the middle: its parent names its host, its children end by themselves.
        job = on(context, hosts, [talk, "0"])
        job.wait_for_ranks(talk, 5)
        os.kill(agent_of(job, hosts.names[1]), signal.SIGKILL)
        code, output = job.end()
        expect(code != 0 and "G0217" in output and hosts.names[1] in output, f"exit code {code}", output)


def agent_of(job, host):
    """The agent on a host: of the processes there the one whose child is a rank's."""
    for pid, command in job.alive().items():
        if "garonne agent" in command and "ip netns exec" not in command and on_host(pid, host):
            children = open(f"/proc/{pid}/task/{pid}/children").read().split()
            if any("talk" in job.alive().get(int(child), "") for child in children):
                return pid
    raise AssertionError(f"no agent on {host} among {job.alive()}")


def on_host(pid, host):
    return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat(f"/run/netns/{host}").st_ino


def hydra(context, talk):
    """Where each agent finds its parent in the launcher's exchange."""
    names = ",".join(f"h{number}" for number in range(9))
    with Hydra(context) as engine:
        for fan_out in (2, 3):
            command = [engine.program, "-launcher", "fork", "-hosts", names, "-ppn", 1, "-n", 9, talk, "3"]
            code, output = MarkedJob(command, context.environment({"GARONNE_FAN_OUT": str(fan_out)})).end()
            expect(code == 0 and "all is well" in output and output.count("with 1\n") == 9, f"exit code {code} where {fan_out} report to one", output)


def kills(context, talk):
    """Any process of the job, at any moment, whatever its level: the job ends with an error, and nothing is left."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))
    dice = random.Random(seed)
    hosts = ",".join(f"h{number}" for number in range(1, 11))
    for number in range(SOAK_ROUNDS if context.soak else ROUNDS):
        command = [context.prefix / "bin" / "garonne", "run", "--bind-to", "none", "--launcher", "sh -c 'shift; exec \"$@\"' sh", "--host", hosts, talk, "0"]
        job = MarkedJob(command, context.environment({"GARONNE_FAN_OUT": "2"}))
        time.sleep(dice.uniform(0, 1))
        kinds = {}
        for pid, command in sorted(job.alive().items()):
            kind = "agent" if "garonne agent" in command else "rank" if command.startswith(str(talk)) else "other"
            kinds.setdefault(kind, []).append((pid, command))
        if not kinds:
            job.sweep()
            continue
        victim = kill_one(dice, kinds)
        code, output = job.end(limit=SILENCE_S)
        expect(code != 0, f"GARONNE_TEST_SEED={seed}, round {number}: success after the death of {victim}", output)


def cut_off(context, talk):
    """A host with others below it vanishes without a word: all ends, and it is named."""
    with Hosts(6) as hosts:
        job = on(context, hosts, [talk, "0"])
        job.wait_for_ranks(talk, 5)
        hosts.cut(2)
        code, output = job.end(limit=within(HOST_SILENT_S))
        expect(code != 0 and "G0217" in output and hosts.names[1] in output, f"exit code {code}", output)


def many(context, meet):
    """As users have them: 32 agents to a parent. All ranks meet; then an agent with others below it is killed."""
    hosts = ",".join(f"h{number}" for number in range(1, MANY + 1))
    start = [context.prefix / "bin" / "garonne", "run", "--bind-to", "none", "--launcher", "sh -c 'shift; exec \"$@\"' sh", "--host", hosts]
    code, output = MarkedJob([*start, meet, "5"], context.environment()).end(limit=10 * PATIENCE_S)
    expect(code == 0 and "all is well" in output and output.count(f" of {MANY}\n") == MANY, f"exit code {code}", output)
    job = MarkedJob([*start, "sleep", "1000"], context.environment())
    until = time.monotonic() + 2 * PATIENCE_S
    while sum(command == "sleep 1000" for command in job.alive().values()) < MANY:
        expect(time.monotonic() < until and job.process.poll() is None, "the ranks do not come", "")
        time.sleep(0.2)
    # The first host's: launcher, guard, agent; the last of them has the rank.
    agents = [pid for pid, command in sorted(job.alive().items()) if "garonne agent" in command]
    os.kill(agents[0], signal.SIGKILL)
    code, output = job.end(limit=SILENCE_S)
    expect(code != 0, f"exit code {code} after the death of an agent with others below it", output)
