"""MPICH's own test programs, from the distribution's source package, configured and built as their README says with our mpicc.

Which programs run, on how many ranks and with what arguments, stands in the suite's own lists (testlist, testlist.dtp).
What cannot pass here is named with its reason in tests/mpich/skips.txt. A reason "not there yet: FUNCTION" counts only
as long as crates/mpi/abi-gen/abi/functions.txt, from which docs/user/conformance.md is made, says so, and only for a program that
calls FUNCTION; as soon as the function is there its programs run by themselves.
"""

import collections
import contextlib
import dataclasses
import pathlib
import re
import tempfile
import zlib

from ..runner import TAIL_LINES, Case, Failure, Outcome, Skip, check

# The directories of what is implemented. Others hold other languages,
# MPICH's own extensions (impls) and timings (perf).
DIRECTORIES = ["attr", "coll", "comm", "datatype", "errhan", "group", "info", "init", "io", "mpi_t", "part", "pt2pt", "rma", "spawn", "topo",
               "errors/attr", "errors/coll", "errors/comm", "errors/datatype", "errors/group", "errors/io", "errors/pt2pt", "errors/rma", "errors/spawn", "errors/topo",
               "ft", "threads/comm", "threads/init", "threads/pt2pt", "threads/rma", "threads/spawn"]
CONFIGURE = ["--enable-strictmpi", "--enable-threads=multiple", "--enable-large-tests", "--disable-fortran", "--disable-cxx", "--disable-romio", "--disable-spawn"]
# Names that the standard removed or changed, as one would compile an old program against today's mpi.h: same arguments.
RENAMED = {"MPI_Type_hvector": "MPI_Type_create_hvector", "MPI_Type_hindexed": "MPI_Type_create_hindexed",
           "PMPI_Message_c2f": "PMPI_Message_toint", "PMPI_Message_f2c": "PMPI_Message_fromint",
           "MPIO_Request": "MPI_Request", "MPIO_Wait": "MPI_Wait", "MPIO_Test": "MPI_Test",
           "MPIX_Delete_error_class": "MPI_Remove_error_class", "MPIX_Delete_error_code": "MPI_Remove_error_code",
           "MPIX_Delete_error_string": "MPI_Remove_error_string"}
# Parts of the programs that they leave out unless they know MPICH by its name.
WHOLE = {"TEST_NEIGHB_COLL": 1, "TEST_HINDEXED_BLOCK": 1}
SETTINGS = [*CONFIGURE, "CPPFLAGS=" + " ".join(f"-D{name}={value}" for name, value in (RENAMED | WHOLE).items())]
# How long a job may take to end after its launcher found its time to be over.
GRACE_S = 15
# The suite's own limit for programs that name none.
LIMIT_S = 180


@dataclasses.dataclass
class Program:
    """One line of a list."""

    directory: str
    name: str
    ranks: int
    arguments: list[str]
    environment: dict[str, str]
    limit_s: int
    verdict: str
    memory_gib: float
    list_name: str

    @property
    def path(self):
        return f"{self.directory}/{self.name}"

    @property
    def title(self):
        return " ".join([f"mpich-tests/{self.path}", *self.arguments, "on", str(self.ranks)])


def suite(context):
    context.installed()
    place, programs, reasons = prepared(context, "short.txt")
    wanted = [program for program in programs if not reasons.of(program)]
    yield Case("mpich-tests/skipped", lambda: reasons.outcomes(programs))
    for program in wanted:
        yield program_case(context, place, program)


