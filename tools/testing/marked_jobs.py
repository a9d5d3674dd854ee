"""Jobs whose processes are known by a mark in their environment, whatever became of their parents: so a test can tell what a job has left behind."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import time

from .runner import Failure

# No test asserts a time; this is when something counts as hanging.
PATIENCE_S = 60
MARK = "GARONNE_TEST_MARK"


class MarkedJob:
    """A command that starts a job, and all that comes of it."""

    def __init__(self, command, environment, stdin=None):
        self.mark = f"{os.getpid()}-{random.getrandbits(60)}"
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**environment, MARK: self.mark}, start_new_session=True)

    def end(self, limit=PATIENCE_S, input=None):
        """Exit code and output; fails if it hangs or leaves anything on any host."""
        try:
            output, _ = self.process.communicate(input=input, timeout=limit)
        except subprocess.TimeoutExpired:
            left = self.alive()
            self.sweep()
            raise Failure(f"the job hangs with {left}; it printed:\n{self.process.communicate()[0].decode(errors='replace')[-2000:]}") from None
        self.nothing_left(limit)
        return self.process.returncode, output.decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Of a job whose test has failed nothing stays."""
        if kind is not None:
            self.sweep()

    def end_well(self, program, limit=PATIENCE_S, about=""):
        """Has the ranks, which are `program`, come to their end, and all be well."""
        for pid in self.ranks(program):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        code, output = self.end(limit)
        expect(code == 0 and "all is well" in output, f"{about}exit code {code}", output)

    def nothing_left(self, limit=PATIENCE_S):
        until = time.monotonic() + limit
        while left := self.alive():
            if time.monotonic() > until:
                self.sweep()
                raise Failure(f"left behind: {left}")
            time.sleep(0.05)

    def alive(self):
        """Processes of the job, by id with their command lines."""
        found = {}
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                    command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    if command:
                        found[int(place.name)] = command
            except OSError:
                pass
        return found

    def sweep(self):
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def ranks(self, program):
        return [pid for pid, command in self.alive().items() if command.startswith(str(program))]

    def wait_for_ranks(self, program, count):
        until = time.monotonic() + PATIENCE_S
        while len(self.ranks(program)) < count:
            if time.monotonic() > until or self.process.poll() is not None:
                self.sweep()
                raise Failure(f"the ranks do not come: {self.process.communicate()[0].decode(errors='replace')}")
            time.sleep(0.02)


def expect(condition, what, output):
    if not condition:
        raise Failure(f"{what}; it printed:\n{output[-3000:]}")


def kill_one(dice, kinds):
    """Kills a process of a kind, both drawn; `kinds` has lists of process ids with commands. The command of the victim, which may have ended meanwhile."""
    pid, command = dice.choice(kinds[dice.choice(sorted(kinds))])
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return command
