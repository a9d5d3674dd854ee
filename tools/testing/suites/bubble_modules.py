"""A bubble scheduler that is a module (examples/bubbles/round_robin): simulated beside the stock ones; what is no module is refused."""

import json
import os

from ..marked_jobs import expect
from ..runner import Case, check
from .strategies import garonne

# One crate, whole-program optimised; what it shares has been built for the command.
BUILD_LIMIT_S = 900


def suite(context):
    if context.foreign:
        return
    context.installed()
    yield Case("bubble-modules/a module decides in the simulation", lambda: simulated(context))
    yield Case("bubble-modules/what is no module is refused by its reason", lambda: refused(context))


def simulated(context):
    check(context.execute("bubble-modules build", ["cargo", "build", "--profile", "dist", "-p", "round-robin"], timeout=BUILD_LIMIT_S))
    module = context.root / os.environ.get("CARGO_TARGET_DIR", "target") / "dist" / "libround_robin.so"
    code, output = garonne(context, "bubbles", "simulate", "--scheduler", f"{module},flat", "--json")
    expect(code == 0, f"exit code {code}", output)
    told = json.loads(output)
    expect([row["scheduler"] for row in told] == ["round robin", "flat"] * 4, "schedulers", output)
    for ours, flat in zip(told[::2], told[1::2]):
        expect(ours["refused"] == ours["rescued"] == 0 and ours["work_ns"] == flat["work_ns"], "a move was refused, or work was lost", output)
        # Threads stay on the node of their bubble, which is under one cache; those of no inner bubble may go anywhere.
        expect(ours["moves"] > 0 and ours["cache_migrations"] < flat["cache_migrations"], "the module did not decide", output)


def refused(context):
    for word, why in (("sometimes", "spread, steal, gang"), ("/no/such/module.so", "No such file"), ("/dev/null", "cannot be loaded")):
        code, output = garonne(context, "bubbles", "simulate", "--scheduler", word)
        expect(code == 1 and why in output, f"{word}: exit code {code}", output)
