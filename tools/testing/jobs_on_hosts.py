"""Jobs of `garonne run` on hosts that are network namespaces, and which of their processes is which."""

import os
import subprocess
import time

from .marked_jobs import PATIENCE_S, MarkedJob, expect


class Job(MarkedJob):
    """`garonne run` on the first of some hosts."""

    def __init__(self, context, hosts, arguments, stdin=None):
        command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec", *arguments]
        super().__init__(command, context.environment(), stdin)


def run(context, hosts, arguments, limit=PATIENCE_S, input=None):
    return Job(context, hosts, arguments, subprocess.PIPE if input is not None else None).end(limit, input)


def launcher_of(job):
    """The process of `garonne run` itself: the first that has the mark and is of that name, which it has once it has begun."""
    until = time.monotonic() + PATIENCE_S
    while not (found := [pid for pid, command in job.alive().items() if " run --launcher" in command]):
        expect(time.monotonic() < until, "the launcher does not begin", "")
        time.sleep(0.05)
    return min(found)


def children_of(pid):
    return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def on_host(pid, host):
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat(f"/run/netns/{host}").st_ino
    except OSError:
        return False


def rail_that_answers(context, hosts, *words):
    """What `garonne network` says on the first host; nobody answers before a rank has called MPI_Init."""
    command = ["ip", "netns", "exec", hosts.names[0], context.prefix / "bin" / "garonne", "network", *words]
    until = time.monotonic() + PATIENCE_S
    while (done := subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)).returncode != 0:
        expect(time.monotonic() < until, f"garonne network {words}: exit code {done.returncode}", done.stdout + done.stderr)
        time.sleep(0.2)
    return done.stdout
