"""The workspace's own tests: unit, integration, property, simulation and documentation tests of every crate."""

import re

from ..runner import Case, Failure, Outcome, check

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
SEED = re.compile(r"^GARONNE_SEED=(\d+) does it again", re.M)
FAILED = re.compile(r"^test (\S.*) \.\.\. FAILED", re.M)
PASSED = re.compile(r"^test (\S.*) \.\.\. ok", re.M)
# A target that a signal ended has no result line of its own; what it wrote last says why.
ABORTED = re.compile(r"^error: test failed, to rerun pass `(.+)`\n\nCaused by:\n\s+process didn't exit successfully: .*\((signal.*)\)$", re.M)
FATAL = re.compile(r"^fatal runtime error: .*$", re.M)
# The targets with failures, at the end of what cargo prints.
FAILED_TARGET = re.compile(r"^    `(-p \S+ --(?:test \S+|lib))`$", re.M)
# Failures up to which they are run again: more of them have one reason, and it is no chance.
SECOND_TRIES = 4
# A fresh build of every dependency on two cores takes most of it, and some machines are three times slower than others.
LIMIT_S = 2400


def suite(context):
    yield Case("rust/workspace", lambda: cargo_test(context, ["--workspace"]), alone=True, second_try=False)
    yield Case("rust/random schedules", lambda: random_schedules(context), alone=True)
    if context.soak:
        yield Case("rust/all orders", lambda: all_orders(context), alone=True)
        yield Case("rust/ignored", lambda: cargo_test(context, ["--workspace", "--", "--ignored"]), alone=True)
        yield Case("rust/many cases", lambda: cargo_test(context, ["--workspace", "--lib"], {"PROPTEST_CASES": "2000"}), alone=True)
        yield Case("rust/many rounds", lambda: cargo_test(context, ["-p", "garonne-mpi", "--lib", "coll::tests::shm_nonblocking"], {"GARONNE_SEEDS": "30"}, "rust many rounds"), alone=True)
        yield Case("rust/many kills", lambda: cargo_test(context, ["-p", "garonne-cli", "--test", "kills"], {"GARONNE_TEST_KILLS": "3000"}), alone=True)


def all_orders(context):
    """What is shared without locks under loom, which tries every order of its steps."""
    env = {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": str(context.work / "loom")}
    return cargo_test(context, ["-p", "garonne-sync", "-p", "garonne-fiber", "-p", "garonne-openmp", "--release", "--lib"], env, "rust all orders")


def random_schedules(context):
    """Tasks, workers, the thread for events, and waiters under shuttle: a failure names its seed, and GARONNE_SEED runs that one again."""
    env = {"RUSTFLAGS": "--cfg shuttle", "CARGO_TARGET_DIR": str(context.work / "shuttle")}
    if context.soak:
        env["GARONNE_SEEDS"] = "20000"
    result = context.execute("rust random schedules", ["cargo", "test", "-p", "garonne-progress", "--lib", "shuttle"], timeout=LIMIT_S, env=context.environment(env))
    seeds = SEED.findall(result.output)
    if seeds:
        raise Failure(f"seeds {', '.join(seeds)} (log: {result.log})")
    check(result)


def cargo_test(context, extra, env=None, name=None):
    name = name or "rust " + extra[-1].strip("-")
    result = context.execute(name, ["cargo", "test", "--no-fail-fast", *extra], timeout=LIMIT_S, env=context.environment(env))
    counts = [tuple(map(int, match)) for match in RESULT.findall(result.output)]
    passed, failed, ignored = (sum(column) for column in zip(*counts)) if counts else (0, 0, 0)
    aborted = ABORTED.findall(result.output)
    if failed == 0 and not aborted:
        check(result)
    if not counts:
        raise Failure(f"cargo test reported no results (log: {result.log})")
    outcomes = [Outcome(name, "passed", count=passed)]
    outcomes += again(context, result, FAILED.findall(result.output))
    why = "; ".join(dict.fromkeys(FATAL.findall(result.output)))
    outcomes += [Outcome(f"rust: {target}", "failed", f"{signal} {why} (log: {result.log})") for target, signal in aborted]
    if failed and len(outcomes) == 1:
        outcomes.append(Outcome(name, "failed", f"{failed} failed (log: {result.log})", count=failed))
    if ignored and not context.soak:
        outcomes.append(Outcome("rust: long tests", "skipped", "marked #[ignore]; ./x soak runs them", count=ignored))
    return outcomes


def again(context, result, failed):
    """Tests that failed. They have a second try, alone, and are told as unsteady if they pass then (see Case.second_try)."""
    log = f"log: {result.log}"
    passed, failed_again = set(), set()
    if not context.soak and len(failed) <= SECOND_TRIES:
        for target in FAILED_TARGET.findall(result.output):
            command = ["cargo", "test", *target.split(), "--", "--exact", "--test-threads=1", *failed]
            second = context.execute(f"rust second try {target}", command, timeout=LIMIT_S)
            passed.update(PASSED.findall(second.output))
            failed_again.update(FAILED.findall(second.output))
    unsteady = passed - failed_again
    return [Outcome(f"rust: {test}", "passed", f"failed at first: {log}") if test in unsteady else Outcome(f"rust: {test}", "failed", log)
            for test in dict.fromkeys(failed)]
