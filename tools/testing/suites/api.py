"""Endpoints with event queues: the example programs in C and in Rust, each with each, as processes that find each other by a URI and a key."""

import itertools
import os
import pathlib
import signal
import subprocess
import time

from ..jobs_on_hosts import run as run_on_hosts
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts
from ..runner import Case, Failure, check

BUILD_LIMIT_S = 900
# Cases run at the same time, and each run of a client has a log of its own.
RUNS = itertools.count(1)
LANGUAGES = ("c", "rust")


def suite(context):
    if context.foreign:
        return
    context.installed()
    place = context.work / "api"
    place.mkdir(exist_ok=True)
    for name in ("echo", "file_transfer", "key_value"):
        build(context, name, place / name)
    check(context.execute("api build rust", ["cargo", "build", "-p", "garonne", "--examples"], timeout=BUILD_LIMIT_S))
    programs = {"c": place, "rust": context.root / "target/debug/examples"}
    for one in LANGUAGES:
        for other in LANGUAGES:
            ends = (programs[one], programs[other])
            yield Case(f"api/echo, {one} to {other}", lambda ends=ends: echo(context, *ends))
            yield Case(f"api/file transfer, {one} to {other}", lambda ends=ends: file_transfer(context, *ends))
            yield Case(f"api/key-value store, {one} to {other}", lambda ends=ends: key_value(context, *ends))
    for ranks in (1, 3):
        yield Case(f"api/{ranks} ranks of a job", lambda ranks=ranks: ranks_of_a_job(context, programs["rust"], ranks))
    yield Case("api/a rank that dies ends the job", lambda: dead_rank(context, programs["rust"]))
    yield Case("api/ranks on two hosts", lambda: ranks_on_hosts(context, programs["rust"]))
    yield Case("api/echo and file transfer between hosts", lambda: between_hosts(context, place))
    for language in LANGUAGES:
        yield Case(f"api/a sender that is killed leaves no file, {language}", lambda at=programs[language]: killed(context, at))
        yield Case(f"api/a wrong key is told, {language}", lambda at=programs[language]: wrong_key(context, at))


def build(context, name, target):
    """As the page says: with what pkg-config tells, and without mpicc."""
    environment = context.environment() | {"PKG_CONFIG_PATH": str(context.prefix / "lib/pkgconfig")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libgaronne"], capture_output=True, text=True, env=environment)
    if flags.returncode != 0:
        raise Failure(f"pkg-config: {flags.stderr}")
    source = context.root / f"examples/api/{name}.c"
    command = [os.environ.get("CC", "cc"), "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", target, *flags.stdout.split()]
    check(context.execute(f"api build {name}", list(map(str, command)), timeout=60))


class Server:
    """A program that listens: where it does, once it has said so, and what it said when it ended."""

    def __init__(self, context, command, key):
        pathlib.Path(key).unlink(missing_ok=True)
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=context.environment())
        line = self.process.stdout.readline()
        if not line.startswith("listening at "):
            self.process.kill()
            raise Failure(f"it does not listen: {line}{self.process.communicate()[0]}")
        self.uri = line.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def end(self):
        try:
            output = self.process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired as error:
            raise Failure("it does not end") from error
        return self.process.returncode, output


def place_of(context, name):
    place = context.work / "api" / f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    place.mkdir()
    return place


def echo(context, server, client):
    place = place_of(context, "echo")
    key = place / "key"
    with Server(context, [server / "echo", "serve", "garonne://127.0.0.1:0", key, 2], key) as at:
        expect(key.stat().st_mode & 0o077 == 0, "others may read the key", "")
        for words in (["one", "two", "three"], ["x" * 100_000]):
            result = context.execute(f"api/echo client {next(RUNS)}", [str(client / "echo"), "call", at.uri, str(key), *words], timeout=PATIENCE_S)
            check(result)
            came = [line for line in result.output.splitlines() if line[:1].isdigit()]
            expect(came == [f"{number}: {word}" for number, word in enumerate(words)], "other words came back", result.output[:500])
        code, output = at.end()
        expect(code == 0 and output.count("a client has left") == 2, f"the server ended with {code}", output)


def file_transfer(context, receiver, sender):
    place = place_of(context, "file")
    key, source, target = place / "key", place / "numbers", place / "received"
    target.mkdir()
    content = b"".join(number.to_bytes(4, "little") for number in range(600_001)) + b"end"
    source.write_bytes(content)
    with Server(context, [receiver / "file_transfer", "receive", target, "garonne://127.0.0.1:0", key], key) as at:
        check(context.execute(f"api/file sender {next(RUNS)}", [str(sender / "file_transfer"), "send", str(source), at.uri, str(key)], timeout=PATIENCE_S))
        code, output = at.end()
    expect(code == 0, f"the receiver ended with {code}", output)
    expect((target / "numbers").read_bytes() == content, "the file is another one", output)
    expect([file.name for file in target.iterdir()] == ["numbers"], "other files are there, too", output)


