"""What a small message costs inside MPI_Send and MPI_Recv, and inside their nonblocking forms, in instructions, and what must not be
on its way.

Callgrind counts the calls in a short and in a longer run of tests/hotpath/small_messages.c; the difference over the messages
between them is the price of one, without what only the first ones pay (mapping an inbox, growing a table). Instructions do not
depend on the machine's load, so the ceilings are tests, with room for other compilers; allocating, a system call or a look at the
clock would show as calls into the C library, of which none may remain. The same is counted with communication that advances by itself
switched on and off: who leaves nothing open that needs hands pays nothing for it, to the instruction.

Lackey counts cache lines: threads that use communicators of their own share none (../false_sharing.py).
"""

import re
import shutil

from .. import false_sharing
from ..runner import Case, Failure, Skip, check
from . import mpich_abi, openmpi_abi

# Beyond the first return of credits, which opens the way back, and before the sender, who looks at nothing meanwhile, runs out of them.
SHORT, LONG = 550, 1000
# What is counted, on rank 0 and on rank 1, and the most instructions that one message may take there, the entry points included.
WAYS = {
    "blocking": (("MPI_Send",), ("MPI_Recv",)),
    "nonblocking": (("MPI_Isend", "MPI_Waitall"), ("MPI_Irecv", "MPI_Waitall")),
}
CEILINGS = {"blocking": (80, 222), "nonblocking": (110, 310)}
# How much more a message may take through the library of another ABI, on rank 0 and on rank 1 (docs/internals/abis.md says why).
OTHER_ABIS = {
    "mpich": (mpich_abi.family, {"blocking": (10, 10), "nonblocking": (10, 20)}),
    "openmpi": (openmpi_abi.family, {"blocking": (15, 20), "nonblocking": (15, 40)}),
}
# How much more MPI_COMM_RANK, MPI_IRECV, MPI_SEND and MPI_WAIT together may take when Fortran calls them: 5 ns each are some 50 instructions.
FORTRAN_MORE = 200
# How far the prices with and without may differ, but for what does not happen at each message: a return of credits that comes sooner or later, a table that grows.
SAME = 0.5
BACKGROUND = {"on": "1", "off": "0"}
LIMIT_S = 240
RARE = 10  # messages for a call that does not count
FORBIDDEN = re.compile(
    r"(_int_malloc|malloc|calloc|realloc|_int_free|free|mmap|munmap|madvise|syscall|clock_gettime|gettimeofday|nanosleep|sched_yield|"
    r"poll|read|write|process_vm_readv|process_vm_writev|alloc::raw_vec::.*grow.*)(@.*)?('\d+)?")

APART = {
    "messages": ["windows", "pingpong", "pingpong_1k", "pingpong_32k", "sendrecv", "persistent", "ssend", "columns"],
    "waits and probes": ["waitany", "waitsome", "testall", "test", "probe", "iprobe", "improbe", "asking"],
    "collectives": ["allreduce", "barrier", "bcast_1k", "reduce", "alltoall", "iallreduce", "ibarrier"],
}


def suite(context):
    context.installed()
    for way in WAYS:
        yield Case(f"hotpath/small {way} messages", lambda way=way: run(context, way), alone=True)
    if not context.foreign:
        for other, (family, _) in OTHER_ABIS.items():
            for way in WAYS:
                name = f"hotpath/small {way} messages through {family(context).library}"
                yield Case(name, lambda other=other, way=way: run_other(context, other, way), alone=True)
        yield Case("hotpath/calls by Fortran", lambda: run_fortran(context), alone=True)
    for what, kinds in APART.items():
        for rank in (0, 1):
            yield Case(f"hotpath/threads apart in {what}, rank {rank}", lambda rank=rank, kinds=kinds: run_apart(context, rank, kinds), alone=True)


def run_apart(context, rank, kinds):
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    if not shutil.which("addr2line"):
        raise Skip("addr2line is not installed")
    false_sharing.judge(context, rank, kinds)


def prepared(context, name):
    """A fresh directory for the case, and the source."""
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    work = context.work / f"hotpath-{name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return work, context.root / "tests" / "hotpath" / "small_messages.c"


def run(context, way):
    work, source = prepared(context, way)
    program = work / "small_messages"
    check(context.execute(f"hotpath build {way}", [context.mpicc(), "-O2", source, "-o", program], timeout=60))
    prices = {name: priced(context, (work, program), way, {"GARONNE_BACKGROUND": setting}) for name, setting in BACKGROUND.items()}
    for rank, calls in enumerate(WAYS[way]):
        on, off = (prices[name][rank] for name in BACKGROUND)
        if abs(on - off) > SAME:
            raise Failure(f"a small message costs {on:.1f} instructions in {' and '.join(calls)} where communication advances by itself, and {off:.1f} where it does not")


