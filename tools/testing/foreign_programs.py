"""Programs that others built, from tests/binaries/programs.toml: fetched, run under `garonne run` or their own MPI, and judged.

Owned by the suite `binaries`. A program is judged by its own verification (`expect`, `forbid`), by the result that it gives
under its own MPI (`same`), or by both. The result under its own MPI is computed once and kept beside the packages.
"""

import dataclasses
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys

from .runner import Failure, Skip, check

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import packages  # noqa: E402
import peers  # noqa: E402

# Results of two MPIs differ where a reduction adds in another order.
TOLERANCE = 1e-6
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
# Packages whose launchers start a program under its own MPI.
LAUNCHERS = {"openmpi": "openmpi-bin", "mpich": "mpich"}
FAMILIES = {"openmpi": "Open MPI", "mpich": "MPICH"}


@dataclasses.dataclass
class Program:
    """One entry of the manifest; the head of tests/binaries/programs.toml says what each field means."""

    name: str
    abi: str
    command: list[str]
    ranks: int
    packages: list[str] = dataclasses.field(default_factory=list)
    wheels: list[str] = dataclasses.field(default_factory=list)
    sdist: str = ""
    language: str = "C"
    files: list[str] = dataclasses.field(default_factory=list)
    prepare: str = ""
    input: str = ""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    each: list[str] = dataclasses.field(default_factory=list)
    result: str = ""
    expect: list[str] = dataclasses.field(default_factory=list)
    forbid: list[str] = dataclasses.field(default_factory=list)
    same: list[str] = dataclasses.field(default_factory=list)
    tolerance: float = TOLERANCE
    limit: int = 120
    short: bool = False
    lacks: str = ""
    fails: str = ""
    reason: str = ""

    def verification(self):
        """What the table says about how the program is judged."""
        own = ["its own checks"] if self.expect or self.forbid else []
        return " and ".join([*own, *([f"the result under {FAMILIES[self.abi]}"] if self.same else [])])

    def package(self):
        """The package whose version stands in the table, and that version if it is pinned."""
        name, _, version = self.wheels[0].partition("==") if self.wheels else (self.packages[0], "", "")
        return name, version


