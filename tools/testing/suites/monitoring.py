"""What `garonne top`, `overlap` and `trace` show of jobs on several hosts, which are network namespaces: the ranks of all of them, in one host's time, and which hosts say nothing.

Namespaces share a clock, so that what is found of those of other hosts is known to be wrong by what it differs from nothing.
"""

import collections
import json
import os
import shutil
import signal
import subprocess
import time

from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..namespaces import Hosts, OneWay
from ..runner import Case, check
from .joining import Job
from .who import rank_of

LIMIT_S = 120


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    for case in (running, named, silent, left, whole, joined):
        name = case.__doc__.split("\n")[0].rstrip(".")
        yield Case(f"monitoring/{name}", lambda case=case: case(Stories(context, case.__name__)), alone=True)


class Stories:
    """The program of known stories (tests/trace), its directory, and jobs of it over hosts."""

    def __init__(self, context, name):
        self.context = context
        self.directory = context.work / f"seen-{name}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.program = self.directory / "stories"
        self.file = self.directory / "trace.json"
        source = context.root / "tests" / "trace" / "stories.c"
        check(context.execute(f"monitoring build {name}", [context.mpicc(), "-g", "-O1", source, "-o", self.program], timeout=60))

    def job(self, hosts, where, *words, extra=None):
        command = ["ip", "netns", "exec", hosts.names[0], self.garonne(), "run", "--launcher", "ip netns exec", "--map-by", "node", "--host", where, "--bind-to", "none", *words]
        return MarkedJob(command, self.context.environment(extra))

    def garonne(self):
        return self.context.prefix / "bin" / "garonne"

    def started(self, ranks):
        """Waits until all ranks of an endless story run."""
        until = time.monotonic() + PATIENCE_S
        while not all((self.directory / f"running.{rank}").exists() for rank in range(ranks)):
            expect(time.monotonic() < until, "the ranks did not start", "")
            time.sleep(0.05)

    def stop(self, job):
        (self.directory / "stop.0").touch()
        code, output = job.end()
        expect(code == 0, f"exit code {code}", output)

    def ask(self, hosts, at, *words):
        """What the command says on one of the hosts, whose network has one agent."""
        command = ["ip", "netns", "exec", hosts.names[at], self.garonne(), *map(str, words)]
        done = subprocess.run(command, env=self.context.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        expect(done.returncode == 0, f"{words} on host {at}", done.stdout + done.stderr)
        return done.stdout, done.stderr

    def top(self, hosts, at, until):
        patience = time.monotonic() + PATIENCE_S
        while True:
            said = json.loads(self.ask(hosts, at, "top", "--once", "--json", "--every", "0.2")[0])
            if until(said):
                return said
            expect(time.monotonic() < patience, f"top on host {at} does not say what it should", str(said))


def of_ranks(said):
    return {rank["rank"]: rank for rank in said["ranks"]}


def look_at(trace, hosts, ranks):
    """What holds of a timeline of several hosts: every rank with its host, clocks as far apart as they are said to be, and arrows between hosts that lead back by no more."""
    events, about = trace["traceEvents"], trace["otherData"]
    expect({event["pid"] for event in events if event["ph"] == "B"} == set(range(ranks)), "ranks are missing", str(about))
    host = {event["pid"]: event["args"]["labels"] for event in events if event["name"] == "process_labels"}
    expect(set(host) == set(range(ranks)) and len(set(host.values())) == hosts, "hosts of ranks", str(host))
    # The first is the one that writes, which may have none of the ranks.
    expect(set(host.values()) - {about["hosts"][0]["host"]} == {clock["host"] for clock in about["hosts"][1:]}, "hosts are missing", str(about))
    for clock in about["hosts"]:
        expect(abs(clock["clock_ahead_ns"]) <= clock["clock_within_ns"], "a clock that is further off than it may be", str(clock))
    within_us = 2 * max(clock["clock_within_ns"] for clock in about["hosts"]) / 1000
    arrows = collections.defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]][event["ph"]] = event
    between = [arrow for arrow in arrows.values() if host[arrow["s"]["pid"]] != host[arrow["f"]["pid"]]]
    expect(between, "no message between hosts", str(about))
    for arrow in between:
        expect(arrow["f"]["ts"] >= arrow["s"]["ts"] - within_us, "an arrow that leads back too far", str(arrow))
    return between