def run_other(context, other, way):
    """The same program built for another ABI."""
    work, source = prepared(context, f"{other}-{way}")
    program = work / "small_messages"
    family, more = OTHER_ABIS[other]
    abi = family(context)
    check(context.execute(f"hotpath build {other} {way}", [*abi.command(context, source, program), "-O2"], timeout=60))
    settings = {"GARONNE_BACKGROUND": "1", "LD_LIBRARY_PATH": str(abi.foreign(context))}
    priced(context, (work, program), way, settings, more[way])


def run_fortran(context):
    """What four calls by Fortran take more than by C: MPI_COMM_RANK, MPI_IRECV, MPI_SEND and MPI_WAIT."""
    work, _ = prepared(context, "fortran")
    program = work / "fortran_calls"
    source = context.root / "tests/hotpath/fortran_calls.c"
    check(context.execute("hotpath build fortran", [context.mpicc(), "-O2", source, "-o", program, "-lmpifort_abi"], timeout=60))
    prices = {}
    for language in ("c", "fortran"):
        totals = []
        for count in (SHORT, LONG):
            output = work / f"{language}.{count}"
            tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={output}", f"--toggle-collect=by_{language}"]
            check(context.execute(f"hotpath {language} {count}", [*context.launcher(1), *tool, program, language, count], timeout=LIMIT_S))
            totals.append(int(re.search(r"^(?:summary|totals): (\d+)", output.read_text(), re.M).group(1)))
        prices[language] = (totals[1] - totals[0]) / (LONG - SHORT)
    more = prices["fortran"] - prices["c"]
    print(f"    four calls: {prices['c']:.0f} instructions by C, {more:.0f} more by Fortran", flush=True)
    if not 0 < more <= FORTRAN_MORE:
        raise Failure(f"four calls take {more:.0f} instructions more by Fortran than by C; the ceiling is {FORTRAN_MORE}")


def priced(context, where, way, settings, more=(0, 0)):
    """The price of a message in each rank's calls, with these settings, and no trace of what must not be there."""
    short, long = (measure(context, where, way, count, settings) for count in (SHORT, LONG))
    prices = []
    for rank, calls in enumerate(WAYS[way]):
        what = " and ".join(calls)
        (grown, called) = (grown_by(*pair) for pair in zip(short[rank], long[rank]))
        price = sum(grown.values()) / (LONG - SHORT)
        print(f"    {what}, {' '.join(f'{name}={value}' for name, value in settings.items())}: {price:.1f} instructions", flush=True)
        # A few calls in some hundred messages are for the return of credits, which queues, and to wake a receiver that sleeps. Calls
        # are counted: how long one takes at the beginning depends on what lies in the heap by then.
        worst = {name: calls / (LONG - SHORT) for name, calls in called.items() if FORBIDDEN.fullmatch(name) and RARE * calls > LONG - SHORT}
        if worst:
            raise Failure(f"a small message calls {worst} in {what}")
        if not 0 < price <= CEILINGS[way][rank] + more[rank]:
            raise Failure(f"a small message costs {price:.0f} instructions in {what}; the ceiling is {CEILINGS[way][rank] + more[rank]}")
        # What is judged by its calls is left out.
        own = (cost for name, cost in grown.items() if cost >= LONG - SHORT and not FORBIDDEN.fullmatch(name))
        prices.append(sum(own) / (LONG - SHORT))
    return prices


def grown_by(short, long):
    return {name: long.get(name, 0) - short.get(name, 0) for name in short.keys() | long.keys()}


def measure(context, where, way, count, settings):
    """Instructions by function inside the calls, and how often each function was called there, for each rank."""
    work, program = where
    setting = settings["GARONNE_BACKGROUND"]
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={work}/{setting}.{count}.%p"]
    tool += [f"--toggle-collect={call}" for call in sorted({call for calls in WAYS[way] for call in calls})]
    arguments = [program, work / f"count.{setting}.{count}", count, way]
    done = context.execute(f"hotpath {way} {count} {setting}", context.launcher(2) + tool + arguments, timeout=LIMIT_S,
                           env=context.environment(settings))
    check(done)
    ranks = {int(rank): pid for rank, pid in re.findall(r"rank (\d) is process (\d+)", done.output)}
    if sorted(ranks) != [0, 1]:
        raise Failure(f"the program did not name its ranks (log: {done.log})")
    return [costs(work / f"{setting}.{count}.{ranks[rank]}") for rank in (0, 1)]


def costs(path):
    """Each function's own instructions, and how often it was called, from a callgrind file."""
    names, total, calls, function, callee, inclusive = {}, {}, {}, "?", "?", False
    for line in path.read_text().splitlines():
        if match := re.match(r"(c?)fn=\((\d+)\)(?: (.*))?$", line):
            called, number, name = match.groups()
            if name:
                names[number] = name
            if called:
                callee = names[number]
            else:
                function = names[number]
        elif match := re.match(r"calls=(\d+)", line):
            calls[callee] = calls.get(callee, 0) + int(match.group(1))
            inclusive = True
        elif match := re.match(r"[+\-*\d]\S* (\d+)$", line):
            if not inclusive:
                total[function] = total.get(function, 0) + int(match.group(1))
            inclusive = False
    return total, calls