class Place:
    """Where programs are kept and run: the packages' root, the wheels' environments, a directory for each job."""

    def __init__(self, context):
        self.context = context
        self.state = context.state / "binaries"
        self.debian = packages.Debian(self.state)
        self.inputs = context.root / "tests/binaries"

    def environment_of(self, program):
        return packages.Wheels(self.state, program.wheels[0].partition("==")[0] if program.wheels else "no-wheels")

    def fetch(self, program, native=False):
        """Sees that the program is here, or skips with the reason."""
        try:
            wanted = [*program.packages, *([LAUNCHERS[program.abi]] if native and program.packages else [])]
            if wanted:
                self.debian.fetch(wanted)
                self.debian.check()
            if program.wheels or program.sdist:
                self.environment_of(program).fetch(program.wheels)
            if program.sdist:
                self.environment_of(program).sources(program.sdist)
        except peers.Unavailable as why:
            raise Skip(f"its packages cannot be had or used here: {why}") from why

    def version(self, program):
        name, version = program.package()
        return version or self.debian.version(name)

    def words(self, program, words, each=""):
        environment = self.environment_of(program)
        known = {"{each}": each, "{wheels}": environment.root, "{sdist}": environment.root.parent / program.sdist.replace("==", "-"), "{root}": self.context.root, "{prefix}": self.context.prefix}
        for name, value in known.items():
            words = [word.replace(name, str(value)) for word in words]
        return words

    def native_launcher(self, program):
        if program.wheels:
            return [f"{self.environment_of(program).root}/bin/mpiexec.hydra", "-n", str(program.ranks)]
        if program.abi == "openmpi":
            return ["mpirun.openmpi", "--oversubscribe", "-n", str(program.ranks)]
        return ["mpiexec.hydra", "-n", str(program.ranks)]

    def native_environment(self, program):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "I_MPI_", "MPICH_", "LD_LIBRARY_PATH"))}
        more = {"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0", "LD_LIBRARY_PATH": f"{self.environment_of(program).root}/lib"} if program.wheels else {}
        return {**clean, **peers.ROOT_ALLOWED, **more, **self.filled(program)}

    def filled(self, program):
        """The program's own environment, with places in it filled in."""
        return {name: self.words(program, [value])[0] for name, value in program.env.items()}

    def directory(self, program, kind):
        """A fresh directory with the program's files, in which its commands run."""
        directory = self.context.work / "binaries" / f"{program.name}-{program.abi}-{kind}".replace(" ", "_")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for name in program.files:
            pattern = self.debian.root / name[1:] if name.startswith("/") else self.inputs / name
            found = glob.glob(str(pattern))
            if not found:
                raise Failure(f"there is no {name} in its package")
            for path in found:
                (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, directory / os.path.basename(path))
        if program.prepare:
            script = self.debian.command(["sh", "-e", "-c", *self.words(program, [program.prepare])])
            check(self.context.execute(f"binaries {directory.name} prepare", script, timeout=program.limit, cwd=directory, env=self.native_environment(program)))
        return directory

    def run(self, program, kind, launcher, env):
        """Every command of the program in one directory: [(words, code, output)]. Stops at the first that fails."""
        directory = self.directory(program, kind)
        done = []
        for each in program.each or [""]:
            words = self.words(program, [*launcher, *program.command], each)
            command = self.debian.command(words) if program.packages else words
            with open(directory / self.words(program, [program.input], each)[0] if program.input else os.devnull, "rb") as stdin:
                name = f"binaries {directory.name} {os.path.basename(each)}".strip()
                result = self.context.execute(name, command, timeout=program.limit, cwd=directory, env=env, stdin=stdin)
            output = result.output
            for path in sorted(glob.glob(str(directory / self.words(program, [program.result], each)[0]))) if program.result else []:
                output += pathlib.Path(path).read_text(errors="replace")
            done.append((words, -1 if result.timed_out else result.code, output, result.log))
            if done[-1][1] != 0:
                break
        return done

    def under_garonne(self, program):
        # `garonne run` finds the library of the program's ABI by itself.
        return self.run(program, "garonne", self.context.launcher(program.ranks), self.context.environment(self.filled(program)))

    def reference(self, program):
        """What `same` finds in the output under the program's own MPI: computed once, and kept."""
        self.fetch(program, native=True)
        facts = [dataclasses.asdict(program), self.version(program), [hashlib.sha256(p.read_bytes()).hexdigest() for name in program.files if not name.startswith("/") for p in [self.inputs / name]]]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        kept = self.state / "native" / f"{program.name}-{program.abi}-{key}.json"
        if not kept.exists():
            done = self.run(program, "native", self.native_launcher(program), self.native_environment(program))
            judge_own(program, done)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps([found(program, output) for _, _, output, _ in done]))
        return json.loads(kept.read_text())


def found(program, output):
    """All that `same` matches, in order."""
    matches = [match.group(0) for pattern in program.same for match in re.finditer(pattern, output, re.M)]
    if program.same and not matches:
        raise Failure(f"nothing in the output matches {program.same}")
    return matches


def judge_own(program, done):
    """Raises unless each command ended well and said what it says when its own verification passes."""
    for words, code, output, log in done:
        why = "time limit reached" if code == -1 else f"exit code {code}" if code != 0 else ""
        why = why or next((f"the output lacks '{pattern}'" for pattern in program.expect if not re.search(pattern, output, re.M)), "")
        why = why or next((f"the output has '{match.group(0)}'" for pattern in program.forbid if (match := re.search(pattern, output, re.M))), "")
        if why:
            tail = "\n".join(output.splitlines()[-15:])
            raise Failure(f"{why} (log: {log})\n$ {' '.join(words)}\n{tail}")


def judge_same(program, done, reference):
    """Raises unless the results are those under the program's own MPI: text equal, numbers within the tolerance."""
    for (_, _, output, log), wanted in zip(done, reference, strict=True):
        matches = found(program, output)
        if len(matches) != len(wanted):
            raise Failure(f"{len(matches)} results, {len(wanted)} under its own MPI (log: {log})")
        for ours, theirs in zip(matches, wanted, strict=True):
            if not close(ours, theirs, program.tolerance):
                raise Failure(f"'{ours}', and under its own MPI '{theirs}' (log: {log})")


def close(ours, theirs, tolerance):
    numbers = [[float(n.lower().replace("d", "e")) for n in NUMBER.findall(text)] for text in (ours, theirs)]
    texts = [" ".join(NUMBER.sub("#", text).split()) for text in (ours, theirs)]
    return texts[0] == texts[1] and all(abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-300) for a, b in zip(*numbers, strict=True))
