"""What a job says of itself without being asked: at the end of its time, at the key that ends it, and where it stands still."""

import os
import pty
import select
import shutil
import signal
import time

from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..runner import Case, check

# By the first argument: ring: each rank receives from the next; talk: rank 1 never ends, the others wait for it in MPI;
# sleeps: the others wait long for rank 1, which comes. handled: a rank prints what it catches.
STORIES = """#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void caught(int number)
{
    static const char text[] = "caught\\n";
    (void)!write(1, text, sizeof text - 1);
    (void)number;
}
int main(int argc, char **argv)
{
    int rank, size, x = 0;
    const char *story = argc > 1 ? argv[1] : "ring";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(story, "handled")) signal(SIGINT, caught);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("ready\\n"), fflush(stdout);
    if (!strcmp(story, "sleeps") && rank == 1) sleep(18);
    if (!strcmp(story, "sleeps")) return MPI_Barrier(MPI_COMM_WORLD), MPI_Finalize();
    if (!strcmp(story, "talk")) for (;;) {
        if (rank == 1) usleep(1000);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Recv(&x, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* waits */
    MPI_Finalize();
    return 0;
}
"""
RING = ["verdict: deadlock", "see: garonne explain G0307"] + [f"rank {rank}: MPI_Recv: rank {(rank + 1) % 3}, tag 7, MPI_COMM_WORLD   at stories.c:" for rank in range(3)]


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    for case in (out_of_time, interrupted, interrupted_on_a_terminal, twice, suspended, stands_still, may_go_on):
        name = case.__doc__.split("\n")[0].rstrip(".")
        waits = case in (stands_still, may_go_on)
        yield Case(f"hang-reports/{name}", lambda case=case: case(Stories(context, case.__name__)), waits=waits)


class Stories:
    """One case's directory and program."""

    def __init__(self, context, name):
        self.context = context
        self.directory = context.work / "hang-reports" / name
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.program = self.directory / "stories"
        source = self.directory / "stories.c"
        source.write_text(STORIES)
        check(context.execute(f"hang-reports build {name}", [context.mpicc(), "-g", "-O1", "-Wall", "-Werror", source, "-o", self.program], timeout=60))

    def command(self, *words):
        return [self.context.prefix / "bin" / "garonne", "run", *words]

    def job(self, *words, env=None):
        return MarkedJob(self.command(*words), self.context.environment(env))


class Terminal:
    """A command on a terminal of its own, in a group that a shell would continue."""

    def __init__(self, stories, *words):
        self.shell, self.terminal = pty.fork()
        self.said = ""
        if self.shell == 0:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            job = os.fork()
            if job == 0:
                os.setpgid(0, 0)
                os.tcsetpgrp(0, os.getpid())
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
                command = list(map(str, stories.command(*words)))
                os.execve(command[0], command, stories.context.environment())
            _, status = os.waitpid(job, 0)
            os._exit(os.waitstatus_to_exitcode(status))

    def _read(self, until):
        ready, _, _ = select.select([self.terminal], [], [], max(0, until - time.monotonic()))
        expect(ready, "nothing comes", self.said)
        try:
            more = os.read(self.terminal, 4096)
        except OSError:  # nobody has the other side open
            more = b""
        self.said += more.decode(errors="replace")
        return bool(more)

    def wait_for(self, text, times=1):
        until = time.monotonic() + PATIENCE_S
        while self.said.count(text) < times:
            expect(self._read(until), f"it ended before it said {text!r}", self.said)

    def group(self):
        """The process group that has the terminal."""
        return os.tcgetpgrp(self.terminal)

    def press(self, key):
        os.write(self.terminal, key)

    def end(self):
        """Exit code and all that was printed."""
        until = time.monotonic() + PATIENCE_S
        while self._read(until):
            pass
        _, status = os.waitpid(self.shell, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status), self.said.replace("\r", "")


def has_all(output, parts):
    for part in parts:
        expect(part in output, f"{part!r} is not said", output)


def out_of_time(stories):
    """A job whose time has passed says what it hangs on, by option and by variable."""
    for words, env in ((["--timeout", "3"], None), ([], {"MPIEXEC_TIMEOUT": "3"})):
        code, output = stories.job(*words, "-n", "3", stories.program, env=env).end()
        expect(code == 124, f"exit code {code}", output)
        has_all(output, ["error[G0208]: the job did not end within 3 s", *RING])
        expect(output.index("G0208") < output.index("verdict:"), "the verdict comes first", output)