def prepared(context, short_list):
    """Where programs are built, those that are to run, and why some do not; the rest is built."""
    source = context.state / "sources/mpich"
    check(context.execute("mpich-tests fetch", ["python3", "tools/debian_source.py", "mpich", source], timeout=600))
    tests, place = source / "test/mpi", context.work / f"mpich-{context.key()}-{zlib.crc32(str(SETTINGS).encode()):x}"
    configure(context, tests, place)
    programs = all_programs(tests, place)
    reasons = Reasons(context, tests, programs)
    if not context.soak:
        short = short_form(context, short_list)
        programs = [p for p in programs if p.list_name == "testlist" and short.get(p.directory, set()) & {p.name, "*"}]
    build(context, place, [program for program in programs if not reasons.of(program)])
    return place, programs, reasons


def all_programs(tests, place):
    return [program for directory in DIRECTORIES for program in listed(tests, place, directory)]


def short_form(context, name):
    """Directories with the names of those of their programs that run in the short form, from a file of tests/mpich."""
    short = collections.defaultdict(set)
    for line in (context.root / "tests/mpich" / name).read_text().splitlines():
        if line and not line.startswith("#"):
            directory, _, names = line.partition(":")
            short[directory] |= set(names.split())
    return short


def configure(context, tests, place):
    if (place / "ready").exists():
        return
    place.mkdir(exist_ok=True)
    command = [tests / "configure", *SETTINGS, f"--with-mpi={context.prefix}", f"CC={context.mpicc()}"]
    check(context.execute("mpich-tests configure", command, timeout=600, cwd=place))
    for directory in ("util", "dtpools"):
        check(context.execute(f"mpich-tests build {directory}", ["make", "-j2", "-C", directory], timeout=300, cwd=place))
    (place / "ready").touch()


def build(context, place, programs):
    """All programs of a directory in one go; one that cannot be built fails when it is to run."""
    for directory in dict.fromkeys(program.directory for program in programs):
        names = sorted({program.name for program in programs if program.directory == directory})
        context.execute(f"mpich-tests build {directory}", ["make", "-k", "-j2", "-C", directory, *names], timeout=900, cwd=place)


def listed(tests, place, directory):
    """The programs of a directory's lists, which configure may have made from templates. Lines that differ in MPICH's own settings
    alone count once."""
    seen = set()
    for name in ("testlist", "testlist.dtp"):
        path = next((at / directory / name for at in (place, tests) if (at / directory / name).exists()), None)
        for line in path.read_text().splitlines() if path else []:
            program = parse(directory, name, line)
            if program and program.title not in seen:
                seen.add(program.title)
                yield program


def parse(directory, list_name, line):
    """`program ranks key=value...`; None for a line that names no program."""
    words = line.split("#")[0].split()
    if len(words) < 2 or not words[1].isdigit():
        return None
    options = collections.defaultdict(list)
    for word in words[2:]:
        key, _, value = word.partition("=")
        options[key].append(value)
    environment = dict(value.split("=", 1) for value in options["env"] if not value.startswith("MPIR_CVAR_"))
    first = lambda key, default: next(iter(options[key]), default)
    return Program(directory, words[0], int(words[1]), options["arg"], environment, int(first("timeLimit", LIMIT_S)),
                   first("resultTest", "NoErrors"), float(first("mem", 0)), list_name)


def program_case(context, place, program, launcher=None, title=None):
    """`launcher`: what starts so many ranks, if not the MPI's own on this host; `title`: the case's name then."""
    title = title or program.title

    def run():
        if program.memory_gib > available_gib():
            raise Skip(f"it needs {program.memory_gib} GiB of memory")
        executable = place / program.directory / program.name
        if not executable.exists():
            raise Failure(f"it cannot be built (log: {context.work}/logs/mpich-tests_build_{program.directory.replace('/', '.')}.log)")
        start = launcher or context.launcher
        survive = ["--survive"] if program.directory == "ft" and not context.foreign else []
        command = [*start(program.ranks), *survive, str(executable), *program.arguments]
        # The launcher is to end what takes too long, as the suite's own runner has it; init/timeout tests just that.
        environment = context.environment({**program.environment, "MPIEXEC_TIMEOUT": str(program.limit_s)})
        with directory(context, program, executable) as cwd:
            result = context.execute(title, command, program.limit_s + GRACE_S, environment, cwd)
        VERDICTS[program.verdict](result)

    return Case(title, run, alone=program.ranks > 8 or program.memory_gib > 0)


