"""MPI files where something fails: a rank dies during collective writes, a file system is full.

What files do otherwise is tested by the programs file*.c of the suites c and hosts.
"""

import shutil

from ..runner import Case, Failure, check

LIMIT_S = 120
# Bytes that a rank writes in one call of tests/files/dies.c, and in one block.
EACH, BLOCK = 64 * 4000, 64
RANKS = 3


def suite(context):
    context.installed()
    place = context.work / "files"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in ("dies", "full"):
        context.build_program("files", f"tests/files/{name}.c", place / name)
    for calls in (0, 1, 7, 30) if context.soak else (1, 7):
        yield Case(f"files/a rank dies in collective write {calls}", lambda calls=calls: dies(context, place, calls))
    for ranks in (1, 2, 4):
        yield Case(f"files/a full file system on {ranks}", lambda ranks=ranks: full(context, place, ranks))


def dies(context, place, calls):
    directory = place / f"dies{calls}"
    directory.mkdir()
    result = context.execute(f"files dies {calls}", [*context.launcher(RANKS), place / "dies", directory, str(calls)], LIMIT_S)
    if result.timed_out or result.code == 0:
        raise Failure(f"{'time limit reached' if result.timed_out else 'exit code 0'} where a rank dies (log: {result.log})")
    if f"rank {RANKS - 1}" not in result.output or "SIGKILL" not in result.output:
        raise Failure(f"the failure does not name the rank that died and how (log: {result.log})\n{result.output}")
    expected = b"".join(bytes([ord("a") + rank]) * BLOCK for rank in range(RANKS)) * (EACH // BLOCK)
    if (directory / "before").read_bytes() != expected:
        raise Failure("the file that was synced before has other bytes")
    left = sorted(path.name for path in directory.iterdir())
    if left != ["before", "during"]:
        raise Failure(f"other files are left: {left}")


def full(context, place, ranks):
    """In a mount of some megabytes that nobody else sees."""
    directory = place / f"full{ranks}"
    directory.mkdir()
    command = f"mount -t tmpfs -o size=6m none {directory} && exec {' '.join(context.launcher(ranks))} {place / 'full'} {directory}"
    result = context.execute(f"files full on {ranks}", ["unshare", "-rm", "sh", "-c", command], LIMIT_S)
    check(result)
    if "all is told" not in result.output:
        raise Failure(f"the program does not come to its end (log: {result.log})\n{result.output}")
