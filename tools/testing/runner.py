"""Runs commands with time limits, cases in parallel, and keeps the score.

Owned by tools/test.py. A process is started in a group of its own, and the whole group is killed when its time is
over, so that no test leaves anything running.
"""

import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import signal
import subprocess
import threading
import time
from typing import Callable, Iterable

# How much of a failing command's output is shown; the log file has all of it.
TAIL_LINES = 40


class Skip(Exception):
    """Raised by a case that cannot run here; its text says why."""


class Failure(Exception):
    """Raised by a case that failed; its text is what the reader needs to see."""


@dataclasses.dataclass
class Outcome:
    name: str
    status: str  # passed, failed, skipped
    detail: str = ""  # why; of one that passed: why it failed the first time
    seconds: float = 0.0
    count: int = 1  # how many tests of the program this line stands for


class Tally:
    """The score, printed line by line as it grows."""

    def __init__(self):
        self.outcomes: list[Outcome] = []
        self.lock = threading.Lock()

    def add(self, outcome: Outcome):
        with self.lock:
            self.outcomes.append(outcome)
            times = f" x{outcome.count}" if outcome.count != 1 else ""
            if outcome.status != "skipped" or outcome.count == 1:
                print(f"{outcome.status:<8} {outcome.name}{times}  {outcome.seconds:.1f} s", flush=True)
            if outcome.status != "skipped" and outcome.detail:
                print("    " + outcome.detail.replace("\n", "\n    "), flush=True)

    def of(self, status):
        return [outcome for outcome in self.outcomes if outcome.status == status]

    def failures(self):
        return self.of("failed")

    def unsteady(self):
        return [outcome for outcome in self.of("passed") if outcome.detail]

    def skips(self):
        return self.of("skipped")

    passed = property(lambda self: sum(o.count for o in self.of("passed")))
    failed = property(lambda self: sum(o.count for o in self.of("failed")))
    skipped = property(lambda self: sum(o.count for o in self.of("skipped")))

    def as_json(self):
        return [dataclasses.asdict(outcome) for outcome in self.outcomes]


@dataclasses.dataclass
class Case:
    """One line of the report. `run` returns None, or a list of outcomes when the program counts its own tests."""

    name: str
    run: Callable[[], list[Outcome] | None]
    alone: bool = False  # not beside other cases: it uses every core, or measures
    # What fails on a machine that stands still for seconds now and then is run again, alone, and told as unsteady with the first reason if it passes then. Never in a soak.
    second_try: bool = True
    waits: bool = False  # mostly for time limits of networks: twice as many go side by side


@dataclasses.dataclass
class Finished:
    code: int
    output: str
    timed_out: bool
    log: pathlib.Path


