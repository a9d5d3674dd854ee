"""Transport modules in real jobs: traces around all transports of the ranks, on one host and on two, around faults, and of ranks with several shards;
what is no module ends the job before it begins."""

import os
import re
import shutil

from ..jobs_on_hosts import run as run_on_hosts
from ..marked_jobs import PATIENCE_S, expect
from ..namespaces import Hosts
from ..runner import Case, check
from .strategies import garonne

# One crate each, whole-program optimised; what they share has been built for the library.
BUILD_LIMIT_S = 900
TOTAL = re.compile(r"^total sent (\d+) packets (\d+) bytes, received (\d+) packets (\d+) bytes$", re.M)


def suite(context):
    if context.foreign:
        return
    context.installed()
    work = context.work / "transport-modules"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    made = Made(context, work)
    yield Case("transport-modules/a trace sees all packets", lambda: traced(context, made))
    yield Case("transport-modules/a trace around faults", lambda: around_faults(context, made))
    yield Case("transport-modules/each shard has its own", lambda: shards(context, made))
    yield Case("transport-modules/a world of one", lambda: alone(context, made))
    yield Case("transport-modules/what cannot be used", lambda: refused(context, made))
    yield Case("transport-modules/a trace on two hosts", lambda: on_hosts(context, made))


class Made:
    """Programs, and the modules as their users build them: with the profile of what is installed."""

    def __init__(self, context, work):
        self.context, self.work = context, work
        self.window, self.shards = work / "window", work / "shards"
        context.build_program("transport-modules window", "tests/hosts/window.c", self.window)
        context.build_program("transport-modules shards", "tests/c/shards.c", self.shards)
        packages = ["-p", "garonne-trace-transport", "-p", "garonne-fault-transport"]
        check(context.execute("transport-modules build", ["cargo", "build", "--profile", "dist", *packages], timeout=BUILD_LIMIT_S))
        built = context.root / os.environ.get("CARGO_TARGET_DIR", "target") / "dist"
        self.trace, self.faults = built / "libgaronne_trace_transport.so", built / "libgaronne_fault_transport.so"

    def counts(self, name, ranks, suffix=""):
        """What the traces of a job's ranks counted: packets sent, bytes, packets received, bytes."""
        texts = [(self.work / f"{name}.{rank}{suffix}").read_text() for rank in range(ranks)]
        return [tuple(map(int, TOTAL.search(text).groups())) for text in texts]


def traced(context, made):
    ranks, file = 2, made.work / "one.%r"
    code, output = garonne(context, "run", "-n", str(ranks), "--transport-module", f"{made.trace},file={file},last=8", made.window, "2")
    expect(code == 0 and "all is well" in output, f"exit code {code}", output)
    counts = made.counts("one", ranks)
    sent, received = sum(row[0] for row in counts), sum(row[2] for row in counts)
    # Each round has 2,400 messages from rank 0 to rank 1; none of them may pass the module by.
    expect(counts[0][0] > 2 * 2400 and counts[1][2] > 2 * 2400, f"packets passed the module by: {counts}", output)
    expect(received <= sent, f"more packets came than left: {counts}", output)
    lines = (made.work / "one.1").read_text().splitlines()
    expect(len(lines) == 9 and all(line.split()[0] in ("sent", "received", "gone") for line in lines[:8]), "the record is not as its options say", "\n".join(lines))


def around_faults(context, made):
    file = made.work / "faults.%r"
    modules = ["--transport-module", f"{made.faults},seed=7,late=300", "--transport-module", f"{made.trace},file={file}"]
    code, output = garonne(context, "run", "-n", "2", *modules, made.window, "2")
    expect(code == 0 and "all is well" in output, f"exit code {code}", output)
    expect(all(row[0] > 0 and row[2] > 0 for row in made.counts("faults", 2)), "a trace saw nothing", output)


def shards(context, made):
    file = made.work / "shards.%r"
    code, output = garonne(context, "run", "-n", "2", "--transport-module", f"{made.trace},file={file}", made.shards)
    expect(code == 0, f"exit code {code}", output)
    made.counts("shards", 2)
    expect(made.counts("shards", 2, ".1")[0][0] > 0, "the second shard's packets passed the module by", output)


def alone(context, made):
    file = made.work / "alone.%r"
    code, output = garonne(context, "run", "-n", "1", "--transport-module", f"{made.trace},file={file}", made.shards)
    expect(code == 0, f"exit code {code}", output)
    made.counts("alone", 1)


def refused(context, made):
    text, plain, other = made.work / "text.so", made.work / "libplain.so", made.work / "libother.so"
    text.write_text("no library\n")
    source = made.work / "plain.c"
    source.write_text("int nothing;\n")
    check(context.execute("transport-modules plain", [context.mpicc(), "-shared", "-fPIC", source, "-o", plain], timeout=60))
    built_by = re.search(rb"rustc \d+\.\d+\.\d+ \([0-9a-f]+ [0-9-]+\) for ", made.trace.read_bytes())
    expect(built_by is not None, "the module does not say its compiler", "")
    other.write_bytes(made.trace.read_bytes().replace(built_by.group(), built_by.group().replace(b"rustc 1.", b"rustc 0.")))
    cases = {
        "/no/such/module.so": "No such file",
        str(made.work): "it is not a file",
        str(text): "file too short",
        str(plain): "is no transport module: it does not export garonne_transport_module",
        str(other): "the module has the compiler rustc 0.",
    }
    for module, words in cases.items():
        code, output = garonne(context, "run", "-n", "2", "--transport-module", module, "sh", "-c", "echo started")
        lines = output.splitlines()
        expect(code == 1 and len(lines) == 1 and "error[G0233]" in output and module in output and words in output, f"exit code {code}, wanted '{words}'", output)
        # The launcher knows nothing of it.
        code, output = garonne(context, "run", "-n", "2", "env", f"GARONNE_TRANSPORT_MODULES={module}", made.window, "1")
        expect(code != 0 and "error[G0233]" in output and module in output and "all is well" not in output, f"exit code {code}", output)
    # Only the module knows its options.
    code, output = garonne(context, "run", "-n", "2", "--transport-module", f"{made.trace},colour=red", made.window, "1")
    expect(code != 0 and "error[G0233]" in output and "'colour=red' is none of" in output and str(made.trace) in output, f"exit code {code}", output)
    code, output = garonne(context, "run", "-n", "2", "--transport-module", ",x=1", "sh", "-c", "echo started")
    expect(code == 2 and "FILE or FILE,OPTIONS" in output and "started" not in output, f"exit code {code}", output)


def on_hosts(context, made):
    file = made.work / "hosts.%r"
    with Hosts(2) as hosts:
        where = ["-n", 2, "--map-by", "node", "--host", f"localhost,{hosts.names[1]}"]
        module = ["--transport-module", f"{made.trace},file={file},last=20000"]
        code, output = run_on_hosts(context, hosts, [*where, *module, made.window, "1"], limit=3 * PATIENCE_S)
        expect(code == 0 and "all is well" in output, f"exit code {code}", output)
    counts = made.counts("hosts", 2)
    # Ranks 0 and 1 are on different hosts.
    expect(counts[0][0] > 2400 and counts[1][2] > 2400, f"packets passed the module by: {counts}", output)
    expect(" to 1\n" in (made.work / "hosts.0").read_text(), "no packet to the other host is in the record", output)
