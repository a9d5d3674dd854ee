"""Unmodified programs whose TCP connections within the host go over shared memory (`garonne sockets run`).

Programs of tests/sockets run on plain TCP as well: a test that TCP fails is wrong.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from ..runner import Case, Failure, Skip, check

SOURCES = pathlib.Path("tests/sockets")
SAID = "all is well"
PYTHON = "/usr/bin/python3"
BEHAVIOUR = ["data_both_ways", "version_6", "names_and_options", "readiness", "full", "times", "half_close", "killed", "reset", "forked", "copied", "files",
             "nonblocking_connect", "passed_on", "many", "few_descriptors", "threads"]


def suite(context):
    context.installed()
    place = context.work / "sockets"
    place.mkdir(exist_ok=True)
    for name in BEHAVIOUR:
        yield Case(f"sockets/{name.replace('_', ' ')}", lambda name=name: behaviour(context, name))
    yield Case("sockets/one side without the library", lambda: one_side(context))
    yield Case("sockets/static", lambda: static(context, place))
    yield Case("sockets/iperf3", lambda: iperf3(context))
    yield Case("sockets/redis", lambda: redis(context, place))
    for workers in (1, 4):
        yield Case(f"sockets/nginx and wrk, {workers} workers", lambda workers=workers: nginx(context, place, workers))
    yield Case("sockets/memcached", lambda: memcached(context))
    yield Case("sockets/postgresql", lambda: postgresql(context, place))
    yield Case("sockets/java", lambda: java(context, place))
    for name in ("test_selectors", "test_socket", *(["test_asyncio"] if context.soak else [])):
        yield Case(f"sockets/python {name}", lambda name=name: python_tests(context, name))


def under(context, *command):
    return [str(word) for word in (context.prefix / "bin/garonne", "sockets", "run", "--", *command)]


def need(*names):
    for name in names:
        if not shutil.which(name):
            raise Skip(f"{name} is not installed")


def behaviour(context, name):
    for _ in range(20 if context.soak else 1):
        for command in ([PYTHON], under(context, PYTHON)):
            result = context.execute(f"sockets {name}", [*command, SOURCES / "behaviour.py", name], timeout=300)
            if result.code != 0 or SAID not in result.output:
                raise Failure(f"{' '.join(map(str, command))}: it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def show(context):
    return subprocess.run([context.prefix / "bin/garonne", "sockets", "show"], capture_output=True, text=True, check=True, timeout=60).stdout


def lines_of(context, *words):
    return [line for line in show(context).splitlines() if all(re.search(rf"(^|[^0-9]){re.escape(word)}([^0-9]|$)", line) for word in words)]


class Server:
    """A server that is ended when the test is."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()


def until(condition, what, seconds=60):
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise Failure(what)
        time.sleep(0.05)