class Context:
    """Where things are, and how to run a program under the MPI that is tested."""

    def __init__(self, root: pathlib.Path, soak: bool, jobs: int, against: str | None):
        self.root = root
        self.state = pathlib.Path(os.environ["GARONNE_STATE"])
        self.soak = soak
        self.jobs = max(1, jobs)
        self.prefix = pathlib.Path(against).resolve() if against else self.state / "prefix"
        self.foreign = against is not None
        self.work = self.state / "test"
        self.work.mkdir(parents=True, exist_ok=True)
        self._installed = self.foreign
        # Failures up to which a case is run again: more of them have one reason, and it is no chance.
        self.second_tries = 8

    def installed(self):
        """The prefix, with the current sources built into it once per run."""
        if not self._installed:
            result = self.execute("build", ["./x", "build-into", str(self.prefix)], timeout=1500)
            check(result)
            self._installed = True
        return self.prefix

    def key(self):
        """Names the MPI that is tested, by its place and its header: what clients are compiled against."""
        header = (self.prefix / "include" / "mpi.h").read_bytes()
        return hashlib.sha256(str(self.prefix).encode() + header).hexdigest()[:12]

    def environment(self, extra=None):
        env = dict(os.environ)
        env["PATH"] = f"{self.prefix}/bin:{env['PATH']}"
        env["PKG_CONFIG_PATH"] = f"{self.prefix}/lib/pkgconfig"
        env.update(extra or {})
        return env

    def mpicc(self):
        """The C wrapper for the standard ABI."""
        abi = self.prefix / "bin" / "mpicc_abi"
        return str(abi if abi.exists() else self.prefix / "bin" / "mpicc")

    def mpicxx(self):
        """The C++ wrapper for the standard ABI."""
        abi = self.prefix / "bin" / "mpicxx_abi"
        return str(abi if abi.exists() else self.prefix / "bin" / "mpicxx")

    def build_program(self, suite: str, source: str, target: pathlib.Path, level="-O1"):
        """Builds a program of one file, of which every warning is an error."""
        command = [self.mpicc(), level, "-Wall", "-Werror", self.root / source, "-o", target]
        check(self.execute(f"{suite} build {target.name}", command, timeout=60))

    def launcher(self, ranks: int):
        garonne = self.prefix / "bin" / "garonne"
        head = [str(garonne), "run"] if garonne.exists() else [str(self.prefix / "bin" / "mpiexec")]
        return head + ["-n", str(ranks)]

    def execute(self, name: str, command: list[str], timeout: float, env=None, cwd=None, stdin=None) -> Finished:
        """Runs a command with everything it prints in a log; kills its whole group at the time limit."""
        log = self.work / "logs" / (name.replace("/", ".").replace(" ", "_") + ".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "wb") as sink:
            sink.write(("$ " + " ".join(map(str, command)) + "\n").encode())
            sink.flush()
            process = subprocess.Popen(
                [str(word) for word in command], cwd=cwd or self.root, env=env or self.environment(), stdout=sink,
                stderr=subprocess.STDOUT, stdin=stdin or subprocess.DEVNULL, start_new_session=True)
            timed_out = False
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                kill_group(process)
        return Finished(process.returncode, log.read_text(errors="replace"), timed_out, log)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def check(result: Finished):
    """Raises unless the command succeeded, with the end of what it printed."""
    if result.timed_out or result.code != 0:
        why = "time limit reached" if result.timed_out else f"exit code {result.code}"
        tail = "\n".join(result.output.splitlines()[-TAIL_LINES:])
        raise Failure(f"{why} (log: {result.log})\n{tail}")


def outcomes_of(case: Case) -> list[Outcome]:
    started = time.monotonic()
    outcomes = None
    try:
        outcomes = case.run()
        outcome = Outcome(case.name, "passed")
    except Skip as reason:
        outcome = Outcome(case.name, "skipped", str(reason))
    except Exception as error:  # also a bug of the test itself: it must count as a failure, not end the run
        outcome = Outcome(case.name, "failed", str(error) if isinstance(error, Failure) else repr(error))
    outcome.seconds = time.monotonic() - started
    if outcomes is None or outcome.status != "passed":
        outcomes = [outcome]
    for entry in outcomes:
        entry.seconds = entry.seconds or outcome.seconds
    return outcomes


def run_cases(context: Context, cases: Iterable[Case], tally: Tally):
    """Runs what may go side by side on `jobs` threads (what waits, on twice as many), then the rest one by one, then once more and alone what failed of those that have a second try."""
    cases = list(cases)
    again = []

    def run_case(case):
        outcomes = outcomes_of(case)
        if case.second_try and not context.soak and failures(outcomes) and context.second_tries > 0:
            context.second_tries -= 1
            again.append((case, outcomes))
            return
        for outcome in outcomes:
            tally.add(outcome)

    for waits in (False, True):
        with concurrent.futures.ThreadPoolExecutor(context.jobs * (2 if waits else 1)) as pool:
            list(pool.map(run_case, [case for case in cases if not case.alone and case.waits == waits]))
    for case in (case for case in cases if case.alone):
        run_case(case)
    for case, first in again:
        for outcome in second_outcomes(case, failures(first)):
            tally.add(outcome)


def failures(outcomes):
    """Why what failed did so, by name."""
    return {outcome.name: outcome.detail for outcome in outcomes if outcome.status == "failed"}


def second_outcomes(case, first):
    """Those of a second try; what failed in the first one and does not any more says why."""
    outcomes = outcomes_of(case)
    unsaid = dict(first)
    for outcome in outcomes:
        if (why := unsaid.pop(outcome.name, None)) is not None:
            outcome.detail = f"failed at first: {why}" + (f"\nand then: {outcome.detail}" if outcome.detail else "")
    # A test that only the first try names passes within a line that stands for many.
    if unsaid and not failures(outcomes):
        outcomes += [Outcome(name, "passed", f"failed at first: {why}", count=0) for name, why in unsaid.items()]
    return outcomes
