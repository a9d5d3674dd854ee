"""mpi4py's own suite, built unmodified against our mpicc: whole on 2 ranks, a part of it on 1 and 3; in a soak whole on 1 to 5.
Its tests of mpi4py.futures, which its suite leaves out, with and without its own launcher of workers.

What is skipped is decided by tests/mpi4py/run.py from the table of functions, and counted here by function.
"""

import collections
import json
import re
import shutil
import tempfile

from ..runner import TAIL_LINES, Case, Failure, Outcome, check

# The whole suite takes about three minutes on 2 ranks with other MPIs on 2 cores.
WHOLE_LIMIT_S = 1200
PART_LIMIT_S = 400
SOAK_LIMIT_S = 5400
# Modules whose behaviour depends most on the number of ranks.
PART = ["test_cco_buf", "test_cco_vec", "test_cco_nb_buf", "test_comm$", "test_comm_inter", "test_comm_topo", "test_group",
        "test_p2p_buf", "test_p2p_obj", "test_request", "test_threads"]

# As mpi4py's own makefile runs test_futures.py: on so many ranks, with the options of Python before it.
FUTURES = [(1, []), (2, []), (1, ["-m", "mpi4py.futures"]), (2, ["-m", "mpi4py.futures"]), (3, ["-m", "mpi4py.futures"])]
FUTURES_LIMIT_S = 600


def suite(context):
    context.installed()
    check(context.execute("mpi4py build", ["tools/mpi4py.sh", str(context.prefix)], timeout=1500))
    whole = [1, 2, 3, 4, 5] if context.soak else [2]
    for ranks in whole:
        limit = SOAK_LIMIT_S if context.soak else WHOLE_LIMIT_S
        yield run_case(context, f"mpi4py/whole on {ranks}", ranks, [], limit)
    yield processes(context)
    for ranks, module in FUTURES if context.soak else FUTURES[:1]:
        yield Case(f"mpi4py/futures{' with workers' if module else ''} on {ranks}", lambda ranks=ranks, module=module: futures(context, ranks, module), alone=True)
    for ranks in [2, 3, 4, 5] if context.soak else [3]:
        yield run_case(context, f"mpi4py/ulfm on {ranks}", ranks, ["-i", "test_ulfm"], PART_LIMIT_S)
    if not context.soak:
        for ranks in [1, 3]:
            include = [word for module in PART for word in ("-i", module.replace("$", r"\.py"))]
            yield run_case(context, f"mpi4py/part on {ranks}", ranks, include, PART_LIMIT_S)


def processes(context):
    """What Python programs start beside MPI: subprocesses, multiprocessing in all its ways, forks."""
    def run():
        program = [context.state / "venv/bin/python", context.root / "tests/guest/processes.py"]
        env = context.environment({"MPI4PY_LIBMPI": str(context.prefix / "lib/libmpi_abi.so.1")})
        result = context.execute("mpi4py processes", context.launcher(2) + list(map(str, program)), timeout=120, env=env)
        check(result)
        if "ok" not in result.output:
            raise Failure(f"it did not come to its end (log: {result.log})")

    return Case("mpi4py/subprocesses and multiprocessing", run, alone=True)


def futures(context, ranks, module):
    """Without workers each process spawns them; with workers all ranks but the first are these."""
    program = [context.state / "venv/bin/python", *module, context.state / "mpi4py/demo/futures/test_futures.py", "-v"]
    env = context.environment({"MPI4PY_LIBMPI": str(context.prefix / "lib/libmpi_abi.so.1")})
    result = context.execute(f"mpi4py futures {len(module)} on {ranks}", [*context.launcher(ranks), *program], FUTURES_LIMIT_S, env=env)
    check(result)
    scores = re.findall(r"^Ran (\d+) tests? in .*\n\nOK(?: \(skipped=(\d+)\))?$", result.output, re.M)
    if not scores:
        raise Failure(f"it does not say that its tests passed (log: {result.log})")
    outcomes = [Outcome(f"mpi4py/futures{' with workers' if module else ''} on {ranks}", "passed", count=sum(int(run) - int(left or 0) for run, left in scores))]
    left = sum(int(left or 0) for _, left in scores)
    return outcomes + ([Outcome(f"mpi4py/futures on {ranks}", "skipped", "mpi4py's own: a pool of workers that it does not have with these options", count=left)] if left else [])


def run_case(context, name, ranks, arguments, limit, launcher=None):
    state = context.state
    launcher = launcher or context.launcher

    def run():
        report = context.work / name.replace("/", ".").replace(" ", "_")
        shutil.rmtree(report, ignore_errors=True)
        report.mkdir(parents=True)
        program = [state / "venv/bin/python", context.root / "tests/mpi4py/run.py", state / "mpi4py/test",
                   context.root / "crates/mpi/abi-gen/abi/functions.txt", report, "-v", *arguments]
        # Its tests leave files where what they call is not there yet, and where they are killed.
        with tempfile.TemporaryDirectory(prefix="garonne-mpi4py-", ignore_cleanup_errors=True) as place:
            env = context.environment({"MPI4PY_LIBMPI": str(context.prefix / "lib/libmpi_abi.so.1"), "TMPDIR": place})
            result = context.execute(name, launcher(ranks) + list(map(str, program)), timeout=limit, env=env)
        scores = [json.loads(path.read_text()) for path in sorted(report.glob("rank*.json"))]
        outcomes = judge(name, scores, result.log)
        if len(scores) != ranks or (result.code != 0 and not any(o.status == "failed" for o in outcomes)):
            tail = "\n".join(result.output.splitlines()[-TAIL_LINES:])
            why = "time limit reached" if result.timed_out else f"exit code {result.code}"
            outcomes.append(Outcome(f"{name}: the run", "failed", f"{why}, {len(scores)} of {ranks} ranks reported (log: {result.log})\n{tail}"))
        return outcomes

    return Case(name, run, alone=True)


def judge(name, scores, log):
    """One outcome for all that passed, one per failed test (whatever the number of ranks), skips by their reason."""
    failed = {}
    for rank, score in enumerate(scores):
        for test, text in score["failed"]:
            failed.setdefault(test, f"first on rank {rank} (log: {log})\n{text.strip().splitlines()[-1]}")
    outcomes = [Outcome(f"{name}: {test}", "failed", text) for test, text in failed.items()]
    if scores:
        reasons = collections.Counter(reason for _, reason in scores[0]["skipped"])
        outcomes += [Outcome(name, "skipped", reason, count=count) for reason, count in reasons.items()]
        outcomes.insert(0, Outcome(name, "passed", count=max(0, scores[0]["passed"] - len(failed))))
    return outcomes
