"""The conformance programs of tests/c in a second ABI, whose handles are int: the bodies of the MPI functions serve any ABI.

The library is crates/testing/int-handle-abi, built here and never installed.
"""

import os
import re
import shutil

from ..runner import Case, Failure, check
from .c import FLAGS, LIMIT_S

# Of the numbers of ranks that a program declares, the smallest of these is run.
RANKS = range(2, 5)
# What the error of each mistake must say, with the line that has the mark in tests/int-handles/mistake.c.
MISTAKES = {1: ("rank", "MPI_Send"), 2: ("tag", "MPI_Recv"), 3: ("communicator", "MPI_Barrier")}
# A fresh build of the library's crates on two cores.
BUILD_LIMIT_S = 1200


def suite(context):
    if context.foreign:
        return
    context.installed()
    place = context.work / "int-handles"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    build_library(context, place)
    for source in sorted([*(context.root / "tests/c").glob("*.c"), *(context.root / "tests/c").glob("*.cpp")]):
        head = source.read_text().split("*/", 1)[0]
        declared = [int(n) for n in re.search(r"ranks: ([\d ]+)", head).group(1).split()]
        limit = re.search(r"limit: (\d+)", head)
        ranks = min((n for n in declared if n in RANKS), default=declared[0])
        program = build(context, place, source)
        yield program_case(context, program, ranks, int(limit.group(1)) if limit else LIMIT_S)
    mistake = build(context, place, context.root / "tests/int-handles/mistake.c")
    for number, (mark, call) in MISTAKES.items():
        yield Case(f"int-handles/error names the call: {mark}", lambda number=number, mark=mark, call=call: names_the_call(context, mistake, number, mark, call))
    yield Case("int-handles/error handler gets own numbers", lambda: own_numbers(context, mistake))
    yield Case("int-handles/missing function does not link", lambda: does_not_link(context, place))


def build_library(context, place):
    check(context.execute("int-handles library", ["cargo", "build", "-p", "garonne-int-handle-abi"], timeout=BUILD_LIMIT_S))
    target = os.environ.get("CARGO_TARGET_DIR", context.root / "target")
    shutil.copy(context.root / target / "debug/libint_handle_abi.so", place / "libint_handle_abi.so.1")
    (place / "libint_handle_abi.so").symlink_to("libint_handle_abi.so.1")


def command(context, place, source, program):
    compiler = ["c++", "-std=gnu++17"] if source.suffix == ".cpp" else ["cc", "-std=gnu11"]
    include = context.root / "crates/testing/int-handle-abi/include"
    return [*compiler, *FLAGS, f"-I{include}", str(source), "-o", str(program), f"-L{place}", f"-Wl,-rpath,{place}", "-lint_handle_abi", "-lm", "-lpthread"]


def build(context, place, source):
    program = place / source.stem
    check(context.execute(f"int-handles build {source.stem}", command(context, place, source, program), timeout=60))
    return program


def program_case(context, program, ranks, limit):
    name = f"int-handles/{program.name} on {ranks}"
    return Case(name, lambda: check(context.execute(name, context.launcher(ranks) + [str(program)], timeout=limit)))


def names_the_call(context, program, number, mark, call):
    result = context.execute(f"int-handles mistake {number}", context.launcher(1) + [str(program), str(number)], timeout=LIMIT_S)
    source = context.root / "tests/int-handles/mistake.c"
    lines = source.read_text().splitlines()
    line = 1 + next(at for at, text in enumerate(lines) if f"/* {mark} */" in text)
    wanted = [call, f"mistake.c:{line}"]
    missing = [word for word in wanted if word not in result.output]
    if missing or result.code == 0:
        raise Failure(f"exit code {result.code}, and the error does not say {missing} (log: {result.log})")


def own_numbers(context, program):
    result = context.execute("int-handles mistake 4", context.launcher(1) + [str(program), "4"], timeout=LIMIT_S)
    if "exit status 7" not in result.output:
        raise Failure(f"the handler did not get MPI_COMM_SELF and an error of class MPI_ERR_RANK (log: {result.log})")


def does_not_link(context, place):
    source = context.root / "tests/int-handles/missing.c"
    result = context.execute("int-handles missing", command(context, place, source, place / "missing"), timeout=60)
    if result.code == 0 or "undefined reference to `MPI_T_init_thread'" not in result.output:
        raise Failure(f"a program that needs a missing function was linked (log: {result.log})")