def running(stories):
    """of a running job all hosts are shown, on each of them"""
    with Hosts(4) as hosts:
        # The last one's agent reports to another than the first; the first has no rank.
        where = ",".join(f"{name}:1" for name in hosts.names[1:])
        job = stories.job(hosts, where, "-n", "3", stories.program, "endless", stories.directory, extra={"GARONNE_FAN_OUT": "2"})
        with job:
            stories.started(3)
            for at in range(4):
                said = stories.top(hosts, at, lambda said: len(said["ranks"]) == 3 and all(rank["sent_messages"] > 0 for rank in said["ranks"]))
                expect([of_ranks(said)[rank]["host"] for rank in range(3)] == hosts.names[1:4] and not said["elsewhere"], f"host {at}", str(said))
            for at in (0, 1, 3):
                said, complaints = stories.ask(hosts, at, "overlap", "--json", "--for", "500ms")
                rows = {row["call"]: row for row in json.loads(said)["sites"]}
                expect(rows["MPI_Irecv"]["operations"] > 0 and "not seen" not in complaints, f"rows on host {at}", said + complaints)
                stories.ask(hosts, at, "trace", "--for", "500ms", "-o", stories.file)
                look_at(json.loads(stories.file.read_text()), 3, 3)
            stories.stop(job)


def named(stories):
    """a job has one name on all its hosts, and its map shows all of them"""
    with Hosts(3) as hosts:
        where = ",".join(f"{name}:1" for name in hosts.names[1:])
        # The launcher's host has no rank.
        job = stories.job(hosts, where, "-n", "2", stories.program, "endless", stories.directory)
        with job:
            stories.started(2)
            names = set()
            for at in range(3):
                [listed] = json.loads(stories.ask(hosts, at, "ps", "--json")[0])
                expect(listed["hosts"] == hosts.names[1:3] and listed["ranks"] == 2 and listed["state"] == "running", f"ps on host {at}", str(listed))
                names.add(listed["name"])
                [name] = names
                expect(name.startswith("stories-"), f"the name on host {at}", str(names))
                for words in (("who", name), ("ps", "-n", name), ("top", "--once", "--every", "0.1", name), ("why", "background", name)):
                    stories.ask(hosts, at, *words)
                seen = json.loads(stories.ask(hosts, at, "map", name, "--json")[0])
                ranks = {host["host"]: [rank["rank"] for rank in host["ranks_here"]] for host in seen["hosts"]}
                expect(ranks == {hosts.names[1]: [0], hosts.names[2]: [1]} and seen["job"] == name, f"map on host {at}", str(ranks))
                words = stories.ask(hosts, at, "map", name)[0]
                expect(all(f"on host '{host}':\n  Machine" in words for host in hosts.names[1:3]), f"map on host {at}", words)
                stories.ask(hosts, at, "map", name, "--svg", stories.directory / "map.svg")
                drawn = (stories.directory / "map.svg").read_text()
                expect(all(f"host {host}" in drawn for host in hosts.names[1:3]) and "rank 1" in drawn, f"the drawing on host {at}", drawn)
            stories.stop(job)


