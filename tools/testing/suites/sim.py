"""Simulated jobs under all faults at once, as many seeds as a time allows: only in `./x soak`. `./x test rust` runs a few seeds of each.

No two runs take the same seeds. One that fails is named with the command that repeats it; then it belongs among the seeds of an ordinary test.
"""

import os

from ..seeded_runs import seeded_run
from ..runner import Case, check

SECONDS = int(os.environ.get("GARONNE_TEST_SIM_SECONDS", "300"))
BUILD_LIMIT_S = 2400
# A seed that was begun in time is finished.
LAST_SEED_S = 300
TARGETS = {"garonne-sim": "fault_storms", "garonne-simjobs": "mpi_fault_storms"}
COURSES = {
    "garonne-sim": [
        "small_jobs_exchange_in_all_weathers",
        "hundreds_of_ranks_exchange_in_all_weathers",
        "of_hundreds_of_ranks_in_all_weathers_some_die_and_the_others_end_with_their_messages_or_an_error",
        "what_a_rift_leaves_together_goes_on_and_what_it_parts_ends_with_an_error",
    ],
    "garonne-simjobs": [
        "small_jobs_come_out_right_in_all_weathers",
        "jobs_of_hundreds_of_ranks_come_out_right_in_all_weathers",
        "of_hundreds_of_ranks_some_die_the_others_learn_of_it_and_meet_without_them",
        "each_side_of_a_rift_learns_that_the_other_is_gone_and_meets_without_it",
    ],
}


def suite(context):
    if not context.soak or context.foreign:
        return
    build = ["cargo", "test", "--release", "--no-run", *(word for package, target in TARGETS.items() for word in ("-p", package, "--test", target))]
    check(context.execute("sim build", build, timeout=BUILD_LIMIT_S, env=context.environment({})))
    for package, names in COURSES.items():
        for name in names:
            yield Case(f"sim/{name.replace('_', ' ')}", lambda package=package, name=name: seeded_run(context, "sim", ["-p", package, "--test", TARGETS[package], name], SECONDS, SECONDS + LAST_SEED_S))
