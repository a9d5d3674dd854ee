"""Traces of programs whose behaviour is known (tests/trace/stories.c): what the file says, and what of each operation was hidden and why.

Nothing here depends on how long anything takes: where order matters the programs make it.
"""

import bisect
import collections
import json
import os
import re
import shutil
import signal
import subprocess

from ..runner import Case, Failure, check, kill_group
from .command_line import marked, wait_for

LIMIT_S = 120
# Slices within a call: what lies behind one of them ends before it, so a moment's slice is among the last that begin before it.
DEPTH = 64
# At once, whether or not there is a core to spare.
BACKGROUND = {"GARONNE_BACKGROUND": "always"}


def suite(context):
    if context.foreign:
        return
    context.installed()
    for case in (sender, wait, late, late_blocking, collectives, named, hung, hung_before, last_events, last_small_sends, no_last_events, rounds, tasks, killed, many, running, running_threads, launcher_killed):
        name = case.__doc__.split("\n")[0].rstrip(".")
        yield Case(f"trace/{name}", lambda case=case: case(Stories(context, case.__name__)), alone=True)


class Stories:
    """One case's directory, its program, and what it recorded."""

    def __init__(self, context, name):
        self.context, self.name = context, name
        self.directory = context.work / f"trace-{name}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.source = context.root / "tests" / "trace" / "stories.c"
        self.program = self.directory / "stories"
        self.file = self.directory / "trace.json"
        build = [context.mpicc(), "-g", "-O1", self.source, "-o", self.program]
        check(context.execute(f"trace build {name}", build, timeout=60))

    def command(self, story, ranks):
        return [str(self.context.prefix / "bin" / "garonne"), "run", "-n", str(ranks), "--trace", str(self.file), str(self.program), story, str(self.directory)]

    def run(self, story, ranks=2, env=None, code=0):
        """Runs a story with a trace; the events."""
        result = self.context.execute(f"trace {self.name}", self.command(story, ranks), timeout=LIMIT_S, env=self.context.environment(env))
        if result.timed_out or result.code != code:
            raise Failure(f"exit code {result.code}, wanted {code}\n{result.output}")
        return self.events(result.output)

    def events(self, said=""):
        trace = json.loads(self.file.read_text())
        if "events were lost" in said:
            # What is whole must be right all the same; how much is lost depends on the machine.
            print(f"    {said.splitlines()[-1]}", flush=True)
        return trace["traceEvents"]

    def rows(self, *target, code=0):
        """What `garonne overlap` says of the file, or of a running job."""
        command = [str(self.context.prefix / "bin" / "garonne"), "overlap", "--json", *(target or [str(self.file)])]
        done = subprocess.run(command, env=self.context.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode != code:
            raise Failure(f"{command} ended with {done.returncode}: {done.stderr}")
        return {(row["site"], row["call"]): row for row in json.loads(done.stdout)["sites"]}

    def line(self, words):
        """The place of the line with this comment."""
        for number, text in enumerate(self.source.read_text().splitlines(), 1):
            if f"/* line: {words} */" in text:
                return f"stories.c:{number}"
        raise Failure(f"no line says '{words}'")


def expect(condition, complaint):
    if not condition:
        raise Failure(complaint)


def whole(events):
    """What holds of every trace: slices nest and are closed, asynchronous ones, too, and each arrow leads from a slice to a slice."""
    stacks, spans, open_slices = collections.defaultdict(list), collections.defaultdict(list), {}
    arrows = collections.defaultdict(dict)
    for event in events:
        track, phase = (event["pid"], event.get("tid")), event["ph"]
        if phase == "B":
            if stacks[track]:
                expect(event["ts"] >= stacks[track][-1]["ts"], f"{event} begins before {stacks[track][-1]}")
            stacks[track].append(event)
        elif phase == "E":
            expect(stacks[track], f"{event} ends nothing")
            begun = stacks[track].pop()
            expect(begun["name"] == event["name"] and event["ts"] >= begun["ts"], f"{event} ends {begun}")
            spans[track].append((begun["ts"], event["ts"]))
        elif phase in "be":
            key = (event["cat"], event["id"])
            expect((key in open_slices) == (phase == "e"), f"{event} out of place")
            if phase == "b":
                open_slices[key] = event
            else:
                expect(event["ts"] >= open_slices.pop(key)["ts"], f"{event} ends before it began")
        elif phase in "sf":
            expect(phase not in arrows[event["id"]], f"{event} is told twice")
            arrows[event["id"]][phase] = event
    left = [stack for stack in stacks.values() if stack]
    expect(not left and not open_slices, f"left open: {left} {list(open_slices.values())[:5]}")
    spans = {track: sorted(on) for track, on in spans.items()}
    for arrow in arrows.values():
        expect(set(arrow) == {"s", "f"}, f"half an arrow: {arrow}")
        expect(arrow["s"]["ts"] <= arrow["f"]["ts"], f"an arrow back in time: {arrow}")
        for end in arrow.values():
            on = spans.get((end["pid"], end["tid"]), [])
            # A call that began before a running job was watched has no slice.
            unseen = not on or end["ts"] < on[0][0]
            expect(unseen or lies_in(on, end["ts"]), f"{end} lies in no slice")
    places = {event["args"]["at"] for event in events if event["ph"] == "B" and event["cat"] == "mpi"}
    expect(places and all(re.fullmatch(r"stories\.c:\d+", place) for place in places), f"places are {places}")
    return list(arrows.values())


def lies_in(spans, moment):
    """Whether one of these, sorted and nested, holds a moment: any but the few that it lies within begin after it or ended before it."""
    place = bisect.bisect_right(spans, (moment, float("inf")))
    return any(begin <= moment <= end for begin, end in spans[max(0, place - DEPTH):place])


def sender(stories):
    """a sender that computes while its partner takes the message has all hidden"""
    events = stories.run("sender", env=BACKGROUND)
    arrows = whole(events)
    expect(len([arrow for arrow in arrows if arrow["s"]["args"]["bytes"] == 4 << 20]) == 5, f"{len(arrows)} arrows")
    row = stories.rows()[stories.line("isend of sender"), "MPI_Isend"]
    # A sender that loses its core inside the call that starts the message may find all of it moved when it comes back.
    kept_waiting = row["reasons"].get("waited at once", 0)
    expect(row["operations"] == 5 and row["hidden_percent"] >= 90 - 20 * kept_waiting and kept_waiting <= 2, f"{row}")
    works = [event for event in events if event["ph"] == "X" and event["cat"] == "work"]
    expect(works and all(event["args"]["core"] < os.cpu_count() for event in works), f"{works[:3]}")


def wait(stories):
    """who waits as soon as it has started has nothing hidden"""
    whole(stories.run("wait"))
    rows = stories.rows()
    for words, call in (("isend of wait", "MPI_Isend"), ("irecv of wait", "MPI_Irecv")):
        row = rows[stories.line(words), call]
        # A receiver that gets no core for a while may come after its message, too.
        reasons = ("waited at once", "posted late") if call == "MPI_Irecv" else ("waited at once",)
        expect(row["operations"] == 5 and row["hidden_percent"] <= 30 and row["reason"] in reasons, f"{words}: {row}")


def late(stories):
    """a receive that its message waited for was posted late"""
    whole(stories.run("late", env=BACKGROUND))
    row = stories.rows()[stories.line("irecv of late"), "MPI_Irecv"]
    expect(row["operations"] == 5 and row["reason"] == "posted late", f"{row}")


def collectives(stories):
    """collectives are named and numbered, and nonblocking ones are operations of their own"""
    events = stories.run("collectives", ranks=3, env=BACKGROUND)
    whole(events)
    named = collections.Counter(event["name"] for event in events if event["ph"] == "B" and event["cat"] == "collective")
    numbers = [int(found.group(1)) for name in named for found in [re.fullmatch(r"MPI_Allreduce #(\d+) of MPI_COMM_WORLD", name)] if found]
    expect(sorted(numbers) == list(range(min(numbers), min(numbers) + 5)), f"{named}")
    expect(all(count == 3 for count in named.values()), f"each on three ranks: {named}")
    row = stories.rows()[stories.line("ibcast"), "MPI_Ibcast"]
    expect(row["operations"] == 15, f"{row}")


def late_blocking(stories):
    """blocking calls count partners that were late"""
    whole(stories.run("late_blocking"))
    rows = stories.rows()
    # A rank that gets no core for a while may be late anywhere, too.
    for words, call in (("recv of late_blocking", "MPI_Recv"), ("barrier of late_blocking", "MPI_Barrier")):
        row = rows[stories.line(words), call]
        late = row["reasons"].get("partner late", 0)
        expect(row["reason"] == "partner late" and late >= 5 and row["hidden_percent"] is None, f"{words}: {row}")


def named(stories):
    """a collective of one call has one name, with that of its communicator"""
    events = stories.run("named", ranks=4, env=BACKGROUND)
    whole(events)
    slices = collections.defaultdict(set)
    for event in events:
        if event["ph"] == "B" and event["cat"] == "collective" and event["name"].startswith("MPI_Allreduce #"):
            slices[event["name"].split(" of ")[1]].add((event["name"], event["pid"]))
    odd = "the odd ranks, who have a longer name"
    expect(set(slices) == {"even", odd}, f"{slices}")
    for name, ranks in (("even", (0, 2)), (odd, (1, 3))):
        numbers = {text for text, _ in slices[name]}
        expect(len(numbers) == 5 and slices[name] == {(text, rank) for text in numbers for rank in ranks}, f"{slices}")
    begun = [event["args"].get("communicator") for event in events if event["ph"] == "b" and event["name"] == "MPI_Ibcast"]
    expect(set(begun) == {"even", odd}, f"{begun}")


def hung(stories):
    """calls that a job hangs in are open until it is ended, and each death has its mark"""
    command = [*stories.command("hung", 3)]
    command[2:2] = ["--timeout", "3"]
    result = stories.context.execute("trace hung", command, timeout=LIMIT_S, env=stories.context.environment({"GARONNE_DEADLOCK": "off"}))
    expect(result.code == 124, f"exit code {result.code}\n{result.output}")
    events = stories.events(result.output)
    whole(events)
    deaths = {event["pid"]: event["ts"] for event in events if event["ph"] == "i" and event["args"].get("died")}
    expect(set(deaths) == {0, 1, 2}, f"{deaths}")
    for rank, (call, words) in enumerate([("MPI_Recv", "recv of hung")] + [("MPI_Barrier", "barrier of hung")] * 2):
        of_rank = [event for event in events if event["pid"] == rank and event.get("cat") == "mpi"]
        begun, ended = of_rank[-2:]
        expect((begun["ph"], begun["name"], begun["args"]["at"]) == ("B", call, stories.line(words)), f"{begun}")
        expect((ended["ph"], ended["ts"], ended["args"]["end"]) == ("E", deaths[rank], "the rank died"), f"{ended} {deaths}")
        expect(ended["ts"] > max(event["ts"] for event in of_rank[:-1]), f"{of_rank[-4:]}")
    names = {event["name"] for event in events if event["ph"] == "B" and event["cat"] == "collective" and event["pid"] != 0}
    numbers = {int(re.fullmatch(r"MPI_Barrier #(\d+) of MPI_COMM_WORLD", name).group(1)) for name in names if name.startswith("MPI_Barrier")}
    expect(len(numbers) == 2, f"{names}")


def hung_before(stories):
    """calls that a job hung in before anybody traced it are open, too"""
    mark = f"GARONNE_TEST_MARK={os.getpid()}.{stories.name}"
    command = [word for word in stories.command("hung", 2) if word not in ("--trace", str(stories.file))]
    process = start(stories, mark, "env", "GARONNE_DEADLOCK=off", *command)
    try:
        wait_for(lambda: len(asked(stories, "who", str(process.pid))["ranks"]) == 2, "nobody waits")
        ask = [command[0], "trace", str(process.pid), "--for", "200ms", "-o", stories.file]

        def open_calls():
            check(stories.context.execute("trace hung before", ask, timeout=LIMIT_S))
            begun = [event for event in stories.events() if event["ph"] == "B"]
            return {(event["pid"], event["name"], event["args"].get("at")) for event in begun}

        wanted = {(0, "MPI_Recv", stories.line("recv of hung")), (1, "MPI_Barrier", stories.line("barrier of hung"))}
        wait_for(lambda: wanted <= open_calls(), "the open calls are missing")
        names = [event["name"] for event in stories.events() if event["ph"] == "B" and event["cat"] == "collective"]
        expect(len(names) == 1 and re.fullmatch(r"MPI_Barrier #\d+ of MPI_COMM_WORLD", names[0]), f"{names}")
        ends = {event["args"]["end"] for event in stories.events() if event["ph"] == "E"}
        expect(ends == {"still open"}, f"{ends}")
    finally:
        kill_group(process)


def asked(stories, *words):
    """What a command of garonne says in JSON."""
    command = [str(stories.context.prefix / "bin" / "garonne"), *words, "--json"]
    done = subprocess.run(command, env=stories.context.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return json.loads(done.stdout)


def badly(stories, *words, ranks=3):
    """Runs words as a job in the case's directory, with what ranks record last; how it ended."""
    garonne = stories.context.prefix / "bin" / "garonne"
    command = [garonne, "run", "--record", "on", "--name", "last", "-n", str(ranks), *words]
    return stories.context.execute(f"trace {stories.name}", command, timeout=LIMIT_S, env=stories.context.environment(), cwd=stories.directory)


def last(stories, result, name="garonne-last.trace"):
    """What `garonne trace` says of the file that the job's last line names, as lines by rank, and the file's events."""
    line = result.output.rstrip().splitlines()[-1]
    expect(line.startswith("note[G0315]") and line.endswith(f"garonne trace {name} shows them"), f"the last line is {line}")
    garonne = stories.context.prefix / "bin" / "garonne"
    shown = stories.context.execute("trace shown", [garonne, "trace", name], timeout=LIMIT_S, env=stories.context.environment(), cwd=stories.directory)
    check(shown)
    parts = {int(part.split()[0]): part.splitlines() for part in shown.output.split("\n\nrank ")[1:]}
    return parts, json.loads((stories.directory / name).read_text())["traceEvents"]


def last_events(stories):
    """where a rank is killed, the last events of each are in a file that the last line names"""
    (stories.directory / "garonne-last.trace").write_text("something else\n")
    for _ in range(2):
        result = badly(stories, stories.program, "killed", stories.directory)
        expect(result.code == 128 + signal.SIGKILL, f"exit code {result.code}\n{result.output}")
        parts, events = last(stories, result, "garonne-last-1.trace")
        expect(sorted(parts) == [0, 1, 2] and parts[1][0].endswith(", which the job failed by"), f"{parts}")
        receive = [line for line in parts[1] if line.startswith("  #")][-1]
        expect(re.search(r"MPI_Irecv posts a receive: process 0, tag 99, 8 B, MPI_COMM_WORLD   at stories\.c:\d+$", receive)
               and receive.endswith(stories.line("last call")), f"{receive}")
        expect(any(f"in or after MPI_Irecv at {stories.line('last call')}" in line for line in parts[1]), f"{parts[1][:3]}")
        slices = [event for event in events if event["ph"] == "X" and event["pid"] == 1 and "peer" in event["args"]]
        expect(slices[-1]["args"]["tag"] == 99 and slices[-1]["ts"] == len(slices) - 1, f"{slices[-2:]}")
    expect((stories.directory / "garonne-last.trace").read_text() == "something else\n", "another's file was overwritten")


def last_small_sends(stories):
    """small sends of a rank that is killed are among its last events"""
    result = badly(stories, stories.program, "killed_sender", stories.directory, ranks=2)
    expect(result.code == 128 + signal.SIGKILL, f"exit code {result.code}\n{result.output}")
    lines = last(stories, result)[0][0]
    begin = next(place for place, line in enumerate(lines) if line.startswith("  small sends to process 1 in MPI_COMM_WORLD"))
    tags = [int(re.fullmatch(rf" +#\d+ MPI_Send sends: tag (\d+), 4 B   at {re.escape(stories.line('small send'))}", line).group(1))
            for line in lines[begin + 1:]]
    expect(tags and tags == list(range(2000 - len(tags), 2000)) and len(tags) >= 90, f"{lines[begin:]}")


def no_last_events(stories):
    """no file is left by a job that is well, has no MPI or is not to record"""
    abort = ["-x", "GARONNE_RECORD=off", stories.program, "no such story", stories.directory]
    jobs = {"well": ([stories.program, "ring", stories.directory], 0), "no MPI": (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL)}
    for what, (words, code) in jobs.items():
        result = badly(stories, *words)
        expect(result.code == code and "G0315" not in result.output, f"{what}: {result.code}\n{result.output}")
    garonne = stories.context.prefix / "bin" / "garonne"
    for words in (["--record", "off"], []):
        command = [garonne, "run", *words, "-n", "2", *(abort if not words else abort[2:])]
        result = stories.context.execute("trace not recorded", command, timeout=LIMIT_S, env=stories.context.environment(), cwd=stories.directory)
        expect(result.code == 3 and "G0315" not in result.output, f"{result.code}\n{result.output}")
    expect(not list(stories.directory.glob("garonne-*.trace")), f"{list(stories.directory.iterdir())}")


def rounds(stories):
    """collectives that meet in shared memory have the bytes that each rank moved there"""
    events = stories.run("rounds", ranks=3)
    whole(events)
    rows = stories.rows()
    lost = any("lost" in event.get("args", {}) for event in events if event["ph"] == "i")
    # Each puts 8 KB down and takes two of the others'; a barrier moves nothing, also not where it is the first call of its communicator.
    for words, call, bytes_each in (("iallgather", "MPI_Iallgather", 3 * 8192), ("ibarrier", "MPI_Ibarrier", 0)):
        row = rows[stories.line(words), call]
        expect(lost or row["operations"] == 15 and row["bytes"] == 15 * bytes_each, f"{words}: {row}")
        expect((row["moving_ns"] > 0) == (bytes_each > 0), f"{words}: {row}")


def tasks(stories):
    """each run of a task is shown, on the thread that ran it, and a collective has no tag"""
    events = stories.run("tasks")
    whole(events)
    lost = any("lost" in event.get("args", {}) for event in events if event["ph"] == "i")
    runs = [event for event in events if event.get("cat") == "task"] if not lost else []
    threads = {(event["pid"], event["tid"]): event["args"]["name"].split()[0] for event in events if event["name"] == "thread_name"}
    for finished in (True, False):
        each = collections.Counter(event["pid"] for event in runs if event["args"]["finished"] == finished)
        expect(lost or each == {0: 20, 1: 20}, f"runs of tasks, finished {finished}: {each}")
    for run in runs:
        expect(run["ph"] == "X" and run["dur"] >= 1000 and run["args"]["core"] < os.cpu_count(), f"{run}")
        expect(threads[run["pid"], run["tid"]] in ("program", "worker", "helper"), f"{run} of {threads}")
    begun = [event for event in events if event["ph"] == "b" and event["cat"] == "operation"]
    tags = {event["name"]: {other["args"].get("tag") for other in begun if other["name"] == event["name"]} for event in begun}
    expect(tags["MPI_Iallreduce"] == {None} and tags["MPI_Isend"] == {7}, f"{tags}")


def killed(stories):
    """of a killed rank the last call is there"""
    events = stories.run("killed", ranks=3, code=128 + signal.SIGKILL)
    whole(events)
    deaths = {event["pid"] for event in events if event["ph"] == "i" and event["args"].get("died")}
    expect(1 in deaths, f"{deaths}")
    last = [event for event in events if event["ph"] == "B" and event["cat"] == "mpi" and event["pid"] == 1][-1]
    expect((last["name"], last["args"]["at"]) == ("MPI_Irecv", stories.line("last call")), f"{last}")


def many(stories):
    """a job of 64 ranks"""
    events = stories.run("ring", ranks=64)
    arrows = whole(events)
    ranks = {event["pid"] for event in events if event["ph"] == "B"}
    expect(ranks == set(range(64)), f"only {sorted(ranks)}")
    lost = sum(event["args"]["lost"] for event in events if event["ph"] == "i" and "lost" in event["args"])
    # 50 messages to each of 64 neighbours, and those of collectives.
    expect(lost or len(arrows) >= 64 * 50, f"{len(arrows)} arrows and nothing lost")


def start(stories, mark, *words):
    """Starts the story that goes on until it is told to stop, and waits for its ranks."""
    process = subprocess.Popen(["env", mark, *words], env=stories.context.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        wait_for(lambda: all((stories.directory / f"running.{rank}").exists() for rank in (0, 1)), "the ranks did not start", seconds=60)
    except Failure:
        kill_group(process)
        raise
    return process


def running(stories):
    """a running job is traced for a while, and goes on"""
    rows = watch(stories, "endless")
    expect(any(call == "MPI_Irecv" for _, call in rows), f"{rows}")


def running_threads(stories):
    """a running job whose threads are all in MPI is traced for a while, and goes on"""
    row = watch(stories, "threads")[stories.line("irecv of threads"), "MPI_Irecv"]
    # Whichever thread moves the large ones.
    expect(row["operations"] > 0 and row["moving_ns"] > 0, f"{row}")


def watch(stories, story):
    """Traces a job that goes on for a while; what of its operations was hidden while it was watched once more."""
    mark = f"GARONNE_TEST_MARK={os.getpid()}.{stories.name}"
    command = [word for word in stories.command(story, 2) if word not in ("--trace", str(stories.file))]
    process = start(stories, mark, *command)
    try:
        garonne = command[0]
        ask = [garonne, "trace", str(process.pid), "--for", "500ms", "-o", stories.file]
        check(stories.context.execute("trace running", ask, timeout=LIMIT_S))
        expect(whole(stories.events()), "no arrows")
        rows = stories.rows(str(process.pid), "--for", "500ms")
        (stories.directory / "stop.0").touch()
        expect(process.wait(LIMIT_S) == 0, f"it ended with {process.returncode}")
        return rows
    finally:
        kill_group(process)


def launcher_killed(stories):
    """a launcher that is killed leaves a whole file and nothing else"""
    mark = f"GARONNE_TEST_MARK={os.getpid()}.{stories.name}"
    process = start(stories, mark, *stories.command("endless", 2))
    try:
        wait_for(lambda: stories.file.exists() and stories.file.stat().st_size > 100000, "nothing was written", seconds=60)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        wait_for(lambda: not marked(mark), "processes were left")
        # Killed in the very moment in which a write leaves a page, it leaves an event that is cut: what reads such a file passes it over.
        text = stories.file.read_text()
        whole_text = text if text.endswith("\n]}\n") else text[:text.rindex(",\n")] + "\n]}\n"
        expect(len(json.loads(whole_text)["traceEvents"]) > 100, "the file is next to empty")
        expect(stories.rows(), "nothing can be said of it")
    finally:
        kill_group(process)
