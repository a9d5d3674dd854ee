"""Programs of the distribution whose POSIX threads run as fibers (`garonne threads run`), and programs that are hostile to that.

Results are compared with those of the kernel's threads. The long form runs each a hundred times.
"""

import hashlib
import shutil
import subprocess

from ..runner import Case, Failure, Skip, check

SOURCES = "tests/threads"
SAID = "all is well"
# Each program of tests/threads: what it is given, and the exit code.
OWN = {"primitives": ([], 0), "endings": ([], 0)}
RUNS = 100


def suite(context):
    context.installed()
    place = context.work / "threads"
    place.mkdir(exist_ok=True)
    data = place / "data"
    if not data.exists():
        data.write_bytes(input_bytes((40 if context.soak else 4) << 20))
    for name in OWN:
        yield Case(f"threads/{name}", lambda name=name: own_program(context, place, name))
    yield Case("threads/pigz", lambda: same_output(context, ["pigz", "-p", "4", "-c", data]))
    yield Case("threads/xz", lambda: same_output(context, ["xz", "-1", "-T4", "--block-size=1MiB", "-c", data]))


def input_bytes(count):
    """Bytes that compress somewhat, alike in each run."""
    block = b"".join(hashlib.sha256(str(i % 997).encode()).digest() + b"a word and another one " for i in range(4096))
    return (block * (count // len(block) + 1))[:count]


def runs(context):
    return RUNS if context.soak else 1


def under(context, command):
    return [context.prefix / "bin/garonne", "threads", "run", "--report", "--", *command]


def same_output(context, command):
    """Compares what a program writes to its output with and without fibers."""
    if not shutil.which(command[0]):
        raise Skip(f"{command[0]} is not installed")
    command = [str(word) for word in command]
    wanted = subprocess.run(command, capture_output=True, timeout=600, check=True, stdin=subprocess.DEVNULL).stdout
    for _ in range(runs(context)):
        words = [str(word) for word in under(context, command)]
        found = subprocess.run(words, capture_output=True, timeout=600, check=False, stdin=subprocess.DEVNULL)
        report = found.stderr.decode(errors="replace")
        if found.returncode != 0 or found.stdout != wanted:
            raise Failure(f"it ended with {found.returncode}, {len(found.stdout)} bytes instead of {len(wanted)}\n{report[-1000:]}")
        require_fibers(report)


def require_fibers(report):
    if "threads ran as fibers" not in report or " 0 threads ran as fibers" in report:
        raise Failure(f"no thread ran as a fiber:\n{report[-1000:]}")


def own_program(context, place, name):
    arguments, code = OWN[name]
    program = place / name
    check(context.execute(f"threads build {name}", ["cc", "-O1", "-Wall", "-Wextra", f"{SOURCES}/{name}.c", "-o", program, "-lpthread"], timeout=60))
    for _ in range(runs(context)):
        result = context.execute(f"threads {name}", under(context, [program, *arguments]), timeout=300)
        if result.code != code or SAID not in result.output:
            raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
        require_fibers(result.output)
