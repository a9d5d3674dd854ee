"""Programs of tests/c and of a family's own, compiled with the header of another ABI and run through its library in lib/foreign."""

import dataclasses
import pathlib
import re
import shutil

from .runner import Case, Failure, check
from .suites.c import FLAGS, LIMIT_S

# Of the numbers of ranks that a program declares, the smallest of these is run.
RANKS = range(2, 5)


@dataclasses.dataclass
class Abi:
    """An ABI that is tested: `name` of the suite, directory of its header, its library as the linker names it (a file in lib/foreign
    or a path), and programs of tests/c that are left out."""

    name: str
    include: pathlib.Path
    library: str
    without: frozenset = frozenset()

    def place(self, context):
        """A fresh directory for programs."""
        place = context.work / self.name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def foreign(self, context):
        return context.prefix / "lib/foreign"

    def environment(self, context, *more):
        path = ":".join(map(str, [self.foreign(context), *more]))
        return context.environment({"LD_LIBRARY_PATH": path})

    def command(self, context, source, program, *more):
        compiler = ["c++", "-std=gnu++17"] if source.suffix == ".cpp" else ["cc", "-std=gnu11"]
        library = self.library if "/" in self.library else f"-l:{self.library}"
        libraries = [f"-L{self.foreign(context)}", library, "-lm", "-lpthread"]
        return [*compiler, *FLAGS, f"-I{self.include}", str(source), "-o", str(program), *more, *libraries]

    def build(self, context, place, source, *more, name=None):
        program = place / (name or source.stem)
        check(context.execute(f"{self.name} build {program.name}", self.command(context, source, program, *more), timeout=60))
        return program

    def conformance(self, context, place):
        """A case for each program of tests/c."""
        sources = [*(context.root / "tests/c").glob("*.c"), *(context.root / "tests/c").glob("*.cpp")]
        for source in sorted(source for source in sources if source.stem not in self.without):
            head = source.read_text().split("*/", 1)[0]
            declared = [int(n) for n in re.search(r"ranks: ([\d ]+)", head).group(1).split()]
            limit = re.search(r"limit: (\d+)", head)
            ranks = min((n for n in declared if n in RANKS), default=declared[0])
            yield self.case(context, self.build(context, place, source), ranks, int(limit.group(1)) if limit else LIMIT_S)

    def case(self, context, program, ranks, limit=LIMIT_S, environment=None):
        name = f"{self.name}/{program.name} on {ranks}"
        env = environment or self.environment(context)
        return Case(name, lambda: check(context.execute(name, context.launcher(ranks) + [str(program)], timeout=limit, env=env)))

    def mistake(self, context, program, source, number, mark, words):
        """Runs the program's mistake of this number, whose line has the mark: the error must say these words, and the line."""
        result = context.execute(f"{self.name} mistake {number}", context.launcher(1) + [str(program), str(number)], timeout=LIMIT_S, env=self.environment(context))
        lines = source.read_text().splitlines()
        line = 1 + next(at for at, text in enumerate(lines) if f"/* {mark} */" in text)
        missing = [word for word in [*words, f"{source.name}:{line}"] if word not in result.output]
        if missing or result.code == 0:
            raise Failure(f"exit code {result.code}, and the error does not say {missing} (log: {result.log})")