def between_hosts(context, programs):
    """On two hosts that share no more than a network."""
    place = place_of(context, "hosts")
    key, source, target = place / "key", place / "numbers", place / "received"
    target.mkdir()
    content = bytes(range(256)) * 10_001
    source.write_bytes(content)
    with Hosts(2) as hosts:
        here, there = (["ip", "netns", "exec", name] for name in hosts.names)
        at_host = f"garonne://{hosts.addresses[0]}:0"
        with Server(context, [*here, programs / "echo", "serve", at_host, key], key) as at:
            result = context.execute(f"api/echo between hosts {next(RUNS)}", [*there, str(programs / "echo"), "call", at.uri, str(key), "from", "afar"], timeout=PATIENCE_S)
            check(result)
            expect("0: from\n1: afar" in result.output, "other words came back", result.output)
            code, output = at.end()
            expect(code == 0 and "a client has left" in output, f"the server ended with {code}", output)
        with Server(context, [*here, programs / "file_transfer", "receive", target, at_host, key], key) as at:
            check(context.execute(f"api/file between hosts {next(RUNS)}", [*there, str(programs / "file_transfer"), "send", str(source), at.uri, str(key)], timeout=PATIENCE_S))
            code, output = at.end()
    expect(code == 0 and (target / "numbers").read_bytes() == content, "the file is another one", output)


def ranks_of_a_job(context, programs, ranks):
    result = context.execute(f"api/{ranks} ranks", context.launcher(ranks) + [str(programs / "rank_events"), "40"], timeout=PATIENCE_S, env=context.environment())
    check(result)
    said = sum(f"rank {rank} of {ranks}: " in result.output for rank in range(ranks))
    expect(said == ranks, f"{said} of {ranks} ranks came to the end", result.output)


def dead_rank(context, programs):
    """Nobody waits for the other ranks of a job of which one has died."""
    command = ["sh", "-c", f'[ "$GARONNE_RANK" != 1 ] || exec false; exec {programs}/rank_events 1000000000']
    result = context.execute(f"api/dead rank {next(RUNS)}", context.launcher(3) + command, timeout=PATIENCE_S, env=context.environment())
    expect(result.code == 1 and "rank 1 (" in result.output, f"the job ended with {result.code}", result.output)


def ranks_on_hosts(context, programs):
    with Hosts(2) as hosts:
        words = ["-n", 4, "--map-by", "node", "--host", f"localhost,{hosts.names[1]}", programs / "rank_events", 20]
        code, output = run_on_hosts(context, hosts, words, limit=3 * PATIENCE_S)
    said = sum(f"rank {rank} of 4: all is well" in output for rank in range(4))
    expect(code == 0 and said == 4, f"exit code {code}", output)


def key_value(context, server, client):
    place = place_of(context, "key-value")
    key = place / "key"
    with Server(context, [server / "key_value", "serve", "garonne://127.0.0.1:0", key, 5], key) as at:
        def ask(*words):
            return context.execute(f"api/key-value client {next(RUNS)}", [str(client / "key_value"), words[0], at.uri, str(key), *words[1:]], timeout=PATIENCE_S)
        for value in ("old", "new" * 10_000):
            check(ask("put", "name", value))
            result = ask("get", "name")
            expect(f"name = {value}" in result.output.splitlines(), "another value came back", result.output[:500])
        result = ask("get", "nobody")
        expect(result.code == 1 and "there is no nobody" in result.output, f"it ended with {result.code}", result.output)
        code, output = at.end()
        expect(code == 0, f"the server ended with {code}", output)


def killed(context, programs):
    """The sender is killed when the receiver has begun to write a file of which nobody sees the end."""
    place = place_of(context, "killed")
    key, source, target = place / "key", place / "endless", place / "received"
    target.mkdir()
    with open(source, "wb") as file:
        file.truncate(1 << 40)
    with Server(context, [programs / "file_transfer", "receive", target, "garonne://127.0.0.1:0", key], key) as at:
        sender = subprocess.Popen([str(programs / "file_transfer"), "send", str(source), at.uri, str(key)], env=context.environment(), stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while not (target / "endless.part").exists() and time.monotonic() < until and at.process.poll() is None:
            time.sleep(0.01)
        sender.send_signal(signal.SIGKILL)
        sender.wait()
        code, output = at.end()
    expect(code == 1 and "the sender ended" in output, f"the receiver ended with {code}", output)
    expect(not list(target.iterdir()), "a part of the file is left", str(list(target.iterdir())))


def wrong_key(context, programs):
    place = place_of(context, "wrong")
    key, other = place / "key", place / "other"
    other.write_text("5a" * 32)
    with Server(context, [programs / "echo", "serve", "garonne://127.0.0.1:0", key], key) as at:
        result = context.execute(f"api/wrong key {next(RUNS)}", [str(programs / "echo"), "call", at.uri, str(other), "word"], timeout=PATIENCE_S)
        expect(result.code == 1 and "connect garonne://" in result.output, f"it ended with {result.code}", result.output)
        check(context.execute(f"api/right key {next(RUNS)}", [str(programs / "echo"), "call", at.uri, str(key), "word"], timeout=PATIENCE_S))
        code, output = at.end()
        expect(code == 0, f"the server ended with {code}", output)
