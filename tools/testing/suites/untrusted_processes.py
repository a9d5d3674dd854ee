"""What other processes of the machine can make tools believe: sockets that look like those of agents."""

import json
import os
import subprocess
import sys
import tempfile
import time

from ..other_launchers import free_port
from ..marked_jobs import PATIENCE_S, MarkedJob, expect
from ..runner import Case, Failure, Skip, check
from . import process_hygiene

# A network namespace of its own has no other jobs, whose names are abstract sockets.
ALONE = ["unshare", "-n", "--"]
ANOTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
CONTROL = "\x1b\x07\x9b\u202e"
# The commands that look for jobs.
ASKING = [["ps"], ["ps", "--json"], ["who"], ["top", "--once"], ["map"], ["why", "binding"], ["overlap"]]


def suite(context):
    if context.foreign:
        return
    context.installed()
    yield Case("strangers/of another user are not believed", lambda: of_another_user(context))
    yield Case("strangers/of the user do no harm", lambda: of_the_user(context))
    yield Case("strangers/one at the meeting place of ranks is named", lambda: at_the_meeting_place(context))
    yield Case("strangers/hundreds that are silent hide no job", lambda: many(context))
    check(process_hygiene.build(context, "talks"))
    yield Case("strangers/the name of a job admits nobody", lambda: uninvited(context))


class Machine:
    """A shell in a network namespace, with a false agent of somebody and, if asked for, a real job."""

    def __init__(self, context, count, what, user=(), job=False):
        if os.geteuid() != 0:
            raise Skip("only root can have a network namespace of its own and be somebody else")
        self.context, self.job = context, None
        self.holder = subprocess.Popen([*ALONE, "sh", "-c", "echo made; exec sleep 1000"], stdout=subprocess.PIPE, text=True)
        self.holder.stdout.readline()
        # Readable for everybody, wherever the checkout lies.
        program = (context.root / "tests/guest/false_agent.py").read_text()
        command = [*self.inside(), *user, sys.executable, "-c", program, str(count), what]
        self.agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        expect(self.agent.stdout.readline() == "bound\n", "there is no false agent", "")
        if job:
            self.job = MarkedJob([*self.inside(), context.prefix / "bin/garonne", "run", "-n", "2", "sleep", "1000"], context.environment())

    def inside(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]

    def ask(self, words):
        command = [*self.inside(), str(self.context.prefix / "bin/garonne"), *words]
        done = subprocess.run(command, env=self.context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        expect(done.returncode >= 0 and "panicked" not in done.stderr, f"{words}: {done.returncode}", done.stdout + done.stderr)
        expect(not any(letter in done.stdout + done.stderr for letter in CONTROL), f"{words}: control characters", repr(done.stdout + done.stderr))
        return done.stdout + done.stderr

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.job:
            self.job.sweep()
        for process in (self.agent, self.holder):
            process.kill()
            process.communicate()


def of_another_user(context):
    with Machine(context, 3, "answer", ANOTHER_USER) as machine:
        for words in ASKING:
            said = machine.ask(words)
            expect("evil" not in said, f"{words} believes another user", said)


def of_the_user(context):
    for what in ("answer", "shrink", "rubbish"):
        with Machine(context, 1, what) as machine:
            expect(what != "answer" or "/evil" in machine.ask(["ps"]), "the job of an own process is not shown", "")
            for words in ASKING:
                said = machine.ask(words)
                expect("verdict: deadlock" not in said.splitlines(), f"{words} prints a line of its command", said)


def many(context):
    """They are of another user, who has bound more names than are asked in time."""
    with Machine(context, 400, "silent", ANOTHER_USER, job=True) as machine:
        for _ in range(100):
            said = json.loads(machine.ask(["ps", "--json"]))
            if said:
                break
        expect(len(said) == 1 and "sleep" in str(said), "the job is not seen", str(said))


# A rank that shows its invitation in the file INVITED, takes no part itself, and stays until the file DONE is there.
SHOWN = 'env | grep ^GARONNE_ > "$0/making" && mv "$0/making" "$0/INVITED"; until [ -e "$0/DONE" ]; do sleep 0.05; done'


def uninvited(context):
    """A process that knows all of a rank's invitation but what admits to its job, for which it takes the job's id, is refused, and harms nobody; with that it is the rank."""
    talks = process_hygiene.program_of(context, "talks")
    with tempfile.TemporaryDirectory() as place:
        job = MarkedJob([*context.launcher(1), talks, ":", "-n", "1", "sh", "-c", SHOWN, place], context.environment())
        try:
            wait_for(os.path.join(place, "INVITED"))
            with open(os.path.join(place, "INVITED"), encoding="utf-8") as lines:
                invited = dict(line.rstrip("\n").split("=", 1) for line in lines)
            del invited["GARONNE_FD"]  # a descriptor of that process
            for known in (job_id(context, invited["GARONNE_AGENT"]), "0" * 32):
                code, said = take_part(context, talks, {**invited, "GARONNE_JOB": known})
                expect(code != 0 and "G0244" in said, f"let in with '{known}': exit code {code}", said)
            code, said = take_part(context, talks, invited)
            expect(code == 0 and "good" in said, f"not let in: exit code {code}", said)
        finally:
            with open(os.path.join(place, "DONE"), "w", encoding="utf-8"):
                pass
        code, said = job.end()
        expect(code == 0 and said.count("good") == 1, f"exit code {code}", said)


def wait_for(path):
    until = time.monotonic() + PATIENCE_S
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise Failure(f"{path} does not come")
        time.sleep(0.05)


def job_id(context, agent):
    """The id of the job of this agent, once its first rank has come."""
    until = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run([sys.executable, context.root / "tests/guest/job_id.py", agent], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
        expect(time.monotonic() < until, "the id of the job is not shown", done.stderr)
        time.sleep(0.05)


def take_part(context, program, variables):
    done = subprocess.run([program], env={**context.environment(), **variables}, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr


def meeting_place(user, port, ranks):
    """Name of the socket where the ranks of one host meet by variables (docs/reference/job.md, E6)."""
    name = 0xCBF2_9CE4_8422_2325
    for byte in f"127.0.0.1\n{port}\n \n{ranks}".encode():
        name = (name ^ byte) * 0x0100_0000_01B3 % (1 << 64)
    return f"garonne/meet/{user}/{name:016x}"


def at_the_meeting_place(context):
    """Another user takes calls where rank 0 will meet the others: rank 1 says whose it is while it waits, and all meet elsewhere."""
    if os.geteuid() != 0:
        raise Skip("only root can be somebody else")
    program = context.work / "untrusted-processes-talk"
    context.build_program("untrusted-processes", "tests/hosts/talk.c", program)
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    listens = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('\\0' + sys.argv[1]); s.listen(); print('bound', flush=True); sys.stdin.read()"
    command = [*ANOTHER_USER, sys.executable, "-c", listens, meeting_place(os.geteuid(), variables["MASTER_PORT"], 2)]

    def start(rank):
        environment = context.environment({**variables, "RANK": str(rank)})
        return subprocess.Popen(["timeout", str(PATIENCE_S), program, "5"], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    stranger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        expect(stranger.stdout.readline() == "bound\n", "the name is not free", "")
        second = start(1)
        said = second.stderr.readline()
        expect(f"rank 1 waits, and process {stranger.pid} (" in said and "of user number 65534 has the socket" in said, "who holds the name is not told", said)
        first = start(0)
        rest = first.communicate()[1] + second.communicate()[1]
        expect((first.returncode, second.returncode) == (0, 0), "the ranks do not meet", rest)
    finally:
        stranger.kill()
        stranger.communicate()
