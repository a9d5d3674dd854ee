"""Programs of the distribution whose POSIX threads run as fibers (`garonne threads run`), and programs that are hostile to that.

Results are compared with those of the kernel's threads. The long form runs each a hundred times.
"""

import hashlib
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

from ..runner import Case, Failure, Skip, check

SOURCES = "tests/threads"
SAID = "all is well"
# Cases with programs of tests/threads: the program and its words.
OWN = {
    "primitives": ["primitives"],
    "endings": ["endings"],
    "what the kernel's thread does": ["of_kernel"],
    "a main thread that ends first": ["hostile", "last"],
    "children of threads": ["hostile", "children"],
    "a thousand threads": ["hostile", "many", "1000"],
    "spinning": ["spin", "pause", "4", "5"],
    "spinning that yields": ["spin", "yield", "8", "100"],
    "spinning locks": ["spin", "lock", "8", "100"],
}
# Least results of a program where the system gives little.
LITTLE = {"addresses": (resource.RLIMIT_AS, 60 << 20), "threads": (resource.RLIMIT_NPROC, 40)}
# What the library says of a C library that it does not know.
OTHER_LIBC = {
    "an old C library": ("-DVERSION=\"2.20\"", "(glibc 2.20) is older than"),
    "a C library of another layout": ("-ULAYOUT", "lays out barriers in another way"),
}
RUNS = 100
PYTHON = "/usr/bin/python3"
DISTRIBUTION_JAVA = pathlib.Path("/usr/lib/jvm")


