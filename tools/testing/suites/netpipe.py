"""NetPIPE from the distribution's source package: ping-pong over sizes with perturbations, integrity checks, streams."""

import re

from ..runner import Case, Failure, check

# The largest message, and how often each size is repeated: fixed in the short form, by time in the long one.
SHORT, LONG = ["-u", str(1 << 20), "-n", "30"], ["-u", str(64 << 20)]
# Both ways at once needs receives that are posted before the sends: without them it deadlocks above any eager limit.
RUNS = {"ping-pong": [], "integrity": ["-i"], "both ways": ["-2", "-a"], "stream": ["-s"], "synchronous": ["-S"]}


def suite(context):
    context.installed()
    source, program = context.state / "sources/netpipe", context.work / "netpipe"
    check(context.execute("netpipe fetch", ["python3", "tools/debian_source.py", "netpipe", source], timeout=300))
    flags = ["-O2", "-w", "-DMPI", f"-I{source}/src", f"{source}/src/netpipe.c", f"{source}/src/mpi.c"]
    check(context.execute("netpipe build", [context.mpicc(), *flags, "-o", program], timeout=120))
    for name, options in RUNS.items():
        yield netpipe_case(context, program, name, [*(LONG if context.soak else SHORT), *options])


def netpipe_case(context, program, name, options):
    def run():
        out = context.work / f"netpipe.{name.replace(' ', '_')}.out"
        command = context.launcher(2) + [str(program), *options, "-o", str(out)]
        result = context.execute(f"netpipe {name}", command, timeout=600 if context.soak else 150)
        check(result)
        lines = re.findall(r"^\s*\d+:\s+(\d+) bytes", result.output, re.M)
        largest = max(map(int, lines), default=0)
        if 2 * largest < int(options[1]):
            raise Failure(f"stopped at {largest} bytes (log: {result.log})")
        if "-i" in options and "Integrity check passed" not in result.output:
            raise Failure(f"no word of the integrity check (log: {result.log})")

    return Case(f"netpipe/{name}", run, alone=True)
