"""Runs mpi4py's own test suite, unmodified, as one rank; keeps the score for the test runner.

A test that ends in MPI_ERR_UNSUPPORTED_OPERATION is counted as skipped only if the mpi4py method that raised it stands
for a C function that crates/mpi/abi-gen/abi/functions.txt (from which docs/user/conformance.md is made) says is not there yet.
From any other method the same error is a failure. So the list of what is skipped is the conformance table itself.

usage: run.py TESTS_DIR FUNCTIONS_TXT REPORT_DIR [arguments of mpi4py's test/main.py or runtests.py]
"""

import inspect
import json
import os
import re
import sys
import traceback
import unittest

tests, table, report = sys.argv[1:4]


def missing_functions():
    """Lower-case names without MPI_ and _c of what is not there yet."""
    with open(table, encoding="utf-8") as lines:
        names = re.findall(r"^- .*?MPI_(\w+)\(", lines.read(), re.M)
    return {re.sub(r"_c$", "", name).lower() for name in names}


MISSING = missing_functions()

# Where a method's name is not the C function's: mpi4py's own words for parts of one-sided, files and processes.
SPELLINGS = {
    "win.get_group": "win_get_group",
    "intracomm.join": "comm_join",
    "grequest.start": "grequest_start",
}


def candidates(qualname):
    """C names (as in MISSING) that a method such as `mpi4py.MPI.Intracomm.Spawn` may stand for."""
    parts = qualname.lower().split(".")
    method, owner = parts[-1], parts[-2] if len(parts) > 1 else ""
    yield SPELLINGS.get(f"{owner}.{method}", method)
    owners = {"intracomm": "comm", "intercomm": "comm", "topocomm": "comm", "cartcomm": "cart", "graphcomm": "graph",
              "distgraphcomm": "dist_graph", "prequest": "", "datatype": "type"}
    yield f"{owners.get(owner, owner)}_{method}"
    yield f"comm_{method}"
    yield method.removeprefix("py")


def unsupported_function(error):
    """The missing C function behind an exception, or None when it is a failure like any other."""
    from mpi4py import MPI

    kind, value, trace = error
    if isinstance(kind, type) and issubclass(kind, MPI.Exception):
        if value.Get_error_class() != MPI.ERR_UNSUPPORTED_OPERATION:
            return None
        methods = [frame.name for frame in traceback.extract_tb(trace)]
    elif isinstance(kind, type) and issubclass(kind, ImportError) and "MPI_ERR_UNSUPPORTED_OPERATION" in str(value):
        # A module that tries a function while it is loaded: unittest keeps only the text of the traceback.
        methods = re.findall(r"^\s*File .*, in (\S+)$", str(value), re.M)
    else:
        return None
    for method in reversed(methods):
        for name in candidates(method):
            if name in MISSING:
                return "MPI_" + name.capitalize()
    return None


# Calls that some ranks of a test answer and others do not make: where such a test would be skipped on one rank, another
# would wait for it, so all ranks skip it before it starts. Method of mpi4py, C function.
PARTNERED = {"Open_port": "open_port", "Accept": "comm_accept", "Connect": "comm_connect", "Join": "comm_join"}
# Calls in the middle of tests that have made objects by then: cut short there, a test would leave them behind, and a later
# one counts them.
LEAVING = {"MPI.File.Open(": "file_open"}
# Modules whose every test starts processes from a thread of its own, where the error would go unseen.
MODULES = {"test_util_pool": "comm_spawn"}


def needs_missing(test):
    """The missing C function that a test as a whole cannot do without, or None."""
    module = MODULES.get(type(test).__module__)
    if module in MISSING:
        return "MPI_" + module.capitalize()
    method = getattr(test, getattr(test, "_testMethodName", ""), None)
    if method is None:
        return None
    text = inspect.getsource(method)
    names = [PARTNERED[word] for word in re.findall(r"\.(\w+)\(", text) if word in PARTNERED]
    names += [name for call, name in LEAVING.items() if call in text]
    return next(("MPI_" + name.capitalize() for name in names if name in MISSING), None)


class Score(unittest.TextTestResult):
    """Counts; turns errors of functions that are not there yet into skips that name them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = 0

    def startTest(self, test):
        function = needs_missing(test)
        if function:
            skipped = lambda: None
            skipped.__unittest_skip__ = True
            skipped.__unittest_skip_why__ = f"{function} is not there yet"
            setattr(test, test._testMethodName, skipped)
        super().startTest(test)

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)

    def addError(self, test, err):
        function = unsupported_function(err)
        if function:
            self.addSkip(test, f"{function} is not there yet")
        else:
            super().addError(test, err)

    def addSubTest(self, test, subtest, err):
        function = unsupported_function(err) if err is not None else None
        if function:
            self.addSkip(subtest, f"{function} is not there yet")
        else:
            super().addSubTest(test, subtest, err)

    def stopTestRun(self):
        super().stopTestRun()
        from mpi4py import MPI

        bad = [(str(test.id()), text) for test, text in self.failures + self.errors]
        bad += [(str(test.id()), "succeeded unexpectedly") for test in self.unexpectedSuccesses]
        score = {
            "run": self.testsRun,
            "passed": self.passed + len(self.expectedFailures),
            "failed": bad,
            "skipped": [(str(test.id()), reason) for test, reason in self.skipped],
        }
        with open(os.path.join(report, f"rank{MPI.COMM_WORLD.rank}.json"), "w", encoding="utf-8") as out:
            json.dump(score, out)


unittest.TextTestRunner.resultclass = Score
sys.path.insert(0, tests)
# Version 3 has its runner under another name.
runner = next(name for name in ("main.py", "runtests.py") if os.path.exists(os.path.join(tests, name)))
sys.argv = [os.path.join(tests, runner), *sys.argv[4:]]
with open(sys.argv[0], encoding="utf-8") as source:
    exec(compile(source.read(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
