"""Rails of ranks of one host: the system refuses one in the middle of a job, which goes on by what is left; large data take two at once, of which one stands still for a while."""

import json
import os
import random
import subprocess
import time

from ..seeded_runs import seeded_run
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Hosts, Wires, namespaces
from ..runner import Case, Failure, check
from ..network_faults import NetworkFaults, network_command
from .hosts import SILENCE_S, Job, launcher_of

# How long networks of a job come and go, and how long each kind of storm goes on with new seeds in a soak.
SECONDS = int(os.environ.get("GARONNE_TEST_RAILS_SECONDS", "0"))
SHORT_S, SOAK_S = 12, 300
BUILD_LIMIT_S = 2400
STORMS = ["messages_of_all_sizes_come_once_and_whole_in_all_weathers", "packets_and_shaped_bulk_data_come_once_and_whole_in_all_weathers"]
BOTH = ["-x", "GARONNE_RAILS=shm,tcp"]


def suite(context):
    if context.foreign:
        return  # what this library does is tested here
    context.installed()
    binaries = context.work / "rails"
    binaries.mkdir(exist_ok=True)
    refused = binaries / "refused"
    context.build_program("rails", "tests/rails/refused.c", refused)
    talk = binaries / "talk"
    context.build_program("rails", "tests/hosts/talk.c", talk)
    for case in (both_at_once, both_and_one_stands_still, misunderstood, ranks_that_differ):
        yield Case(f"rails/{case.__name__.replace('_', ' ')}", lambda case=case: case(context, talk))
    restless = binaries / "restless"
    context.build_program("rails", "tests/rails/restless.c", restless, "-O2")
    yield Case("rails/networks that come and go", lambda: networks_that_come_and_go(context, restless))
    if context.soak:
        build = ["cargo", "test", "--release", "-p", "garonne-tcp", "--test", "tcp", "--no-run"]
        check(context.execute("rails build storms", build, timeout=BUILD_LIMIT_S, env=context.environment({})))
        for name in STORMS:
            yield Case(f"rails/{name.replace('_', ' ')}", lambda name=name: seeded_run(context, "rails", ["-p", "garonne-tcp", "--test", "tcp", f"storm::{name}"], SECONDS or SOAK_S, 2 * (SECONDS or SOAK_S) + 300))
    for who in (-1, 0):
        yield Case(f"rails/memory refused to {'all' if who < 0 else f'rank {who}'}", lambda who=who: memory_refused(context, refused, who))


def memory_refused(context, refused, who):
    """From the middle on the system lets all, or one, of the ranks into nobody's memory."""
    for ranks, rails in ((2, []), (3, []), (2, BOTH), (3, BOTH)):
        code, output = MarkedJob([context.prefix / "bin" / "garonne", "run", "-n", ranks, *rails, refused, who], context.environment()).end()
        expect(code == 0 and "all is well" in output, f"exit code {code} on {ranks} ranks {rails}", output)


def ranks_that_differ(context, talk):
    run = [context.prefix / "bin" / "garonne", "run", "-n", "2"]
    code, output = MarkedJob([*run, *BOTH, "sh", "-c", f"test $PMI_RANK = 1 && unset GARONNE_RAILS; exec {talk} 5"], context.environment()).end()
    expect(code != 0 and "G0231" in output and "GARONNE_RAILS is shm" in output, f"exit code {code}", output)
    code, output = MarkedJob([*run, "sh", "-c", f"GARONNE_RAILS=shm,tcp exec {talk} 5"], context.environment()).end()
    expect(code != 0 and "G0231" in output and "was not where its job was started" in output, f"exit code {code}", output)


