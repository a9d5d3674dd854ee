"""The command as people and their scripts type it: the command lines of both mpirun families that projects' CIs use."""

import os
import signal
import subprocess
import time

from ..runner import Case, Failure, kill_group

# (name, arguments, exit code, how many lines contain the words)
SAY = ["sh", "-c", "echo here $X"]
LINES = [
    ("mpirun -n", ["mpirun", "-n", "3", *SAY], 0, "here", 3),
    ("mpirun -np", ["mpirun", "-np", "2", *SAY], 0, "here", 2),
    ("mpiexec -n", ["mpiexec", "-n", "4", *SAY], 0, "here", 4),
    ("mpiexec --n", ["mpiexec", "--n", "2", *SAY], 0, "here", 2),
    ("as root, oversubscribed", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "5", *SAY], 0, "here", 5),
    ("single-dash long options", ["mpirun", "-oversubscribe", "-n", "2", *SAY], 0, "here", 2),
    ("Open MPI's -x NAME=VALUE", ["mpirun", "-x", "X=7", "-n", "2", *SAY], 0, "here 7", 2),
    ("Open MPI's -x NAME", ["env", "X=8", "mpirun", "-x", "X", "-n", "2", *SAY], 0, "here 8", 2),
    ("MPICH's -genv NAME VALUE", ["mpiexec", "-genv", "X", "5", "-n", "2", *SAY], 0, "here 5", 2),
    ("MPICH's -env NAME VALUE", ["mpiexec", "-n", "2", "-env", "X", "6", *SAY], 0, "here 6", 2),
    ("binding", ["mpirun", "--bind-to", "none", "-n", "2", *SAY], 0, "here", 2),
    ("mapping", ["mpirun", "--map-by", "core", "--bind-to", "core", "-n", "2", *SAY], 0, "here", 2),
    ("working directory", ["mpirun", "--wdir", "/", "-n", "2", "pwd"], 0, "/", 2),
    ("several programs", ["mpirun", "-n", "1", "echo", "one", ":", "-n", "2", "echo", "two"], 0, "two", 2),
    ("tagged output", ["mpirun", "--tag-output", "-n", "2", *SAY], 0, "here", 2),
    ("MCA parameters of Open MPI", ["mpirun", "--mca", "btl", "self,vader", "-n", "2", *SAY], 0, "here", 2),
    ("default number of ranks", ["garonne", "run", "-n", "1", *SAY], 0, "here", 1),
    ("exit code of a rank", ["mpirun", "-n", "2", "sh", "-c", "exit 3"], 3, "", 0),
    ("signal of a rank", ["mpirun", "-n", "2", "sh", "-c", "kill -SEGV $$"], 128 + signal.SIGSEGV, "", 0),
    ("program that is not there", ["mpirun", "-n", "2", "./no-such-program"], 127, "", 0),
    ("time limit", ["mpirun", "--timeout", "1", "-n", "2", "sleep", "60"], None, "", 0),
    ("more ranks than a job may have", ["mpirun", "-n", "100000", "true"], 2, "100000 ranks", 1),
    ("unknown option suggests", ["mpirun", "--bind-too", "core", "-n", "1", "true"], None, "bind-to", 1),
]


def suite(context):
    if context.foreign:
        return
    context.installed()
    for line in LINES:
        yield command_line(context, *line)
    yield Case("door/install says at once where it cannot write", lambda: nowhere(context))
    yield Case("door/stdin goes to rank 0", lambda: stdin_case(context))
    yield Case("door/SIGTERM ends every rank", lambda: terminated(context))


def command_line(context, name, argv, code, words, count):
    def run():
        result = context.execute(f"command-line {name}", argv, timeout=30)
        said = [line for line in result.output.splitlines()[1:] if words and words in line]
        good_code = result.code == code if code is not None else result.code not in (0, None)
        if result.timed_out or not good_code:
            raise Failure(f"exit code {result.code}, wanted {code if code is not None else 'not 0'}\n{result.output}")
        if words and (len(said) < count if code is None else len(said) != count):
            raise Failure(f"'{words}' on {len(said)} lines, not {count}\n{result.output}")

    return Case(f"command-line/{name}", run)


def nowhere(context):
    result = context.execute("door install nowhere", [context.root / "x", "install", "--prefix", "/proc/garonne"], timeout=30)
    if result.code in (0, None) or "cannot write to /proc/garonne" not in result.output or "building" in result.output:
        raise Failure(f"exit code {result.code}\n{result.output}")


def stdin_case(context):
    command = context.launcher(3) + ["sh", "-c", "wc -c"]
    result = subprocess.run(command, input=b"x" * 100000, env=context.environment(), capture_output=True, timeout=30, check=False)
    numbers = sorted(int(word) for word in result.stdout.split())
    if numbers != [0, 0, 100000]:
        raise Failure(f"ranks read {numbers}\n{result.stderr.decode(errors='replace')}")


def terminated(context):
    """A mark in the environment finds the ranks again, whatever their parents."""
    mark = f"GARONNE_TEST_MARK={os.getpid()}.{time.monotonic_ns()}"
    process = subprocess.Popen(["env", mark, *context.launcher(3), "sleep", "300"], env=context.environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: len(marked(mark)) >= 4, "the ranks did not start")
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        wait_for(lambda: not marked(mark), "processes were left")
    finally:
        kill_group(process)


def marked(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if mark.encode() in environ.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def wait_for(condition, complaint, seconds=10):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Failure(complaint)
        time.sleep(0.02)
