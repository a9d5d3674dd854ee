"""Classic mistakes in MPI programs, and whether what is said of them names the cause.

Each program of tests/mistakes makes one. The comment at its beginning says what is to be read:

    ranks: N             on how many ranks it runs
    hosts: N             on how many hosts, which are network namespaces, the ranks of a program that ends run in turn; one without that
    environment: A=B     what is set for it
    who: REGEX           a line of `garonne who` while the program hangs, within its patience
    ends: CODE           the program does not hang: the exit code of the job (`*`: any but 0)
    output: REGEX        a line of what the job has printed then
    never: REGEX         what no line may say
    gap: WORDS           it is not explained like that yet, and why; the case is skipped with these words

`{word}` in an expression stands for the number of the line whose comment is that word.
"""

import contextlib
import os
import re
import signal
import subprocess
import time

from ..marked_jobs import MarkedJob, expect
from ..namespaces import Hosts
from ..runner import Case, Skip, check

PATIENCE_S = 40
FIELD = re.compile(r"^[\s*]*(ranks|hosts|environment|who|ends|output|never|gap): (.*?)\s*$")


class Mistake:
    """One program, and what is wanted of it."""

    def __init__(self, context, source):
        self.context, self.source = context, source
        self.lines = source.read_text().splitlines()
        self.title = self.lines[0].strip('r/*" ').rstrip(".")
        self.wanted = {name: [] for name in ("ranks", "hosts", "environment", "who", "ends", "output", "never", "gap")}
        for line in self.lines:
            if found := FIELD.match(line):
                self.wanted[found[1]].append(self.numbered(found[2]))
            if not line.strip() and source.suffix != ".py":
                break
        if not self.wanted["who"] and not self.wanted["ends"]:
            raise ValueError(f"{source.name} says nothing of what is wanted")

    def numbered(self, expression):
        """An expression with the numbers of marked lines."""
        return re.sub(r"\{([a-z]\w*)\}", lambda mark: str(self.line(mark[1])), expression)

    def line(self, mark):
        [number] = [at for at, line in enumerate(self.lines, 1) if line.endswith((f"/* {mark} */", f"  # {mark}"))]
        return number

    def command(self):
        if self.source.suffix == ".py":
            return [self.context.state / "venv/bin/python", self.source]
        program = self.context.work / "mistakes" / self.source.stem
        compiler = self.context.mpicxx() if self.source.suffix == ".cpp" else self.context.mpicc()
        build = [compiler, "-g", "-O1", "-pthread", "-Wall", "-Werror", self.source, "-o", program]
        check(self.context.execute(f"mistakes build {self.source.stem}", build, timeout=60))
        return [program]

    def run(self):
        for words in self.wanted["gap"]:
            raise Skip(words)
        extra = dict(entry.split("=", 1) for entry in self.wanted["environment"])
        extra.setdefault("MPI4PY_LIBMPI", str(self.context.prefix / "lib/libmpi_abi.so.1"))
        ranks = int(self.wanted["ranks"][0])
        with contextlib.ExitStack() as until_end:
            if self.wanted["hosts"]:
                hosts = until_end.enter_context(Hosts(int(self.wanted["hosts"][0])))
                command = ["ip", "netns", "exec", hosts.names[0], self.context.prefix / "bin" / "garonne", "run", "--launcher", "ip netns exec"]
                command += ["-n", str(ranks), "--map-by", "node", "--host", ",".join(["localhost", *hosts.names[1:]])]
            else:
                command = self.context.launcher(ranks)
            job = MarkedJob([*command, *self.command()], self.context.environment(extra))
            with job:
                if self.wanted["who"]:
                    self.asked(job)
                else:
                    self.ended(job)

    def missing(self, text):
        """The expressions of a list that no line of a text has, and those that one may not have."""
        wanted = self.wanted["who"] or self.wanted["output"]
        found = lambda expression: any(re.search(expression, line) for line in text.splitlines())
        return [expression for expression in wanted if not found(expression)] + [expression for expression in self.wanted["never"] if found(expression)]

    def asked(self, job):
        """The program hangs, and `garonne who` says why."""
        command = [self.context.prefix / "bin" / "garonne", "who", str(job.process.pid)]
        until = time.monotonic() + PATIENCE_S
        while True:
            said = subprocess.run(command, env=self.context.environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            missing = self.missing(said.stdout)
            if not missing:
                break
            expect(job.process.poll() is None, "the job has ended", said.stdout + said.stderr)
            expect(time.monotonic() < until, f"nothing says {missing}", said.stdout + said.stderr)
            time.sleep(0.3)
        os.kill(job.process.pid, signal.SIGTERM)
        job.end()

    def ended(self, job):
        """The program ends by itself, and its output says why."""
        code, output = job.end()
        [wanted] = self.wanted["ends"]
        expect(code != 0 if wanted == "*" else code == int(wanted), f"exit code {code}", output)
        missing = self.missing(output)
        expect(not missing, f"nothing says {missing}", output)


def suite(context):
    if context.foreign:
        return  # the launcher is what is tested here
    context.installed()
    (context.work / "mistakes").mkdir(exist_ok=True)
    check(context.execute("mpi4py build", ["tools/mpi4py.sh", str(context.prefix)], timeout=1500))
    for source in sorted((context.root / "tests" / "mistakes").iterdir()):
        mistake = Mistake(context, source)
        yield Case(f"mistakes/{source.name}", mistake.run)
