"""`--need`: what groups of ranks need, resolved on this machine: shown, bound to, refused with what is missing."""

import json
import os
import subprocess

from ..marked_jobs import expect
from ..runner import Case, Skip

LIMIT_S = 120


def suite(context):
    if context.foreign:
        return
    context.installed()
    yield Case("needs/ranks are bound to what is shown", lambda: bound(context))
    yield Case("needs/what cannot be met is refused", lambda: refused(context))


def garonne(context, *words):
    command = [context.prefix / "bin" / "garonne", *map(str, words)]
    return subprocess.run(command, env=context.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)


def numbers(text):
    """CPUs of a list such as 0-2,5."""
    parts = [part.split("-") for part in text.split(",")]
    return {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)}


def bound(context):
    need = "1 group sharing host"
    shown = garonne(context, "why", "binding", "-n", "2", "--need", need, "--json")
    if shown.returncode == 1 and "free cores" in shown.stderr:
        raise Skip("this machine has no two cores that no other job has")
    expect(shown.returncode == 0, "garonne why binding", shown.stdout + shown.stderr)
    rows = json.loads(shown.stdout)
    sets = [numbers(row["cpus"]) for row in rows]
    expect(len(rows) == 2 and not sets[0] & sets[1] and sets[0] | sets[1] <= os.sched_getaffinity(0), "places", shown.stdout)
    show = "grep Cpus_allowed_list /proc/self/status"
    done = garonne(context, "run", "-n", "2", "--need", need, "--tag-output", "sh", "-c", show)
    if done.returncode == 2 and "free cores" in done.stderr:
        raise Skip("another job took cores meanwhile")
    expect(done.returncode == 0, "garonne run --need", done.stdout + done.stderr)
    got = [numbers(line.split()[-1]) for line in done.stdout.splitlines() if "Cpus_allowed_list" in line]
    expect(len(got) == 2 and not got[0] & got[1] and all(len(cpus) == len(own) for cpus, own in zip(got, sets)), "bindings of ranks", done.stdout)
    text = garonne(context, "why", "binding", "-n", "2", "--need", need)
    expect(text.returncode == 0 and "the smallest part of this host" in text.stdout, "the reason", text.stdout + text.stderr)


def refused(context):
    for need, ranks, word in (
        ("9999 groups sharing cache", 9999, "free cores that have a cache in common"),
        ("4 groups sharing cache", 3, "3 ranks are not 4 groups"),
        ("sharing warmth", 2, "'warmth'"),
        ("2 groups near coast", 2, "'coast'"),
        ("", 2, "empty"),
    ):
        done = garonne(context, "run", "-n", ranks, "--need", need, "true")
        expect(done.returncode == 2 and word in done.stderr, f"garonne run --need '{need}': exit code {done.returncode}", done.stdout + done.stderr)
        done = garonne(context, "why", "binding", "-n", ranks, "--need", need)
        expect(done.returncode == 1 and word in done.stderr, f"garonne why binding --need '{need}': exit code {done.returncode}", done.stdout + done.stderr)
    done = garonne(context, "run", "-n", 2, "--need", "1 group", "--rankfile", "/dev/null", "true")
    expect(done.returncode == 2, "a need beside a rank file", done.stdout + done.stderr)