class Watched(MarkedJob):
    """A job of two ranks that send each other eight megabytes at a time, by both rails, and say what each has brought."""

    def __init__(self, context, talk, within=()):
        self.within, self.talk, self.garonne, self.environment = within, talk, context.prefix / "bin" / "garonne", context.environment()
        super().__init__([*within, self.garonne, "run", "-n", "2", *BOTH, talk, "0", "8000000"], self.environment)

    def brought(self):
        """Megabytes that each rail has brought to rank 0, once that is there and its agent finds the time to answer."""
        command = [*self.within, self.garonne, "why", "gate", "0", str(self.process.pid), "--json"]
        until = time.monotonic() + PATIENCE_S
        while (done := subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)).returncode != 0:
            expect(time.monotonic() < until, f"exit code {done.returncode}", done.stdout + done.stderr)
            time.sleep(0.2)
        ways = json.loads(done.stdout)[0]["large_data"]
        return {"shared memory": 0, "TCP": 0} | {way["over"]: way["mb"] for way in ways}

    def wait_for(self, rail, least):
        """Waits until a rail has brought so much, and says what both have."""
        until = time.monotonic() + PATIENCE_S
        while (seen := self.brought())[rail] < least:
            expect(time.monotonic() < until, f"{least} MB by {rail} never came", str(seen))
            time.sleep(0.2)
        return seen


def both_at_once(context, talk):
    """Large data go by shared memory and TCP where somebody asks for both."""
    job = Watched(context, talk)
    with job:
        job.wait_for_ranks(talk, 2)
        job.wait_for("shared memory", 20)
        job.wait_for("TCP", 2)
        said = subprocess.run([job.garonne, "network", "--job", str(job.process.pid)], env=job.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        expect(said.returncode == 0 and "by TCP (GARONNE_RAILS=shm,tcp), which has brought" in said.stdout, "garonne network", said.stdout + said.stderr)
    job.end_well(talk)


def both_and_one_stands_still(context, talk):
    """The network of the host stands still in the middle of messages, which come by shared memory then; afterwards it takes part again."""
    with Hosts(1) as hosts:
        name = hosts.names[0]
        job = Watched(context, talk, ["ip", "netns", "exec", name])
        with job:
            job.wait_for_ranks(talk, 2)
            for _ in range(2):
                before = job.wait_for("TCP", job.brought()["TCP"] + 2)
                namespaces.ip("-n", name, "link", "set", "lo", "down")
                # Many messages more than can have been under way.
                job.wait_for("shared memory", before["shared memory"] + 100)
                namespaces.ip("-n", name, "link", "set", "lo", "up")
        job.end_well(talk)


def misunderstood(context, talk):
    """What is no list of rails ends the job with a word about what there is."""
    for said in ("tcp", "shm,tcp,ofi"):
        code, output = MarkedJob([context.prefix / "bin" / "garonne", "run", "-n", "2", "-x", f"GARONNE_RAILS={said}", talk, "1"], context.environment()).end()
        expect(code != 0 and "G0225" in output and "shm,tcp" in output, f"exit code {code}", output)


def networks_that_come_and_go(context, restless):
    """Two hosts with two networks, and at times a third: each is cut, slowed, down, taken away, out of use and back, at random, while messages of all lengths go both ways. Every byte of them comes,
    once and in order."""
    seed = int(os.environ.get("GARONNE_TEST_SEED", random.getrandbits(32)))
    seconds = SECONDS or (SOAK_S if context.soak else SHORT_S)
    with Wires(["400mbit", "200mbit"]) as hosts:
        job = Job(context, hosts, ["--host", f"localhost:1,{hosts.names[1]}:2", restless, seed])
        again = f"GARONNE_TEST_SEED={seed} GARONNE_TEST_RAILS_SECONDS={seconds} ./x test 'rails/networks that come and go' does it again: "
        faults = None
        try:
            with job:
                job.wait_for_ranks(restless, 3)
                faults = NetworkFaults(hosts, seed, network_command(context, hosts, launcher_of(job)))
                faults.inject(seconds, lambda: job.process.poll() is None)
            job.end_well(restless, 2 * SILENCE_S)
        except Exception as failure:  # also what a network refuses: the seed is what one needs
            said = "" if job.process.poll() is None else (job.process.stdout.read() if not job.process.stdout.closed else b"").decode(errors="replace")
            raise Failure(f"{again}{failure}\n{said[-2000:]}\nwhat was done last:\n{faults.log() if faults else 'nothing'}") from None