ECHO = """
import socket, sys
with socket.socket() as listener:
    listener.bind(("127.0.0.1", int(sys.argv[1]))); listener.listen(5); print("up", flush=True)
    while True:
        sock, _ = listener.accept()
        while data := sock.recv(1000):
            sock.sendall(data)
"""
ASK = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(b"said"); assert sock.recv(4, socket.MSG_WAITALL) == b"said"; print("up", flush=True); sys.stdin.read()
"""


def one_side(context):
    """Where one side runs without the library the connection is TCP, and the other says so; where both run so it is shared memory."""
    expected = {(True, False): "the connecting program runs without", (False, True): "the listening program runs without", (True, True): "shared memory"}
    for (serves, asks), text in expected.items():
        port = free_port()
        server = [PYTHON, "-c", ECHO, port]
        client = [PYTHON, "-c", ASK, port]
        with Server(under(context, *server) if serves else server) as first:
            if first.process.stdout.readline() != "up\n":
                raise Failure("the server does not begin")
            with Server(under(context, *client) if asks else client, stdin=subprocess.PIPE) as second:
                if second.process.stdout.readline() != "up\n":
                    raise Failure(f"the client fails: {second.process.stdout.read()[-1000:]}")
                words = [str(first.process.pid)] if (serves, asks) == (True, False) else [port]
                found = lines_of(context, *words)
                if not any(text in line for line in found):
                    raise Failure(f"garonne sockets show says {found} instead of '{text}'\n{show(context)}")


def static(context, place):
    """A static program runs on TCP, and is told so."""
    source = place / "static.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("all is well"); return 0; }\n')
    built = context.execute("sockets build static", ["cc", "-static", source, "-o", place / "static"], timeout=60)
    if built.code != 0:
        raise Skip("the C library has no static form here")
    result = context.execute("sockets static", under(context, place / "static"), timeout=60)
    if result.code != 0 or SAID not in result.output or "linked statically" not in result.output:
        raise Failure(f"it ended with {result.code}: {result.output[-500:]}")


def iperf3(context):
    need("iperf3")
    for words in ([], ["-R"], ["-Z"], ["-P", "4"], ["--bidir"]):
        port = free_port()
        with Server(under(context, "iperf3", "-s", "-1", "-p", port)) as server:
            until(lambda: listens(port), "iperf3 does not listen")
            result = context.execute("sockets iperf3", under(context, "iperf3", "-c", "127.0.0.1", "-p", port, "-n", "200M", "-J", *words), timeout=300)
            if result.code != 0 or '"error"' in result.output:
                raise Failure(f"{words}: it ended with {result.code} (log: {result.log})\n{result.output[-1000:]}")
            server.process.wait(timeout=60)


def listens(port):
    wanted = f":{int(port):04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in lines):
                return True
    return False


def redis(context, place):
    """The server with its own client and benchmark, and a snapshot by fork while clients go on; all values are compared."""
    need("redis-server", "redis-cli", "redis-benchmark")
    port = free_port()
    data = place / "redis"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    start = under(context, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", data)

    def ask(*words, text=None):
        return subprocess.run(under(context, "redis-cli", "-p", port, *words), input=text, capture_output=True, text=True, check=False, timeout=120).stdout.strip()

    values = {f"key{i}": f"{i} " * (i * 37 % 3000) for i in range(300)}
    with Server(start):
        until(lambda: ask("ping") == "PONG", "the server does not answer")
        work = under(context, "redis-benchmark", "-p", port, "-c", "50", "-n", "5000", "-d", "300", "-P", "4", "-t", "set,get,incr,lpush,mset", "-q")
        check(context.execute("sockets redis-benchmark", work, timeout=300))
        if (ask("get", "counter:__rand_int__"), ask("llen", "mylist")) != ("5000", "5000"):
            raise Failure("the benchmark's counters are wrong")
        ask(text="".join(f"set {key} \"{value}\"\n" for key, value in values.items()))
        with Server(under(context, "redis-benchmark", "-p", port, "-c", "10", "-n", "20000", "-t", "get", "-q")):
            if "Background saving started" not in ask("bgsave"):
                raise Failure("no snapshot is begun")
            until(lambda: "rdb_bgsave_in_progress:0" in ask("info", "persistence"), "the snapshot does not end")
        if "rdb_last_bgsave_status:ok" not in ask("info", "persistence"):
            raise Failure("the snapshot failed")
        ask("shutdown", "nosave")
    with Server(start):
        until(lambda: ask("ping") == "PONG", "the server does not answer again")
        for key, value in values.items():
            if ask("get", key) != value.strip():
                raise Failure(f"{key} is another one after the snapshot")
        ask("shutdown", "nosave")


NGINX = """
worker_processes {workers}; daemon off; pid {place}/pid; error_log {place}/log;
events {{ worker_connections 512; }}
http {{ access_log off; sendfile on; {bodies} server {{ listen 127.0.0.1:{port}; root {place}/www; }} }}
"""


def nginx(context, place, workers):
    """Small and large files by keep-alive connections of wrk, and one that is compared."""
    need("nginx", "wrk", "curl")
    port = free_port()
    place = place / f"nginx {workers}".replace(" ", "-")
    (place / "www").mkdir(parents=True, exist_ok=True)
    (place / "www/small").write_text("x" * 600)
    (place / "www/large").write_bytes(os.urandom(3 << 20))
    bodies = "".join(f"{name}_temp_path {place}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (place / "conf").write_text(NGINX.format(workers=workers, place=place, bodies=bodies, port=port))
    if os.geteuid() == 0 and not readable_by_all(place):
        raise Skip("nginx's workers are of another user, who may not read this folder")
    with Server(under(context, "nginx", "-c", place / "conf")) as server:
        until(lambda: listens(port) or server.process.poll() is not None, "nginx does not listen")
        for page in ("small", "large"):
            result = context.execute("sockets wrk", under(context, "wrk", "-t1", "-c20", "-d2s", f"http://127.0.0.1:{port}/{page}"), timeout=120)
            check(result)
            # Errors of time are the machine's.
            errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+)", result.output)
            # While a long answer fills the ring, poll may name bytes a moment before they come (docs/user/sockets.md, limits): wrk counts such a read.
            is_wrong = errors and set(errors.groups()) != {"0"} and (page == "small" or errors[1] != "0" or errors[3] != "0")
            if " requests in " not in result.output or " 0 requests in " in result.output or is_wrong:
                raise Failure(result.output)
        got = subprocess.run(under(context, "curl", "-s", f"http://127.0.0.1:{port}/large"), capture_output=True, timeout=60, check=True).stdout
        if got != (place / "www/large").read_bytes():
            raise Failure("curl got other bytes")


def readable_by_all(path):
    return all(folder.stat().st_mode & 0o001 for folder in [path, *path.resolve().parents])


MEMCACHED = """
import random, socket, sys
sock, rng, values = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), random.Random(5), {}
file = sock.makefile("rb")
for at in range(300):
    values[at] = rng.randbytes(rng.randrange(1, 20000)).hex().encode()
    sock.sendall(b"set k%d 0 0 %d\\r\\n%s\\r\\n" % (at, len(values[at]), values[at]))
    assert file.readline() == b"STORED\\r\\n"