def suite(context):
    context.installed()
    place = context.work / "threads"
    place.mkdir(exist_ok=True)
    data = place / "data"
    if not data.exists():
        data.write_bytes(input_bytes((40 if context.soak else 4) << 20))
    for source in ("primitives", "endings", "hostile", "of_kernel", "spin", "stacks"):
        build = ["cc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"{SOURCES}/{source}.c", "-o", place / source, "-lpthread"]
        check(context.execute(f"threads build {source}", build, timeout=60))
    for name, words in OWN.items():
        yield Case(f"threads/{name}", lambda name=name, words=words: own_program(context, place, name, words))
    if context.soak:
        many = ["hostile", "many", "10000"]
        yield Case("threads/ten thousand threads", lambda: own_program(context, place, "ten thousand threads", many))
    for name in LITTLE:
        yield Case(f"threads/few {name}", lambda name=name: few(context, place, name))
    yield Case("threads/overflow", lambda: overflow(context, place))
    for name, is_outside in {"ranks with fibers": False, "a job with fibers": True}.items():
        yield Case(f"threads/{name}", lambda name=name, is_outside=is_outside: mpi(context, place, name, is_outside))
    yield Case("threads/refused", lambda: refused(context, place))
    for name, (option, said) in OTHER_LIBC.items():
        yield Case(f"threads/{name}", lambda option=option, said=said: other_libc(context, place, option, said))
    yield Case("threads/stacks in gdb", lambda: stacks(context, place))
    yield Case("threads/pigz", lambda: same_output(context, ["pigz", "-p", "4", "-c", data]))
    yield Case("threads/xz", lambda: same_output(context, ["xz", "-1", "-T4", "--block-size=1MiB", "-c", data]))
    yield Case("threads/python", lambda: same_output(context, [PYTHON, f"{SOURCES}/pool.py"]))
    for test in ("threads", "mutex"):
        yield Case(f"threads/sysbench {test}", lambda test=test: sysbench(context, test))
    yield Case("threads/java", lambda: java(context, place))
    yield Case("threads/redis", lambda: redis(context, place))


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


def own_program(context, place, name, words):
    for _ in range(runs(context)):
        command = [place / words[0], *words[1:]]
        result = context.execute(f"threads {name}", under(context, command), timeout=300)
        if result.code != 0 or SAID not in result.output:
            raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
        if words[-1] != "last":
            require_fibers(result.output)


def few(context, place, name):
    """Where the system starts no more threads, a program is told so and goes on."""
    kind, most = LITTLE[name]

    def limit():
        if kind == resource.RLIMIT_NPROC and os.geteuid() == 0:
            # Root has no such limit. The group's other processes count as well, so the user is one of no other.
            os.setgid(65534)
            os.setuid(54321)
        resource.setrlimit(kind, (most, most))

    program = place / "hostile"
    if kind == resource.RLIMIT_NPROC and os.geteuid() == 0 and not readable_by_all(program):
        raise Skip("another user may not run programs of this folder")
    library = context.prefix / "lib/threads/libgaronne_pthread.so.1"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    found = subprocess.run([program, "many", "100000"], capture_output=True, text=True, timeout=300, check=False, env=environment, preexec_fn=limit)
    if found.returncode != 0 or SAID not in found.stdout:
        raise Failure(f"it ended with {found.returncode}: {found.stdout[-500:]} {found.stderr[-500:]}")


def readable_by_all(path):
    return all(folder.stat().st_mode & 0o001 for folder in [path, *path.resolve().parents])


def overflow(context, place):
    """A stack that overflows ends the process by the signal, as with the kernel's threads."""
    words = [str(word) for word in under(context, [place / "hostile", "overflow"])]
    found = subprocess.run(words, capture_output=True, timeout=120, check=False)
    if found.returncode != -signal.SIGSEGV:
        raise Failure(f"it ended with {found.returncode}: {found.stderr[-500:]}")


def refused(context, place):
    """A static program is refused by name: no library can take its threads."""
    program = place / "static"
    built = context.execute("threads build static", ["cc", "-static", f"{SOURCES}/hostile.c", "-o", program, "-lpthread"], timeout=60)
    if built.code != 0:
        raise Skip("the C library has no static form here")
    result = context.execute("threads static", under(context, [program, "last"]), timeout=60)
    if result.code != 1 or "linked statically" not in result.output:
        raise Failure(f"it ended with {result.code}: {result.output[-500:]}")


def mpi(context, place, name, is_outside):
    """MPI calls of threads that run as fibers: the library is loaded by each rank, or by the launcher and all that it starts."""
    program = place / f"mpi {is_outside}"
    check(context.execute("threads build mpi", [context.mpicc(), "-O1", "-Wall", "-Wextra", "-Werror", f"{SOURCES}/mpi.c", "-o", program, "-lpthread"], timeout=60))
    job = context.launcher(2)
    command = under(context, [*job, program]) if is_outside else [*job, *under(context, [program])]
    for _ in range(runs(context)):
        result = context.execute(f"threads {name}", list(map(str, command)), timeout=180)
        if result.code != 0 or result.output.count(SAID) != 2:
            raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
        require_fibers(result.output)


def other_libc(context, place, option, said):
    """A C library that the borrowed control block does not fit is named, before the program begins."""
    library = place / f"{re.sub(r'[^A-Z]', '', option)}.so"
    check(context.execute("threads build other_libc", ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", option, f"{SOURCES}/other_libc.c", "-o", library], timeout=60))
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    found = subprocess.run([str(word) for word in under(context, [place / "hostile", "last"])], capture_output=True, text=True, timeout=60, check=False, env=environment)
    if found.returncode != 1 or said not in found.stderr or found.stdout:
        raise Failure(f"it ended with {found.returncode}: {found.stdout[-200:]} {found.stderr[-500:]}")


def stacks(context, place):
    """gdb shows where threads wait that no worker runs, and the one that a worker runs."""
    if not shutil.which("gdb"):
        raise Skip("gdb is not installed")
    words = [str(word) for word in under(context, [place / "stacks"])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            if program.stdout.readline() != "up\n":
                raise Failure("the program does not begin")
            ask = [context.prefix / "bin/garonne", "threads", "gdb", "--", "-nx", "-batch", "-p", program.pid, "-ex", "thread apply all bt"]
            result = context.execute("threads gdb", ask, timeout=300)
        finally:
            program.kill()
    if "ptrace: Operation not permitted" in result.output or "No module named 'gdb" in result.output:
        raise Skip("gdb may not look at programs here, or has no Python")
    check(result)
    found = {name: len(re.findall(rf"#[0-9]+ .*\b{name} \(", result.output)) for name in ("waits_for_ever", "sleeps_long", "computes")}
    if found != {"waits_for_ever": 2, "sleeps_long": 1, "computes": 1}:
        raise Failure(f"gdb shows {found} (log: {result.log})")


def sysbench(context, test):
    if not shutil.which("sysbench"):
        raise Skip("sysbench is not installed")
    sizes = {"threads": ["--thread-locks=2", "--thread-yields=100"], "mutex": ["--mutex-num=16", "--mutex-locks=500", "--mutex-loops=100"]}[test]
    # Each thread of the second has one event.
    count, limit = {"threads": (200, ["--events=200"]), "mutex": (8, [])}[test]
    command = ["sysbench", test, "--threads=8", "--time=60", *limit, *sizes, "run"]
    for _ in range(runs(context)):
        result = context.execute(f"threads sysbench {test}", under(context, command), timeout=300)
        check(result)
        events = [line.split()[-1] for line in result.output.splitlines() if "total number of events" in line]
        if events != [str(count)]:
            raise Failure(f"{events} events (log: {result.log})")
        require_fibers(result.output)


def java(context, place):
    """A pool of 200 threads with locks, monitors, sleeps and collections of garbage, on the distribution's virtual machine."""
    machines = sorted(path for path in map(str, DISTRIBUTION_JAVA.glob("java-*-openjdk-*/bin/java")))
    if not machines or not shutil.which("javac"):
        raise Skip("the distribution's OpenJDK is not installed")
    compiler = machines[0].replace("bin/java", "bin/javac")
    check(context.execute("threads javac", [compiler, "-d", place, f"{SOURCES}/Pool.java"], timeout=300))
    same_output(context, [machines[0], "-Xmx128m", "-cp", place, "Pool"])


def redis(context, place):
    for name in ("redis-server", "redis-benchmark", "redis-cli"):
        if not shutil.which(name):
            raise Skip(f"{name} is not installed")
    # Its threads spin: where CPUs have other work, some 70 of these a second, also with the kernel's threads.
    count = "100" if context.soak else "300"
    for _ in range(runs(context)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        options = ["--port", port, "--bind", "127.0.0.1", "--io-threads", "3", "--io-threads-do-reads", "yes", "--save", "", "--dir", place]
        words = [str(word) for word in under(context, ["redis-server", *options])]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ask = ["redis-cli", "-p", port]
        try:
            limit = time.monotonic() + 120
            while subprocess.run([*ask, "ping"], capture_output=True, check=False).returncode != 0 and server.poll() is None:
                if time.monotonic() > limit:
                    server.kill()
                    raise Failure(f"the server does not answer\n{server.communicate()[0][-1000:]}")
                time.sleep(0.05)
            work = ["redis-benchmark", "-p", port, "-c", "10", "-n", count, "-t", "incr,lpush", "-q"]
            check(context.execute("threads redis", work, timeout=300))
            found = [subprocess.run([*ask, *words], capture_output=True, text=True, check=False).stdout.strip()
                     for words in (["get", "counter:__rand_int__"], ["llen", "mylist"])]
        finally:
            subprocess.run([*ask, "shutdown", "nosave"], capture_output=True, check=False)
            try:
                said = server.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                server.kill()
                raise Failure("the server did not end")
        if found != [count, count] or server.returncode != 0:
            raise Failure(f"it counted {found} and ended with {server.returncode}\n{said[-1000:]}")
        require_fibers(said)
