#!/usr/bin/env python3
"""Runs the tests of Garonne: `./x test`, `./x soak`.

Each suite is a module of tools/testing/suites with a `suite(context)` function that builds what it needs and
yields cases. A case runs in its own process group with a time limit and passes, fails or is skipped with a reason.
The last line printed is `N passed, N failed, N skipped`; the exit code is 1 if anything failed.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from testing.runner import Context, Outcome, Skip, Tally, run_cases  # noqa: E402

# In the order in which a failure tells most: the crates, then our C programs, then other people's programs.
SUITES = ["rust", "sim", "command-line", "rust-interface", "api", "c", "files", "mpich-abi", "openmpi-abi", "trace", "bench", "hotpath", "scaling", "profiling-interface", "processes", "faults", "process-hygiene", "cmake", "fortran", "mumps", "elpa", "other-languages", "configure", "rsmpi", "netpipe", "hpcc", "fftw", "hdf5", "h5py", "pnetcdf", "starpu", "mpich-tests", "mpich-hosts", "romio", "mpi4py", "binaries", "mistakes", "hosts", "half-open", "agent-tree", "eight-hosts", "unusual-networks", "ssh", "who", "hang-reports", "monitoring", "web-pages", "machine-map", "network-graph", "ethernet", "untrusted-processes", "rails", "mapping", "needs", "memory-model", "openmp", "strategies", "bubble-modules", "fibers", "threads", "sockets", "ranks-as-threads", "transport-modules", "joining", "launchers", "fuzz"]
# Their jobs mostly wait for time limits of networks: the cases of all of them go side by side.
WAITING = ["hosts", "half-open", "eight-hosts", "unusual-networks", "ssh", "who", "hang-reports", "untrusted-processes", "rails", "strategies", "joining", "launchers"]
# Names that suites had before.
ALIASES = {"door": "command-line", "guest": "process-hygiene", "strangers": "untrusted-processes", "seen": "monitoring", "verdicts": "hang-reports", "levels": "agent-tree", "growth": "scaling", "override": "profiling-interface", "pages": "web-pages", "odd-networks": "unusual-networks"}


# How much of a reason stands in the closing list; all of it stands where the case ran.
REASON_LINES = 20


def arguments():
    parser = argparse.ArgumentParser(prog="./x test", description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="only these; SUITE/TEXT: only cases whose name begins so")
    parser.add_argument("--list", action="store_true", help="name the suites and stop")
    parser.add_argument("--soak", action="store_true", help="the long forms")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time (default: cores)")
    parser.add_argument("--against", metavar="DIR", help="run the C and client suites with the MPI installed in DIR instead")
    return parser.parse_args()


def in_turn(wanted):
    """The suites that are wanted, one at a time, and at the place of the first of those that wait, all of them at once."""
    waiting = [name for name in WAITING if name in wanted]
    for name in SUITES:
        if name in wanted and name not in WAITING:
            yield [name]
        elif waiting and name == waiting[0]:
            yield waiting


def main():
    args = arguments()
    if args.list:
        print("\n".join(SUITES))
        return 0
    wanted = {}
    for word in args.suites or SUITES:
        name, _, text = word.partition("/")
        name = ALIASES.get(name, name)
        wanted.setdefault(name, []).append(f"{name}/{text}")
        if name not in SUITES:
            sys.exit(f"error: no suite '{name}'; there are: {' '.join(SUITES)}")
    # Jobs that tests end badly on purpose leave no files with their last events behind.
    os.environ.setdefault("GARONNE_RECORD", "off")
    context = Context(root=pathlib.Path(os.environ["GARONNE_ROOT"]), soak=args.soak, jobs=args.jobs, against=args.against)
    tally = Tally()
    started = time.monotonic()
    for suites in in_turn(wanted):
        cases = []
        for name in suites:
            print(f"--- {name}, {time.monotonic() - started:.0f} s", flush=True)
            try:
                found = list(importlib.import_module(f"testing.suites.{name.replace('-', '_')}").suite(context))
            except Skip as reason:
                tally.add(Outcome(f"{name}: set-up", "skipped", str(reason)))
                continue
            except Exception as error:  # a suite that cannot be built is a failure of its own, not the end of the run
                tally.add(Outcome(f"{name}: set-up", "failed", str(error)))
                continue
            cases += [case for case in found if any(case.name.startswith(text) for text in wanted[name])]
        run_cases(context, cases, tally)
    (context.state / "test" / "results.json").write_text(json.dumps(tally.as_json(), indent=1))
    for outcome in tally.skips():
        print(f"skipped  {outcome.name}: {outcome.detail}")
    for word, outcomes in (("UNSTEADY", tally.unsteady()), ("FAILED  ", tally.failures())):
        for outcome in outcomes:
            print(f"{word} {outcome.name}\n    " + "\n    ".join(outcome.detail.splitlines()[:REASON_LINES]))
    print(f"in {time.monotonic() - started:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
