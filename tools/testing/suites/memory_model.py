"""`garonne tune --memory`: what is measured and predicted is whole and finite, drawn and kept; kept files that are damaged are told. No times are compared: other programs run here."""

import json
import math
import os
import shutil
import subprocess
import xml.etree.ElementTree

from ..marked_jobs import expect
from ..runner import Case, Skip

LIMIT_S = 300
STATES = {"own-modified", "own-exclusive", "shared", "other-modified", "other-exclusive", "invalid"}
KERNELS = {"copy", "triad", "daxpy", "stencil"}


def suite(context):
    if context.foreign:
        return
    context.installed()
    yield Case("memory-model/measured, predicted, drawn and kept", lambda: measured(context), alone=True)
    yield Case("memory-model/kept files that are damaged are told", lambda: damaged(context))


class Command:
    """`garonne` with a cache directory of its own."""

    def __init__(self, context, name):
        self.context = context
        self.directory = context.work / f"memory-model-{name}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.kept = self.directory / "garonne" / "memory-model.json"
        self.kept.parent.mkdir(parents=True)

    def run(self, *words):
        garonne = self.context.prefix / "bin" / "garonne"
        environment = self.context.environment() | {"XDG_CACHE_HOME": str(self.directory)}
        return subprocess.run([garonne, *map(str, words)], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def measured(context):
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("measuring needs two CPUs")
    command = Command(context, "measured")
    drawing = command.directory / "model.svg"
    done = command.run("tune", "--memory", "--for", "1s", "--block-max", "1", "--json", "--svg", drawing)
    expect(done.returncode == 0, "garonne tune --memory", done.stdout[-2000:] + done.stderr)
    model = json.loads(done.stdout)
    for distance in model["distances"]:
        of = lambda operation: {known["state"] for known in distance["accesses"] if known["operation"] == operation}
        expect(of("load") == of("store") == of("copy") == STATES and of("update") == {"own-modified"}, "operations and states", str(distance)[:500])
        for known in distance["accesses"]:
            sizes = [point["bytes"] for point in known["curve"]]
            expect(sizes == [1 << log for log in range(10, 21)] and all(point["ns"] > 0 for point in known["curve"]), "a curve", str(known))
    predicted = model["kernels"] + model["eager"] + model["large"]
    expect({one["kernel"] for one in model["kernels"]} == KERNELS and model["eager"] and model["large"], "what is predicted", str(predicted)[:500])
    expect(all(math.isfinite(one[name]) and one[name] > 0 for one in predicted for name in ("measured_ns", "predicted_ns")), "predictions", str(predicted))
    drawn = xml.etree.ElementTree.parse(drawing).getroot()
    count = lambda name: sum(part.get("class") == name for part in drawn.iter())
    curves = sum(len(distance["accesses"]) for distance in model["distances"])
    expect(count("curve") == curves and count("prediction") == len(predicted), "the drawing", f"{count('curve')} curves, {count('prediction')} predictions")
    expect(json.loads(command.kept.read_text()) == model, "the kept file", command.kept.read_text()[:500])
    shown = command.run("why", "costs")
    expect(shown.returncode == 0 and "predictions: wrong by" in shown.stdout, "garonne why costs", shown.stdout + shown.stderr)
    command.kept.unlink()
    done = command.run("tune", "--memory", "--for", "1s", "--block-max", "1", "--dry-run")
    expect(done.returncode == 0 and "modified, other core" in done.stdout and not command.kept.exists(), "--dry-run", done.stdout[-2000:] + done.stderr)


def damaged(context):
    command = Command(context, "damaged")
    whole = '{"format":1,"machine":"a","distances":[],"kernels":[],"eager":[],"large":[]}'
    for text, word in (
        ("", "cannot be used"),
        (whole[:40], "cannot be used"),
        (whole.replace('"format":1', '"format":7'), "format is 7"),
        (whole.replace('"kernels":[]', '"kernels":[{"kernel":"copy","source":"shared","bytes":1,"measured_ns":-1,"predicted_ns":2}]'), "no curve"),
        ("x" * (2 << 20), "cannot"),
        # Of another machine: as if there were none.
        (whole, "no model of memory is kept"),
    ):
        command.kept.write_text(text)
        done = command.run("why", "costs")
        expect(done.returncode == 0 and word in done.stdout, f"{text[:80]}: exit code {done.returncode}", done.stdout + done.stderr)