@contextlib.contextmanager
def directory(context, program, executable):
    """Where a program runs: its own place, but for those that write files, which have the same names in several programs."""
    if program.directory.split("/")[-1] != "io":
        yield executable.parent
        return
    with tempfile.TemporaryDirectory(prefix="mpich-io-", dir=context.work, ignore_cleanup_errors=True) as place:
        yield place


def available_gib():
    """Memory that may be had without paging."""
    return int(re.search(r"^MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.M).group(1)) / 2**20


def no_errors(result):
    """The programs' way of saying that they passed: exactly this, and an end without error."""
    check(result)
    lines = [line.strip() for line in result.output.splitlines()[1:] if line.strip()]
    if "no errors" not in map(str.lower, lines) or set(map(str.lower, lines)) - {"no errors", "test passed"}:
        raise Failure(f"it says other than 'No Errors' (log: {result.log})\n" + "\n".join(lines[-TAIL_LINES:]))


def somebody_says_no_errors(result):
    """Ranks die, and others say that all went as it should, whatever the exit code is."""
    if result.timed_out or "no errors" not in {line.strip().lower() for line in result.output.splitlines()}:
        raise Failure(f"{'time limit reached' if result.timed_out else 'nobody says No Errors'} (log: {result.log})")


def ends_badly(result):
    """The job must end by itself with an error."""
    if result.timed_out or result.code == 0:
        raise Failure(f"{'time limit reached' if result.timed_out else 'exit code 0'} where an error is due (log: {result.log})")


VERDICTS = {"NoErrors": no_errors, "TestStatus": ends_badly, "TestErrFatal": ends_badly, "TestStatusNoErrors": somebody_says_no_errors}


class Reasons:
    """Why a program does not run, from a file such as tests/mpich/skips.txt, checked against the table of functions and the programs."""

    def __init__(self, context, tests, programs, suite="mpich-tests", file="tests/mpich/skips.txt"):
        self.lines, self.stale, self.suite, self.file = {}, [], suite, file
        missing = set(re.findall(r"^- .*?(MPI_\w+)\(", (context.root / "crates/mpi/abi-gen/abi/functions.txt").read_text(), re.M))
        known = {program.path for program in programs}
        for line in (context.root / file).read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            path, reason = line.split(None, 1)
            function = re.fullmatch(r"not there yet: (MPI_\w+)", reason)
            if path not in known:
                self.stale.append(f"{path}: no list names it")
            elif not function and not reason.startswith(("the test's own: ", "a limit: ")):
                self.stale.append(f"{path}: '{reason}' is no reason")
            elif not function:
                self.lines[path] = reason
            elif function.group(1) in missing:
                self.lines[path] = reason
                if not calls(tests, path, function.group(1)):
                    self.stale.append(f"{path}: it does not call {function.group(1)}")

    def of(self, program):
        return self.lines.get(program.path)

    def outcomes(self, programs):
        """One line a reason; a reason that is not so is a failure."""
        if self.stale:
            raise Failure(f"{self.file} is wrong:\n" + "\n".join(self.stale))
        counts = collections.Counter(filter(None, map(self.of, programs)))
        return [Outcome(self.suite, "skipped", reason, count=count) for reason, count in sorted(counts.items())]


def calls(tests, path, function):
    """Whether a program's source names a function: in C exactly so, in Fortran in whatever case. Nothing is known of a program whose source
    make generates."""
    for ending, flags in ((".c", 0), (".f", re.IGNORECASE), (".f90", re.IGNORECASE)):
        source = tests / f"{path}{ending}"
        if source.exists():
            return bool(re.search(rf"\b{function}\b", source.read_text(errors="replace"), flags))
    return True