for at, value in values.items():
    sock.sendall(b"get k%d\\r\\n" % at)
    assert file.readline() == b"VALUE k%d 0 %d\\r\\n" % (at, len(value))
    assert file.read(len(value)) == value and file.readline() == b"\\r\\n" and file.readline() == b"END\\r\\n"
assert "garonne-socket" in open("/proc/self/maps").read()
print("all is well")
"""


def memcached(context):
    need("memcached")
    port = free_port()
    with Server(under(context, "memcached", "-l", "127.0.0.1", "-p", port, "-t", "4", *(["-u", "root"] if os.geteuid() == 0 else []))):
        until(lambda: listens(port), "memcached does not listen")
        result = context.execute("sockets memcached", under(context, PYTHON, "-c", MEMCACHED, port), timeout=120)
        if result.code != 0 or SAID not in result.output:
            raise Failure(result.output[-1000:])


def postgresql(context, place):
    """pgbench over TCP: initial data, statements, a connection for each; the data are what plain TCP finds."""
    folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        raise Skip("PostgreSQL is not installed")
    programs, port = folders[-1], free_port()
    place = place / "postgresql"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    options = {}
    if os.geteuid() == 0:
        # The server refuses to run as root.
        if not readable_by_all(context.prefix / "lib"):
            raise Skip("another user may not run programs of this folder")
        options = {"user": "nobody", "group": "nogroup"}
        shutil.chown(place, "nobody", "nogroup")

    def run(*command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=300, cwd=place, **options)
        if done.returncode != 0:
            raise Failure(f"{command}: {done.stdout[-500:]}{done.stderr[-1000:]}")
        return done.stdout

    def psql(*begin):
        return run(*begin, programs / "psql", *address, "-At", "-c", "select count(*), md5(string_agg(aid::text, ',' order by aid)), sum(abalance) from pgbench_accounts", "postgres")

    address = ["-h", "127.0.0.1", "-p", port, "-U", "nobody"]
    run(programs / "initdb", "-D", place / "data", "-A", "trust", "-U", "nobody")
    start = under(context, programs / "postgres", "-D", place / "data", "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off")
    with Server(start, cwd=place, **options):
        until(lambda: subprocess.run([programs / "pg_isready", *address], capture_output=True, check=False).returncode == 0, "PostgreSQL does not answer")
        for words in (["-i", "-s", "1", "-q"], ["-c", "4", "-j", "2", "-t", "100"], ["-c", "2", "-t", "10", "-C"]):
            said = run(*under(context, programs / "pgbench", *address, *words, "postgres"))
            if "failed transactions: " in said and "failed transactions: 0 " not in said:
                raise Failure(said)
        if psql() != psql(*under(context)) or not psql().startswith("100000|"):
            raise Failure("the data differ")


def java(context, place):
    need("java", "javac")
    check(context.execute("sockets javac", ["javac", "-d", place, SOURCES / "Echo.java"], timeout=300))
    for command in ([], under(context)):
        result = context.execute("sockets java", [*command, "java", "-Xmx128m", "-cp", place, "Echo"], timeout=300)
        if result.code != 0 or SAID not in result.output:
            raise Failure(f"it ended with {result.code}\n{result.output[-1000:]}")


def python_tests(context, name):
    """CPython's own tests. What fails on plain TCP as well is the machine's."""
    if subprocess.run([PYTHON, "-c", f"import test.{name}"], capture_output=True, check=False).returncode != 0:
        raise Skip("Python's own tests are not installed (libpython3.11-testsuite)")
    # Sockets of virtual machines hang on hosts that are such machines, also without the library.
    command = [PYTHON, "-m", "test", "-v", name, "-i", "*VSOCK*"]
    result = context.execute(f"sockets {name}", under(context, *command), timeout=900)
    if result.code == 0:
        return
    failed = sorted(set(re.findall(r"^(\w+) \(\S+\) \.\.\. (?:FAIL|ERROR)", result.output, re.M)))
    if not failed:
        raise Failure(f"it ended with {result.code} (log: {result.log})\n{result.output[-1500:]}")
    for test in failed:
        alone = [PYTHON, "-m", "test", "-v", name, "-m", test]
        if context.execute(f"sockets {name} {test}", under(context, *alone), timeout=300).code == 0:
            continue
        if context.execute(f"sockets {name} {test} on TCP", alone, timeout=300).code == 0:
            raise Failure(f"{test} fails with the library alone (log: {result.log})")
