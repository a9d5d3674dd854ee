"""Which cache lines two threads share that use communicators of their own.

tests/hotpath/apart.c runs under lackey in one of two ranks: its threads take turns, so that what the tool prints between two marks is one
thread's. The other rank runs as it is. A line that one thread writes and the other touches goes from core to core where both run at once.
How long somebody waits, and whether it sleeps meanwhile, is the machine's affair; so a line counts as shared where it is in each of the rounds,
and as often as in the round where it was touched least.
"""

import collections
import pathlib
import re
import shlex
import subprocess

from .runner import Failure, check

CALLS = 8  # as in apart.c: calls of each thread in a round
LIMIT_S = 240
LIBRARY = "libmpi_abi"
# How often a call may touch lines that both threads use, of the kinds that may at all.
CEILINGS = {
    # The table of messages that were found and are yet to be received.
    "improbe": 40,
    # The bell of the other rank, one for all that are blocked in collectives: looked at, and rung if it sleeps; by a broadcast as often as it waits.
    "allreduce": 10, "barrier": 10, "reduce": 10, "alltoall": 10, "bcast_1k": 26,
    # Where the other rank comes later, the table of requests and the count of those that use a datatype as well.
    "iallreduce": 26, "ibarrier": 26,
}
TOLD = 5  # lines of a kind that a failure shows, and so many who touched each


def judge(context, rank, kinds):
    """Runs the kinds of calls with this rank looked at; fails if its threads share more than they must."""
    work = context.work / f"hotpath-apart-{rank}-{kinds[0]}"
    work.mkdir(exist_ok=True)
    program, reader, places, lines = (work / name for name in ("apart", "lines", "places", "touched"))
    source = context.root / "tests" / "hotpath"
    name = f"hotpath apart {rank} {kinds[0]}"
    build = [context.mpicc(), "-O2", "-Wall", "-Werror", "-pthread"]
    check(context.execute(f"{name} build", [*build, source / "apart.c", "-o", program], timeout=60))
    check(context.execute(f"{name} build reader", ["cc", "-O2", "-Wall", "-Werror", source / "lines.c", "-o", reader], timeout=60))
    lines.unlink(missing_ok=True)
    tool = ["valgrind", "-q", "--tool=lackey", "--basic-counts=no", "--trace-mem=yes", "--log-fd=9", program, places, *kinds]
    looked_at = ["sh", "-c", f"{shlex.join(map(str, tool))} 9>&1 1>&2 | {shlex.join(map(str, [reader, lines]))}"]
    both = [looked_at, [program, "-", *kinds]]
    first, second = both if rank == 0 else reversed(both)
    check(context.execute(name, [*context.launcher(1), *first, ":", "-n", "1", *second], timeout=LIMIT_S))
    rounds, process = read_rounds(lines, len(kinds)), Places(places, program)
    faults = []
    for number, kind in enumerate(kinds):
        touches, shared = shared_lines([process.own(rounds[number, thread], thread) for thread in (0, 1)])
        price = touches / (2 * CALLS)
        print(f"    rank {rank}, {kind}: {len(shared)} lines, touched {price:.1f} times in a call", flush=True)
        ceiling = CEILINGS.get(kind, 0)
        if price > ceiling:
            faults.append(f"{kind}, rank {rank}: {len(shared)} lines that one thread writes and the other touches, {price:.1f} times in a call; "
                          f"the ceiling is {ceiling}" + "".join(f"\n  {process.told(*one)}" for one in list(shared.items())[:TOLD]))
    if faults:
        raise Failure("\n".join(faults))


def read_rounds(path, kinds):
    """For each kind and thread its rounds: what was touched, as {line: (reads, writes, instructions)}."""
    rounds = collections.defaultdict(list)
    for text in path.read_text().splitlines():
        first, second, third, *by = text.split()
        if first == "round":
            touched = {}
            rounds[int(second), int(third)].append(touched)
        else:
            touched[int(first, 16)] = (int(second), int(third), by)
    counts = {len(rounds[kind, thread]) for kind in range(kinds) for thread in (0, 1)}
    if len(counts) != 1 or 0 in counts:
        raise Failure(f"the trace has {counts} rounds of each kind")
    return rounds


def shared_lines(threads):
    """How often lines are touched that are shared in each round, at the least, and those lines, with an entry of each thread."""
    pairs = list(zip(*threads))
    in_each = set.intersection(*({line for line in one.keys() & other.keys() if one[line][1] or other[line][1]} for one, other in pairs))
    touches = sum(min(sum(side[line][0] + side[line][1] for side in pair) for pair in pairs) for line in in_each)
    return touches, {line: [side[line] for side in pairs[-1]] for line in sorted(in_each)}


class Places:
    """Where the objects, mappings and stacks of the process lie."""

    def __init__(self, path, program):
        self.objects, self.mappings, self.stacks = [], [], []
        for text in path.read_text().splitlines():
            what, *words = text.split()
            if what == "object":
                self.objects.append((int(words[0], 16), words[1] if len(words) > 1 else str(program)))
            elif what == "stack":
                self.stacks.append((int(words[0], 16), int(words[0], 16) + int(words[1], 16)))
            else:
                begin, end = (int(word, 16) for word in words[0].split("-"))
                self.mappings.append((begin, end, int(words[2], 16), words[5] if len(words) > 5 else "anonymous memory"))

    def object_of(self, code):
        return max(entry for entry in self.objects if entry[0] <= code)

    def own(self, rounds, thread):
        """Without what the other thread's stack shows of its way to sleep, and from it: that is not the library's."""
        begin, end = self.stacks[1 - thread]

        def is_others(line, by):
            return begin <= line < end and not any(LIBRARY in self.object_of(code_of(word))[1] for word in by)
        return [{line: entry for line, entry in touched.items() if not is_others(line, entry[2])} for touched in rounds]

    def told(self, line, entries):
        """A line, how often each thread touched it, and who did."""
        begin, _, offset, name = next((entry for entry in self.mappings if entry[0] <= line < entry[1]), (line, line, 0, "?"))
        counts = ", ".join(f"{reads} reads and {writes} writes" for reads, writes, _ in entries)
        # Whoever writes first.
        by = sorted({word for entry in entries for word in entry[2]}, key=lambda word: (word[-1] != "w", word))[:TOLD]
        return f"{name} + {line - begin + offset:#x}: {counts}" + "".join(f"\n    {where}" for where in dict.fromkeys(map(self.who, by)))

    def who(self, word):
        code, at, kind = word.split(":")
        begin, name = self.object_of(int(code, 16))
        frames = subprocess.run(["addr2line", "-Cfie", name, hex(int(code, 16) - begin)], capture_output=True, text=True, check=False).stdout.splitlines()
        told = [f"{re.sub('<.*>', '', function).split('::')[-1]} {pathlib.Path(place).name}" for function, place in zip(frames[::2], frames[1::2])]
        # The innermost are of the standard library.
        return f"byte {at} {'written' if kind == 'w' else 'read'} by " + " < ".join(told[-4:])


def code_of(word):
    return int(word.split(":")[0], 16)
