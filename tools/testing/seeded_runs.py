"""Tests of crates that go on with new seeds for as long as they are told (`garonne_sim::seeds`)."""

import re

from .runner import Failure, check

SEED = re.compile(r"^GARONNE_SEED=\d+ does it again: (.+)$", re.M)
RAN = re.compile(r"^(\d+) seeds from \d+: ", re.M)


def seeded_run(context, suite, test, seconds, limit):
    """Runs one of them, which is `test` for `cargo test`: its last word is the test's name. Fails with the command that repeats the seed that failed."""
    result = context.execute(f"{suite} {test[-1]}", ["cargo", "test", "--release", *test, "--", "--exact", "--nocapture"], timeout=limit, env=context.environment({"GARONNE_TEST_SIM_SECONDS": str(seconds)}))
    again = SEED.search(result.output)
    if again:
        raise Failure(f"{again.group(1)} (log: {result.log})")
    check(result)
    ran = RAN.search(result.output)
    if not ran or ran.group(1) == "0":
        raise Failure(f"no seed ran (log: {result.log})")