def wait_until_asleep(stories, job):
    """Until all ranks of a job have slept for some moments."""
    calm = 0
    until = time.monotonic() + PATIENCE_S
    while calm < 10:
        expect(time.monotonic() < until, "the ranks do not sleep", "")
        time.sleep(0.05)
        states = [open(f"/proc/{pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()[0] for pid in job.ranks(stories.program)]
        calm = calm + 1 if states == ["S"] * 3 else 0


def interrupted(stories):
    """A signal that ends a job has it say what it hangs on, once, and its ranks get the signal after that."""
    job = stories.job("-n", "3", stories.program, "handled")
    with job:
        job.wait_for_ranks(stories.program, 3)
        wait_until_asleep(stories, job)
        os.kill(job.process.pid, signal.SIGINT)
    code, output = job.end()
    expect(code == 130 and output.count("verdict:") == 1 and output.count("caught") == 3, f"exit code {code}", output)
    has_all(output, RING)
    expect(output.index("verdict:") < output.index("caught"), "the ranks were told before", output)


def interrupted_on_a_terminal(stories):
    """The key that ends a job has it say what it hangs on, though it ends the rank that reads the terminal at once."""
    job = Terminal(stories, "-n", "3", stories.program)
    job.wait_for("ready")
    time.sleep(1)
    job.press(b"\x03")
    code, output = job.end()
    expect(code == 130, f"exit code {code}", output)
    has_all(output, RING)
    expect("error" not in output, "an error is told", output)


def twice(stories):
    """Who presses the key again does not wait for a verdict."""
    job = stories.job("-n", "3", stories.program)
    with job:
        job.wait_for_ranks(stories.program, 3)
        wait_until_asleep(stories, job)
        # The program that looks is held up, so only the second signal ends the job before its time is over.
        os.kill(job.process.pid, signal.SIGINT)
        time.sleep(0.08)
        os.kill(job.process.pid, signal.SIGINT)
    code, output = job.end()
    expect(code == 130 and "verdict" not in output, f"exit code {code}", output)


def suspended(stories):
    """Ranks stop and go on with their job on a terminal, and a job that was moving ends by the key."""
    job = Terminal(stories, "-n", "3", stories.program, "talk")
    job.wait_for("ready")
    until = time.monotonic() + PATIENCE_S
    states = lambda: [stat_of(pid) for pid in children(stories.program)]
    job.press(b"\x1a")
    while states().count("T") < 3:
        expect(time.monotonic() < until, f"the ranks do not stop: {states()}", job.said)
        time.sleep(0.05)
    os.killpg(job.group(), signal.SIGCONT)
    while "T" in states():
        expect(time.monotonic() < until, f"the ranks do not go on: {states()}", job.said)
        time.sleep(0.05)
    job.press(b"\x03")
    code, output = job.end()
    expect(code == 130 and "deadlock" not in output and "never" not in output and "error" not in output, f"exit code {code}", output)


def stands_still(stories):
    """Ranks that wait for each other are told by themselves, once, and end their job if that is wanted."""
    job = stories.job("-n", "3", "-x", "GARONNE_DEADLOCK=abort", stories.program)
    code, output = job.end()
    expect(code == 10 and "error[G0307]" in output, f"exit code {code}", output)
    has_all(output, RING)
    job = stories.job("-n", "3", "--timeout", "22", stories.program)
    code, output = job.end()
    expect(code == 124, f"exit code {code}", output)
    has_all(output, RING)
    # By themselves, and at the end of their time.
    expect(output.count("verdict: deadlock") == 2, "it is not told by itself", output)


def may_go_on(stories):
    """Ranks that have waited for long for one that still comes are not said to hang."""
    code, output = stories.job("-n", "3", stories.program, "sleeps").end()
    expect(code == 0 and "verdict" not in output, f"exit code {code}", output)


def children(program):
    """Processes that run a program."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/exe") == str(program):
                found.append(int(name))
        except OSError:
            pass
    return found


def stat_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