def silent(stories):
    """a host whose agent is stopped is named, and the others are shown"""
    with Hosts(3) as hosts:
        job = stories.job(hosts, ",".join(["localhost", *hosts.names[1:]]), "-n", "3", stories.program, "endless", stories.directory)
        with job:
            stories.started(3)
            last = max(job.ranks(stories.program), key=rank_of)
            with open(f"/proc/{last}/stat", encoding="utf-8") as stat:
                agent = int(stat.read().rpartition(")")[2].split()[1])  # its parent
            said = stories.top(hosts, 0, lambda said: len(said["ranks"]) == 3)
            [gone] = [rank for rank in said["ranks"] if rank["pid"] == last]
            os.kill(agent, signal.SIGSTOP)
            try:
                said = stories.top(hosts, 0, lambda said: said["elsewhere"])
                expect([(far["host"], far["ranks"]) for far in said["elsewhere"]] == [(gone["host"], [gone["rank"]])], "the host that is stopped is not named", str(said))
                expect(len(said["ranks"]) == 2, "the others are not shown", str(said))
                said, complaints = stories.ask(hosts, 0, "overlap", "--json", "--for", "300ms")
                expect(f"ranks {gone['rank']} on {gone['host']}" in complaints, "the host that is stopped is not named", complaints)
            finally:
                os.kill(agent, signal.SIGCONT)
            stories.stop(job)


def left(stories):
    """who traces and is killed leaves nobody that records"""
    with Hosts(2) as hosts:
        job = stories.job(hosts, f"localhost,{hosts.names[1]}", "-n", "2", stories.program, "endless", stories.directory)
        with job:
            stories.started(2)
            looks = lambda: [pid for pid, command in job.alive().items() if "agent --look" in command]
            command = ["ip", "netns", "exec", hosts.names[0], stories.garonne(), "trace", "-o", stories.file]
            tracer = subprocess.Popen(list(map(str, command)), env=stories.context.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_until(looks, "nobody records on the other host")
            finally:
                tracer.kill()
                tracer.wait()
            wait_until(lambda: not looks(), "somebody records for nobody")
            stories.stop(job)


def wait_until(holds, complaint):
    until = time.monotonic() + PATIENCE_S
    while not holds():
        expect(time.monotonic() < until, complaint, "")
        time.sleep(0.05)


def whole(stories):
    """a job on several hosts is traced from its first rank to its last"""
    with Hosts(3) as hosts:
        where = ",".join(["localhost", *hosts.names[1:]])
        job = stories.job(hosts, where, "-n", "3", "--trace", stories.file, "--overlap", stories.program, "ring", stories.directory)
        with job:
            code, output = job.end()
        expect(code == 0 and "MPI_Irecv" in output and "not seen" not in output, f"exit code {code}", output)
        trace = json.loads(stories.file.read_text())
        between = look_at(trace, 3, 3)
        lost = sum(event["args"]["lost"] for event in trace["traceEvents"] if event["ph"] == "i" and "lost" in event["args"])
        # 50 messages of each rank to the next, which is on another host.
        expect(lost or len(between) >= 3 * 50, f"{len(between)} arrows and nothing lost", output)
        job = stories.job(hosts, where, "-n", "3", "--trace", stories.file, stories.program, "killed", stories.directory)
        with job:
            code, output = job.end()
        expect(code == 128 + signal.SIGKILL, f"exit code {code}", output)
        trace = json.loads(stories.file.read_text())
        last = [event for event in trace["traceEvents"] if event["ph"] == "B" and event["cat"] == "mpi" and event["pid"] == 1][-1]
        expect(last["name"] == "MPI_Irecv", "the last call of the rank that was killed", str(last))


def joined(stories):
    """a job whose hosts join is traced as well, from the host that calls others in"""
    with OneWay(2, closed=[2]) as hosts:
        arguments = ["-n", 2, "--map-by", "node", "--bind-to", "none", "--trace", stories.file, stories.program, "ring", stories.directory]
        codes, outputs = Job(stories.context, hosts, arguments, [1]).end()
        expect(codes == [0, 0] and "not seen" not in outputs[0], f"exit codes {codes}", "".join(outputs))
        look_at(json.loads(stories.file.read_text()), 2, 2)
